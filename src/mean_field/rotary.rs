//! Rotary positions: the features of queries and keys are rotated in pairs, by position · frequency.
//!
//! ```text
//! E (R_a x_a)(R_b x_b) = κ(a − b) E x_a x_b          κ: [`super::rotation`]
//! ```
//!
//! Gradients transform likewise. Scores depend on the distance: (R_a q_a)·(R_b k_b) = q_a·R_(b − a) k_b. A rotated
//! signal keeps the kernel before the rotation, which attention needs. The rotation is stored next to it.
//!
//! Assumption: all features have the same kernel before the rotation. Source: Su et al. 2021.

use std::sync::Arc;

use super::component::{MeanField, Parameter};
use super::few::Few;
use super::gradient::Gradient;
use super::rotation::{Rotation, Turn};
use super::signal::Signal;

impl MeanField for Arc<Turn> {
    fn forward(&self, x: &Signal) -> Signal {
        Signal { rotation: Some(Rotation::by(self)), ..x.clone() }
    }

    fn backward(&self, _: &Signal, _: &Signal, gradient: &Gradient) -> Gradient {
        let before = gradient.before.clone();
        Gradient::independent(before.unwrap_or_else(|| gradient.kernel.turned(&Rotation::by(self))))
    }

    fn weights<'a>(&'a self, _: &Signal, _: &Signal, _: &Gradient) -> Few<(Parameter<'a>, f64)> {
        Few::new()
    }
}
