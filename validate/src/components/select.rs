//! Selection of features, forward and backward.
//!
//! ```text
//! forward   y_i = x_(start + i)
//! backward  dx_(start + i) = dy_i, zero for the other features
//! ```

use sigprop_stack::Select;

use crate::{array::Array, scalar::Scalar};

pub(crate) fn forward<T: Scalar>(select: Select, input: &Array<T>) -> Array<T> {
    let mut output = Array::unwritten(input.shape(), select.width);
    let tokens = output.entries_mut().chunks_exact_mut(select.width).zip(input.entries().chunks_exact(select.of));
    tokens.for_each(|(y, x)| y.copy_from_slice(&x[select.start..][..select.width]));
    output
}

pub(crate) fn backward<T: Scalar>(select: Select, gradient: &Array<T>) -> Array<T> {
    let mut input = Array::zeros(gradient.shape(), select.of);
    let tokens = input.entries_mut().chunks_exact_mut(select.of).zip(gradient.entries().chunks_exact(select.width));
    tokens.for_each(|(dx, dy)| dx[select.start..][..select.width].copy_from_slice(dy));
    input
}
