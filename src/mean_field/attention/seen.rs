//! Statistics of the keys and values in view of queries: P and X, which average values over the mean row, D and tr, and
//! the number of keys. The header of [`super`] defines P, X, D and tr.
//!
//! To first order, v Q_ac D_ac is the contribution of scores to E z_a z_c.

use super::groups::KeyGroups;
use super::row::{Keys, QueryRow};
use crate::mean_field::few::Few;
use crate::mean_field::kernel::Kernel;

/// Averages of values with the mean attention weights.
pub(super) struct Mean {
    /// P, the kernel of the averages of values with flat weights.
    pub(super) flat: Kernel,
    /// X_ac, then X_ca: the effect of the shift of the mean weights of the first query of a pair, then of the second.
    /// For a query with itself both have the value X_aa.
    pub(super) shift: [Kernel; 2],
}

/// Statistics of the keys and values in view of queries.
pub(super) struct Seen {
    /// D, the contribution of scores to E z_a z_c per v Q_ac, to first order.
    pub(super) spread: Turned,
    pub(super) keys: Keys,
    /// tr of every query: the variance of the keys in view about their average.
    pub(super) trace: Few<f64>,
    /// Σ_b W_ab V_bb/Σ_b W_ab of every query a: the mean second moment of the values in view.
    pub(super) square: Few<f64>,
    /// Σ_b W_ab of every query a, for flat weights W: 1 without a sink.
    pub(super) totals: Few<f64>,
    /// Σ_b W_ab² of every query a, for flat weights W.
    pub(super) single: Few<f64>,
    /// Σ_b W_ab W_cb of two queries a and c, for flat weights W, at the points of a class of pairs.
    pub(super) shared: Few<f64>,
    pub(super) groups: Option<KeyGroups>,
}

/// The kernel of a signal or gradient after its rotation (`behind`), and before the rotation if there is one.
pub(super) struct Turned {
    pub(super) behind: Kernel,
    pub(super) before: Option<Kernel>,
}

impl Turned {
    /// Adds the kernel of a gradient that has no rotation.
    pub(super) fn plus(self, more: &Kernel) -> Self {
        Self { behind: self.behind.plus(more), before: self.before.map(|before| before.plus(more)) }
    }

    pub(super) fn before(&self) -> &Kernel {
        self.before.as_ref().unwrap_or(&self.behind)
    }
}

impl Seen {
    /// Returns the row of a query, from `score` = v Q_aa and from `trace` = tr_a, with the part of relative positions.
    pub(super) fn row(&self, node: usize, score: f64, trace: f64) -> QueryRow {
        let row = self.keys.row(node, score, trace);
        match &self.groups {
            Some(groups) if row.own.keys.min(self.in_view(node)) > 1.0 + 1e-9 && trace > 0.0 => {
                let own = groups.row(row.own, node, [score, trace], self.in_view(node));
                QueryRow { own, ..row }
            }
            Some(_) | None => row,
        }
    }

    /// Returns the number of keys in view of a query; fewer if their flat weights differ.
    pub(super) fn in_view(&self, node: usize) -> f64 {
        self.totals[node].powi(2) / self.single[node]
    }

    /// Returns Σ_b E A_b of a query: 1 without a sink.
    pub(super) fn sum(&self, node: usize, row: &QueryRow) -> f64 {
        self.totals[node] * row.own.sink.mean
    }

    /// Returns Σ_b E A_b² of a query.
    pub(super) fn single(&self, node: usize, row: &QueryRow) -> f64 {
        // The sum is at most 1, which interpolated factors may exceed.
        (row.sharper() * self.single[node]).clamp(0.0, 1.0)
    }
}
