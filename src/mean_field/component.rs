//! What a component is: one with one input, or chains on a common one that meet.

use std::sync::Arc;

use sigprop_stack::Tensor;

use super::few::Few;
use super::gradient::Gradient;
use super::signal::Signal;

/// A parameter of a component.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Parameter<'a> {
    /// A tensor with a name that signals are multiplied by or read from.
    Tensor(&'a Tensor),
    /// A tensor with a name that is added.
    Bias(&'a Tensor),
    /// The gains of a norm.
    Gain,
}

/// A component with one input.
pub(crate) trait MeanField {
    /// The output from the input.
    fn forward(&self, x: &Signal) -> Signal;
    /// The gradient at the input `x` from that at the output `y`.
    fn backward(&self, x: &Signal, y: &Signal, gradient: &Gradient) -> Gradient;
    /// ln E dW² of its parameters, summed over the tokens of a sequence.
    fn weights<'a>(&'a self, x: &Signal, y: &Signal, gradient: &Gradient) -> Few<(Parameter<'a>, f64)>;
}

/// A component with several inputs, chains on a common input `x`.
pub(crate) trait MeanFieldFan {
    /// The output from those of the `parts`.
    fn merge(&self, x: &Signal, parts: &[Arc<Signal>]) -> Signal;
    /// The gradient at the output of each part, from that at the output.
    fn split(&self, x: &Signal, parts: &[Arc<Signal>], gradient: &Gradient) -> Vec<Gradient>;
}
