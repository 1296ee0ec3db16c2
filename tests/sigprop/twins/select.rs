use sigprop_stack::{Activation, Component, Node, NormKind, Select};

use crate::support::{activation, assert_twin, gaussian_stack, linear, norm};

fn select(name: &str, start: usize, width: usize, of: usize) -> Node {
    Node::apply(name, Component::Select(Select { start, width, of }))
}

/// Entries that a map has just sampled, and entries after a norm, which has fixed their sum of squares.
#[test]
fn features_of_a_map_and_of_a_norm() {
    let mapped = vec![
        linear("first", 128, 192, 1.5),
        activation("activation", Activation::Gelu),
        select("gate", 32, 96, 192),
        linear("last", 96, 128, 1.0),
    ];
    assert_twin(&gaussian_stack(128, 1.0, 6, mapped), 600);
    let normed = vec![norm("norm", NormKind::RmsNorm), select("gate", 0, 24, 128), linear("last", 24, 128, 1.0)];
    assert_twin(&gaussian_stack(128, 1.0, 6, normed), 600);
}
