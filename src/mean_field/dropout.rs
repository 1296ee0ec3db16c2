//! Dropout: every entry is zero with probability p and 1/(1 − p) times itself otherwise, independently.
//!
//! ```text
//! E y_a² = E x_a²/(1 − p)      E y_a y_b = E x_a x_b      E y_a = E x_a          gradients likewise
//! ```
//!
//! Source: Srivastava et al. 2014; Kedia et al. 2024, appendix on dropout.

use sigprop_stack::Dropout;

use super::component::{MeanField, Parameter};
use super::gradient::Gradient;
use super::kernel::Kernel;
use super::scalar::{Few, Scalar};
use super::signal::Signal;

fn masked<S: Scalar>(kernel: &Kernel<S>, rate: f64) -> Kernel<S> {
    let own = kernel.own.iter().map(|&own| own / (1.0 - rate)).collect();
    Kernel { own, ..kernel.clone() }
}

impl<S: Scalar> MeanField<S> for Dropout {
    fn forward(&self, x: &Signal<S>) -> Signal<S> {
        Signal { kernel: masked(&x.kernel, self.rate), ..x.clone() }
    }

    fn backward(&self, _: &Signal<S>, _: &Signal<S>, gradient: &Gradient<S>) -> Gradient<S> {
        Gradient::independent(masked(&gradient.kernel, self.rate))
    }

    fn weights<'a>(&'a self, _: &Signal<S>, _: &Signal<S>, _: &Gradient<S>) -> Few<(Parameter<'a>, f64)> {
        Few::new()
    }
}
