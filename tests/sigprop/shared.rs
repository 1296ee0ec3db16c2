//! Stacks in which several sites use one tensor agree with sampled networks, forward and backward.

use sigprop_stack::{Activation, Attention, Node, NormKind, Op, Product, Stack};

use crate::support::{activation, assert_twin_but_for, gaussian_stack, linear, norm, residual};

const USES: usize = 4;

/// Blocks that all use the maps of the first.
fn looped(width: usize, seq_len: usize, block: impl Fn(usize) -> Vec<Node>) -> Stack {
    let block = |index: usize| Node::new(format!("blocks.{index}"), Op::Chain(block(index)));
    gaussian_stack(width, 1.0, seq_len, (0..USES).map(block).collect())
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
            return vec![residual(name, [1.0, 1.0], 0.0, body), norm];
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
    let layer = |_| vec![linear("map", 256, 256, 2.0), activation("activation", Activation::Relu)];
    assert_sampled(&looped(256, 4, layer), 40);
}

#[test]
fn one_residual_layer_of_an_mlp() {
    let layer = |_| {
        let body = vec![linear("map", 256, 256, 1.0), activation("activation", Activation::Tanh)];
        vec![residual("sum", [1.0, 0.5], 0.0, [body, vec![linear("out", 256, 256, 1.0)]].concat())]
    };
    assert_sampled(&looped(256, 4, layer), 40);
}

#[test]
fn one_gated_layer() {
    let layer = |_| {
        let gate = vec![linear("gate", 256, 256, 1.0), activation("activation", Activation::Silu)];
        let gated = Op::Product(Product { factors: vec![gate, vec![linear("up", 256, 256, 1.0)]] });
        let body = vec![norm("norm", NormKind::RmsNorm), Node::new("gated", gated), linear("out", 256, 256, 2.0)];
        vec![residual("sum", [1.0, 1.0], 0.0, body)]
    };
    assert_sampled(&looped(256, 4, layer), 40);
}

#[test]
fn one_pre_norm_block() {
    assert_sampled(&looped(256, 6, |_| block(256, false, 1.0)), 40);
}

#[test]
fn one_post_norm_block() {
    assert_sampled(&looped(256, 6, |_| block(256, true, 0.3)), 40);
}
