//! Short lists of numbers: one per node, or one per point of every class of pairs.

use smallvec::SmallVec;

/// A list that needs an allocation only for more than six entries, which is rare.
pub(crate) type Few<T> = SmallVec<[T; 6]>;
