//! Activation y = φ(x) of every entry, by the dual activation of φ ([`super::dual`]).
//!
//! ```text
//! forward    E y_a y_b = E φ(u) φ(v)      E y_a = E φ(u)        (u, v) Gaussian with the moments of (x_a, x_b)
//! backward   G^x_ab = G^y_ab E φ'(u) φ'(v)
//! gains      E (g x)_a (g x)_b = G^y_ab E φ'(u)u φ'(v)v      g: at x, for a norm right before φ
//! ```
//!
//! where a, b are positions of tokens; E is the average over random weights and over features; φ is the activation; φ'
//! is the derivative of φ; u, v are two Gaussian variables with the moments of x_a and x_b; G^y is the kernel E g_a g_b
//! of the gradients at the output y; G^x is the kernel E g_a g_b of the gradients at the input x; g is the gradient of
//! the loss.
//!
//! Example: ReLU for x of variance 1 and correlation 0.5: E y² = 0.5, E y_a y_b/E y² = √3/(2π) + 1/3 = 0.609 and E y =
//! 1/√(2π) = 0.399. A gradient of variance 1 and correlation 1 at y becomes a gradient of variance 0.5 and correlation
//! 2/3 at x.
//!
//! Assumption: x has mean zero and is Gaussian, as after a linear map. Source: Cho & Saul 2009; Poole et al. 2016.

use super::component::{MeanField, Parameter};
use super::dual::{Dual, Of};
use super::few::Few;
use super::gradient::{Gradient, Next};
use super::signal::Signal;

impl MeanField for Dual {
    fn forward(&self, x: &Signal) -> Signal {
        let kernel = self.of_signal(x, Of::Values);
        let means = self.means_of_signal(x, kernel.ln_unit);
        Signal { means, ..Signal::centred(x.width, kernel) }
    }

    fn backward(&self, x: &Signal, _: &Signal, gradient: &Gradient) -> Gradient {
        let kernel = gradient.kernel.times(&self.of_signal(x, Of::Derivatives));
        Gradient { next: Next::Activation(self.clone()), ..Gradient::independent(kernel) }
    }

    fn weights<'a>(&'a self, _: &Signal, _: &Signal, _: &Gradient) -> Few<(Parameter<'a>, f64)> {
        Few::new()
    }
}

#[cfg(test)]
mod tests {
    use std::f64::consts::PI;

    use approx::assert_relative_eq;
    use sigprop_stack::Activation;

    use super::super::kernel::Kernel;
    use super::*;

    #[test]
    fn example_of_the_header() {
        let relu = Dual::new(Activation::Relu);
        let x = Signal::centred(64.0, Kernel::of_tokens(2.0, [1.0, 0.5]));
        let y = relu.forward(&x);
        y.kernel.assert_is([0.5, 3f64.sqrt() / (2.0 * PI) + 1.0 / 3.0]);
        assert_relative_eq!(3f64.sqrt() / (2.0 * PI) + 1.0 / 3.0, 0.609, epsilon = 1e-3);
        assert_relative_eq!(y.mean(0) * (0.5 * y.kernel.ln_unit).exp(), 0.399, epsilon = 1e-3);
        let gradient = Gradient::independent(Kernel::of_tokens(2.0, [1.0, 1.0]));
        relu.backward(&x, &y, &gradient).kernel.assert_is([0.5, 2.0 / 3.0]);
    }
}
