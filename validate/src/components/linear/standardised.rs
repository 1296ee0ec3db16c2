//! Standardised weights: rows W_i minus their mean, scaled to length γ.
//!
//! ```text
//! forward   Ŵ_i = γ C_i/|C_i|     C_i = W_i − mean W_i          0 where C_i = 0
//! weights   dW_i = J_i dŴ_i       J_i = γ/|C_i| (1 − 1 1ᵀ/fan_in − C_i C_iᵀ/|C_i|²), symmetric
//! ```
//!
//! Sums are in f64, each computed by one thread.

use rayon::prelude::*;
use sigprop_stack::Linear;

use crate::{random::Random, scalar::Scalar};

/// Subtracts the mean of a row and rescales the row to `length`.
pub(super) fn standardise<T: Scalar>(length: f64, row: &mut [T]) {
    let before = centre(row);
    let factor = if before > 0.0 { length / before } else { 0.0 };
    for w in row {
        *w = T::from_f64(factor * w.to_f64());
    }
}

/// Multiplies every row of `matrix`, `fan_out` × `fan_in`, by its J: gradients of Ŵ become gradients of W, and steps of
/// W become steps of Ŵ.
pub(super) fn through<T: Scalar>(linear: &Linear, length: f64, random: &Random, matrix: &mut [T]) {
    let rows = matrix.par_chunks_exact_mut(linear.fan_in).enumerate();
    rows.for_each_init(
        || vec![T::default(); linear.fan_in],
        |weight, (row, entries)| {
            random.tensor_row(&linear.weight, row, weight);
            let before = centre(weight);
            centre(entries);
            let (factor, along) =
                if before > 0.0 { (length / before, dot(weight, entries) / (before * before)) } else { (0.0, 0.0) };
            for (entry, w) in entries.iter_mut().zip(weight) {
                *entry = T::from_f64(factor * (entry.to_f64() - along * w.to_f64()));
            }
        },
    );
}

/// Subtracts the mean from a row; returns its length afterwards.
fn centre<T: Scalar>(row: &mut [T]) -> f64 {
    let mean = row.iter().map(|x| x.to_f64()).sum::<f64>() / row.len() as f64;
    for x in row.iter_mut() {
        *x = T::from_f64(x.to_f64() - mean);
    }
    dot(row, row).sqrt()
}

fn dot<T: Scalar>(a: &[T], b: &[T]) -> f64 {
    a.iter().zip(b).map(|(a, b)| a.to_f64() * b.to_f64()).sum()
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use sigprop_stack::{Init, Tensor};

    use super::*;
    use crate::{
        array::{Array, Shape},
        components::linear::{forward, weight_gradient},
        random::Changes,
        weights::TensorGradient,
    };

    /// (1, 2, 6) minus its mean 3 is (−2, −1, 3), of length √14; a row of equal numbers becomes zero.
    #[test]
    fn rows_agree_with_hand_computed_ones() {
        let mut rows = [1.0f64, 2.0, 6.0, 5.0, 5.0, 5.0];
        rows.chunks_exact_mut(3).for_each(|row| standardise(2.0, row));
        let unit = 2.0 / 14f64.sqrt();
        for (got, expected) in rows.into_iter().zip([-2.0 * unit, -unit, 3.0 * unit, 0.0, 0.0, 0.0]) {
            assert!((got - expected).abs() < 1e-15, "expected {expected}, got {got}");
        }
    }

    /// Compares dL/dW of L = Σ dy·y with differences of L, for every entry of the sampled weight.
    #[test]
    fn gradients_of_what_is_drawn_agree_with_finite_differences() {
        const STEP: f64 = 1e-3;
        let weight = Tensor { name: "w".to_owned(), init: Init::Normal { std: 0.4 } };
        let linear = Linear { fan_in: 5, fan_out: 3, weight, bias: None, standardised: Some(1.7) };
        let random = Random::new(3, 0);
        let wave = |width: usize, salt: f64| {
            let mut array = Array::zeros(Shape { batch: 1, seq_len: 4 }, width);
            for (i, entry) in array.entries_mut().iter_mut().enumerate() {
                *entry = (1.3 * i as f64 + salt).sin();
            }
            array
        };
        let (input, gradient): (Array<f64>, Array<f64>) = (wave(5, 0.2), wave(3, 0.9));
        let got = weight_gradient(&linear, &random, input.entries(), gradient.entries());
        for (entry, got) in got.into_iter().enumerate() {
            let step = (0..15).map(|place| f32::from(place == entry)).collect();
            let steps = Arc::new([(("w".to_owned(), None), TensorGradient::Dense(step))].into());
            let loss = |factor: f64| -> f64 {
                let output = forward(&linear, &random.changed(Changes { steps: Arc::clone(&steps), factor }), &input);
                output.entries().iter().zip(gradient.entries()).map(|(y, g)| y * g).sum()
            };
            let slope = |step: f64| (loss(step) - loss(-step)) / (2.0 * step);
            let expected = (4.0 * slope(STEP) - slope(2.0 * STEP)) / 3.0;
            assert!((got - expected).abs() < 1e-8, "entry {entry}: expected {expected}, got {got}");
        }
    }
}
