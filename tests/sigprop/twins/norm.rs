use sigprop_stack::{Attention, Component, EmbeddingTerm, Init, Node, Norm, NormKind, Op};

use crate::support::{assert_twin, gaussian_stack, linear, norm, residual};

#[test]
fn norms_of_gaussian_tokens() {
    for kind in [NormKind::LayerNorm, NormKind::RmsNorm] {
        let body = vec![norm("norm", kind), linear("map", 128, 128, 1.0)];
        assert_twin(&gaussian_stack(128, 3.0, 6, body), 1000);
    }
}

/// Norms with an eps as large as the signal, and a gain.
#[test]
fn eps_and_gain_scale_the_output() {
    for kind in [NormKind::LayerNorm, NormKind::RmsNorm] {
        let body = vec![Node::apply("norm", Component::Norm(Norm { gain: 1.7, ..Norm::plain(kind, 0.5) }))];
        assert_twin(&gaussian_stack(256, 0.5, 6, body), 600);
    }
}

/// DyT and Derf on Gaussian tokens, with weak and with strong saturation. Gains collect the output of the function.
#[test]
fn functions_in_place_of_norms() {
    for kind in [NormKind::Dyt { alpha: 0.5 }, NormKind::Dyt { alpha: 2.0 }, NormKind::Derf { alpha: 0.8 }] {
        let norm = Node::apply("norm", Component::Norm(Norm { gain: 1.7, ..Norm::plain(kind, 0.0) }));
        assert_twin(&gaussian_stack(256, 1.5, 6, vec![norm, linear("map", 256, 256, 1.0)]), 600);
    }
}

/// A norm directly after another norm, which leaves its input nearly unchanged.
#[test]
fn norm_of_a_norm() {
    for kind in [NormKind::LayerNorm, NormKind::RmsNorm] {
        let body = vec![norm("first", kind), norm("second", kind)];
        assert_twin(&gaussian_stack(128, 1.0, 6, body), 600);
    }
}

/// A norm whose gains are 1.2 and whose biases have this distribution.
fn biased(name: &str, kind: NormKind, bias: Init) -> Node {
    Node::apply(name, Component::Norm(Norm { gain: 1.2, bias, ..Norm::plain(kind, 0.0) }))
}

/// Biases are common to all tokens. They enter the length by which a second norm divides, and its mean over features.
#[test]
fn biases_of_norms() {
    let bias = Init::Normal { std: 0.7 };
    for kind in [NormKind::LayerNorm, NormKind::RmsNorm, NormKind::Dyt { alpha: 0.8 }] {
        let maps = [biased("first", kind, bias), linear("map", 128, 128, 1.0), biased("second", kind, bias)];
        let third = kind.pointwise().is_none().then(|| biased("third", kind, bias));
        let stack = gaussian_stack(128, 1.5, 6, maps.into_iter().chain(third).collect());
        assert_twin(&stack, 1000);
    }
}

/// Biases of norms where every position is followed, because sinusoidal positions distinguish them.
#[test]
fn biases_of_norms_by_position() {
    for bias in [Init::Normal { std: 0.7 }, Init::Uniform { bound: 1.2 }] {
        let waves = Component::Embedding(EmbeddingTerm::SinusoidalPosition { scale: 0.5 });
        let body = vec![
            Node::apply("positions", waves),
            biased("first", NormKind::LayerNorm, bias),
            linear("map", 128, 128, 1.0),
            biased("second", NormKind::RmsNorm, bias),
        ];
        assert_twin(&gaussian_stack(128, 1.5, 6, body), 1000);
    }
}

/// Blocks that normalise after every sum, as BERT does.
#[test]
fn biases_of_norms_behind_residual_sums() {
    let bias = Init::Normal { std: 0.4 };
    let block = |index: usize| {
        let name = format!("attention.{index}");
        let map = |part: &str| vec![linear(&format!("{part}.{index}"), 128, 128, 1.0)];
        let heads = Attention::plain(4, 4, 32, [map("query"), map("key"), map("value")]);
        let attention = residual(&name, [1.0, 0.5], 0.0, vec![Node::new("heads", Op::Attention(heads))]);
        [attention, biased(&format!("norm.{index}"), NormKind::LayerNorm, bias)]
    };
    let body = (0..2).flat_map(block).collect();
    assert_twin(&gaussian_stack(128, 1.0, 16, body), 400);
}
