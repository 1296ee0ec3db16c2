//! Weighted sum of branches, each kept or dropped for a whole sequence.
//!
//! ```text
//! forward   y = Σ_i c_i x_i,   c_i = scale_i · mask_i/(1 − drop_rate_i), one mask per sequence
//! backward  dx_i = c_i dy
//! ```

use std::rc::Rc;

use sigprop_stack::{Branch, Sum};

use crate::{array::Array, random::Streams, scalar::Scalar};

pub(crate) fn forward<T: Scalar>(sum: &Sum, masks: &Streams, parts: &[Rc<Array<T>>]) -> Array<T> {
    let batch = parts[0].shape().batch;
    let mut multiples = sum.branches.iter().enumerate().zip(parts);
    let ((_, branch), part) = multiples.next().expect("a checked sum has branches");
    let mut output = part.scaled(&coefficients(branch, masks, 0, batch));
    for ((index, branch), part) in multiples {
        output.add_multiples(&coefficients(branch, masks, index, batch), part);
    }
    output
}

pub(crate) fn backward<T: Scalar>(sum: &Sum, masks: &Streams, gradient: &Array<T>) -> Vec<Array<T>> {
    let batch = gradient.shape().batch;
    let branches = sum.branches.iter().enumerate();
    branches.map(|(index, branch)| gradient.scaled(&coefficients(branch, masks, index, batch))).collect()
}

/// The factor on a branch, one per sequence.
fn coefficients<T: Scalar>(branch: &Branch, masks: &Streams, index: usize, batch: usize) -> Vec<T> {
    let mut coefficients = vec![T::from_f64(branch.scale); batch];
    if branch.drop_rate > 0.0 {
        masks.mask(index, branch.drop_rate, &mut coefficients);
    }
    coefficients
}
