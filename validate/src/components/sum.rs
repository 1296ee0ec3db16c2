//! Weighted sum of branches, each kept or dropped for a whole sequence.
//!
//! ```text
//! forward   y = Σ_i c_i x_i,   c_i = scale_i · mask_i/(1 − drop_rate_i), one mask per sequence
//! backward  dx_i = c_i dy
//! ```

use sigprop_stack::{Branch, Sum};

use crate::{array::Array, random::Streams, scalar::Scalar, signal::Signal};

/// The coefficients c of every branch, one per sequence of the batch.
pub(crate) fn coefficients<T: Scalar>(sum: &Sum, masks: &Streams, batch: usize) -> Vec<Vec<T>> {
    let of_branch = |(index, branch): (usize, &Branch)| {
        let mut coefficients = vec![T::from_f64(branch.scale); batch];
        if branch.drop_rate > 0.0 {
            masks.mask(index, branch.drop_rate, &mut coefficients);
        }
        coefficients
    };
    sum.branches.iter().enumerate().map(of_branch).collect()
}

pub(crate) fn forward<T: Scalar>(coefficients: &[Vec<T>], parts: &[Signal<T>]) -> Array<T> {
    let terms: Vec<(&[T], &Array<T>)> =
        coefficients.iter().map(Vec::as_slice).zip(parts.iter().map(|x| &**x)).collect();
    Array::sum_of(&terms)
}

pub(crate) fn backward<T: Scalar>(coefficients: &[Vec<T>], gradient: Array<T>) -> Vec<Array<T>> {
    let (last, others) = coefficients.split_last().expect("a checked sum has branches");
    let mut parts: Vec<_> = others.iter().map(|of_part| Array::sum_of(&[(of_part, &gradient)])).collect();
    parts.push(gradient.times(last));
    parts
}
