//! The covariance of a state with the skip of a recurrence, D v: both add to one output.
//!
//! ```text
//! forward    M_ts = d μ^q_t Σ_b≤t e a^(t−b) μ^k_b V_bs          backward   N_bt = d μ^k_b Σ_s≥b e a^(s−b) μ^q_s G_st
//! ```
//!
//! where M is E (S_tᵀ q_t) v_s per factor of the recurrence; N is its adjoint, with the kernel G of the gradient at the
//! output; V is the kernel of values; t, s, b are positions; d is the width of keys; μ^q, μ^k are the means of queries
//! and keys; e is the mean strength of a write; a is the mean decay of a state.
//!
//! Without means of queries and keys the sign of a score is random, and both are zero. Source: ours.

use super::ladder::{Ladder, Side, rate};
use super::laws::Law;
use crate::mean_field::few::Few;
use crate::mean_field::kernel::Kernel;

/// A sum over earlier or later positions, with factors of the position that the sum is over and of its end.
pub(super) struct Crossed<'c> {
    pub(super) ladder: &'c Ladder,
    pub(super) law: &'c Law,
    pub(super) side: Side,
    /// The means at the positions that the sum is over, at the nodes.
    pub(super) inner: &'c [f64],
    /// The means at the end of the sum, at the nodes.
    pub(super) outer: &'c [f64],
}

impl Crossed<'_> {
    /// Returns M + Mᵀ, or N + Nᵀ, without the factor d, from the kernel of values or of the gradient.
    pub(super) fn of(&self, kernel: &Kernel) -> Kernel {
        let (chart, positions) = (&self.ladder.chart, &kernel.positions);
        let (decay, write) = (rate(self.law.rung), self.law.mean_write);
        let smooth = positions.class_mean(|point| kernel.pairs[point]);
        let [inner, outer] = [self.inner, self.outer].map(|means| chart.at_second(means));
        let terms: Vec<f64> = chart.all(&smooth).iter().zip(&inner).map(|(of, mean)| of * mean).collect();
        let others = self.ladder.sum(self.side, self.law.rung, &terms);
        let rows = (0..terms.len()).map(|place| write * outer[place] * (terms[place] + decay * others[place]));
        let rows: Vec<f64> = rows.collect();
        let transposed = chart.transposed(&rows);
        let diagonals: Vec<usize> = chart.lower_diagonals().collect();
        let own = |node: usize| write * self.inner[node] * (kernel.own[node] - smooth[diagonals[node]]);
        let own: Vec<f64> = (0..positions.nodes()).map(own).collect();
        let own_at_second = chart.at_second(&own);
        let powers = self.ladder.powers(decay, 0);
        let pairs = (0..kernel.pairs.len()).map(|point| {
            let lower = point % smooth.len();
            let (place, node) = (chart.lower[lower], positions.first[lower] as usize);
            // The own part of a position reaches later outputs forward, and earlier ones backward.
            let of_own = match self.side {
                Side::Earlier => self.outer[node] * own_at_second[place],
                Side::Later => outer[place] * own[node],
            };
            let ends = self.outer[node] * self.inner[node] + outer[place] * inner[place];
            let of_class = write * ends * (kernel.pairs[point] - smooth[lower]);
            rows[place] + transposed[place] + powers[lower] * of_own + of_class
        });
        let both = |node: usize| {
            let place = chart.lower[diagonals[node]];
            rows[place] + transposed[place] + 2.0 * self.outer[node] * own[node]
        };
        let all: Few<f64> = (0..positions.nodes()).map(both).collect();
        kernel.with(kernel.ln_unit, all, pairs.collect())
    }
}
