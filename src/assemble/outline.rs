//! The outline of a stack: the architecture whose blocks resemble its blocks, from which schemes read widths and depth.

use std::str::FromStr as _;

use sigprop_stack::{
    Activation as Function, Attention, Component, EmbeddingTerm, Mixture, Node, NormKind, Op, RoleKind, Source, Stack,
    Stream,
};

use crate::architecture::{Activation, Architecture, Experts, Kind, NormChoice, NormPlacement, Positions};

/// The parts of a stream that decide its outline.
#[derive(Default)]
struct Found<'s> {
    attention: Option<&'s Attention>,
    mixture: Option<&'s Mixture>,
    function: Option<Function>,
    norm: Option<NormKind>,
    /// True if a branch of a sum begins with a norm, and if a norm follows a sum.
    norm_before: bool,
    norm_after: bool,
    has_sums: bool,
    /// Embeddings that are added to those of tokens or patches.
    has_positions: bool,
    has_segments: bool,
    token_types: usize,
}

impl<'s> Found<'s> {
    fn in_body(&mut self, body: &'s [Node]) {
        for (index, node) in body.iter().enumerate() {
            let follows_sum = index > 0 && matches!(body[index - 1].op, Op::Sum(_));
            match &node.op {
                Op::Apply(Component::Norm(norm)) => {
                    self.norm.get_or_insert(norm.kind);
                    self.norm_after |= follows_sum;
                }
                Op::Apply(Component::Activation(function)) => {
                    self.function.get_or_insert(*function);
                }
                Op::Attention(attention) => {
                    self.attention.get_or_insert(attention);
                }
                Op::Sum(sum) => {
                    self.has_sums = true;
                    let begins = |body: &[Node]| matches!(body.first(), Some(node) if is_norm(node));
                    self.norm_before |= sum.branches.iter().any(|branch| begins(&branch.body));
                }
                Op::Mixture(mixture) => {
                    self.mixture.get_or_insert(mixture);
                }
                Op::Apply(Component::Embedding(term)) => self.in_term(term),
                Op::Apply(_) | Op::Chain(_) | Op::Product(_) | Op::Concat(_) => {}
            }
            node.op.bodies().for_each(|body| self.in_body(body));
        }
    }

    fn in_term(&mut self, term: &EmbeddingTerm) {
        match term {
            EmbeddingTerm::Token { .. } => {}
            EmbeddingTerm::LearnedPosition { .. } | EmbeddingTerm::SinusoidalPosition { .. } => {
                self.has_positions = true
            }
            EmbeddingTerm::Segment { .. } => self.has_segments = true,
            EmbeddingTerm::Constant { rows, .. } => self.token_types = *rows,
        }
    }

    fn placement(&self) -> NormPlacement {
        match (self.norm_before, self.norm_after) {
            (false, true) => NormPlacement::Post,
            (true, true) => NormPlacement::Sandwich,
            (_, false) => NormPlacement::Pre,
        }
    }
}

fn is_norm(node: &Node) -> bool {
    matches!(node.op, Op::Apply(Component::Norm(_)))
}

/// Returns the architecture that resembles a stack with roles. Only its shape, its norms and its activation mean
/// something: those that schemes read.
pub(super) fn outline(stack: &Stack) -> Architecture {
    let stream = &stack.streams[stack.gradient.stream];
    let mut found = Found::default();
    // The norm after the last block decides nothing.
    let (last, before) = stream.body.split_last().expect("a checked stream has nodes");
    found.in_body(if is_norm(last) { before } else { &stream.body });
    if let Source::Embedding(embedding) = &stream.source {
        embedding.terms.iter().for_each(|term| found.in_term(term));
    }
    let plain = Architecture::default();
    let is_mlp = found.attention.is_none();
    let (d_model, vocab_size) = entrance(stream, plain.vocab_size);
    let n_layers = match stack.roles.values().filter_map(|role| role.block).max() {
        Some(last) => last + 1,
        None => stack.roles.values().filter(|role| role.kind == RoleKind::Other).count().max(1),
    };
    let is_gated = stack.roles.values().any(|role| role.kind == RoleKind::FfnGate);
    Architecture {
        kind: if is_mlp { Kind::Mlp } else { Kind::Encoder },
        n_layers,
        d_model,
        n_heads: found.attention.map(|attention| attention.n_heads),
        n_kv_heads: found.attention.map(|attention| attention.n_kv_heads),
        d_head: found.attention.map(|attention| attention.d_head),
        seq_len: stream.seq_len,
        vocab_size,
        activation: found.function.map_or(plain.activation, |function| word(function, is_gated)),
        norm: Some(found.norm.map_or(NormChoice::None, choice)),
        norm_placement: found.placement(),
        positions: if found.has_positions { Positions::Learned } else { Positions::None },
        segments: found.has_segments && !is_mlp,
        token_types: found.token_types,
        residual: is_mlp.then_some(found.has_sums),
        experts: found.mixture.map(experts),
        ..plain
    }
}

/// Returns the experts of every block, from a mixture.
fn experts(mixture: &Mixture) -> Experts {
    Experts {
        n_experts: mixture.n_experts,
        top_k: mixture.top_k,
        d_ff: inner_width(&mixture.expert).unwrap_or(1),
        shared_d_ff: 0,
        shared_gate: false,
        weighting: mixture.weighting,
        normalised: mixture.normalised,
        scale: mixture.scale,
        first_dense: 0,
        every: 1,
    }
}

/// Returns the fan-out of the first map of a chain.
fn inner_width(body: &[Node]) -> Option<usize> {
    body.iter().find_map(|node| match &node.op {
        Op::Apply(Component::Linear(map)) => Some(map.fan_out),
        op => op.bodies().find_map(inner_width),
    })
}

/// Returns the width of a stream at its source, and the number of its ids; `vocab_size` if it embeds no ids.
fn entrance(stream: &Stream, vocab_size: usize) -> (usize, usize) {
    match &stream.source {
        Source::Embedding(embedding) => (embedding.width, embedding.ids.vocab_size()),
        Source::Gaussian(gaussian) => (gaussian.width, vocab_size),
    }
}

/// Returns the word for an activation. Functions with slopes of their own are the nearest known one, Leaky ReLU.
fn word(function: Function, is_gated: bool) -> Activation {
    let words = Activation::WORDS.iter().filter_map(|word| Activation::from_str(word).ok());
    let known: Vec<Activation> = words.filter(|word| word.function() == function).collect();
    let gated = known.iter().find(|word| word.is_gated() == is_gated);
    *gated.or(known.first()).unwrap_or(&Activation::LeakyRelu)
}

fn choice(kind: NormKind) -> NormChoice {
    match kind {
        NormKind::LayerNorm => NormChoice::Layernorm,
        NormKind::RmsNorm => NormChoice::Rmsnorm,
        NormKind::BatchNorm { .. } => NormChoice::Batchnorm,
        NormKind::Dyt { .. } => NormChoice::Dyt,
        NormKind::Derf { .. } => NormChoice::Derf,
    }
}
