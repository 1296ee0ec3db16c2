//! Linear map y = W x + b, the same for all tokens, with independent entries of variance s² and biases of variance
//! s_bias². G^y and G^x are the kernels E g_a g_b of the gradients at the output y and at the input x.
//!
//! ```text
//! forward    E y_a y_b = n_in s² E x_a x_b + s_bias²          mean 0
//! backward   G^x_ab = n_out s² G^y_ab
//! weights    E dW² = Σ_ab G^y_ab E x_a x_b                 E db² = Σ_ab G^y_ab
//! ```
//!
//! Rows of a standardised weight add up to zero and have the length γ: E y_a y_b = γ² (E x_a x_b − E x_a E x_b) +
//! s_bias².
//!
//! Assumption: the gradient depends on W only through y, so that it is independent of W in the backward pass (Yang
//! 2020).
//! Source: Kedia et al. 2024, appendix on linear layers; standardised weights: Brock et al. 2021.

use sigprop_stack::Linear;
use smallvec::smallvec;

use super::component::{MeanField, Parameter};
use super::few::Few;
use super::gradient::{Gradient, Next};
use super::signal::Signal;

/// Returns `count` times s², where s² is the variance of an entry of the weight in use, after standardisation if there
/// is one.
fn gain(linear: &Linear, count: usize) -> f64 {
    let variance = match linear.standardised {
        Some(length) => length * length / linear.fan_in as f64,
        None => linear.weight.init.variance(),
    };
    count as f64 * variance
}

/// Returns ln J, where √J is the size of a step of the standardised weight in use per size of the step of the sampled
/// weight; 0 for weights that are not standardised.
pub(super) fn ln_jacobian(linear: &Linear) -> f64 {
    linear.standardised.map_or(0.0, |_| (gain(linear, 1) / linear.weight.init.variance()).ln())
}

impl MeanField for Linear {
    fn forward(&self, x: &Signal) -> Signal {
        let kernel = match self.standardised {
            Some(_) => x.centred_kernel().scaled(gain(self, self.fan_in)),
            None => x.kernel.scaled(gain(self, self.fan_in)),
        };
        let bias = self.bias.as_ref().map_or(0.0, |bias| bias.init.variance());
        Signal::centred(self.fan_out as f64, kernel.shifted(bias))
    }

    fn backward(&self, _: &Signal, _: &Signal, gradient: &Gradient) -> Gradient {
        Gradient::independent(gradient.kernel.scaled(gain(self, self.fan_out)))
    }

    fn weights<'a>(&'a self, x: &Signal, _: &Signal, gradient: &Gradient) -> Few<(Parameter<'a>, f64)> {
        let input = match self.standardised {
            Some(_) => &x.centred_kernel(),
            None => &x.kernel,
        };
        let ln_collected = gradient.ln_collected(input) + ln_jacobian(self);
        let weight = (Parameter::Tensor(&self.weight), ln_collected);
        let Some(bias) = &self.bias else { return smallvec![weight] };
        let ln_bias = match gradient.next {
            Next::Scores => f64::NEG_INFINITY,
            Next::Anything | Next::Activation(_) => gradient.kernel.ln_total(),
        };
        smallvec![(Parameter::Bias(bias), ln_bias), weight]
    }
}
