use sigprop_stack::{Component, Node, Norm, NormKind};

use crate::support::{assert_twin, gaussian_stack, linear, norm};

#[test]
fn norms_of_gaussian_tokens() {
    for kind in [NormKind::LayerNorm, NormKind::RmsNorm] {
        let body = vec![norm("norm", kind), linear("map", 128, 128, 1.0)];
        assert_twin(&gaussian_stack(128, 3.0, 6, body), 1000);
    }
}

/// eps that is as large as the signal, and a gain.
#[test]
fn eps_and_gain_scale_the_output() {
    for kind in [NormKind::LayerNorm, NormKind::RmsNorm] {
        let body = vec![Node::apply("norm", Component::Norm(Norm { kind, eps: 0.5, gain: 1.7, groups: 1 }))];
        assert_twin(&gaussian_stack(256, 0.5, 6, body), 600);
    }
}

/// DyT and Derf on Gaussian tokens, where they bend little and much; gains collect what the function hands on.
#[test]
fn functions_in_place_of_norms() {
    for kind in [NormKind::Dyt { alpha: 0.5 }, NormKind::Dyt { alpha: 2.0 }, NormKind::Derf { alpha: 0.8 }] {
        let norm = Node::apply("norm", Component::Norm(Norm { kind, eps: 0.0, gain: 1.7, groups: 1 }));
        assert_twin(&gaussian_stack(256, 1.5, 6, vec![norm, linear("map", 256, 256, 1.0)]), 600);
    }
}

/// What a second norm removes, the first has left nothing of.
#[test]
fn norm_of_a_norm() {
    for kind in [NormKind::LayerNorm, NormKind::RmsNorm] {
        let body = vec![norm("first", kind), norm("second", kind)];
        assert_twin(&gaussian_stack(128, 1.0, 6, body), 600);
    }
}
