use sigprop_stack::{Component, Node, Rotary};

use crate::support::{assert_twin, gaussian_stack, linear};

/// Heads with all or half of their features rotated.
#[test]
fn rotated_features() {
    for rotated in [16, 8] {
        let rotary = Node::apply("rotary", Component::Rotary(Rotary::new(16, rotated, 100.0)));
        assert_twin(&gaussian_stack(64, 1.0, 8, vec![linear("map", 64, 64, 1.0), rotary]), 600);
    }
}
