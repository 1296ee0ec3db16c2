//! The only traversal: it knows the structure of a stack and nothing else.
//!
//! Forward it runs chains in order and forks at sums, products and attention; backward it runs the
//! same nodes in exactly the reverse order, so that an interpreter can pair what it observes. A
//! chain the interpreter chose not to keep is run forward again just before its backward pass.

use crate::{Attention, Component, GradientSeed, Node, Op, Product, Site, Source, Stack, Stream, Sum};

/// An operation with several chains on a common input.
#[derive(Clone, Copy, Debug)]
pub enum Fan<'s> {
    /// Weighted sum.
    Sum(&'s Sum),
    /// Elementwise product.
    Product(&'s Product),
    /// Attention; its parts are query, key, value.
    Attention(&'s Attention),
}

/// What walks a stack: the predictor carries moments, the engine carries arrays.
///
/// Every function is told the [`Site`] of the node it works for.
pub trait Interpreter {
    /// What moves forward.
    type Signal: Clone;
    /// What moves backward.
    type Gradient;
    /// What the backward pass of a node needs from its forward pass.
    type Kept;
    /// Why a walk may end early.
    type Error;

    /// The input of a stream.
    fn source(&mut self, at: &Site, source: &Source) -> Result<Self::Signal, Self::Error>;
    /// The gradient that reaches the input of a stream.
    fn source_backward(&mut self, at: &Site, source: &Source, gradient: Self::Gradient) -> Result<(), Self::Error>;
    /// The gradient at the end of the stream whose output is `output`.
    fn seed(&mut self, at: &Site, seed: &GradientSeed, output: &Self::Signal) -> Result<Self::Gradient, Self::Error>;

    /// A component, forward.
    fn apply(
        &mut self,
        at: &Site,
        component: &Component,
        input: Self::Signal,
    ) -> Result<(Self::Signal, Self::Kept), Self::Error>;
    /// A component, backward.
    fn apply_backward(
        &mut self,
        at: &Site,
        component: &Component,
        kept: Self::Kept,
        gradient: Self::Gradient,
    ) -> Result<Self::Gradient, Self::Error>;

    /// What each part of a fan gets.
    fn fork(&mut self, at: &Site, input: &Self::Signal) -> Self::Signal;
    /// The output of a fan from the outputs of its parts.
    fn merge(
        &mut self,
        at: &Site,
        fan: Fan,
        input: Self::Signal,
        parts: Vec<Self::Signal>,
    ) -> Result<(Self::Signal, Self::Kept), Self::Error>;
    /// The gradient at the output of each part.
    fn split(
        &mut self,
        at: &Site,
        fan: Fan,
        kept: &mut Self::Kept,
        gradient: Self::Gradient,
    ) -> Result<Vec<Self::Gradient>, Self::Error>;
    /// The gradient at the common input from those at the input of each part.
    fn join(
        &mut self,
        at: &Site,
        fan: Fan,
        kept: Self::Kept,
        parts: Vec<Self::Gradient>,
    ) -> Result<Self::Gradient, Self::Error>;

    /// Called with the output of every node, in order.
    fn observe(&mut self, at: &Site, signal: &Self::Signal);
    /// Called with the gradient at the output of every node, in the reverse order.
    fn observe_gradient(&mut self, at: &Site, gradient: &Self::Gradient);

    /// Whether to keep what the backward pass of this chain needs; otherwise it is run again.
    fn keeps(&self, _at: &Site) -> bool {
        true
    }
}

/// Runs `body` forward on `input`, observing nothing: for building a stack that depends on what
/// flows through its beginning.
pub fn advance<I: Interpreter>(body: &[Node], input: I::Signal, interpreter: &mut I) -> Result<I::Signal, I::Error> {
    let mut walk = Walk { site: Site::start(None), interpreter };
    walk.site.recomputing = true;
    Ok(walk.body(body, input)?.0)
}

/// Runs all streams forward, then the gradient backward from the stream it starts at.
pub fn run<I: Interpreter>(stack: &Stack, interpreter: &mut I) -> Result<(), I::Error> {
    let mut seeded = None;
    for (index, stream) in stack.streams.iter().enumerate() {
        let mut walk = Walk::new(stack, stream, interpreter);
        let (output, tapes) = walk.stream(stream)?;
        if index == stack.gradient.stream {
            seeded = Some((stream, output, tapes));
        }
    }
    if let Some((stream, output, tapes)) = seeded {
        let mut walk = Walk::new(stack, stream, interpreter);
        walk.stream_backward(stream, &stack.gradient, &output, tapes)?;
    }
    Ok(())
}

/// Runs all streams forward only.
pub fn forward<I: Interpreter>(stack: &Stack, interpreter: &mut I) -> Result<(), I::Error> {
    for stream in &stack.streams {
        Walk::new(stack, stream, interpreter).stream(stream)?;
    }
    Ok(())
}

/// What a node left behind for its backward pass.
enum Tape<I: Interpreter> {
    Apply(I::Kept),
    Chain(Vec<Tape<I>>),
    Fan(I::Kept, Vec<Vec<Tape<I>>>),
    /// A chain that was not kept: only its input.
    Input(I::Signal),
}

/// A signal and what its way left behind, or why the walk ended.
type Walked<I, T> = Result<(<I as Interpreter>::Signal, T), <I as Interpreter>::Error>;

struct Walk<'s, 'i, I> {
    site: Site<'s>,
    interpreter: &'i mut I,
}

impl<'s, 'i, I: Interpreter> Walk<'s, 'i, I> {
    fn new(stack: &'s Stack, stream: &'s Stream, interpreter: &'i mut I) -> Self {
        let prefix = (stack.streams.len() > 1).then_some(stream.name.as_str());
        Self { site: Site::start(prefix), interpreter }
    }

    fn stream(&mut self, stream: &'s Stream) -> Walked<I, Vec<Tape<I>>> {
        let mut signal = self.interpreter.source(&self.site, &stream.source)?;
        let mut tapes = Vec::with_capacity(stream.body.len());
        for (position, node) in stream.body.iter().enumerate() {
            self.site.layer = position as i64 - 1;
            let (output, tape) = self.node(node, signal)?;
            signal = output;
            tapes.push(tape);
        }
        Ok((signal, tapes))
    }

    fn stream_backward(
        &mut self,
        stream: &'s Stream,
        seed: &GradientSeed,
        output: &I::Signal,
        tapes: Vec<Tape<I>>,
    ) -> Result<(), I::Error> {
        let mut gradient = self.interpreter.seed(&self.site, seed, output)?;
        for ((position, node), tape) in stream.body.iter().enumerate().zip(tapes).rev() {
            self.site.layer = position as i64 - 1;
            gradient = self.node_backward(node, tape, gradient)?;
        }
        self.site.layer = -1;
        self.interpreter.source_backward(&self.site, &stream.source, gradient)
    }

    fn body(&mut self, body: &'s [Node], mut signal: I::Signal) -> Walked<I, Vec<Tape<I>>> {
        let mut tapes = Vec::with_capacity(body.len());
        for node in body {
            let (output, tape) = self.node(node, signal)?;
            signal = output;
            tapes.push(tape);
        }
        Ok((signal, tapes))
    }

    fn body_backward(
        &mut self,
        body: &'s [Node],
        tapes: Vec<Tape<I>>,
        mut gradient: I::Gradient,
    ) -> Result<I::Gradient, I::Error> {
        for (node, tape) in body.iter().zip(tapes).rev() {
            gradient = self.node_backward(node, tape, gradient)?;
        }
        Ok(gradient)
    }

    fn node(&mut self, node: &'s Node, input: I::Signal) -> Walked<I, Tape<I>> {
        self.site.names.push(&node.name);
        let (output, tape) = match &node.op {
            Op::Apply(component) => {
                let (output, kept) = self.interpreter.apply(&self.site, component, input)?;
                (output, Tape::Apply(kept))
            }
            Op::Chain(body) => {
                if self.site.recomputing || self.interpreter.keeps(&self.site) {
                    let (output, tapes) = self.body(body, input)?;
                    (output, Tape::Chain(tapes))
                } else {
                    let (output, _) = self.body(body, input.clone())?;
                    (output, Tape::Input(input))
                }
            }
            Op::Sum(sum) => self.fan(Fan::Sum(sum), input)?,
            Op::Product(product) => self.fan(Fan::Product(product), input)?,
            Op::Attention(attention) => self.fan(Fan::Attention(attention), input)?,
        };
        if !self.site.recomputing {
            self.interpreter.observe(&self.site, &output);
        }
        self.site.names.pop();
        Ok((output, tape))
    }

    fn node_backward(&mut self, node: &'s Node, tape: Tape<I>, gradient: I::Gradient) -> Result<I::Gradient, I::Error> {
        self.site.names.push(&node.name);
        self.interpreter.observe_gradient(&self.site, &gradient);
        let gradient = match (&node.op, tape) {
            (Op::Apply(component), Tape::Apply(kept)) => {
                self.interpreter.apply_backward(&self.site, component, kept, gradient)?
            }
            (Op::Chain(body), Tape::Chain(tapes)) => self.body_backward(body, tapes, gradient)?,
            (Op::Chain(body), Tape::Input(input)) => {
                self.site.recomputing = true;
                let (_, tapes) = self.body(body, input)?;
                self.site.recomputing = false;
                self.body_backward(body, tapes, gradient)?
            }
            (Op::Sum(sum), Tape::Fan(kept, tapes)) => self.fan_backward(Fan::Sum(sum), kept, tapes, gradient)?,
            (Op::Product(product), Tape::Fan(kept, tapes)) => {
                self.fan_backward(Fan::Product(product), kept, tapes, gradient)?
            }
            (Op::Attention(attention), Tape::Fan(kept, tapes)) => {
                self.fan_backward(Fan::Attention(attention), kept, tapes, gradient)?
            }
            (
                Op::Apply(_) | Op::Chain(_) | Op::Sum(_) | Op::Product(_) | Op::Attention(_),
                Tape::Apply(_) | Tape::Chain(_) | Tape::Fan(..) | Tape::Input(_),
            ) => unreachable!("the tape of a node is made by the same node's forward pass"),
        };
        self.site.names.pop();
        Ok(gradient)
    }

    fn fan(&mut self, fan: Fan<'s>, input: I::Signal) -> Walked<I, Tape<I>> {
        let mut outputs = Vec::new();
        let mut tapes = Vec::new();
        for body in fan.parts() {
            let signal = self.interpreter.fork(&self.site, &input);
            let (output, tape) = self.body(body, signal)?;
            outputs.push(output);
            tapes.push(tape);
        }
        let (output, kept) = self.interpreter.merge(&self.site, fan, input, outputs)?;
        Ok((output, Tape::Fan(kept, tapes)))
    }

    fn fan_backward(
        &mut self,
        fan: Fan<'s>,
        mut kept: I::Kept,
        tapes: Vec<Vec<Tape<I>>>,
        gradient: I::Gradient,
    ) -> Result<I::Gradient, I::Error> {
        let gradients = self.interpreter.split(&self.site, fan, &mut kept, gradient)?;
        let mut inputs = Vec::with_capacity(gradients.len());
        for ((body, tape), gradient) in fan.parts().into_iter().zip(tapes).zip(gradients).rev() {
            inputs.push(self.body_backward(body, tape, gradient)?);
        }
        inputs.reverse();
        self.interpreter.join(&self.site, fan, kept, inputs)
    }
}

impl<'s> Fan<'s> {
    /// The chains that work on the common input.
    pub fn parts(&self) -> Vec<&'s [Node]> {
        match self {
            Self::Sum(sum) => sum.branches.iter().map(|branch| branch.body.as_slice()).collect(),
            Self::Product(product) => product.factors.iter().map(Vec::as_slice).collect(),
            Self::Attention(attention) => vec![&attention.query, &attention.key, &attention.value],
        }
    }
}
