//! Independent zeroing of entries; survivors are multiplied by 1/(1 − rate).
//!
//! ```text
//! forward   y = mask ∘ x
//! backward  dx = mask ∘ dy
//! ```
//!
//! The mask is sampled a second time in the backward pass, from one stream per sequence.

use sigprop_stack::Dropout;

use crate::{array::Array, random::Streams, scalar::Scalar};

/// Multiplies by the mask, both forward and backward.
pub(crate) fn apply<T: Scalar>(dropout: Dropout, masks: &Streams, array: &mut Array<T>) {
    if dropout.rate > 0.0 {
        for (index, sequence) in array.sequences_mut().enumerate() {
            masks.mask(index, dropout.rate, sequence);
        }
    }
}
