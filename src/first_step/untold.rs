//! The linear maps for which no change of the output is predicted.

use std::collections::HashSet;

use sigprop_stack::{
    Activation, Component, Dropout, EmbeddingTerm, Linear, Node, NormKind, Op, Optimizer, Pool, PoolKind, Read, Source,
    Stack,
};

use crate::mean_field::dual::function::{is_odd, large_degrees};
use crate::mean_field::dual::shape::shape;

/// Returns the names of the weights for which no change of the output is predicted: those of maps that make keys and,
/// under Adam, those before activations that can be silent and those whose input features are not close to Gaussian.
pub(super) fn untold(stack: &Stack, optimizer: Optimizer) -> HashSet<&str> {
    let mut search = Search { optimizer, ends: Vec::new(), weights: HashSet::new() };
    for stream in &stack.streams {
        let has_mean = match &stream.source {
            Source::Gaussian(source) => source.mean != 0.0,
            Source::Embedding(source) => source.terms.iter().any(is_wave),
        };
        let end = search.through(&stream.body, Features { has_mean, ..Features::GAUSSIAN }, false);
        search.ends.push(end);
    }
    search.weights
}

/// The properties in which features deviate from Gaussian features of mean zero.
#[derive(Clone, Copy, Debug)]
struct Features {
    has_mean: bool,
    is_skewed: bool,
    /// True if the tails are as heavy as the tails of a product of two variables.
    is_heavy: bool,
}

impl Features {
    const GAUSSIAN: Self = Self { has_mean: false, is_skewed: false, is_heavy: false };
    /// The features of an earlier site, which are not kept.
    const ARBITRARY: Self = Self { has_mean: true, is_skewed: true, is_heavy: true };

    /// Returns the deviations of a sum or a concatenation of two sets of features.
    fn or(self, other: Self) -> Self {
        Self {
            has_mean: self.has_mean || other.has_mean,
            is_skewed: self.is_skewed || other.is_skewed,
            is_heavy: self.is_heavy || other.is_heavy,
        }
    }

    /// Returns true if the gradients of a linear map on these features have the signs of sums of Gaussian terms. A
    /// standardised weight subtracts the mean.
    fn are_gaussian(self, linear: &Linear) -> bool {
        !self.is_heavy && if linear.standardised.is_some() { !self.is_skewed } else { !self.has_mean }
    }

    fn behind(self, component: &Component) -> Self {
        /// The share of zeroed entries at which E x⁴/(E x²)² is about twice as large as for Gaussian entries.
        const MANY: f64 = 0.53;
        match component {
            Component::Linear(_) | Component::Convolution(_) => Self::GAUSSIAN,
            Component::Activation(activation) | Component::Pool(Pool { kind: PoolKind::Max { activation }, .. }) => {
                self.activated(*activation)
            }
            Component::Norm(norm) if norm.kind == NormKind::LayerNorm => Self { has_mean: false, ..self },
            Component::Dropout(Dropout { rate }) => Self { is_heavy: self.is_heavy || *rate > MANY, ..self },
            Component::Embedding(term) => Self { has_mean: self.has_mean || is_wave(term), ..self },
            Component::Norm(_)
            | Component::Scale(_)
            | Component::Rotary(_)
            | Component::Prepend(_)
            | Component::Select(_)
            | Component::Pool(Pool { kind: PoolKind::Average, .. }) => self,
        }
    }

    fn activated(self, activation: Activation) -> Self {
        if is_odd(activation) {
            return self;
        }
        // The tails of a square are those of a product of two variables.
        let is_heavy = self.is_heavy || large_degrees(activation).value >= 2.0;
        Self { has_mean: true, is_skewed: true, is_heavy }
    }
}

struct Search<'s> {
    optimizer: Optimizer,
    /// The features at the ends of earlier streams.
    ends: Vec<Features>,
    weights: HashSet<&'s str>,
}

impl<'s> Search<'s> {
    /// Returns the deviations of the features after `body`, from those before it, and collects the weights of its maps
    /// whose output change is not predicted. `makes_keys` is true if `body` is part of a chain that computes keys.
    fn through(&mut self, body: &'s [Node], mut features: Features, makes_keys: bool) -> Features {
        for (place, node) in body.iter().enumerate() {
            if let Op::Apply(Component::Linear(linear)) = &node.op {
                let by_signs = || !features.are_gaussian(linear) || body.get(place + 1).is_some_and(can_be_silent);
                if makes_keys || (self.optimizer == Optimizer::Adam && by_signs()) {
                    self.weights.insert(&linear.weight.name);
                }
            }
            features = self.behind(&node.op, features, makes_keys);
        }
        features
    }

    fn behind(&mut self, op: &'s Op, x: Features, makes_keys: bool) -> Features {
        let all = |of: Vec<Features>| of.into_iter().reduce(Features::or).unwrap_or(x);
        match op {
            Op::Apply(component) => x.behind(component),
            Op::Read(Read::Stream(stream)) => self.ends[*stream],
            Op::Read(Read::Site(_)) => Features::ARBITRARY,
            Op::Chain(body) => self.through(body, x, makes_keys),
            Op::Mixture(mixture) => self.through(&mixture.expert, x, makes_keys),
            Op::Sum(sum) => {
                let of: Vec<Features> =
                    sum.branches.iter().map(|branch| self.through(&branch.body, x, makes_keys)).collect();
                let added = of.into_iter().zip(&sum.branches).filter(|(_, branch)| branch.scale != 0.0);
                all(added.map(|(features, _)| features).collect())
            }
            Op::Concat(concat) => {
                all(concat.parts.iter().map(|part| self.through(&part.body, x, makes_keys)).collect())
            }
            Op::Product(product) => {
                let of: Vec<Features> = product.factors.iter().map(|body| self.through(body, x, makes_keys)).collect();
                let has_mean = of.iter().all(|factor| factor.has_mean);
                Features { has_mean, is_skewed: has_mean, is_heavy: of.len() > 1 || all(of).is_heavy }
            }
            Op::Attention(attention) => {
                let read = attention.memory.map_or(x, |stream| self.ends[stream]);
                self.through(&attention.query, x, makes_keys);
                self.through(&attention.key, read, true);
                self.through(&attention.value, read, makes_keys)
            }
            // Outputs are products of queries, keys and values.
            Op::Recurrence(recurrence) => {
                recurrence.parts().for_each(|part| {
                    self.through(part, x, makes_keys);
                });
                Features { is_heavy: true, ..x }
            }
        }
    }
}

/// Returns true if an embedding consists of sinusoidal waves. Its features have a mean over all features of a token.
fn is_wave(term: &EmbeddingTerm) -> bool {
    matches!(term, EmbeddingTerm::SinusoidalPosition { .. })
}

/// Returns true if a node is an activation, such as ReLU, before which a feature may have a gradient of exactly zero
/// for all tokens.
fn can_be_silent(node: &Node) -> bool {
    let Op::Apply(Component::Activation(activation)) = &node.op else { return false };
    match activation {
        Activation::Relu | Activation::Relu2 | Activation::Relu6 | Activation::HardSwish => true,
        Activation::Expression(expression) => shape(*expression).is_flat,
        Activation::Identity
        | Activation::PlusOne
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

#[cfg(test)]
mod tests {
    use sigprop_stack::{Gaussian, GradientSeed, Init, Norm, Product, Stream, Tensor};

    use super::*;

    fn linear(name: &str) -> Node {
        let weight = Tensor { name: name.to_owned(), init: Init::Normal { std: 0.1 } };
        Node::apply(name, Component::Linear(Linear { fan_in: 8, fan_out: 8, weight, bias: None, standardised: None }))
    }

    fn activation(of: Activation) -> Node {
        Node::apply("activation", Component::Activation(of))
    }

    fn norm(kind: NormKind) -> Node {
        Node::apply("norm", Component::Norm(Norm::plain(kind, 0.0)))
    }

    fn untold_of(body: Vec<Node>, mean: f64, optimizer: Optimizer) -> Vec<String> {
        let source = Source::Gaussian(Gaussian { width: 8, mean, variance: 1.0, correlation: 0.0 });
        let stream = Stream { name: "stream".to_owned(), seq_len: 4, source, body };
        let stack = Stack::new("", vec![stream], GradientSeed { stream: 0, correlation: 0.0 });
        let mut weights: Vec<String> = untold(&stack, optimizer).into_iter().map(str::to_owned).collect();
        weights.sort();
        weights
    }

    /// Features with a mean, with the tails of products, or that may be silent.
    #[test]
    fn signs_ask_for_gaussian_features() {
        let dropout = |rate| Node::apply("dropout", Component::Dropout(Dropout { rate }));
        let product = || {
            let factors = vec![vec![linear("gate"), activation(Activation::Silu)], vec![linear("up")]];
            Node::new("product", Op::Product(Product { factors }))
        };
        for (body, mean, expected) in [
            (vec![linear("a"), linear("b")], 0.0, vec![]),
            (vec![linear("a"), linear("b")], 1.0, vec!["a"]),
            (vec![norm(NormKind::RmsNorm), linear("a")], 1.0, vec!["a"]),
            (vec![norm(NormKind::LayerNorm), linear("a")], 1.0, vec![]),
            (vec![linear("a"), activation(Activation::Tanh), linear("b")], 0.0, vec![]),
            (vec![linear("a"), activation(Activation::Gelu), linear("b"), linear("c")], 0.0, vec!["b"]),
            (vec![linear("a"), activation(Activation::Relu), linear("b")], 0.0, vec!["a", "b"]),
            (vec![dropout(0.5), linear("a"), dropout(0.6), linear("b")], 0.0, vec!["b"]),
            (vec![product(), linear("down"), linear("after")], 0.0, vec!["down"]),
        ] {
            assert_eq!(untold_of(body.clone(), mean, Optimizer::Adam), expected, "{body:?}");
            assert!(untold_of(body, mean, Optimizer::Sgd).is_empty());
        }
    }
}
