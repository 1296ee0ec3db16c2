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
    let mut output = Array::zeros(parts[0].shape(), parts[0].width());
    for (index, (branch, part)) in sum.branches.iter().zip(parts).enumerate() {
        let coefficients = coefficients::<T>(branch, masks, index, part.shape().batch);
        for ((output, part), c) in output.sequences_mut().zip(part.sequences()).zip(coefficients) {
            for (y, &x) in output.iter_mut().zip(part) {
                *y += c * x;
            }
        }
    }
    output
}

pub(crate) fn backward<T: Scalar>(sum: &Sum, masks: &Streams, gradient: &Array<T>) -> Vec<Array<T>> {
    let branches = sum.branches.iter().enumerate();
    branches
        .map(|(index, branch)| {
            let mut part = gradient.clone();
            let coefficients = coefficients::<T>(branch, masks, index, part.shape().batch);
            for (part, c) in part.sequences_mut().zip(coefficients) {
                for g in part {
                    *g *= c;
                }
            }
            part
        })
        .collect()
}

/// The factor on a branch, one per sequence.
fn coefficients<T: Scalar>(branch: &Branch, masks: &Streams, index: usize, batch: usize) -> Vec<T> {
    let mut coefficients = vec![T::from_f64(branch.scale); batch];
    if branch.drop_rate > 0.0 {
        masks.mask(index, branch.drop_rate, &mut coefficients);
    }
    coefficients
}
