use sigprop_stack::{Component, Node, Norm, NormKind};

use crate::support::{assert_twin, gaussian_stack, linear};

/// A batch of eight after a wide layer, with a negligible ε and with one as large as the features.
#[test]
fn batch_norms() {
    for training in [true, false] {
        for eps in [1e-5, 0.5] {
            let kind = NormKind::BatchNorm { training };
            let norm = Node::apply("norm", Component::Norm(Norm { gain: 1.3, ..Norm::plain(kind, eps) }));
            let body = vec![linear("in", 4096, 64, 0.8), norm, linear("out", 64, 64, 1.0)];
            assert_twin(&gaussian_stack(4096, 1.0, 8, body), 600);
        }
    }
}
