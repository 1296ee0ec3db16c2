//! What queries see of the keys, as a mask lets them.

use std::sync::Arc;

use super::everywhere::Everywhere;
use super::masked::{Masked, Operators};
use crate::mean_field::moments::{Few, Kernel};
use crate::mean_field::scalar::Scalar;
use crate::mean_field::softmax::{Row, Rows};

/// Which keys a query sees.
#[derive(Clone, Debug)]
pub(crate) enum View {
    /// All.
    Everywhere,
    /// Those that a mask lets it, on the chart of both.
    Masked(Arc<Operators>),
}

/// What queries see.
pub(super) struct Seen<S> {
    /// P.
    pub(super) flat: Kernel<S>,
    /// D.
    pub(super) spread: Turned<S>,
    /// X: of a query, and of pairs X_ac and X_ca.
    pub(super) shift: [Kernel<S>; 2],
    /// n_e and tr of every query.
    pub(super) keys: Few<S>,
    pub(super) trace: Few<S>,
    /// Σ_b W V_bb and Σ_b W².
    pub(super) square: Few<S>,
    pub(super) single: Few<f64>,
    /// For the way back.
    pub(super) back: Back<S>,
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

/// What the way back needs.
pub(super) enum Back<S> {
    Everywhere(Box<Everywhere<S>>),
    Masked(Box<Masked<S>>),
}

impl View {
    /// Of an attention with this mask.
    pub(super) fn see<S: Scalar>(&self, queries: &Kernel<S>, key: &Kernel<S>, value: &Kernel<S>) -> Seen<S> {
        match self {
            Self::Everywhere => Everywhere::see(queries, key, value),
            Self::Masked(operators) => Masked::see(operators, key, value),
        }
    }
}

impl View {
    /// What two queries have in common at a point beyond their correlation: κ of those that are rotated.
    pub(super) fn rotation(&self, point: usize) -> f64 {
        match self {
            Self::Everywhere => 1.0,
            Self::Masked(operators) => operators.rotation(point),
        }
    }
}

impl<S: Scalar> Seen<S> {
    /// The row of a query whose scores have this variance per E k².
    pub(super) fn row(&self, node: usize, score: S) -> Row<S> {
        let keys = self.keys[node];
        if keys.value() <= 1.0 + 1e-9 || self.trace[node].value() <= 0.0 {
            return Row::flat(keys);
        }
        Rows::row(keys, score * self.trace[node] * keys / (keys - 1.0))
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
