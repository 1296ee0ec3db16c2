//! Which keys queries see.

use super::everywhere::Everywhere;
use super::masked::Masked;
use super::operators::Operators;
use super::seen::{Mean, Seen};
use crate::mean_field::kernel::Kernel;

/// Which keys a query sees.
#[derive(Clone, Debug)]
pub(crate) enum View {
    /// All.
    Everywhere,
    /// Those that a mask lets it, on the chart of both.
    Masked(Operators),
}

/// What the way back needs.
pub(super) enum Back {
    Everywhere(Box<Everywhere>),
    Masked(Box<Masked>),
}

impl View {
    /// Of an attention with this mask.
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

    /// What two queries have in common at a point beyond their correlation: κ of those that are rotated.
    pub(super) fn rotation(&self, point: usize) -> f64 {
        match self {
            Self::Everywhere => 1.0,
            Self::Masked(operators) => operators.rotation(point),
        }
    }
}
