use sigprop_stack::{Component, EmbeddingTerm, Node, Prepend};

use crate::support::{assert_twin, gaussian_stack, linear, tensor};

/// A class token in front of tokens; positions are added to all of them.
#[test]
fn class_token_and_positions() {
    let body = vec![
        linear("patches", 32, 64, 1.0),
        Node::apply("class", Component::Prepend(Prepend { token: tensor("class", 0.4) })),
        Node::apply(
            "position",
            Component::Embedding(EmbeddingTerm::LearnedPosition { table: tensor("position", 0.2) }),
        ),
        linear("map", 64, 64, 1.0),
    ];
    assert_twin(&gaussian_stack(32, 1.0, 7, body), 600);
}
