//! Elementwise product of factors: gated feed-forward networks.
//!
//! ```text
//! forward   y = ∏_i x_i
//! backward  dx_i = dy ∘ ∏_{j ≠ i} x_j
//! ```

use crate::{array::Array, scalar::Scalar, signal::Signal};

pub(crate) fn forward<T: Scalar>(parts: &[Signal<T>]) -> Array<T> {
    times((*parts[0]).clone(), &parts[1..])
}

pub(crate) fn backward<T: Scalar>(parts: &[Signal<T>], gradient: &Array<T>) -> Vec<Array<T>> {
    (0..parts.len()).map(|i| times(times(gradient.clone(), &parts[..i]), &parts[i + 1..])).collect()
}

fn times<T: Scalar>(first: Array<T>, others: &[Signal<T>]) -> Array<T> {
    others.iter().fold(first, |product, other| product.zip(other, |x, y| x * y))
}
