use sigprop_stack::{Component, Linear, Node};

use crate::support::{assert_twin, gaussian_stack, linear, tensor};

/// Exact at any width.
#[test]
fn linear_maps_change_width() {
    let body = vec![linear("wider", 12, 40, 0.7), linear("narrower", 40, 8, 1.9)];
    assert_twin(&gaussian_stack(12, 2.0, 9, body), 4000);
}

#[test]
fn bias_is_common_to_all_tokens() {
    let component =
        Linear { fan_in: 24, fan_out: 16, weight: tensor("map.weight", 0.2), bias: Some(tensor("map.bias", 0.5)) };
    let body = vec![Node::apply("map", Component::Linear(component))];
    assert_twin(&gaussian_stack(24, 1.0, 7, body), 4000);
}
