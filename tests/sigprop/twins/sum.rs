use sigprop_stack::{Activation, NormKind};

use crate::support::{activation, assert_twin, gaussian_stack, linear, norm, residual};

fn branch() -> Vec<sigprop_stack::Node> {
    vec![linear("in", 128, 256, 1.0), activation("activation", Activation::Gelu), linear("out", 256, 128, 1.5)]
}

#[test]
fn scaled_residual() {
    assert_twin(&gaussian_stack(128, 1.0, 6, vec![residual("sum", [0.9, 0.6], 0.0, branch())]), 600);
}

/// Pre-LN and Post-LN sub-layers with both norms, which use every term of order 1/width.
#[test]
fn residual_with_norms() {
    for kind in [NormKind::LayerNorm, NormKind::RmsNorm] {
        let mut pre = vec![norm("norm", kind)];
        pre.extend(branch());
        let body = vec![residual("pre", [1.0, 1.0], 0.0, pre), norm("final_norm", kind)];
        assert_twin(&gaussian_stack(128, 1.0, 6, body), 600);
        let body = vec![norm("first", kind), residual("post", [1.0, 1.0], 0.0, branch()), norm("post_norm", kind)];
        assert_twin(&gaussian_stack(128, 1.0, 6, body), 600);
    }
}

#[test]
fn stochastic_depth_drops_whole_sequences() {
    let body = vec![residual("sum", [1.0, 0.8], 0.3, branch())];
    assert_twin(&gaussian_stack(128, 1.0, 6, body), 1500);
}

/// Branches with a mean add coherently.
#[test]
fn means_add_up() {
    let relu = vec![linear("map", 128, 128, 2.0), activation("activation", Activation::Relu)];
    let again = vec![linear("map_again", 128, 128, 2.0), activation("activation", Activation::Relu)];
    let body = vec![residual("first", [1.0, 1.0], 0.0, relu), residual("second", [1.0, 1.0], 0.0, again)];
    assert_twin(&gaussian_stack(128, 1.0, 6, body), 600);
}
