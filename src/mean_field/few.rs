//! Lists of one number per node, or per pair of nodes and class.

use smallvec::SmallVec;

/// A list that seldom has more entries than fit in place, without an allocation.
pub(crate) type Few<T> = SmallVec<[T; 6]>;
