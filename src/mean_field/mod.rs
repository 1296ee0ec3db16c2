//! The infinitely wide network: what every component makes of second moments, forward and backward.
//!
//! State: E x_a x_b of single entries for all tokens a, b ([`moments`]), at followed positions ([`positions`]). One file per
//! component: formula, assumption, source, and code that reads like it. Nothing here knows of finite widths.

pub(crate) mod activation;
pub(crate) mod attention;
mod concat;
pub(crate) mod convolution;
mod dropout;
pub(crate) mod embedding;
mod linear;
pub(crate) mod mixture;
pub(crate) mod moments;
mod norm;
pub(crate) mod positions;
mod prepend;
mod product;
pub(crate) mod rotary;
pub(crate) mod scalar;
mod scale;
mod softmax;
mod sum;
#[cfg(test)]
mod tests;

use std::sync::Arc;

use sigprop_stack::Tensor;

use self::moments::{Few, Gradient, Signal};
use self::scalar::Scalar;

/// A parameter of a component.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Parameter<'a> {
    /// A tensor with a name.
    Tensor(&'a Tensor),
    /// The gains of a norm.
    Gain,
}

/// A component with one input.
pub(crate) trait MeanField<S: Scalar> {
    /// The output from the input.
    fn forward(&self, x: &Signal<S>) -> Signal<S>;
    /// The gradient at the input `x` from that at the output `y`.
    fn backward(&self, x: &Signal<S>, y: &Signal<S>, gradient: &Gradient<S>) -> Gradient<S>;
    /// ln E dW² of its parameters, summed over the tokens of a sequence.
    fn weights<'a>(&'a self, x: &Signal<S>, y: &Signal<S>, gradient: &Gradient<S>) -> Few<(Parameter<'a>, f64)>;
}

/// A component with several inputs, chains on a common input `x`.
pub(crate) trait Fan<S: Scalar> {
    /// The output from those of the `parts`.
    fn merge(&self, x: &Signal<S>, parts: &[Arc<Signal<S>>]) -> Signal<S>;
    /// The gradient at the output of each part, from that at the output.
    fn split(&self, x: &Signal<S>, parts: &[Arc<Signal<S>>], gradient: &Gradient<S>) -> Vec<Gradient<S>>;
}
