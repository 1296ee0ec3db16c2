//! Rotary positions: the features of queries and keys are rotated in pairs, by position · frequency.
//!
//! ```text
//! E (R_a x_a)(R_b x_b) = κ(a − b) E x_a x_b
//! ```
//!
//! where a, b are positions of tokens; E is the average over random weights and over features; R_a is the rotation of
//! the features at position a; κ is the factor of rotary positions on products of two tokens ([`super::rotation`]).
//!
//! Gradients transform likewise. Scores depend on the distance: (R_a q_a)·(R_b k_b) = q_a·R_(b − a) k_b. A rotated
//! signal keeps the kernel before the rotation, which attention needs. The rotation is stored next to it.
//!
//! Example: heads of 2 features that turn by π/3 per position: κ(1) = cos (π/3) = 0.5. Neighbouring tokens of
//! correlation 0.8 have the correlation 0.4 after the rotation, and their gradients of correlation 0.6 have the
//! correlation 0.3 before it.
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

#[cfg(test)]
mod tests {
    use std::f64::consts::FRAC_PI_3;

    use sigprop_stack::Rotary;

    use super::super::kernel::Kernel;
    use super::super::positions::{Chart, Grading, Positions};
    use super::*;

    #[test]
    fn example_of_the_header() {
        let chart = Chart::new(2, Grading::all(2), &[]);
        let turn = Arc::new(Turn::new(&Rotary { d_head: 2, frequencies: vec![FRAC_PI_3] }, &chart));
        let positions = Arc::new(Positions::on(chart, None));
        let kernel = |correlation: f64| Kernel::new(&positions, |_| 1.0, |_| correlation);
        let x = Signal::centred(2.0, kernel(0.8));
        let y = turn.forward(&x);
        y.kernel.turned(y.rotation.as_ref().expect("it is rotated")).assert_is([1.0, 0.4]);
        turn.backward(&x, &y, &Gradient::independent(kernel(0.6))).kernel.assert_is([1.0, 0.3]);
    }
}
