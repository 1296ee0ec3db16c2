use sigprop_stack::Activation;

use crate::support::{activation, assert_twin, gaussian_stack, linear};

/// Every activation, applied to exactly Gaussian tokens of two scales.
#[test]
fn every_activation_at_two_scales() {
    for function in Activation::ALL {
        for variance in [0.3, 4.0] {
            let body = vec![activation("activation", function)];
            assert_twin(&gaussian_stack(64, variance, 6, body), 1500);
        }
    }
}

/// A feed-forward network: the gradient depends on the norms and directions of the forward pass.
#[test]
fn activation_between_linear_maps() {
    for function in [Activation::Relu, Activation::Gelu, Activation::Tanh] {
        let body = vec![linear("in", 64, 192, 1.0), activation("activation", function), linear("out", 192, 64, 2.0)];
        assert_twin(&gaussian_stack(64, 1.0, 6, body), 400);
    }
}
