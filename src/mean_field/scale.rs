//! Multiplication y = factor · x by a number.
//!
//! ```text
//! E y_a y_b = factor² E x_a x_b      E y_a = factor E x_a          gradients likewise
//! ```
//!
//! where a, b are positions of tokens; E is the average over random weights and over features; factor is the number.
//!
//! Example: factor 3 and x of variance 1 and correlation 0.5: y has variance 9 and correlation 0.5. A gradient of
//! variance 1 at y becomes 9 at x.

use sigprop_stack::Scale;

use super::component::{MeanField, Parameter};
use super::few::Few;
use super::gradient::Gradient;
use super::kernel::Kernel;
use super::signal::Signal;

impl MeanField for Scale {
    fn forward(&self, x: &Signal) -> Signal {
        let kernel = x.kernel.scaled(self.factor * self.factor);
        let unit = self.factor.signum();
        let balance = self.factor.abs().ln() + 0.5 * (x.kernel.ln_unit - kernel.ln_unit);
        let means = x.scaled_means(|_| unit * balance.exp());
        Signal { kernel, means, ..x.clone() }
    }

    fn backward(&self, _: &Signal, _: &Signal, gradient: &Gradient) -> Gradient {
        let scaled = |kernel: &Kernel| kernel.scaled(self.factor * self.factor);
        let before = gradient.before.as_ref().map(scaled);
        Gradient { kernel: scaled(&gradient.kernel), before, ..gradient.clone() }
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
        let scale = Scale { factor: 3.0 };
        let x = Signal::centred(64.0, Kernel::of_tokens(2.0, [1.0, 0.5]));
        let y = scale.forward(&x);
        y.kernel.assert_is([9.0, 0.5]);
        let gradient = Gradient::independent(Kernel::of_tokens(2.0, [1.0, 0.0]));
        scale.backward(&x, &y, &gradient).kernel.assert_is([9.0, 0.0]);
    }
}
