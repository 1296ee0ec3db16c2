use sigprop_stack::{Activation, Component, Convolution, Node};

use crate::support::{activation, assert_twin, gaussian_stack, tensor};

fn convolution(name: &str, fan_in: usize, fan_out: usize, stride: usize) -> Node {
    let variance = 1.0 / (3.0 * fan_in as f64);
    let (weight, bias) = (tensor(name, variance), Some(tensor(&format!("{name}.bias"), 0.05)));
    let convolution = Convolution { fan_in, fan_out, kernel: 3, stride, padding: 1, weight, bias };
    Node::apply(name, Component::Convolution(convolution))
}

/// The two convolutions before a speech model: neighbouring tokens share inputs, and the first and the last token have
/// fewer inputs.
/// Not reached (expected failure): gradients of the first and the last of overlapping patches are predicted like the
/// gradients of all.
#[test]
#[should_panic(expected = "of all cells")]
fn two_convolutions() {
    let body =
        vec![convolution("first", 48, 96, 1), activation("relu", Activation::Relu), convolution("second", 96, 96, 2)];
    assert_twin(&gaussian_stack(48, 1.0, 12, body), 600);
}
