//! Selection y of some of the features of x.
//!
//! ```text
//! forward    E y_a y_b = E x_a x_b        E y_a = E x_a
//! backward   G^x_ab = share G^y_ab        share = width_y/width_x
//! ```
//!
//! where a, b are positions of tokens; E is the average over random weights and over features; G^y and G^x are the
//! kernels E g_a g_b of the gradients at y and at x; share is the share of the features of x that are selected; width_x
//! and width_y are the numbers of features of x and of y.
//!
//! The other features have a gradient of zero.
//!
//! Example: 16 of 64 features, and x of variance 2 and correlation 0.5: y has variance 2 and correlation 0.5. A gradient
//! of variance 1 at y becomes 0.25 at x.
//!
//! Assumption: all features of x have the same distribution. Source: symmetry.

use sigprop_stack::Select;

use super::component::{MeanField, Parameter};
use super::few::Few;
use super::gradient::Gradient;
use super::signal::Signal;

impl MeanField for Select {
    fn forward(&self, x: &Signal) -> Signal {
        Signal { width: self.width as f64, parts: None, ..x.clone() }
    }

    fn backward(&self, _: &Signal, _: &Signal, gradient: &Gradient) -> Gradient {
        Gradient::independent(gradient.kernel.scaled(self.width as f64 / self.of as f64))
    }

    fn weights<'a>(&'a self, _: &Signal, _: &Signal, _: &Gradient) -> Few<(Parameter<'a>, f64)> {
        Few::new()
    }
}

#[cfg(test)]
mod tests {
    use super::super::kernel::Kernel;
    use super::*;

    #[test]
    fn example_of_the_header() {
        let select = Select { start: 0, width: 16, of: 64 };
        let x = Signal::centred(64.0, Kernel::of_tokens(2.0, [2.0, 0.5]));
        let y = select.forward(&x);
        y.kernel.assert_is([2.0, 0.5]);
        assert_eq!(y.width as usize, 16);
        let gradient = Gradient::independent(Kernel::of_tokens(2.0, [1.0, 0.0]));
        select.backward(&x, &y, &gradient).kernel.assert_is([0.25, 0.0]);
    }
}
