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
        let mut inside = |body: &'s [Node]| collect(body, is_scored, weights);
        match &node.op {
            Op::Apply(Component::Linear(linear)) => {
                if is_scored {
                    weights.insert(&linear.weight.name);
                }
            }
            Op::Apply(
                Component::Norm(_)
                | Component::Activation(_)
                | Component::Dropout(_)
                | Component::Scale(_)
                | Component::Rotary(_)
                | Component::Embedding(_)
                | Component::Convolution(_)
                | Component::Prepend(_),
            ) => {}
            Op::Chain(body) => inside(body),
            Op::Sum(sum) => sum.branches.iter().for_each(|branch| inside(&branch.body)),
            Op::Product(product) => product.factors.iter().for_each(|factor| inside(factor)),
            Op::Concat(concat) => concat.parts.iter().for_each(|part| inside(&part.body)),
            Op::Mixture(mixture) => inside(&mixture.expert),
            Op::Attention(attention) => {
                inside(&attention.value);
                collect(&attention.query, true, weights);
                collect(&attention.key, true, weights);
            }
        }
    }
}
