//! Stacks in which several sites use one tensor agree with sampled networks, forward and backward.

use sigprop_stack::{
    Activation, Attention, Branch, Embedding, EmbeddingTerm, Gaussian, Ids, Node, NormKind, Op, PowerLaw, Product,
    Read, Source, Stack, Sum,
};

use crate::support::{activation, assert_twin_but_for, linear, norm, residual, stack, tensor};

const USES: usize = 4;

/// One block several times, each with the tensors and the gains of the first.
fn looped(source: Source, seq_len: usize, block: &[Node]) -> Stack {
    let block = |index: usize| {
        let shared_with = (index > 0).then(|| "blocks.0".to_owned());
        Node { shared_with, ..Node::new(format!("blocks.{index}"), Op::Chain(block.to_vec())) }
    };
    stack(source, seq_len, (0..USES).map(block).collect())
}

fn gaussian() -> Source {
    Source::Gaussian(Gaussian { width: 256, mean: 0.0, variance: 1.0, correlation: 0.3 })
}

/// The attention and the feed-forward network of a block, each with a norm before the branch or after the sum.
fn block(width: usize, post: bool, score_variance: f64) -> Vec<Node> {
    let parts = [("query", score_variance), ("key", 1.0), ("value", 1.0)];
    let parts = parts.map(|(name, variance)| vec![linear(name, width, width, variance)]);
    let heads = Node::new("heads", Op::Attention(Attention::plain(4, 4, width / 4, parts)));
    let ffn = vec![
        linear("in", width, 2 * width, 1.0),
        activation("activation", Activation::Gelu),
        linear("out", 2 * width, width, 1.0),
    ];
    let branch = |name: &str, mut body: Vec<Node>| {
        let norm = norm("norm", NormKind::LayerNorm);
        if post {
            return vec![residual(name, [1.0, 1.0], 0.0, body), Node { name: format!("{name}_norm"), ..norm }];
        }
        body.insert(0, norm);
        vec![residual(name, [1.0, 1.0], 0.0, body)]
    };
    [branch("attention", vec![heads, linear("output", width, width, 1.0)]), branch("ffn", ffn)].concat()
}

fn assert_sampled(stack: &Stack, replicates: usize) {
    assert_twin_but_for(&["shared_width"], stack, replicates);
}

#[test]
fn one_layer_of_an_mlp() {
    let layer = [linear("map", 256, 256, 2.0), activation("activation", Activation::Relu)];
    assert_sampled(&looped(gaussian(), 4, &layer), 40);
}

/// The branches have means, which add up, and end without a map.
#[test]
fn one_residual_layer_of_an_mlp() {
    let body = vec![linear("map", 256, 256, 1.0), activation("activation", Activation::Gelu)];
    assert_sampled(&looped(gaussian(), 4, &[residual("sum", [1.0, 0.5], 0.0, body)]), 40);
}

#[test]
fn one_residual_layer_of_two_maps() {
    let body =
        vec![linear("in", 256, 256, 1.0), activation("activation", Activation::Tanh), linear("out", 256, 256, 1.0)];
    assert_sampled(&looped(gaussian(), 4, &[residual("sum", [1.0, 0.5], 0.0, body)]), 40);
}

/// A looped layer to which the first signal is added every time.
#[test]
fn one_layer_and_the_first_signal() {
    let first = vec![Node::new("first", Op::Read(Read::Site("embeddings".to_owned())))];
    let mixed =
        Sum { branches: [(0.8, vec![]), (0.6, first)].map(|(scale, body)| Branch::constant(scale, body)).into() };
    let body =
        vec![linear("in", 256, 256, 1.0), activation("activation", Activation::Tanh), linear("out", 256, 256, 1.0)];
    let layer = [Node::new("mixed", Op::Sum(mixed)), residual("sum", [1.0, 0.5], 0.0, body)];
    assert_twin_but_for(&["read_width", "shared_width"], &looped(gaussian(), 4, &layer), 40);
}

#[test]
fn one_gated_layer() {
    let gate = vec![linear("gate", 256, 256, 1.0), activation("activation", Activation::Silu)];
    let gated = Op::Product(Product { factors: vec![gate, vec![linear("up", 256, 256, 1.0)]] });
    let body = vec![norm("norm", NormKind::RmsNorm), Node::new("gated", gated), linear("out", 256, 256, 2.0)];
    assert_sampled(&looped(gaussian(), 4, &[residual("sum", [1.0, 1.0], 0.0, body)]), 40);
}

#[test]
fn one_pre_norm_block() {
    assert_sampled(&looped(gaussian(), 6, &block(256, false, 1.0)), 40);
}

/// Tokens with ids, some of them equal, and with learned positions.
#[test]
fn one_post_norm_block() {
    let terms = vec![
        EmbeddingTerm::Token { table: tensor("token", 0.5) },
        EmbeddingTerm::LearnedPosition { table: tensor("position", 0.3) },
    ];
    let ids = Ids::PowerLaw(PowerLaw { vocab_size: 50, exponent: 0.0 });
    let source = Source::Embedding(Embedding::new(256, ids, terms));
    assert_sampled(&looped(source, 8, &block(256, true, 0.3)), 40);
}
