//! The outline of a stack: the architecture whose blocks resemble its blocks, from which schemes read widths and depth.

use std::str::FromStr as _;

use sigprop_stack::{
    Activation as Function, Attention, Component, EmbeddingTerm, Mask, Mixture, Node, NormKind, Op, RoleKind, Rotary,
    Source, Stack, Stream, Tensor,
};

use crate::architecture::{Activation, Architecture, Experts, Kind, NormChoice, NormPlacement, Positions};

/// The parts of a stream that decide its outline.
#[derive(Default)]
struct Found<'s> {
    /// Everything that is embedded: the terms of the source, and those that are added later.
    terms: Vec<&'s EmbeddingTerm>,
    attention: Option<&'s Attention>,
    mixture: Option<&'s Mixture>,
    function: Option<Function>,
    norm: Option<NormKind>,
    /// True if a branch of a sum begins with a norm, and if a norm follows a sum.
    norm_before: bool,
    norm_after: bool,
    has_sums: bool,
    rotary: Option<&'s Rotary>,
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
                Op::Apply(Component::Embedding(term)) => self.terms.push(term),
                Op::Apply(Component::Rotary(rotary)) => {
                    self.rotary.get_or_insert(rotary);
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
                Op::Apply(_) | Op::Chain(_) | Op::Product(_) | Op::Concat(_) | Op::Recurrence(_) | Op::Read(_) => {}
            }
            node.op.bodies().for_each(|body| self.in_body(body));
        }
    }

    fn placement(&self) -> NormPlacement {
        match (self.norm_before, self.norm_after) {
            (false, true) => NormPlacement::Post,
            (true, true) => NormPlacement::Sandwich,
            (_, false) => NormPlacement::Pre,
        }
    }

    /// Returns the positions that are added to embeddings, else those that rotate queries and keys.
    fn positions(&self) -> Positions {
        let learned = |term: &&EmbeddingTerm| matches!(term, EmbeddingTerm::LearnedPosition { .. });
        let sinusoidal = |term: &&EmbeddingTerm| matches!(term, EmbeddingTerm::SinusoidalPosition { .. });
        match (self.terms.iter().any(learned), self.terms.iter().any(sinusoidal)) {
            (true, _) => Positions::Learned,
            (false, true) => Positions::Sinusoidal,
            (false, false) if self.rotary.is_some() => Positions::Rotary,
            (false, false) => Positions::None,
        }
    }

    /// Returns the number of rows of a table of which every token gets one, the same for all.
    fn token_types(&self) -> usize {
        let rows = |term: &&EmbeddingTerm| match term {
            EmbeddingTerm::Constant { rows, .. } => Some(*rows),
            EmbeddingTerm::Token { .. }
            | EmbeddingTerm::LearnedPosition { .. }
            | EmbeddingTerm::SinusoidalPosition { .. }
            | EmbeddingTerm::Segment { .. } => None,
        };
        self.terms.iter().find_map(rows).unwrap_or(0)
    }
}

fn is_norm(node: &Node) -> bool {
    matches!(node.op, Op::Apply(Component::Norm(_)))
}

/// Returns the architecture that resembles a stack with roles. Only its shape, its embeddings, its norms, its attention
/// and its activation mean something: those that schemes read.
pub(crate) fn outline(stack: &Stack) -> Architecture {
    let stream = &stack.streams[stack.gradient.stream];
    let mut found = Found::default();
    if let Source::Embedding(embedding) = &stream.source {
        found.terms.extend(&embedding.terms);
    }
    // The norm after the last block decides nothing.
    let (last, before) = stream.body.split_last().expect("a checked stream has nodes");
    found.in_body(if is_norm(last) { before } else { &stream.body });
    let plain = Architecture::default();
    let is_mlp = found.attention.is_none();
    let (d_model, vocab_size) = entrance(stream, plain.vocab_size);
    let n_layers = match stack.roles.values().filter_map(|role| role.block).max() {
        Some(last) => last + 1,
        None => stack.roles.values().filter(|role| role.kind == RoleKind::Other).count().max(1),
    };
    let is_gated = stack.roles.values().any(|role| role.kind == RoleKind::FfnGate);
    let is_inner = |weight: &Tensor| {
        let role = stack.roles.get(&weight.name);
        role.is_some_and(|role| matches!(role.kind, RoleKind::FfnIn | RoleKind::FfnGate))
    };
    Architecture {
        kind: if is_mlp { Kind::Mlp } else { Kind::Encoder },
        n_layers,
        d_model,
        n_heads: found.attention.map(|attention| attention.n_heads),
        n_kv_heads: found.attention.map(|attention| attention.n_kv_heads),
        d_head: found.attention.map(|attention| attention.d_head),
        d_ff: fan_out(&stream.body, &is_inner),
        causal: found.attention.is_some_and(|attention| attention.mask.after == Mask::CAUSAL.after),
        attention_scale: found.attention.map(|attention| attention.scale),
        positions: found.positions(),
        segments: !is_mlp && found.terms.iter().any(|term| matches!(term, EmbeddingTerm::Segment { .. })),
        token_types: found.token_types(),
        embedding_scale: embedding_scale(stream),
        seq_len: stream.seq_len,
        vocab_size,
        activation: found.function.map_or(plain.activation, |function| word(function, is_gated)),
        norm: Some(found.norm.map_or(NormChoice::None, choice)),
        norm_placement: found.placement(),
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
        d_ff: fan_out(&mixture.expert, &|_| true).unwrap_or(1),
        shared_d_ff: 0,
        shared_gate: false,
        weighting: mixture.weighting,
        weights_multiply: mixture.weights_multiply,
        router_scale: 1.0,
        own_norms: false,
        normalised: mixture.normalised,
        scale: mixture.scale,
        first_dense: 0,
        every: 1,
    }
}

/// Returns the fan-out of the first map of a chain for whose weight `is_meant` returns true.
fn fan_out(body: &[Node], is_meant: &dyn Fn(&Tensor) -> bool) -> Option<usize> {
    body.iter().find_map(|node| match &node.op {
        Op::Apply(Component::Linear(map)) => is_meant(&map.weight).then_some(map.fan_out),
        Op::Apply(Component::Convolution(map)) => is_meant(&map.weight).then_some(map.fan_out),
        op => op.bodies().find_map(|body| fan_out(body, is_meant)),
    })
}

/// Returns the factor on the embedding of a token, before anything is added to it.
fn embedding_scale(stream: &Stream) -> f64 {
    let is_alone = matches!(&stream.source, Source::Embedding(embedding) if embedding.terms.len() == 1);
    let first = match stream.body.first().map(|node| &node.op) {
        Some(Op::Chain(body)) => body.first(),
        Some(Op::Apply(_)) => stream.body.first(),
        _ => None,
    };
    match first.map(|node| &node.op) {
        Some(Op::Apply(Component::Scale(scale))) if is_alone => scale.factor,
        _ => 1.0,
    }
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
    if let Function::Expression(formula) = function {
        return Activation::Expression(formula);
    }
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
