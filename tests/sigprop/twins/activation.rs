use sigprop_stack::Activation;

use crate::support::{activation, assert_twin, gaussian_stack, linear};

const ALL: [Activation; 13] = [
    Activation::Identity,
    Activation::Relu,
    Activation::LeakyRelu { slope: 0.1 },
    Activation::Relu2,
    Activation::Gelu,
    Activation::GeluTanh,
    Activation::Silu,
    Activation::Tanh,
    Activation::Sigmoid,
    Activation::Erf,
    Activation::Softplus,
    Activation::Elu,
    Activation::Selu,
];

/// Applied to exactly Gaussian tokens of two scales.
#[test]
fn every_activation_at_two_scales() {
    for function in ALL {
        for variance in [0.3, 4.0] {
            let body = vec![activation("activation", function)];
            assert_twin(&gaussian_stack(64, variance, 6, body), 1500);
        }
    }
}

/// A feed-forward network: the gradient knows the norms and directions of the forward pass.
#[test]
fn activation_between_linear_maps() {
    for function in [Activation::Relu, Activation::Gelu, Activation::Tanh] {
        let body = vec![linear("in", 64, 192, 1.0), activation("activation", function), linear("out", 192, 64, 2.0)];
        assert_twin(&gaussian_stack(64, 1.0, 6, body), 400);
    }
}
