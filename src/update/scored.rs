//! Which linear maps make queries and keys.

use std::collections::HashSet;

use sigprop_stack::{Component, Node, Op, Stack};

/// The weights of the linear maps that scores are made of.
pub(super) fn scored(stack: &Stack) -> HashSet<&str> {
    let mut weights = HashSet::new();
    for stream in &stack.streams {
        collect(&stream.body, false, &mut weights);
    }
    weights
}

/// Those of a body, which is a part of queries or keys or is not.
fn collect<'s>(body: &'s [Node], is_scored: bool, weights: &mut HashSet<&'s str>) {
    for node in body {
        if let Op::Apply(Component::Linear(linear)) = &node.op
            && is_scored
        {
            weights.insert(&linear.weight.name);
        }
        if let Op::Attention(attention) = &node.op {
            collect(&attention.value, is_scored, weights);
            for scores in [&attention.query, &attention.key] {
                collect(scores, true, weights);
            }
        } else {
            node.op.bodies().for_each(|body| collect(body, is_scored, weights));
        }
    }
}
