//! Attention per query: averages of values P and X, the covariance D of its scores, and the number n_e of equal keys that it is like.

use super::groups::KeyGroups;
use crate::mean_field::kernel::Kernel;
use crate::mean_field::scalar::{Few, Scalar};
use crate::mean_field::softmax::{Row, Rows};

/// What the mean row makes of values.
pub(super) struct Mean<S> {
    /// P.
    pub(super) flat: Kernel<S>,
    /// X: of a query, and of pairs X_ac and X_ca.
    pub(super) shift: [Kernel<S>; 2],
}

/// What queries see.
pub(super) struct Seen<S> {
    /// D.
    pub(super) spread: Turned<S>,
    /// n_e and tr of every query.
    pub(super) keys: Few<S>,
    pub(super) trace: Few<S>,
    /// Σ_b W V_bb and Σ_b W².
    pub(super) square: Few<S>,
    pub(super) single: Few<f64>,
    /// Σ_b W_ab W_cb at the points of a class of pairs.
    pub(super) shared: Few<f64>,
    pub(super) groups: Option<KeyGroups<S>>,
}

/// The kernel of a signal behind its rotation, and before it if there is one.
pub(super) struct Turned<S> {
    pub(super) behind: Kernel<S>,
    pub(super) before: Option<Kernel<S>>,
}

impl<S> Turned<S> {
    pub(super) fn before(&self) -> &Kernel<S> {
        self.before.as_ref().unwrap_or(&self.behind)
    }
}

impl<S: Scalar> Seen<S> {
    /// The row of a query whose scores have this variance per E k².
    pub(super) fn row(&self, node: usize, score: S) -> Row<S> {
        let keys = self.keys[node];
        if keys.value() <= 1.0 + 1e-9 || self.trace[node].value() <= 0.0 {
            return Row::constant(keys);
        }
        let row = Rows::row(keys, score * self.trace[node] * keys / (keys - 1.0));
        match &self.groups {
            Some(groups) => groups.row(row, node, [score, self.trace[node]], self.single[node].recip()),
            None => row,
        }
    }

    /// Σ_b E A_b² of a query.
    pub(super) fn single(&self, node: usize, row: &Row<S>) -> S {
        row.sharper() * self.single[node]
    }
}

/// n_e = 1 + tr tr'/D, between 1 and `most`.
pub(super) fn effective<S: Scalar>(traces: S, spread: S, most: f64) -> S {
    if most < 1.5 || spread.value() <= 0.0 || traces.value() <= 0.0 {
        return S::from(most);
    }
    (traces / spread + 1.0).clamped(1.0, most)
}
