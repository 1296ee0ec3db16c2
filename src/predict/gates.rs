//! Zeros that block the gradients of parameters, and whether training opens them.
//!
//! # Rule
//!
//! A signal, or a gradient, is either zero or not. A weight, a gain or a factor of zero makes it zero. A zero that is a
//! parameter and has a gradient itself moves in the first step: it opens, and parameters whose gradient it blocked have
//! one from the next step on. A zero that nothing moves stays closed.
//!
//! # Assumptions
//!
//! A sum of terms that are not zero is not zero. Queries and keys have a gradient where values are not zero.

use std::collections::BTreeSet;
use std::convert::Infallible;

use sigprop_stack::{
    Attention, BlockName, Branch, Component, Disentangled, Fan, GradientSeed, Head, Interpreter, Mixture, Node, Norm,
    Op, PositionBias, Recurrence, Site, Source, Stack, Stream, Tensor, WeightRow, run,
};

use crate::mean_field::dual::function::value_and_derivative;

/// A parameter whose gradient is exactly zero in the first step.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Blocked {
    /// Name of the parameter.
    pub tensor: String,
    /// Names of the parameters that start at zero and block this gradient until a training step has moved them; empty
    /// if it stays zero.
    pub gates: Vec<String>,
}

/// Returns the parameters without a gradient among `weights`, which are the rows of a prediction of `stack`. The
/// gradient is that of a loss if there is a `head`. Biases of keys are left out, because softmax is invariant to them.
pub(crate) fn blocked(stack: &Stack, head: Option<&Head>, weights: &[WeightRow]) -> Vec<Blocked> {
    let mut of_keys = BTreeSet::new();
    stack.streams.iter().for_each(|stream| key_biases(&stream.body, &mut of_keys));
    let is_zero = |row: &&WeightRow| row.grad_second_moment.value.is_zero() && !of_keys.contains(row.tensor.as_str());
    let names = weights.iter().filter(is_zero).map(|row| Blocked { tensor: row.tensor.clone(), gates: Vec::new() });
    let mut blocked: Vec<Blocked> = names.collect();
    let mut open = BTreeSet::new();
    let mut known = BTreeSet::new();
    while !blocked.is_empty() {
        let pass = Pass::through(stack, head, &open);
        for of in blocked.iter_mut().filter(|of| of.gates.is_empty() && pass.reached.contains(&of.tensor)) {
            if !known.contains(&of.tensor) {
                of.gates = gates_of(&of.tensor, &open);
            }
        }
        known.extend(pass.reached);
        let before = open.len();
        open.extend(pass.gates);
        if open.len() == before {
            break;
        }
    }
    blocked
}

/// Adds the names of the biases of all maps to keys.
fn key_biases<'s>(body: &'s [Node], names: &mut BTreeSet<&'s str>) {
    for node in body {
        if let Op::Attention(attention) = &node.op {
            names.extend(attention.key.iter().filter_map(|node| {
                let Op::Apply(Component::Linear(map)) = &node.op else { return None };
                map.bias.as_ref().map(|bias| bias.name.as_str())
            }));
        }
        node.op.bodies().for_each(|body| key_biases(body, names));
    }
}

/// Returns the names in `open` that are in the same block as `tensor`, or all names in `open` if none is in this block.
fn gates_of(tensor: &str, open: &BTreeSet<String>) -> Vec<String> {
    let block = |name: &str| BlockName::of(name).map(|name| (name.before.to_owned(), name.block));
    let is_own = |gate: &&String| block(tensor).is_some_and(|own| block(gate) == Some(own));
    let own: Vec<String> = open.iter().filter(is_own).cloned().collect();
    if own.is_empty() { open.iter().cloned().collect() } else { own }
}

/// One pass through a stack. Signals and gradients are booleans: true if they differ from zero.
struct Pass<'o> {
    /// Names of the parameters that start at zero and have been moved by earlier steps.
    open: &'o BTreeSet<String>,
    head: Option<&'o Head>,
    /// Names of the parameters that have a gradient.
    reached: BTreeSet<String>,
    /// Names of the parameters that have a gradient and are zero.
    gates: BTreeSet<String>,
}

/// Values that the backward pass of a node needs.
enum Kept {
    Input(bool),
    Parts(bool, Vec<bool>),
}

impl<'o> Pass<'o> {
    fn through(stack: &'o Stack, head: Option<&'o Head>, open: &'o BTreeSet<String>) -> Self {
        let mut pass = Self { open, head, reached: BTreeSet::new(), gates: BTreeSet::new() };
        match run(stack, &mut pass) {
            Ok(()) => pass,
            Err(never) => match never {},
        }
    }

    fn is_open(&self, name: &str, value: f64) -> bool {
        value != 0.0 || self.open.contains(name)
    }

    fn passes(&self, Tensor { name, init }: &Tensor) -> bool {
        self.is_open(name, init.variance())
    }

    /// Notes a parameter that has a gradient. It is a gate if its initial `value` is zero.
    fn reach(&mut self, name: &str, value: f64) {
        self.reached.insert(name.to_owned());
        if value == 0.0 {
            self.gates.insert(name.to_owned());
        }
    }

    fn reach_tensor(&mut self, tensor: &Tensor) {
        self.reach(&tensor.name, tensor.init.variance());
    }

    fn passes_branch(&self, at: &Site, branch: &Branch) -> bool {
        self.is_open(&at.scale(), branch.scale)
    }

    /// Notes the weight and the bias of a map of a signal `x`. Returns true if a gradient passes through the weight.
    fn reach_map(&mut self, x: bool, weight: &Tensor, bias: Option<&Tensor>) -> bool {
        if x {
            self.reach_tensor(weight);
        }
        if let Some(bias) = bias {
            self.reach_tensor(bias);
        }
        self.passes(weight)
    }

    fn split_attention(&mut self, attention: &Attention, parts: &[bool]) -> Vec<bool> {
        let [query, key, value] = [parts[0], parts[1], parts[2]];
        if let (Some(PositionBias::Relative { table, .. }), true) = (&attention.bias, value) {
            self.reach_tensor(table);
        }
        if let (Some(PositionBias::Disentangled(positions)), true) = (&attention.bias, value) {
            self.reach_positions(positions, [query, key]);
        }
        if let (Some(sink), true) = (&attention.sink, value) {
            self.reach_tensor(sink);
        }
        let [of_keys, of_queries] = match &attention.bias {
            Some(PositionBias::Disentangled(positions)) => self.position_images(positions),
            Some(PositionBias::Alibi { .. } | PositionBias::Relative { .. }) | None => [false; 2],
        };
        vec![(key || of_keys) && value, (query || of_queries) && value, true]
    }

    /// Returns true if the keys, and if the queries, of relative positions differ from zero.
    fn position_images(&self, positions: &Disentangled) -> [bool; 2] {
        let table = self.passes_table(positions);
        [&positions.key, &positions.query].map(|map| table && map.as_ref().is_some_and(|map| self.passes(&map.weight)))
    }

    /// Returns true if the embeddings of relative positions after their norm differ from zero.
    fn passes_table(&self, positions: &Disentangled) -> bool {
        let is_open = |norm: Norm| self.is_open(&positions.gain(), norm.gain);
        self.passes(&positions.table) && positions.norm.is_none_or(is_open)
    }

    /// Notes the parameters of relative positions. `contents` is true for queries, and for keys, of contents that differ
    /// from zero.
    fn reach_positions(&mut self, positions: &Disentangled, contents: [bool; 2]) {
        let table = self.passes_table(positions);
        let mut is_read = false;
        for (map, has_contents) in [&positions.key, &positions.query].into_iter().zip(contents) {
            if let (Some(map), true) = (map, has_contents) {
                is_read |= self.reach_map(table, &map.weight, map.bias.as_ref());
            }
        }
        if is_read {
            self.reach_tensor(&positions.table);
            positions.norm.iter().for_each(|norm| self.reach(&positions.gain(), norm.gain));
        }
    }

    fn skip(at: &Site) -> String {
        at.parameter(".skip")
    }

    fn passes_skip(&self, at: &Site, recurrence: &Recurrence) -> bool {
        recurrence.skip.is_some_and(|skip| self.is_open(&Self::skip(at), skip))
    }

    fn split_recurrence(&mut self, at: &Site, recurrence: &Recurrence, parts: &[bool]) -> Vec<bool> {
        let [query, key, value] = [parts[0], parts[1], parts[2]];
        if let (Some(skip), true) = (recurrence.skip, value) {
            self.reach(&Self::skip(at), skip);
        }
        let state = query && key && value;
        for (name, _) in recurrence.parameters().filter(|(name, _)| state && *name != ".skip") {
            self.reach(&at.parameter(name), 1.0);
        }
        let values = query && key || self.passes_skip(at, recurrence);
        let scores = parts[3..].iter().map(|_| state);
        [key && value, query && value, values].into_iter().chain(scores).collect()
    }
}

impl Interpreter<'_> for Pass<'_> {
    type Signal = bool;
    type Gradient = bool;
    type Kept = Kept;
    type Error = Infallible;

    fn source(&mut self, _: &Site, stream: &Stream) -> Result<bool, Infallible> {
        Ok(match &stream.source {
            Source::Gaussian(gaussian) => gaussian.variance > 0.0 || gaussian.mean != 0.0,
            Source::Embedding(source) => {
                source.terms.iter().any(|term| term.table().is_none_or(|table| self.passes(table)))
            }
        })
    }

    fn source_backward(&mut self, _: &Site, stream: &Stream, gradient: bool) -> Result<(), Infallible> {
        if let (Source::Embedding(source), true) = (&stream.source, gradient) {
            source.terms.iter().filter_map(|term| term.table()).for_each(|table| self.reach_tensor(table));
        }
        Ok(())
    }

    fn seed(&mut self, _: &Site, _: &GradientSeed, output: &bool) -> Result<bool, Infallible> {
        let Some(head) = self.head else { return Ok(true) };
        Ok(self.reach_map(*output, &head.weight, head.bias.as_ref()))
    }

    fn apply(&mut self, at: &Site, component: &Component, x: bool) -> Result<(bool, Kept), Infallible> {
        let biased = |bias: Option<&Tensor>| bias.is_some_and(|bias| self.passes(bias));
        let y = match component {
            Component::Linear(linear) => x && self.passes(&linear.weight) || biased(linear.bias.as_ref()),
            Component::Convolution(map) => x && self.passes(&map.weight) || biased(map.bias.as_ref()),
            Component::Norm(norm) => {
                x && self.is_open(&at.gain(), norm.gain) || self.is_open(&at.bias(), norm.bias.variance())
            }
            Component::Activation(activation) => x || value_and_derivative(*activation, 0.0).0 != 0.0,
            Component::Embedding(term) => x || term.table().is_none_or(|table| self.passes(table)),
            Component::Prepend(prepend) => x || self.passes(&prepend.token),
            Component::Scale(scale) => x && scale.factor != 0.0,
            Component::Dropout(_) | Component::Rotary(_) | Component::Pool(_) | Component::Select(_) => x,
        };
        Ok((y, Kept::Input(x)))
    }

    fn apply_backward(
        &mut self,
        at: &Site,
        component: &Component,
        kept: Kept,
        gradient: bool,
    ) -> Result<bool, Infallible> {
        let Kept::Input(x) = kept else { unreachable!("components keep their input") };
        if !gradient {
            return Ok(false);
        }
        Ok(match component {
            Component::Linear(linear) => self.reach_map(x, &linear.weight, linear.bias.as_ref()),
            Component::Convolution(map) => self.reach_map(x, &map.weight, map.bias.as_ref()),
            Component::Norm(norm) => {
                self.reach(&at.bias(), norm.bias.variance());
                if x {
                    self.reach(&at.gain(), norm.gain);
                }
                self.is_open(&at.gain(), norm.gain)
            }
            Component::Activation(activation) => x || value_and_derivative(*activation, 0.0).1 != 0.0,
            Component::Embedding(term) => {
                term.table().into_iter().for_each(|table| self.reach_tensor(table));
                true
            }
            Component::Prepend(prepend) => {
                self.reach_tensor(&prepend.token);
                true
            }
            Component::Scale(scale) => scale.factor != 0.0,
            Component::Dropout(_) | Component::Rotary(_) | Component::Pool(_) | Component::Select(_) => true,
        })
    }

    fn fork(&mut self, _: &Site, _: Fan, input: &bool, _: usize) -> bool {
        *input
    }

    fn merge(&mut self, at: &Site, fan: Fan, x: bool, parts: Vec<bool>) -> Result<(bool, Kept), Infallible> {
        let y = match fan {
            Fan::Sum(sum) => {
                sum.branches.iter().zip(&parts).any(|(branch, part)| *part && self.passes_branch(at, branch))
            }
            Fan::Product(_) => parts.iter().all(|part| *part),
            Fan::Concat(_) => parts.iter().any(|part| *part),
            Fan::Attention(_) => parts[2],
            Fan::Recurrence(recurrence) => parts[2] && (self.passes_skip(at, recurrence) || parts[0] && parts[1]),
            Fan::Mixture(mixture) => parts[0] && mixture.scale != 0.0,
        };
        Ok((y, Kept::Parts(x, parts)))
    }

    fn split(&mut self, at: &Site, fan: Fan, kept: &mut Kept, gradient: bool) -> Result<Vec<bool>, Infallible> {
        let Kept::Parts(x, parts) = kept else { unreachable!("fans keep their parts") };
        if !gradient {
            return Ok(vec![false; parts.len()]);
        }
        Ok(match fan {
            Fan::Sum(sum) => {
                let alive = sum.branches.iter().zip(parts);
                for (branch, _) in alive.filter(|(branch, part)| **part && !branch.scale_parameter.is_constant()) {
                    self.reach(&at.scale(), branch.scale);
                }
                sum.branches.iter().map(|branch| self.passes_branch(at, branch)).collect()
            }
            Fan::Product(_) => {
                let others = |index: usize| (0..parts.len()).all(|other| other == index || parts[other]);
                (0..parts.len()).map(others).collect()
            }
            Fan::Concat(_) => vec![true; parts.len()],
            Fan::Attention(attention) => self.split_attention(attention, parts),
            Fan::Recurrence(recurrence) => self.split_recurrence(at, recurrence, parts),
            Fan::Mixture(mixture) => {
                if *x && parts[0] && !is_certain(mixture) {
                    self.reach_tensor(&mixture.router);
                }
                vec![mixture.scale != 0.0]
            }
        })
    }

    fn join(&mut self, _: &Site, _: Fan, _: Kept, parts: Vec<bool>) -> Result<bool, Infallible> {
        Ok(parts.into_iter().any(|part| part))
    }

    fn arrive(&mut self, sum: Option<bool>, more: bool) -> Result<bool, Infallible> {
        Ok(more || sum.unwrap_or(false))
    }

    fn experts(&self, _: &Mixture) -> usize {
        1
    }

    fn observe(&mut self, _: &Site, _: &bool) {}

    fn observe_gradient(&mut self, _: &Site, _: &bool) {}
}

/// Returns true if the weight of the only chosen expert is 1 whatever the scores are.
fn is_certain(mixture: &Mixture) -> bool {
    mixture.top_k == 1 && mixture.normalised
}

#[cfg(test)]
mod tests {
    use sigprop_stack::{
        Branch, Gaussian, Init, Linear, Multiplied, Node, Op, Product, Read, ScaleParameter, Sum, Weighting,
    };

    use super::*;
    use crate::architecture::{Architecture, Experts, NormChoice, NormPlacement};
    use crate::assemble::{Input, Run, assemble};
    use crate::schemes::Scheme;
    use crate::{Sites, predict};

    fn of_scheme(architecture: Architecture, scheme: &str) -> Vec<Blocked> {
        let small = Architecture { n_layers: 2, d_model: 64, vocab_size: 100, seq_len: 8, ..architecture };
        let scheme = Scheme::parse(scheme).expect("a scheme");
        let stack = assemble(&small, &scheme, &Input::default(), &Run::default()).expect("a network").stack;
        predict(&stack, Sites::Stream).expect("a prediction").blocked
    }

    /// A factor, gain or last map that starts at zero is the gate of the parameters of its branch, and no parameter
    /// stays blocked.
    #[test]
    fn zeros_of_schemes_open() {
        let bare = Architecture { norm: Some(NormChoice::None), ..Architecture::default() };
        let sandwich = Architecture { norm_placement: NormPlacement::Sandwich, ..Architecture::default() };
        for (architecture, scheme, tensor, gate) in [
            (bare.clone(), "rezero", "blocks.1.ffn.in.weight", "blocks.1.ffn.scale"),
            (bare.clone(), "skipinit", "blocks.0.attention.heads.value.weight", "blocks.0.attention.scale"),
            (Architecture::default(), "layerscale:0", "blocks.1.ffn.out.weight", "blocks.1.ffn.scale"),
            (sandwich, "zero-gain", "blocks.1.ffn.in.weight", "blocks.1.ffn.output_norm.gain"),
            (bare, "fixup", "blocks.1.ffn.in.weight", "blocks.1.ffn.out.weight"),
        ] {
            let blocked = of_scheme(architecture, scheme);
            let of = blocked.iter().find(|of| of.tensor == tensor).unwrap_or_else(|| panic!("{scheme}: {blocked:?}"));
            assert!(of.gates.contains(&gate.to_owned()), "{scheme}: {of:?}");
            let closed = |of: &&Blocked| of.gates.is_empty();
            assert_eq!(blocked.iter().find(closed), None, "{scheme}");
        }
    }

    /// A zero factor that is a constant of the architecture is no gate. A renormalised top-1 router never has a
    /// gradient.
    #[test]
    fn other_zeros_do_not() {
        let constant = of_scheme(Architecture { branch_scale: Some(0.0), ..Architecture::default() }, "xavier");
        assert!(constant.len() > 20 && constant.iter().all(|of| of.gates.is_empty()), "{constant:?}");
        let experts = Experts {
            n_experts: 4,
            top_k: 1,
            d_ff: 128,
            shared_d_ff: 0,
            shared_gate: false,
            weighting: Weighting::Softmax,
            weights_multiply: Multiplied::Outputs,
            router_scale: 1.0,
            own_norms: false,
            normalised: true,
            scale: 1.0,
            first_dense: 0,
            every: 1,
        };
        let routers = of_scheme(Architecture { experts: Some(experts), ..Architecture::default() }, "xavier");
        assert!(routers.iter().any(|of| of.tensor.ends_with("router.weight") && of.gates.is_empty()), "{routers:?}");
    }

    /// A stream of conditions c that gates a branch, x + (G c)·(W x), with G = 0 as in adaLN-zero: G has a gradient and is
    /// the gate of W and of the map before c.
    #[test]
    fn a_condition_opens_its_gate() {
        let map = |name: &str, std: f64| {
            let weight = Tensor { name: format!("blocks.0.{name}"), init: Init::Normal { std } };
            let linear = Linear { fan_in: 8, fan_out: 8, weight, bias: None, standardised: None };
            Node::apply(name, Component::Linear(linear))
        };
        let read = Node::new("read", Op::Read(Read::Stream(0)));
        let gated = Op::Product(Product { factors: vec![vec![map("in", 1.0)], vec![read, map("gate", 0.0)]] });
        let branches = [vec![], vec![Node::new("gated", gated)]].map(|body| Branch::constant(1.0, body));
        let sum = Node::new("block", Op::Sum(Sum { branches: branches.into() }));
        let of = |name: &str, correlation, body| {
            let source = Source::Gaussian(Gaussian { width: 8, mean: 0.0, variance: 1.0, correlation });
            Stream { name: name.to_owned(), seq_len: 4, source, body: vec![body] }
        };
        let streams = vec![of("condition", 1.0, map("condition", 1.0)), of("main", 0.0, sum)];
        let stack = Stack::new("", streams, GradientSeed { stream: 1, correlation: 0.0 });
        let blocked = predict(&stack, Sites::Stream).expect("a prediction").blocked;
        let gates = || vec!["blocks.0.gate".to_owned()];
        let of: Vec<_> = blocked.into_iter().map(|of| (of.tensor, of.gates)).collect();
        assert_eq!(of, [("blocks.0.condition".to_owned(), gates()), ("blocks.0.in".to_owned(), gates())]);
    }

    /// x + B A x, as in an adapter: B = 0 has a gradient and is the gate of A. If A and B are both zero, neither has a
    /// gradient.
    #[test]
    fn of_two_maps_in_a_row_one_may_be_zero() {
        let map = |name: &str, std: f64| {
            let weight = Tensor { name: name.to_owned(), init: Init::Normal { std } };
            let linear = Linear { fan_in: 8, fan_out: 8, weight, bias: None, standardised: None };
            Node::apply(name, Component::Linear(linear))
        };
        let of = |[a, b]: [f64; 2], scale, scale_parameter| {
            let branch = Branch { scale_parameter, ..Branch::constant(scale, vec![map("a", a), map("b", b)]) };
            let sum = Op::Sum(Sum { branches: vec![Branch::constant(1.0, Vec::new()), branch] });
            let source = Source::Gaussian(Gaussian { width: 8, mean: 0.0, variance: 1.0, correlation: 0.0 });
            let body = vec![Node::new("adapter", sum)];
            let stream = Stream { name: "stream".to_owned(), seq_len: 4, source, body };
            let stack = Stack::new("", vec![stream], GradientSeed { stream: 0, correlation: 0.0 });
            let blocked = predict(&stack, Sites::Stream).expect("a prediction").blocked;
            blocked.into_iter().map(|of| (of.tensor, of.gates)).collect::<Vec<_>>()
        };
        let (a, b) = ("a".to_owned(), "b".to_owned());
        let constant = ScaleParameter::Constant;
        assert_eq!(of([1.0, 0.0], 2.0, constant), [(a.clone(), vec![b.clone()])]);
        assert_eq!(of([0.0, 1.0], 2.0, constant), [(b.clone(), vec![a.clone()])]);
        assert_eq!(of([0.0, 0.0], 2.0, constant), [(a.clone(), vec![]), (b.clone(), vec![])]);
        let scale = "adapter.scale".to_owned();
        assert_eq!(of([1.0, 1.0], 0.0, ScaleParameter::Scalar), [(a, vec![scale.clone()]), (b, vec![scale])]);
    }
}
