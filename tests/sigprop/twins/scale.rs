use sigprop_stack::{Component, Node, Scale};

use crate::support::{assert_twin, gaussian_stack, linear};

#[test]
fn factors_of_both_signs() {
    for factor in [0.3, -2.5] {
        let body = vec![Node::apply("scale", Component::Scale(Scale { factor })), linear("map", 64, 64, 1.0)];
        assert_twin(&gaussian_stack(64, 1.5, 6, body), 400);
    }
}
