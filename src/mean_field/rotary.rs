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

/// By how much features are turned: shares of them with one rotation each, or none.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Rotation(Vec<(f64, Option<Arc<Rotary>>)>);

impl Rotation {
    fn new(rotary: &Rotary) -> Self {
        Self(vec![(1.0, Some(Arc::new(rotary.clone())))])
    }

    /// Of parts with these shares, if any is rotated.
    pub(crate) fn mixed<'p>(parts: impl Iterator<Item = (f64, Option<&'p Self>)> + Clone) -> Option<Self> {
        parts.clone().any(|(_, rotation)| rotation.is_some()).then(|| {
            let total: f64 = parts.clone().map(|(share, _)| share).sum();
            let of_part = |(share, rotation): (f64, Option<&Self>)| match rotation {
                Some(Self(parts)) => parts.iter().map(|(own, part)| (own * share / total, part.clone())).collect(),
                None => vec![(share / total, None)],
            };
            Self(parts.flat_map(of_part).collect())
        })
    }

    /// κ of the distances from 0.
    pub(crate) fn kernel(&self, length: usize) -> Vec<f64> {
        let mut kernel = vec![0.0; length];
        for (share, rotary) in &self.0 {
            let turned = rotary.as_ref().map_or(&[][..], |rotary| &rotary.frequencies);
            let part = rotary.as_ref().map_or(0.0, |rotary| 2.0 * share / rotary.d_head as f64);
            let still = share - part * turned.len() as f64;
            for (distance, at) in kernel.iter_mut().enumerate() {
                let cosines = turned.iter().map(|frequency| (frequency * distance as f64).cos()).sum::<f64>();
                *at += still + part * cosines;
            }
        }
        kernel
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
        let before = gradient.before.clone();
        Gradient::independent(before.unwrap_or_else(|| Rotation::new(self).of(&gradient.kernel)))
    }

    fn weights<'a>(&'a self, _: &Signal<S>, _: &Signal<S>, _: &Gradient<S>) -> Few<(Parameter<'a>, f64)> {
        Few::new()
    }
}
