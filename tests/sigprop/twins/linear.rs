mod orthogonal;

use sigprop_stack::{Activation, Component, Gaussian, Init, Linear, Node, Source, Tensor};

use crate::support::{activation, assert_twin, gaussian_stack, linear, stack, standardised, tensor};

/// Linear maps, whose rule is exact at any width.
#[test]
fn linear_maps_change_width() {
    let body = vec![linear("wider", 12, 40, 0.7), linear("narrower", 40, 8, 1.9)];
    assert_twin(&gaussian_stack(12, 2.0, 9, body), 4000);
}

#[test]
fn bias_is_common_to_all_tokens() {
    let bias = Some(tensor("map.bias", 0.5));
    let component = Linear { fan_in: 24, fan_out: 16, weight: tensor("map.weight", 0.2), bias, standardised: None };
    let body = vec![Node::apply("map", Component::Linear(component))];
    assert_twin(&gaussian_stack(24, 1.0, 7, body), 4000);
}

/// Tokens whose entries have a large mean, which standardised weights remove: E x² is 5, of which only the variance 1
/// passes.
/// Not reached (expected failure): a token correlation of 0.02 after means.
#[test]
#[should_panic(expected = "of all cells")]
fn standardised_weights_see_no_mean() {
    for width in [24, 96] {
        let source = Source::Gaussian(Gaussian { width, mean: 2.0, variance: 1.0, correlation: 0.3 });
        let body = vec![standardised("wider", width, 2 * width, 0.8), standardised("narrower", 2 * width, 12, 1.9)];
        assert_twin(&stack(source, 7, body), 2000);
    }
}

/// Biases, and standardised weights with uniform entries.
/// Not reached (expected failure): gradients of weights after standardised weights are predicted 4 % too small.
#[test]
#[should_panic(expected = "of all cells")]
fn standardised_uniform_weights_and_a_bias() {
    let weight = Tensor { name: "map.weight".to_owned(), init: Init::Uniform { bound: 0.4 } };
    let map = Linear { fan_in: 48, fan_out: 32, weight, bias: Some(tensor("map.bias", 0.5)), standardised: Some(1.2) };
    let body = vec![Node::apply("map", Component::Linear(map)), standardised("end", 32, 32, 1.0)];
    assert_twin(&gaussian_stack(48, 1.0, 7, body), 2000);
}

/// After ReLU the squared mean is 1/π of the second moment. Standardised weights remove it, so maps of length √(2/(1 −
/// 1/π)) keep the variance.
#[test]
fn standardised_weights_behind_relu() {
    let gain = (2.0 / (1.0 - std::f64::consts::FRAC_1_PI)).sqrt();
    for width in [128, 256] {
        let body = vec![
            standardised("first", width, width, 1.0),
            activation("relu", Activation::Relu),
            standardised("second", width, width, gain),
            activation("relu2", Activation::Relu),
            standardised("third", width, width, gain),
        ];
        assert_twin(&gaussian_stack(width, 1.0, 6, body), 600);
    }
}
