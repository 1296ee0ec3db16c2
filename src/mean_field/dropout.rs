//! Dropout: every entry is independently set to zero with probability p, and multiplied by 1/(1 − p) otherwise.
//!
//! ```text
//! forward    E y_a² = E x_a²/(1 − p)       E y_a y_b = E x_a x_b       E y_a = E x_a        gradients likewise
//! ```
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
