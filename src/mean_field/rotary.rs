//! Rotated queries and keys: features are turned in pairs by position · frequency.
//!
//! ```text
//! E (R_a x_a)(R_b x_b) = κ(a − b) E x_a x_b          κ(d) = 1 − 2n/d_head + 2/d_head Σ_i cos (f_i d)
//! ```
//!
//! and gradients likewise. Scores know of the distance: (R_a q_a)·(R_b k_b) = q_a·R_(b − a) k_b. The kernel of a rotated signal stays
//! that before, which attention needs, with the rotation beside it.
//!
//! Assumption: features have the same kernel before. Source: Su et al. 2021.

use std::sync::Arc;

use sigprop_stack::Rotary;

use super::moments::{Few, Gradient, Kernel, Signal};
use super::scalar::Scalar;
use super::{MeanField, Parameter};

/// By how much features are turned.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Rotation(Arc<Rotary>);

impl Rotation {
    fn new(rotary: &Rotary) -> Self {
        Self(Arc::new(rotary.clone()))
    }

    /// κ of the distances from 0.
    pub(crate) fn kernel(&self, length: usize) -> Vec<f64> {
        let Rotary { d_head, frequencies } = &*self.0;
        let part = 2.0 / *d_head as f64;
        let still = 1.0 - part * frequencies.len() as f64;
        let at = |distance: usize| {
            still + part * frequencies.iter().map(|frequency| (frequency * distance as f64).cos()).sum::<f64>()
        };
        (0..length).map(at).collect()
    }

    /// The kernel behind the rotation.
    pub(crate) fn of<S: Scalar>(&self, kernel: &Kernel<S>) -> Kernel<S> {
        let Some(chart) = &kernel.positions.chart else { return kernel.clone() };
        let at_points = chart.averaged(&self.kernel(chart.length));
        let pairs = kernel.pairs.iter().zip(at_points.iter().cycle()).map(|(&pair, &factor)| pair * factor);
        kernel.with(kernel.ln_unit, kernel.own.clone(), pairs.collect())
    }
}

impl<S: Scalar> MeanField<S> for Rotary {
    fn forward(&self, x: &Signal<S>) -> Signal<S> {
        Signal { rotation: Some(Rotation::new(self)), ..x.clone() }
    }

    fn backward(&self, _: &Signal<S>, _: &Signal<S>, gradient: &Gradient<S>) -> Gradient<S> {
        Gradient::independent(Rotation::new(self).of(&gradient.kernel))
    }

    fn weights<'a>(&'a self, _: &Signal<S>, _: &Signal<S>, _: &Gradient<S>) -> Few<(Parameter<'a>, f64)> {
        Few::new()
    }
}
