//! Normalisation over the d features of a token, or of each of its groups.
//!
//! ```text
//! forward   x̂ = (x − m) / s,  y = gain x̂
//!           LayerNorm: m = mean x, s² = mean (x − m)² + eps;  RMSNorm: m = 0, s² = mean x² + eps
//! backward  dx = gain/s (dy − mean dy − x̂ mean(x̂ dy)),  the first mean only for LayerNorm
//! gains     dgain_i = Σ_a x̂_ai dy_ai    over the tokens of one sequence
//! ```
//!
//! Every token is worked on in f64: squares of a large signal leave the range of f32 long before
//! the signal does.

use sigprop_stack::{Norm, NormKind};

use crate::{array::Array, scalar::Scalar};

pub(crate) fn forward<T: Scalar>(norm: &Norm, input: &Array<T>) -> Array<T> {
    let mut output = Array::zeros(input.shape(), input.width());
    for (y, x) in output.groups_mut(norm.groups).zip(input.groups(norm.groups)) {
        let (center, inverse) = center_and_inverse(norm, x);
        for (y, x) in y.iter_mut().zip(x) {
            *y = T::from_f64(norm.gain * inverse * (x.to_f64() - center));
        }
    }
    output
}

pub(crate) fn backward<T: Scalar>(norm: &Norm, input: &Array<T>, gradient: &Array<T>) -> Array<T> {
    let mut input_gradient = Array::zeros(input.shape(), input.width());
    let d = (input.width() / norm.groups) as f64;
    let groups = input.groups(norm.groups).zip(gradient.groups(norm.groups));
    for (dx, (x, dy)) in input_gradient.groups_mut(norm.groups).zip(groups) {
        let (center, inverse) = center_and_inverse(norm, x);
        let normed = |x: &T| inverse * (x.to_f64() - center);
        let radial = x.iter().zip(dy).map(|(x, g)| normed(x) * g.to_f64()).sum::<f64>() / d;
        let mean = match norm.kind {
            NormKind::LayerNorm => dy.iter().map(|g| g.to_f64()).sum::<f64>() / d,
            NormKind::RmsNorm => 0.0,
        };
        for ((dx, x), g) in dx.iter_mut().zip(x).zip(dy) {
            *dx = T::from_f64(norm.gain * inverse * (g.to_f64() - mean - normed(x) * radial));
        }
    }
    input_gradient
}

/// Of the gains, from one sequence: Σ_a dy_a x̂_a. Only for a norm of one group.
pub(crate) fn gain_gradient<T: Scalar>(norm: &Norm, width: usize, input: &[T], gradient: &[T]) -> Vec<T> {
    let mut sums = vec![0.0; width];
    for (x, dy) in input.chunks_exact(width).zip(gradient.chunks_exact(width)) {
        let (center, inverse) = center_and_inverse(norm, x);
        for ((sum, x), g) in sums.iter_mut().zip(x).zip(dy) {
            *sum += g.to_f64() * inverse * (x.to_f64() - center);
        }
    }
    sums.into_iter().map(T::from_f64).collect()
}

/// m and 1/s of one group.
fn center_and_inverse<T: Scalar>(norm: &Norm, x: &[T]) -> (f64, f64) {
    let d = x.len() as f64;
    let center = match norm.kind {
        NormKind::LayerNorm => x.iter().map(|x| x.to_f64()).sum::<f64>() / d,
        NormKind::RmsNorm => 0.0,
    };
    let square = x.iter().map(|x| (x.to_f64() - center).powi(2)).sum::<f64>() / d;
    (center, 1.0 / (square + norm.eps).sqrt())
}
