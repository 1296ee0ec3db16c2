//! Views of heads: the keys that queries see.

use super::everywhere::Everywhere;
use super::masked::Masked;
use super::operators::Operators;
use super::seen::{Mean, Seen};
use crate::mean_field::kernel::Kernel;

/// The keys that a query sees.
#[derive(Clone, Debug)]
pub(crate) enum View {
    /// All keys.
    Everywhere,
    /// The keys that a mask allows, on the chart of queries and keys.
    Masked(Operators),
}

/// The state of the forward pass that the backward pass of heads with this view needs.
pub(super) enum Back {
    Everywhere(Box<Everywhere>),
    Masked(Box<Masked>),
}

impl View {
    /// Returns the averages over the mean row, the statistics of the keys in view, and the state for the backward pass.
    pub(super) fn see(&self, queries: &Kernel, key: &Kernel, value: &Kernel) -> (Mean, Seen, Back) {
        match self {
            Self::Everywhere => {
                let (mean, seen, back) = Everywhere::see(queries, key, value);
                (mean, seen, Back::Everywhere(Box::new(back)))
            }
            Self::Masked(operators) => {
                let (mean, seen, back) = Masked::see(operators, key, value);
                (mean, seen, Back::Masked(Box::new(back)))
            }
        }
    }

    /// κ of two queries at a point, the factor of their rotation on their correlation; 1 without a rotation.
    pub(super) fn rotation(&self, point: usize) -> f64 {
        match self {
            Self::Everywhere => 1.0,
            Self::Masked(operators) => operators.rotation(point),
        }
    }
}
