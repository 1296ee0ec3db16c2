//! Softmax over each row of scores.
//!
//! ```text
//! forward   A_ab = e^(s_ab − max_c s_ac) / Σ_c e^(s_ac − max)
//! backward  ds_ab = A_ab (dA_ab − Σ_c A_ac dA_ac)
//! ```

use crate::scalar::Scalar;

/// Turns rows of scores, `length` each, into probabilities.
pub(crate) fn forward<T: Scalar>(scores: &mut [T], length: usize) {
    for row in scores.chunks_exact_mut(length) {
        let largest = row.iter().fold(row[0], |largest, &s| if s > largest { s } else { largest });
        for s in row.iter_mut() {
            *s = (*s - largest).exp();
        }
        let total: f64 = row.iter().map(|s| s.to_f64()).sum();
        let inverse = T::from_f64(1.0 / total);
        for s in row.iter_mut() {
            *s *= inverse;
        }
    }
}

/// Turns rows of gradients at the probabilities into gradients at the scores.
pub(crate) fn backward<T: Scalar>(probabilities: &[T], gradients: &mut [T], length: usize) {
    for (row, gradient) in probabilities.chunks_exact(length).zip(gradients.chunks_exact_mut(length)) {
        let average: f64 = row.iter().zip(gradient.iter()).map(|(a, g)| a.to_f64() * g.to_f64()).sum();
        let average = T::from_f64(average);
        for (g, &a) in gradient.iter_mut().zip(row) {
            *g = a * (*g - average);
        }
    }
}
