//! Activation y = φ(x) of every entry, by the dual activation of φ ([`super::dual`]). G^y and G^x are the
//! kernels E g_a g_b of the gradients at the output y and at the input x.
//!
//! ```text
//! forward    E y_a y_b = E φ(u) φ(v)      E y_a = E φ(u)        (u, v) Gaussian with the moments of (x_a, x_b)
//! backward   G^x_ab = G^y_ab E φ'(u) φ'(v)
//! gains      E (g x)_a (g x)_b = G^y_ab E φ'(u)u φ'(v)v      g: at x, for a norm right before φ
//! ```
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
