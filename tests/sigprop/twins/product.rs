use sigprop_stack::{Activation, Node, NormKind, Op, Product};

use crate::support::{activation, assert_twin, gaussian_stack, linear, norm};

/// Gated networks: SwiGLU, GEGLU, ReGLU.
#[test]
fn gated_feed_forward_networks() {
    for function in [Activation::Silu, Activation::Gelu, Activation::Relu] {
        let gate = vec![linear("gate", 96, 192, 1.0), activation("activation", function)];
        let up = vec![linear("up", 96, 192, 1.0)];
        let body = vec![
            norm("norm", NormKind::RmsNorm),
            Node::new("gated", Op::Product(Product { factors: vec![gate, up] })),
            linear("out", 192, 96, 1.0),
        ];
        assert_twin(&gaussian_stack(96, 1.0, 6, body), 600);
    }
}
