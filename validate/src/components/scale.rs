//! Multiplication by a number, forward and backward.

use sigprop_stack::Scale;

use crate::{array::Array, scalar::Scalar};

/// y = c x, or dx = c dy.
pub(crate) fn apply<T: Scalar>(scale: Scale, array: &mut Array<T>) {
    let factor = T::from_f64(scale.factor);
    for entry in array.entries_mut() {
        *entry *= factor;
    }
}
