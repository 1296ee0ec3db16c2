//! The traits of components: with one input, or with several inputs that are the outputs of chains.

use std::sync::Arc;

use sigprop_stack::Tensor;

use super::few::Few;
use super::gradient::Gradient;
use super::signal::Signal;

/// A parameter of a component.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Parameter<'a> {
    /// A named tensor that signals are multiplied by or read from.
    Tensor(&'a Tensor),
    /// A named tensor that is added to a signal.
    Bias(&'a Tensor),
    /// The gains of a norm.
    Gain,
    /// The skip of a recurrence.
    Skip,
}

/// A component with one input.
pub(crate) trait MeanField {
    /// Returns the output for the input `x`.
    fn forward(&self, x: &Signal) -> Signal;
    /// Returns the gradient at the input `x` from the gradient at the output `y`.
    fn backward(&self, x: &Signal, y: &Signal, gradient: &Gradient) -> Gradient;
    /// Returns ln E dW² of every parameter of the component, where dW is dL/dW_ij of one entry. The loss L is summed
    /// over the tokens of a sequence.
    fn weights<'a>(&'a self, x: &Signal, y: &Signal, gradient: &Gradient) -> Few<(Parameter<'a>, f64)>;
}

/// A component with several inputs: the outputs of chains that share the input `x`. Attention has
/// [`Attended`](super::attention::Attended) instead, which keeps more for the backward pass.
pub(crate) trait MeanFieldFan {
    /// Returns the output from the outputs of the `parts`.
    fn merge(&self, x: &Signal, parts: &[Arc<Signal>]) -> Signal;
    /// Returns the gradient at the output of each part from the gradient at the output of the component.
    fn split(&self, x: &Signal, parts: &[Arc<Signal>], gradient: &Gradient) -> Vec<Gradient>;
}
