//! Pooling over the pixels of images.
//!
//! ```text
//! average   y_a = Σ_b x_b/r      dx_b = Σ_a dy_a/r           over the r pixels b of window a
//! maximum   y_a = max_b φ(x_b)   dx_b = φ'(x_b) Σ_a dy_a     over the windows a whose largest value is in b
//! ```

use std::cmp::Ordering;

use sigprop_stack::{Pool, PoolKind};

use super::activation;
use crate::{
    array::{Array, Shape},
    scalar::Scalar,
};

pub(crate) fn forward<T: Scalar>(pool: &Pool, input: &Array<T>) -> Array<T> {
    match pool.kind {
        PoolKind::Average => average(pool, input),
        PoolKind::Max { activation } => {
            let values = activation::forward(activation, input);
            let mut output = Array::zeros(shape(pool, input.shape()), input.width());
            let entries = output.entries_mut();
            for (y, &at) in entries.iter_mut().zip(&largest(pool, &values)) {
                *y = values.entries()[at];
            }
            output
        }
    }
}

pub(crate) fn backward<T: Scalar>(pool: &Pool, input: &Array<T>, gradient: &Array<T>) -> Array<T> {
    let mut input_gradient = Array::zeros(input.shape(), input.width());
    match pool.kind {
        PoolKind::Average => {
            let (share, width) = (T::from_f64((pool.sliding().taps() as f64).recip()), input.width());
            for (dx, dy) in input_gradient.sequences_mut().zip(gradient.sequences()) {
                for read in pool.sliding().reads(input.shape().seq_len) {
                    let dx = dx[read.input * width..].iter_mut();
                    dx.zip(&dy[read.window * width..][..width]).for_each(|(dx, &dy)| *dx += dy * share);
                }
            }
            input_gradient
        }
        PoolKind::Max { activation } => {
            let values = activation::forward(activation, input);
            for (&at, &dy) in largest(pool, &values).iter().zip(gradient.entries()) {
                input_gradient.entries_mut()[at] += dy;
            }
            activation::backward(activation, input, input_gradient)
        }
    }
}

/// Returns the numbers of sequences and windows.
fn shape(pool: &Pool, input: Shape) -> Shape {
    Shape { seq_len: pool.sliding().windows(input.seq_len), ..input }
}

fn average<T: Scalar>(pool: &Pool, input: &Array<T>) -> Array<T> {
    let (share, width) = (T::from_f64((pool.sliding().taps() as f64).recip()), input.width());
    let mut output = Array::zeros(shape(pool, input.shape()), width);
    for (y, x) in output.sequences_mut().zip(input.sequences()) {
        for read in pool.sliding().reads(input.shape().seq_len) {
            let y = y[read.window * width..].iter_mut();
            y.zip(&x[read.input * width..][..width]).for_each(|(y, &x)| *y += x * share);
        }
    }
    output
}

/// Returns the place of the largest value of every window and feature among all values; the first of equal values.
fn largest<T: Scalar>(pool: &Pool, values: &Array<T>) -> Vec<usize> {
    let (seq_len, width) = (values.shape().seq_len, values.width());
    let mut largest: Vec<Option<usize>> = vec![None; shape(pool, values.shape()).tokens() * width];
    let windows = pool.sliding().windows(seq_len);
    for sequence in 0..values.shape().batch {
        for read in pool.sliding().reads(seq_len) {
            let outputs = &mut largest[(sequence * windows + read.window) * width..][..width];
            for (feature, place) in outputs.iter_mut().enumerate() {
                let at = (sequence * seq_len + read.input) * width + feature;
                // Not-a-number stays, so that an overflow is not hidden.
                let is_larger = place.is_none_or(|place| {
                    let order = values.entries()[at].partial_cmp(&values.entries()[place]);
                    order.is_none_or(Ordering::is_gt)
                });
                if is_larger {
                    *place = Some(at);
                }
            }
        }
    }
    largest.into_iter().map(|place| place.expect("windows reach over an edge by at most half")).collect()
}
