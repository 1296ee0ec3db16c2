//! Dropout: every entry is independently set to zero with probability p, and multiplied by 1/(1 − p) otherwise.
//!
//! ```text
//! forward    E y_a² = E x_a²/(1 − p)       E y_a y_b = E x_a x_b       E y_a = E x_a        gradients likewise
//! ```
//!
//! where a, b are positions of tokens; E is the average over random weights and over features; p is the probability
//! that dropout sets an entry to zero.
//!
//! Example: p = 0.5 and x of variance 1 and correlation 0.5: y has variance 2 and correlation 0.25. A gradient of
//! variance 1 and correlation 0.5 at y becomes a gradient of variance 2 and correlation 0.25 at x.
//!
//! Source: Srivastava et al. 2014; Kedia et al. 2024, appendix on dropout.

use sigprop_stack::Dropout;

use super::component::{MeanField, Parameter};
use super::few::Few;
use super::gradient::Gradient;
use super::kernel::Kernel;
use super::signal::Signal;

fn masked(kernel: &Kernel, rate: f64) -> Kernel {
    let own = kernel.own.iter().map(|&own| own / (1.0 - rate)).collect();
    Kernel { own, ..kernel.clone() }
}

impl MeanField for Dropout {
    fn forward(&self, x: &Signal) -> Signal {
        Signal { kernel: masked(&x.kernel, self.rate), ..x.clone() }
    }

    fn backward(&self, _: &Signal, _: &Signal, gradient: &Gradient) -> Gradient {
        Gradient::independent(masked(&gradient.kernel, self.rate))
    }

    fn weights<'a>(&'a self, _: &Signal, _: &Signal, _: &Gradient) -> Few<(Parameter<'a>, f64)> {
        Few::new()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn example_of_the_header() {
        let dropout = Dropout { rate: 0.5 };
        let x = Signal::centred(64.0, Kernel::of_tokens(2.0, [1.0, 0.5]));
        let y = dropout.forward(&x);
        y.kernel.assert_is([2.0, 0.25]);
        let gradient = Gradient::independent(Kernel::of_tokens(2.0, [1.0, 0.5]));
        dropout.backward(&x, &y, &gradient).kernel.assert_is([2.0, 0.25]);
    }
}
