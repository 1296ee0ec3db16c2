//! Softmax over each row of scores.
//!
//! ```text
//! forward   A_ab = e^(s_ab − max_c s_ac) / (Σ_c e^(s_ac − max) + e^(ς − max))      e^ς is 0 without a sink
//! backward  ds_ab = A_ab (dA_ab − Σ_c A_ac dA_ac)
//! ```

use crate::{
    scalar::{Scalar, sum},
    vectorised::vectorised,
};

vectorised! {
    /// Turns rows of scores, `length` each, into probabilities; a `sink` is one more score of every row.
    pub(crate) fn forward<T: Scalar>(scores: &mut [T], length: usize, sink: Option<T>) {
        for row in scores.chunks_exact_mut(length) {
            let mut largest = [sink.unwrap_or(row[0]); 16];
            for block in row.chunks(largest.len()) {
                for (largest, &s) in largest.iter_mut().zip(block) {
                    *largest = if s > *largest { s } else { *largest };
                }
            }
            let largest = largest.into_iter().fold(largest[0], |a, b| if b > a { b } else { a });
            for s in row.iter_mut() {
                *s = (*s - largest).exp();
            }
            let of_sink = sink.map_or(0.0, |sink| (sink - largest).exp().to_f64());
            let inverse = T::from_f64(1.0 / (sum(row, row, |a, _| a) + of_sink));
            for s in row.iter_mut() {
                *s *= inverse;
            }
        }
    }
}

vectorised! {
    /// Turns rows of gradients at the probabilities into gradients at the scores.
    pub(crate) fn backward<T: Scalar>(probabilities: &[T], gradients: &mut [T], length: usize) {
        for (row, gradient) in probabilities.chunks_exact(length).zip(gradients.chunks_exact_mut(length)) {
            let average = T::from_f64(sum(row, gradient, |a, g| a * g));
            for (g, &a) in gradient.iter_mut().zip(row) {
                *g = a * (*g - average);
            }
        }
    }
}
