use sigprop_stack::{Concat, ConcatPart, Node, Op};

use crate::support::{assert_twin, gaussian_stack, linear};

/// A part for every head beside one that all heads share.
#[test]
fn own_and_shared_parts() {
    let part = |shared, body| ConcatPart { shared, body };
    let parts = vec![part(false, vec![linear("own", 64, 48, 1.0)]), part(true, vec![linear("shared", 64, 16, 1.0)])];
    let concat = Node::new("concat", Op::Concat(Concat { n_heads: 4, parts }));
    assert_twin(&gaussian_stack(64, 1.0, 6, vec![concat]), 600);
}
