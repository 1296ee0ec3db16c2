//! Multiplication by a number c.
//!
//! ```text
//! E y_a y_b = c² E x_a x_b      E y_a = c E x_a          gradients likewise
//! ```

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
