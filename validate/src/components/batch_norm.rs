//! Normalisation of every feature over the tokens of a sequence, which are a batch.
//!
//! ```text
//! forward   x̂ = (x − m) / s,  y = gain x̂          m = mean_a x,  s² = mean_a (x − m)² + eps
//! backward  dx = gain/s (dy − mean_a dy − x̂ mean_a(x̂ dy)) in training,  gain/s dy in evaluation
//! gains     dgain = Σ_a x̂_a dy_a
//! ```

use rayon::prelude::*;
use sigprop_stack::Norm;

use crate::{array::Array, scalar::Scalar};

/// The mean m and the factor 1/s of every feature, over the tokens of one sequence.
struct Statistics {
    centers: Vec<f64>,
    inverses: Vec<f64>,
}

impl Statistics {
    fn of<T: Scalar>(norm: &Norm, width: usize, x: &[T]) -> Self {
        let centers = means(width, x, |_, x| x);
        let squares = means(width, x, |feature, x| (x - centers[feature]).powi(2));
        let inverses = squares.into_iter().map(|square| 1.0 / (square + norm.eps).sqrt()).collect();
        Self { centers, inverses }
    }

    /// x̂ of an entry.
    fn normalise<T: Scalar>(&self, feature: usize, x: T) -> f64 {
        self.inverses[feature] * (x.to_f64() - self.centers[feature])
    }
}

/// Returns the mean over tokens of `of`(feature, entry), one per feature.
fn means<T: Scalar>(width: usize, x: &[T], of: impl Fn(usize, f64) -> f64) -> Vec<f64> {
    let mut sums = vec![0.0; width];
    for row in x.chunks_exact(width) {
        sums.iter_mut().zip(row).enumerate().for_each(|(feature, (sum, x))| *sum += of(feature, x.to_f64()));
    }
    let count = (x.len() / width) as f64;
    for sum in &mut sums {
        *sum /= count;
    }
    sums
}

pub(crate) fn forward<T: Scalar>(norm: &Norm, input: &Array<T>) -> Array<T> {
    let mut output = Array::unwritten(input.shape(), input.width());
    let (width, length) = (input.width(), input.width() * input.shape().seq_len);
    let sequences = output.entries_mut().par_chunks_mut(length).zip(input.entries().par_chunks(length));
    sequences.for_each(|(y, x)| {
        let statistics = Statistics::of(norm, width, x);
        for (y, x) in y.chunks_exact_mut(width).zip(x.chunks_exact(width)) {
            for (feature, (y, x)) in y.iter_mut().zip(x).enumerate() {
                *y = T::from_f64(norm.gain * statistics.normalise(feature, *x));
            }
        }
    });
    output
}

pub(crate) fn backward<T: Scalar>(norm: &Norm, training: bool, input: &Array<T>, gradient: &Array<T>) -> Array<T> {
    let mut input_gradient = Array::unwritten(input.shape(), input.width());
    let (width, length) = (input.width(), input.width() * input.shape().seq_len);
    let sequences = input_gradient.entries_mut().par_chunks_mut(length);
    let sequences = sequences.zip(input.entries().par_chunks(length)).zip(gradient.entries().par_chunks(length));
    sequences.for_each(|((dx, x), dy)| {
        let statistics = Statistics::of(norm, width, x);
        let tokens = (x.len() / width) as f64;
        let (mean, radial) = if training {
            let radial = products(&statistics, width, x, dy).into_iter().map(|sum| sum / tokens).collect();
            (means(width, dy, |_, g| g), radial)
        } else {
            (vec![0.0; width], vec![0.0; width])
        };
        for ((dx, x), dy) in dx.chunks_exact_mut(width).zip(x.chunks_exact(width)).zip(dy.chunks_exact(width)) {
            for (feature, ((dx, x), g)) in dx.iter_mut().zip(x).zip(dy).enumerate() {
                let along = statistics.normalise(feature, *x) * radial[feature];
                *dx = T::from_f64(norm.gain * statistics.inverses[feature] * (g.to_f64() - mean[feature] - along));
            }
        }
    });
    input_gradient
}

/// The gradient of the gains from one sequence.
pub(crate) fn gain_gradient<T: Scalar>(norm: &Norm, width: usize, input: &[T], gradient: &[T]) -> Vec<T> {
    let statistics = Statistics::of(norm, width, input);
    products(&statistics, width, input, gradient).into_iter().map(T::from_f64).collect()
}

/// Returns Σ_a x̂_a dy_a over the tokens a, one sum per feature.
fn products<T: Scalar>(statistics: &Statistics, width: usize, x: &[T], dy: &[T]) -> Vec<f64> {
    let mut sums = vec![0.0; width];
    for (x, dy) in x.chunks_exact(width).zip(dy.chunks_exact(width)) {
        for (feature, ((sum, x), g)) in sums.iter_mut().zip(x).zip(dy).enumerate() {
            *sum += g.to_f64() * statistics.normalise(feature, *x);
        }
    }
    sums
}
