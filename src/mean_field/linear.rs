//! Linear map y = W x + bias, the same for all tokens, with independent entries of W.
//!
//! ```text
//! forward    E y_a y_b = n_in s² E x_a x_b + s_bias²          mean 0
//! backward   G^x_ab = n_out s² G^y_ab
//! weights    E dW² = Σ_ab G^y_ab E x_a x_b                 E dbias² = Σ_ab G^y_ab
//! ```
//!
//! where a, b are positions of tokens; E is the average over random weights and over features; n_in is the fan-in of a
//! linear map; n_out is the fan-out of a linear map; s² is the variance of an entry of a weight; s_bias² is the
//! variance of an entry of a bias; G^y is the kernel E g_a g_b of the gradients at the output y; G^x is the kernel E
//! g_a g_b of the gradients at the input x; dW is the gradient of an entry of W; dbias is the gradient of an entry of
//! the bias.
//!
//! Orthogonal weights have the same second moments, although their entries are not independent.
//!
//! Rows of a standardised weight add up to zero and have the length γ: E y_a y_b = γ² (E x_a x_b − E x_a E x_b) +
//! s_bias².
//!
//! Example: two tokens of variance 1 and correlation 0.5, 256 → 128 features, weights of variance 1/256: y has variance
//! 1 and correlation 0.5. A gradient of variance 1 and correlation 0.25 at y becomes a gradient of variance 0.5 and
//! correlation 0.25 at x, and E dW² = 2 (1 + 0.25 · 0.5) = 2.25.
//!
//! Assumption: the gradient depends on W only through y, so that it is independent of W in the backward pass (Yang
//! 2020).
//! Source: Kedia et al. 2024, appendix on linear layers; standardised weights: Brock et al. 2021; orthogonal weights:
//! Saxe et al. 2014.

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

#[cfg(test)]
mod tests {
    use sigprop_stack::{Init, Tensor};

    use super::super::kernel::Kernel;
    use super::*;

    #[test]
    fn example_of_the_header() {
        let weight = Tensor { name: String::new(), init: Init::Normal { std: 1.0 / 16.0 } };
        let linear = Linear { fan_in: 256, fan_out: 128, weight, bias: None, standardised: None };
        let x = Signal::centred(256.0, Kernel::of_tokens(2.0, [1.0, 0.5]));
        let y = linear.forward(&x);
        y.kernel.assert_is([1.0, 0.5]);
        let gradient = Gradient::independent(Kernel::of_tokens(2.0, [1.0, 0.25]));
        linear.backward(&x, &y, &gradient).kernel.assert_is([0.5, 0.25]);
        let [(_, ln_square)] = linear.weights(&x, &y, &gradient)[..] else { panic!("there is one weight") };
        approx::assert_relative_eq!(ln_square.exp(), 2.25, max_relative = 1e-9);
    }
}
