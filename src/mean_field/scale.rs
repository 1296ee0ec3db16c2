//! Multiplication by a number c.
//!
//! ```text
//! E y_a y_b = c² E x_a x_b      E y_a = c E x_a          gradients likewise
//! ```

use sigprop_stack::Scale;

use super::component::{MeanField, Parameter};
use super::gradient::Gradient;
use super::kernel::Kernel;
use super::scalar::{Few, Scalar};
use super::signal::Signal;

impl<S: Scalar> MeanField<S> for Scale {
    fn forward(&self, x: &Signal<S>) -> Signal<S> {
        let kernel = x.kernel.scaled(self.factor * self.factor);
        let unit = self.factor.signum();
        let balance = self.factor.abs().ln() + 0.5 * (x.kernel.ln_unit - kernel.ln_unit);
        let means = x.scaled_means(|_| S::from(unit * balance.exp()));
        Signal { kernel, means, ..x.clone() }
    }

    fn backward(&self, _: &Signal<S>, _: &Signal<S>, gradient: &Gradient<S>) -> Gradient<S> {
        let scaled = |kernel: &Kernel<S>| kernel.scaled(self.factor * self.factor);
        let before = gradient.before.as_ref().map(scaled);
        Gradient { kernel: scaled(&gradient.kernel), before, ..gradient.clone() }
    }

    fn weights<'a>(&'a self, _: &Signal<S>, _: &Signal<S>, _: &Gradient<S>) -> Few<(Parameter<'a>, f64)> {
        Few::new()
    }
}
