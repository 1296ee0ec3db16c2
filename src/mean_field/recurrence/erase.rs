//! The delta rule: a write first erases the value that the state holds for its key.
//!
//! ```text
//! v'_t = v_t − κ Σ_b<t θ^(t−1−b) v_b          κ = c a e, θ = a (1 − c e)          V' = T V Tᵀ
//! ```
//!
//! where v_t is the value at position t; v'_t is the value that is written there; T is the map from v to v'; V, V' are
//! the kernels of v and of v'; c is the product of two keys of length 1; a is the mean decay of the state; e is the mean
//! strength of a write.
//!
//! Keys of many features have the same product c at all pairs of positions, so that T is a fixed map. A gradient goes
//! back through Tᵀ.
//!
//! Assumption: c is the mean over pairs. Source: ours; the delta rule is that of Schlag, Irie & Schmidhuber 2021.

use super::ladder::{Ladder, Side, rate};
use super::laws::Law;
use crate::mean_field::few::Few;
use crate::mean_field::kernel::Kernel;

/// The map T of one law.
pub(super) struct Erasure<'e> {
    ladder: &'e Ladder,
    /// κ.
    share: f64,
    /// θ.
    decay: f64,
}

impl<'e> Erasure<'e> {
    /// Returns the map for keys with this product.
    pub(super) fn new(ladder: &'e Ladder, law: &Law, product: f64) -> Self {
        let (decay, erased) = (rate(law.rung), product * law.mean_write);
        Self { ladder, share: erased * decay, decay: (decay * (1.0 - erased)).max(0.0) }
    }

    /// Returns the share of a value that all later writes erase, κ/(1 − θ).
    pub(super) fn erased(&self) -> f64 {
        if self.share > 0.0 { self.share / (1.0 - self.decay) } else { 0.0 }
    }

    /// Returns the kernel of the values that are written.
    pub(super) fn forward(&self, values: &Kernel) -> Kernel {
        self.through(Side::Earlier, values)
    }

    /// Returns the kernel of the gradient at the values, from the gradient at those that are written.
    pub(super) fn backward(&self, gradient: &Kernel) -> Kernel {
        self.through(Side::Later, gradient)
    }

    /// Returns the means of the values that are written, at the nodes.
    pub(super) fn means(&self, values: &[f64]) -> Vec<f64> {
        let earlier = self.ladder.over_nodes(Side::Earlier, self.decay, values);
        values.iter().zip(earlier).map(|(value, earlier)| value - self.share * earlier).collect()
    }

    /// Returns T V Tᵀ or Tᵀ V T. The own parts of V, which two positions do not share, go through T by themselves.
    fn through(&self, side: Side, kernel: &Kernel) -> Kernel {
        let (chart, positions) = (&self.ladder.chart, &kernel.positions);
        let smooth = positions.class_mean(|point| kernel.pairs[point]);
        let once = |f: Vec<f64>| -> Vec<f64> {
            let others = self.ladder.between(side, self.decay, &f);
            f.iter().zip(others).map(|(own, others)| own - self.share * others).collect()
        };
        let both = once(chart.transposed(&once(chart.all(&smooth))));
        let diagonals: Vec<usize> = chart.lower_diagonals().collect();
        let own: Vec<f64> = kernel.own.iter().zip(&diagonals).map(|(own, &at)| own - smooth[at]).collect();
        let square = self.share * self.share;
        let others = self.ladder.over_nodes(side, self.decay * self.decay, &own);
        let others: Vec<f64> = others.iter().map(|others| square * others).collect();
        // The own part of the position that T reaches first: the second of a point forward, the node of it backward.
        let at_ends = |of: &[f64]| -> Vec<f64> {
            match side {
                Side::Earlier => chart.at_second(of),
                Side::Later => chart.points.iter().map(|&(node, _)| of[node]).collect(),
            }
        };
        let (own_at_ends, others_at_ends) = (at_ends(&own), at_ends(&others));
        let [near, far] = [1, 0].map(|less| self.ladder.powers(self.decay, less));
        let pairs = (0..kernel.pairs.len()).map(|point| {
            let lower = point % smooth.len();
            let place = chart.lower[lower];
            let of_own = far[lower] * others_at_ends[place] - self.share * near[lower] * own_at_ends[place];
            both[place] + kernel.pairs[point] - smooth[lower] + of_own
        });
        let own: Few<f64> =
            (0..own.len()).map(|node| both[chart.lower[diagonals[node]]] + own[node] + others[node]).collect();
        kernel.with(kernel.ln_unit, own, pairs.collect())
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use nalgebra::DMatrix;

    use super::*;
    use crate::mean_field::positions::{Chart, Grading, Positions};

    /// T = (1 + L)⁻¹ with L_tb = c e a^(t−b) for b < t, as a matrix.
    #[test]
    fn erasing_inverts_the_products_of_keys() {
        /// The largest error of cubics between rungs, relative to values of 1.
        const CUBIC: f64 = 5e-3;
        let length = 10;
        let chart = Arc::new(Chart::new(length, Grading::all(length), &[]));
        let ladder = Ladder::new(&chart);
        let law = Law {
            share: 1.0,
            rung: 18,
            square_decay: 0.5,
            mean_write: 0.6,
            pair_write: 0.3,
            own_write: 0.4,
            joint: 0.2,
            slopes: [0.0; 3],
        };
        let product = 0.5;
        let positions = Arc::new(Positions::on(Arc::clone(&chart), None));
        let values = Kernel::new(&positions, |node| 1.0 + 0.1 * node as f64, |point| 0.3 + 0.01 * (point % 5) as f64);
        let decay = rate(law.rung);
        let erased = DMatrix::from_fn(length, length, |t, b| match t.cmp(&b) {
            std::cmp::Ordering::Less => 0.0,
            std::cmp::Ordering::Equal => 1.0,
            std::cmp::Ordering::Greater => product * law.mean_write * decay.powi((t - b) as i32),
        });
        let map = erased.try_inverse().expect("it is triangular with ones on the diagonal");
        let place = |t: usize, s: usize| {
            let is = |&place: &usize| (chart.nodes()[chart.points[place].0], chart.points[place].1) == (t, s);
            chart.lower.iter().position(is).expect("all pairs are points")
        };
        let matrix = |kernel: &Kernel| {
            DMatrix::from_fn(length, length, |t, s| {
                if t == s { kernel.own[t] } else { kernel.pairs[place(t.max(s), t.min(s))] }
            })
        };
        let erasure = Erasure::new(&ladder, &law, product);
        for (got, expected) in [
            (matrix(&erasure.forward(&values)), &map * matrix(&values) * map.transpose()),
            (matrix(&erasure.backward(&values)), map.transpose() * matrix(&values) * &map),
        ] {
            approx::assert_relative_eq!(got, expected, epsilon = CUBIC);
        }
    }
}
