//! What queries see: P and X, averages of values over the mean row; D and tr; and how many keys.
//!
//! D_ac = Σ_bd W_ab W_cd K̃_bd V_bd, K̃ = K less its averages by rows a and c: v Q_ac D_ac is what scores add to E z_a z_c to first order.

use super::groups::KeyGroups;
use super::row::{Keys, QueryRow};
use crate::mean_field::few::Few;
use crate::mean_field::kernel::Kernel;

/// What the mean row makes of values.
pub(super) struct Mean {
    /// P.
    pub(super) flat: Kernel,
    /// X: of a query, and of pairs X_ac and X_ca.
    pub(super) shift: [Kernel; 2],
}

/// What queries see.
pub(super) struct Seen {
    /// D.
    pub(super) spread: Turned,
    pub(super) keys: Keys,
    /// tr of every query.
    pub(super) trace: Few<f64>,
    /// Σ_b W V_bb and Σ_b W².
    pub(super) square: Few<f64>,
    pub(super) single: Few<f64>,
    /// Σ_b W_ab W_cb at the points of a class of pairs.
    pub(super) shared: Few<f64>,
    pub(super) groups: Option<KeyGroups>,
}

/// The kernel of a signal behind its rotation, and before it if there is one.
pub(super) struct Turned {
    pub(super) behind: Kernel,
    pub(super) before: Option<Kernel>,
}

impl Turned {
    pub(super) fn before(&self) -> &Kernel {
        self.before.as_ref().unwrap_or(&self.behind)
    }
}

impl Seen {
    /// The row of a query whose scores have this variance per E k².
    pub(super) fn row(&self, node: usize, score: f64) -> QueryRow {
        let row = self.keys.row(node, score, self.trace[node]);
        match &self.groups {
            Some(groups) if row.own.keys > 1.0 + 1e-9 && self.trace[node] > 0.0 => {
                let own = groups.row(row.own, node, [score, self.trace[node]], self.single[node].recip());
                QueryRow { own, ..row }
            }
            Some(_) | None => row,
        }
    }

    /// Σ_b E A_b² of a query.
    pub(super) fn single(&self, node: usize, row: &QueryRow) -> f64 {
        // One at most, which interpolated factors may miss.
        (row.sharper() * self.single[node]).clamp(0.0, 1.0)
    }
}
