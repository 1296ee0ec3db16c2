//! The only traversal: it knows the structure of a stack and nothing else.
//!
//! Forward it runs chains in order and forks at sums, products and attention. Backward it runs the same nodes in
//! exactly the reverse order, so that an interpreter can pair its observations. A node that the interpreter chose not
//! to keep is run forward again just before its backward pass.
//!
//! A part may read another signal than the common input ([`Input`]). The gradients of such reads wait until the
//! backward pass arrives at the node whose output they read.

use std::ptr;

use foldhash::{HashMap, HashMapExt};

use crate::{
    Attention, Component, Concat, GradientSeed, Mixture, Multiplied, Node, Op, Product, Read, Recurrence, Site, Stack,
    Stream, Sum,
};

/// An operation with several chains on a common input.
#[derive(Clone, Copy, Debug)]
pub enum Fan<'s> {
    /// Weighted sum.
    Sum(&'s Sum),
    /// Elementwise product.
    Product(&'s Product),
    /// Concatenation of the outputs of chains.
    Concat(&'s Concat),
    /// Attention; its parts are query, key, value.
    Attention(&'s Attention),
    /// Mixture of experts; its parts are as many copies of the expert as the interpreter wants.
    Mixture(&'s Mixture),
    /// Recurrence; its parts are query, key, value and, where they exist, step and strength.
    Recurrence(&'s Recurrence),
}

/// The signal that a part of a fan reads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Input<'s> {
    /// The common input of the parts.
    Common,
    /// The output of an earlier stream, by its index.
    Stream(usize),
    /// The output of an earlier site of the same stream, by its path.
    Site(&'s str),
}

impl<'s> Fan<'s> {
    /// Returns the signal that part number `part` reads.
    pub fn input(self, part: usize) -> Input<'s> {
        Part::of(self, part).input
    }
}

/// A chain of a fan.
struct Part<'s> {
    /// The nodes after the read, if there is one.
    body: &'s [Node],
    input: Input<'s>,
    /// Index of the expert, in a mixture.
    expert: Option<usize>,
    /// True for an expert whose input is multiplied by its weight.
    is_weighed: bool,
}

/// An interpreter of a stack: the predictor carries moments, the engine carries arrays.
///
/// Every function gets the [`Site`] of its node. Functions of the forward pass may hold references into the stack.
pub trait Interpreter<'s> {
    /// The signal, which moves forward.
    type Signal: Clone;
    /// The gradient, which moves backward.
    type Gradient;
    /// The data that the backward pass of a node needs from its forward pass.
    type Kept;
    /// The reason why a pass may end early.
    type Error;

    /// Returns the input of a stream.
    fn source(&mut self, at: &Site, stream: &'s Stream) -> Result<Self::Signal, Self::Error>;
    /// Receives the gradient that reaches the input of a stream.
    fn source_backward(&mut self, at: &Site, stream: &Stream, gradient: Self::Gradient) -> Result<(), Self::Error>;
    /// Returns the gradient at the end of the stream whose output is `output`.
    fn seed(&mut self, at: &Site, seed: &GradientSeed, output: &Self::Signal) -> Result<Self::Gradient, Self::Error>;

    /// Applies a component; returns its output and the data for its backward pass.
    fn apply(
        &mut self,
        at: &Site,
        component: &'s Component,
        input: Self::Signal,
    ) -> Result<(Self::Signal, Self::Kept), Self::Error>;
    /// Returns the gradient at the input of a component from the `gradient` at its output.
    fn apply_backward(
        &mut self,
        at: &Site,
        component: &Component,
        kept: Self::Kept,
        gradient: Self::Gradient,
    ) -> Result<Self::Gradient, Self::Error>;

    /// Returns the input of a part of a fan from `input`: the common input, or the signal that the part reads in
    /// its place. If the weights of a mixture multiply inputs, it multiplies `input` by the weight of the part.
    /// Called for all parts before any of them runs.
    fn fork(&mut self, at: &Site, fan: Fan, input: &Self::Signal, part: usize) -> Self::Signal;
    /// Returns the output of a fan from the outputs of its parts, and the data for its backward pass.
    fn merge(
        &mut self,
        at: &Site,
        fan: Fan<'s>,
        input: Self::Signal,
        parts: Vec<Self::Signal>,
    ) -> Result<(Self::Signal, Self::Kept), Self::Error>;
    /// Returns the gradients at the outputs of the parts from the gradient at the output of a fan.
    fn split(
        &mut self,
        at: &Site,
        fan: Fan,
        kept: &mut Self::Kept,
        gradient: Self::Gradient,
    ) -> Result<Vec<Self::Gradient>, Self::Error>;
    /// Returns the gradient at the common input from the gradients at the inputs of the parts that read it.
    fn join(
        &mut self,
        at: &Site,
        fan: Fan,
        kept: Self::Kept,
        parts: Vec<Self::Gradient>,
    ) -> Result<Self::Gradient, Self::Error>;

    /// Returns the gradient at a signal that several parts read: `sum`, if a gradient has arrived there before, plus
    /// `more`.
    fn arrive(&mut self, sum: Option<Self::Gradient>, more: Self::Gradient) -> Result<Self::Gradient, Self::Error>;

    /// Returns how many copies of an expert are run, at most `n_experts`. Every copy gets all tokens.
    fn experts(&self, mixture: &Mixture) -> usize {
        mixture.n_experts
    }

    /// Called with the output of every node, in order; for experts, only of the first.
    fn observe(&mut self, at: &Site, signal: &Self::Signal);
    /// Called with the gradient at the output of every node, in the reverse order; for experts, only of the first.
    fn observe_gradient(&mut self, at: &Site, gradient: &Self::Gradient);

    /// Returns true if the data of this node are to be kept for its backward pass. Otherwise the node is run again,
    /// with all nodes inside it.
    fn keeps(&self, _at: &Site) -> bool {
        true
    }
}

/// Runs `body`, which reads no other sites, forward on `input` without observing anything; attention and parts read
/// `memories`, the outputs of the earlier streams. It serves to build a stack that depends on the signal in its first
/// nodes.
pub fn advance<'s, I: Interpreter<'s>>(
    body: &'s [Node],
    input: I::Signal,
    memories: &[I::Signal],
    interpreter: &mut I,
) -> Result<I::Signal, I::Error> {
    let mut site = Site::start(None);
    site.recomputing = true;
    Traversal::new(site, interpreter, memories).body(body, input)
}

/// Runs all streams forward, then the gradient backward from the end of the stream it starts at through
/// all streams it reaches.
pub fn run<'s, I: Interpreter<'s>>(stack: &'s Stack, interpreter: &mut I) -> Result<(), I::Error> {
    let (outputs, records) = run_forward(stack, interpreter)?;
    let mut gradients: Vec<Option<I::Gradient>> = stack.streams.iter().map(|_| None).collect();
    for ((index, stream), record) in stack.streams.iter().enumerate().zip(records).rev() {
        let mut traversal = Traversal { record, ..Traversal::new(Site::of(stack, stream), interpreter, &outputs) };
        let mut gradient = gradients[index].take();
        if index == stack.gradient.stream {
            let seed = traversal.interpreter.seed(&traversal.site, &stack.gradient, &outputs[index])?;
            gradient = Some(traversal.interpreter.arrive(gradient, seed)?);
        }
        let Some(gradient) = gradient else { continue };
        traversal.memory_gradients = gradients;
        traversal.stream_backward(stream, gradient)?;
        gradients = traversal.memory_gradients;
    }
    Ok(())
}

/// Runs all streams forward only; returns their outputs.
pub fn forward<'s, I: Interpreter<'s>>(stack: &'s Stack, interpreter: &mut I) -> Result<Vec<I::Signal>, I::Error> {
    run_forward(stack, interpreter).map(|(outputs, _)| outputs)
}

/// The outputs of all streams and their records for the backward pass.
type Forward<'s, I> = (Vec<<I as Interpreter<'s>>::Signal>, Vec<Record<'s, I>>);

fn run_forward<'s, I: Interpreter<'s>>(stack: &'s Stack, interpreter: &mut I) -> Result<Forward<'s, I>, I::Error> {
    let mut outputs = Vec::with_capacity(stack.streams.len());
    let mut records = Vec::with_capacity(stack.streams.len());
    for stream in &stack.streams {
        let mut traversal = Traversal::new(Site::of(stack, stream), interpreter, &outputs);
        let output = traversal.stream(stream)?;
        records.push(traversal.record);
        outputs.push(output);
    }
    Ok((outputs, records))
}

/// The record of the forward pass of a stream for its backward pass.
struct Record<'s, I: Interpreter<'s>> {
    /// The records of nodes in forward order; the backward pass takes them from the end.
    tape: Vec<Left<'s, I>>,
    /// The sites that parts read, by their paths.
    sites: HashMap<&'s str, ReadSite<'s, I>>,
}

/// A site that parts read.
struct ReadSite<'s, I: Interpreter<'s>> {
    /// Its output; `None` before its forward pass.
    output: Option<I::Signal>,
    /// The sum of the gradients of the parts so far; `None` if none has arrived.
    gradient: Option<I::Gradient>,
}

/// The record that a node leaves for its backward pass.
enum Left<'s, I: Interpreter<'s>> {
    Kept(I::Kept),
    /// Only the input of this node, whose results were not kept.
    Input(&'s Node, I::Signal),
}

struct Traversal<'s, 'i, I: Interpreter<'s>> {
    site: Site<'s>,
    interpreter: &'i mut I,
    /// The outputs of the earlier streams.
    memories: &'i [I::Signal],
    /// The gradients at the ends of streams so far; `None` where none has arrived.
    memory_gradients: Vec<Option<I::Gradient>>,
    record: Record<'s, I>,
}

impl<'s, 'i, I: Interpreter<'s>> Traversal<'s, 'i, I> {
    fn new(site: Site<'s>, interpreter: &'i mut I, memories: &'i [I::Signal]) -> Self {
        let record = Record { tape: Vec::new(), sites: HashMap::new() };
        Self { site, interpreter, memories, memory_gradients: Vec::new(), record }
    }

    fn stream(&mut self, stream: &'s Stream) -> Result<I::Signal, I::Error> {
        for path in stream.body.iter().flat_map(|node| node.op.reads()).filter_map(Read::site) {
            self.record.sites.insert(path, ReadSite { output: None, gradient: None });
        }
        let mut signal = self.interpreter.source(&self.site, stream)?;
        for (position, node) in stream.body.iter().enumerate() {
            self.site.layer = position as i64 - 1;
            signal = self.node(node, signal)?;
        }
        Ok(signal)
    }

    fn stream_backward(&mut self, stream: &'s Stream, mut gradient: I::Gradient) -> Result<(), I::Error> {
        for (position, node) in stream.body.iter().enumerate().rev() {
            self.site.layer = position as i64 - 1;
            gradient = self.node_backward(node, gradient)?;
        }
        self.site.layer = -1;
        self.interpreter.source_backward(&self.site, stream, gradient)
    }

    fn body(&mut self, body: &'s [Node], signal: I::Signal) -> Result<I::Signal, I::Error> {
        body.iter().try_fold(signal, |signal, node| self.node(node, signal))
    }

    fn body_backward(&mut self, body: &'s [Node], gradient: I::Gradient) -> Result<I::Gradient, I::Error> {
        body.iter().rev().try_fold(gradient, |gradient, node| self.node_backward(node, gradient))
    }

    fn node(&mut self, node: &'s Node, input: I::Signal) -> Result<I::Signal, I::Error> {
        self.site.push(&node.name, node.shared_with.as_deref());
        let is_kept = self.site.recomputing || self.interpreter.keeps(&self.site);
        let again = (!is_kept).then(|| input.clone());
        let before = self.record.tape.len();
        let output = self.op(&node.op, input)?;
        if let Some(read) = self.record.sites.get_mut(self.site.path())
            && !self.site.recomputing
        {
            read.output = Some(output.clone());
        }
        if !self.site.recomputing && self.site.is_observed() {
            self.interpreter.observe(&self.site, &output);
        }
        if let Some(input) = again {
            self.record.tape.truncate(before);
            self.record.tape.push(Left::Input(node, input));
        }
        self.site.pop();
        Ok(output)
    }

    fn op(&mut self, op: &'s Op, input: I::Signal) -> Result<I::Signal, I::Error> {
        match op {
            Op::Apply(component) => {
                let (output, kept) = self.interpreter.apply(&self.site, component, input)?;
                self.record.tape.push(Left::Kept(kept));
                Ok(output)
            }
            Op::Chain(body) => self.body(body, input),
            Op::Read(_) => unreachable!("a checked stack reads at the starts of parts"),
            Op::Sum(sum) => self.fan(Fan::Sum(sum), input),
            Op::Product(product) => self.fan(Fan::Product(product), input),
            Op::Concat(concat) => self.fan(Fan::Concat(concat), input),
            Op::Attention(attention) => self.fan(Fan::Attention(attention), input),
            Op::Mixture(mixture) => self.fan(Fan::Mixture(mixture), input),
            Op::Recurrence(recurrence) => self.fan(Fan::Recurrence(recurrence), input),
        }
    }

    fn node_backward(&mut self, node: &'s Node, mut gradient: I::Gradient) -> Result<I::Gradient, I::Error> {
        self.site.push(&node.name, node.shared_with.as_deref());
        if let Some(read) = self.record.sites.get_mut(self.site.path())
            && let Some(of_parts) = read.gradient.take()
        {
            gradient = self.interpreter.arrive(Some(gradient), of_parts)?;
        }
        if self.site.is_observed() {
            self.interpreter.observe_gradient(&self.site, &gradient);
        }
        let is_its_own = |left: &mut Left<'s, I>| matches!(left, Left::Input(of, _) if ptr::eq(*of, node));
        if let Some(Left::Input(_, input)) = self.record.tape.pop_if(is_its_own) {
            self.site.recomputing = true;
            self.op(&node.op, input)?;
            self.site.recomputing = false;
        }
        let gradient = self.op_backward(&node.op, gradient)?;
        self.site.pop();
        Ok(gradient)
    }

    fn op_backward(&mut self, op: &'s Op, gradient: I::Gradient) -> Result<I::Gradient, I::Error> {
        match op {
            Op::Apply(component) => {
                let kept = self.kept();
                self.interpreter.apply_backward(&self.site, component, kept, gradient)
            }
            Op::Chain(body) => self.body_backward(body, gradient),
            Op::Read(_) => unreachable!("a checked stack reads at the starts of parts"),
            Op::Sum(sum) => self.fan_backward(Fan::Sum(sum), gradient),
            Op::Product(product) => self.fan_backward(Fan::Product(product), gradient),
            Op::Concat(concat) => self.fan_backward(Fan::Concat(concat), gradient),
            Op::Attention(attention) => self.fan_backward(Fan::Attention(attention), gradient),
            Op::Mixture(mixture) => self.fan_backward(Fan::Mixture(mixture), gradient),
            Op::Recurrence(recurrence) => self.fan_backward(Fan::Recurrence(recurrence), gradient),
        }
    }

    fn kept(&mut self) -> I::Kept {
        match self.record.tape.pop() {
            Some(Left::Kept(kept)) => kept,
            Some(Left::Input(..)) | None => unreachable!("the same node's forward pass left it"),
        }
    }

    fn fan(&mut self, fan: Fan<'s>, input: I::Signal) -> Result<I::Signal, I::Error> {
        let outputs = self.parts(fan, &input)?;
        let (output, kept) = self.interpreter.merge(&self.site, fan, input, outputs)?;
        self.record.tape.push(Left::Kept(kept));
        Ok(output)
    }

    /// Returns the outputs of the parts of a fan.
    fn parts(&mut self, fan: Fan<'s>, input: &I::Signal) -> Result<Vec<I::Signal>, I::Error> {
        let count = self.count(fan);
        let inputs: Vec<I::Signal> = (0..count)
            .map(|index| {
                let source = match fan.input(index) {
                    Input::Common => input,
                    Input::Stream(stream) => &self.memories[stream],
                    Input::Site(path) => self.record.sites[path].output.as_ref().expect("a checked site is earlier"),
                };
                self.interpreter.fork(&self.site, fan, source, index)
            })
            .collect();
        let mut outputs = Vec::with_capacity(count);
        for (index, signal) in inputs.into_iter().enumerate() {
            let part = Part::of(fan, index);
            let outer = self.enter(&part);
            outputs.push(self.body(part.body, signal)?);
            self.leave(outer);
        }
        Ok(outputs)
    }

    fn fan_backward(&mut self, fan: Fan<'s>, gradient: I::Gradient) -> Result<I::Gradient, I::Error> {
        let mut kept = self.kept();
        let gradients = self.interpreter.split(&self.site, fan, &mut kept, gradient)?;
        let mut inputs = Vec::with_capacity(gradients.len());
        for (index, gradient) in gradients.into_iter().enumerate().rev() {
            let part = Part::of(fan, index);
            let outer = self.enter(&part);
            let gradient = self.body_backward(part.body, gradient)?;
            self.leave(outer);
            let place = match part.input {
                Input::Common => {
                    inputs.push(gradient);
                    continue;
                }
                Input::Stream(stream) => &mut self.memory_gradients[stream],
                Input::Site(path) => &mut self.record.sites.get_mut(path).expect("the forward pass read it").gradient,
            };
            *place = Some(self.interpreter.arrive(place.take(), gradient)?);
        }
        inputs.reverse();
        self.interpreter.join(&self.site, fan, kept, inputs)
    }

    /// Moves the site into a part; returns the expert it was in before, and true if that expert was weighed.
    fn enter(&mut self, part: &Part) -> (Option<usize>, bool) {
        let outer = (self.site.expert, self.site.is_weighed);
        self.site.expert = part.expert.or(outer.0);
        self.site.is_weighed |= part.is_weighed;
        outer
    }

    fn leave(&mut self, (expert, is_weighed): (Option<usize>, bool)) {
        self.site.expert = expert;
        self.site.is_weighed = is_weighed;
    }

    /// Returns the number of parts of a fan.
    fn count(&self, fan: Fan) -> usize {
        match fan {
            Fan::Sum(sum) => sum.branches.len(),
            Fan::Product(product) => product.factors.len(),
            Fan::Concat(concat) => concat.parts.len(),
            Fan::Attention(_) => 3,
            Fan::Mixture(mixture) => self.interpreter.experts(mixture),
            Fan::Recurrence(recurrence) => recurrence.parts().count(),
        }
    }
}

impl<'s> Part<'s> {
    fn of(fan: Fan<'s>, index: usize) -> Self {
        let part = |body: &'s [Node]| {
            let (body, input) = match body.split_first() {
                Some((Node { op: Op::Read(Read::Stream(stream)), .. }, rest)) => (rest, Input::Stream(*stream)),
                Some((Node { op: Op::Read(Read::Site(path)), .. }, rest)) => (rest, Input::Site(path)),
                Some(_) | None => (body, Input::Common),
            };
            Part { body, input, expert: None, is_weighed: false }
        };
        match fan {
            Fan::Sum(sum) => part(&sum.branches[index].body),
            Fan::Product(product) => part(&product.factors[index]),
            Fan::Concat(concat) => part(&concat.parts[index].body),
            Fan::Attention(Attention { query, key, value, memory, .. }) => {
                let input = memory.filter(|_| index > 0).map_or(Input::Common, Input::Stream);
                Part { input, ..part([query, key, value][index]) }
            }
            Fan::Mixture(mixture) => Part {
                expert: Some(index),
                is_weighed: mixture.weights_multiply == Multiplied::Inputs,
                ..part(&mixture.expert)
            },
            Fan::Recurrence(recurrence) => part(recurrence.parts().nth(index).expect("as many as are counted")),
        }
    }
}
