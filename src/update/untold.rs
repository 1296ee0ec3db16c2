//! Of which linear maps no change of the output is told.

use std::collections::HashSet;

use sigprop_stack::{Activation, Component, Node, Op, Optimizer, Stack};

/// The weights of maps that make keys, and under Adam those before activations that can be silent.
pub(super) fn untold(stack: &Stack, optimizer: Optimizer) -> HashSet<&str> {
    let mut weights = HashSet::new();
    for stream in &stack.streams {
        collect(&stream.body, false, optimizer, &mut weights);
    }
    weights
}

/// Those of a body, which is a part of keys or is not.
fn collect<'s>(body: &'s [Node], makes_keys: bool, optimizer: Optimizer, weights: &mut HashSet<&'s str>) {
    for (place, node) in body.iter().enumerate() {
        if let Op::Apply(Component::Linear(linear)) = &node.op
            && (makes_keys || (optimizer == Optimizer::Adam && body.get(place + 1).is_some_and(can_be_silent)))
        {
            weights.insert(&linear.weight.name);
        }
        if let Op::Attention(attention) = &node.op {
            collect(&attention.key, true, optimizer, weights);
            for part in [&attention.query, &attention.value] {
                collect(part, makes_keys, optimizer, weights);
            }
        } else {
            node.op.bodies().for_each(|body| collect(body, makes_keys, optimizer, weights));
        }
    }
}

/// Whether features may have a gradient of exactly zero for all tokens.
fn can_be_silent(node: &Node) -> bool {
    let Op::Apply(Component::Activation(activation)) = &node.op else { return false };
    match activation {
        Activation::Relu | Activation::Relu2 | Activation::Relu6 | Activation::HardSwish => true,
        Activation::Identity
        | Activation::LeakyRelu { .. }
        | Activation::Gelu
        | Activation::GeluTanh
        | Activation::Silu
        | Activation::QuickGelu
        | Activation::Mish
        | Activation::Elu
        | Activation::Selu
        | Activation::Xielu
        | Activation::Tanh
        | Activation::Sigmoid
        | Activation::Erf
        | Activation::Softplus => false,
    }
}
