//! Normalisation over the d features of a token, or of each of its groups.
//!
//! ```text
//! forward   x̂ = (x − m) / s,  y = gain x̂
//!           LayerNorm: m = mean x, s² = mean (x − m)² + eps;  RMSNorm: m = 0, s² = mean x² + eps
//! backward  dx = gain/s (dy − mean dy − x̂ mean(x̂ dy)),  the first mean only for LayerNorm
//! gains     dgain_i = Σ_a x̂_ai dy_ai    over the tokens of one sequence
//! ```
//!
//! If a function replaces the division, the interpreter runs its steps one by one. Here x̂ is then that function of its
//! input, which includes alpha.
//!
//! Every token is normalised in f64: squares of a large signal leave the range of f32 long before the signal does.
#![allow(clippy::inline_always)]

use rayon::prelude::*;
use sigprop_stack::{Norm, NormKind};

use super::batch_norm;
use crate::{
    array::Array,
    scalar::{Scalar, sum},
    vectorised::vectorised,
};

/// Number of groups that one thread works on at a time.
const PIECE: usize = 16;

pub(crate) fn forward<T: Scalar>(norm: &Norm, input: &Array<T>) -> Array<T> {
    if let NormKind::BatchNorm { .. } = norm.kind {
        return batch_norm::forward(norm, input);
    }
    let mut output = Array::unwritten(input.shape(), input.width());
    let d = input.width() / norm.groups;
    let pieces = output.entries_mut().par_chunks_mut(PIECE * d).zip(input.entries().par_chunks(PIECE * d));
    pieces.for_each(|(y, x)| forward_piece(norm, d, y, x));
    output
}

pub(crate) fn backward<T: Scalar>(norm: &Norm, input: &Array<T>, gradient: &Array<T>) -> Array<T> {
    if let NormKind::BatchNorm { training } = norm.kind {
        return batch_norm::backward(norm, training, input, gradient);
    }
    let mut input_gradient = Array::unwritten(input.shape(), input.width());
    let d = input.width() / norm.groups;
    let pieces = input_gradient.entries_mut().par_chunks_mut(PIECE * d);
    let pieces = pieces.zip(input.entries().par_chunks(PIECE * d)).zip(gradient.entries().par_chunks(PIECE * d));
    pieces.for_each(|((dx, x), dy)| backward_piece(norm, d, dx, x, dy));
    input_gradient
}

/// The gradient of the gains from one sequence, Σ_a dy_a x̂_a. Only for a norm of one group.
pub(crate) fn gain_gradient<T: Scalar>(norm: &Norm, width: usize, input: &[T], gradient: &[T]) -> Vec<T> {
    if let NormKind::BatchNorm { .. } = norm.kind {
        return batch_norm::gain_gradient(norm, width, input, gradient);
    }
    let mut sums = vec![0.0; width];
    for (x, dy) in input.chunks_exact(width).zip(gradient.chunks_exact(width)) {
        let normed: Box<dyn Fn(T) -> f64> = match norm.kind {
            NormKind::LayerNorm | NormKind::RmsNorm => {
                let (center, inverse) = center_and_inverse(norm, x);
                Box::new(move |x| inverse * (x.to_f64() - center))
            }
            NormKind::BatchNorm { .. } => unreachable!("it is over the batch"),
            NormKind::Dyt { .. } => Box::new(|x| x.tanh().to_f64()),
            NormKind::Derf { .. } => Box::new(|x| x.erf().to_f64()),
        };
        for ((sum, x), g) in sums.iter_mut().zip(x).zip(dy) {
            *sum += g.to_f64() * normed(*x);
        }
    }
    sums.into_iter().map(T::from_f64).collect()
}

vectorised! {
    fn forward_piece<T: Scalar>(norm: &Norm, d: usize, y: &mut [T], x: &[T]) {
        for (y, x) in y.chunks_exact_mut(d).zip(x.chunks_exact(d)) {
            let (center, inverse) = center_and_inverse(norm, x);
            let factor = norm.gain * inverse;
            for (y, x) in y.iter_mut().zip(x) {
                *y = T::from_f64(factor * (x.to_f64() - center));
            }
        }
    }
}

vectorised! {
    fn backward_piece<T: Scalar>(norm: &Norm, d: usize, dx: &mut [T], x: &[T], dy: &[T]) {
        for ((dx, x), dy) in dx.chunks_exact_mut(d).zip(x.chunks_exact(d)).zip(dy.chunks_exact(d)) {
            let (center, inverse) = center_and_inverse(norm, x);
            let radial = inverse * inverse * sum(x, dy, |x, g| (x - center) * g) / d as f64;
            let mean = match norm.kind {
                NormKind::LayerNorm => sum(dy, dy, |g, _| g) / d as f64,
                NormKind::RmsNorm | NormKind::BatchNorm { .. } | NormKind::Dyt { .. } | NormKind::Derf { .. } => 0.0,
            };
            let factor = norm.gain * inverse;
            for ((dx, x), g) in dx.iter_mut().zip(x).zip(dy) {
                *dx = T::from_f64(factor * (g.to_f64() - mean - (x.to_f64() - center) * radial));
            }
        }
    }
}

/// m and 1/s of one group.
#[inline(always)]
fn center_and_inverse<T: Scalar>(norm: &Norm, x: &[T]) -> (f64, f64) {
    let d = x.len() as f64;
    let center = match norm.kind {
        NormKind::LayerNorm => sum(x, x, |x, _| x) / d,
        NormKind::RmsNorm | NormKind::BatchNorm { .. } | NormKind::Dyt { .. } | NormKind::Derf { .. } => 0.0,
    };
    let square = sum(x, x, |x, _| (x - center) * (x - center)) / d;
    (center, 1.0 / (square + norm.eps).sqrt())
}
