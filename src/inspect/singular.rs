//! The largest singular value of a matrix whose rows are read one after the other.
//!
//! # Formula
//!
//! The Lanczos recurrence for WᵀW from a random vector v_1 of length 1: with u = WᵀW v_k,
//!
//! ```text
//! α_k = v_k·u     β_(k+1) v_(k+1) = u − α_k v_k − β_k v_(k−1)
//! ```
//!
//! The largest eigenvalue of the tridiagonal matrix of the α and β is at most that of WᵀW, and after 12 steps
//! within 2 % of it where singular values are dense (a random matrix); powers of WᵀW take ten times as many steps.
//! u = Σ_rows w (w·v) takes one pass over the rows.
//!
//! # Source
//!
//! Golub, Van Loan 2013, §10.1 and §10.4.

use nalgebra::{DMatrix, SymmetricEigen};
use rand::{RngExt, SeedableRng, rngs::Xoshiro256PlusPlus};

/// The number of passes over the matrix.
pub(super) const STEPS: usize = 12;

/// The state of the Lanczos recurrence, in the symbols of the header.
pub(super) struct Lanczos {
    /// The vector v_k; `before` is v_(k−1).
    vector: Vec<f64>,
    before: Vec<f64>,
    /// The sum u so far.
    product: Vec<f64>,
    alphas: Vec<f64>,
    betas: Vec<f64>,
}

impl Lanczos {
    /// Starts the recurrence for rows of `columns` entries.
    pub(super) fn new(columns: usize) -> Self {
        let mut random = Xoshiro256PlusPlus::seed_from_u64(columns as u64);
        let mut vector: Vec<f64> = (0..columns).map(|_| random.random_range(-1.0..1.0)).collect();
        let length = length(&vector);
        for x in &mut vector {
            *x /= length;
        }
        Self { before: vec![0.0; columns], product: vec![0.0; columns], vector, alphas: Vec::new(), betas: Vec::new() }
    }

    /// Adds the next rows of the matrix to the current pass.
    pub(super) fn rows(&mut self, rows: &[f32]) {
        for row in rows.chunks_exact(self.vector.len()) {
            let weight = dot(row, &self.vector);
            for (sum, &x) in self.product.iter_mut().zip(row) {
                *sum += weight * f64::from(x);
            }
        }
    }

    /// Ends a pass. Returns true if another pass can improve the estimate.
    pub(super) fn step(&mut self) -> bool {
        let beta = self.betas.last().copied().unwrap_or(0.0);
        let alpha: f64 = self.product.iter().zip(&self.vector).map(|(u, v)| u * v).sum();
        for ((u, v), before) in self.product.iter_mut().zip(&self.vector).zip(&self.before) {
            *u -= alpha * v + beta * before;
        }
        let rest = length(&self.product);
        self.alphas.push(alpha);
        self.betas.push(rest);
        // Below this, the rest is rounding.
        let goes_on = rest.is_finite() && rest > 1e-10 * alpha.abs();
        if goes_on {
            for u in &mut self.product {
                *u /= rest;
            }
            std::mem::swap(&mut self.before, &mut self.vector);
            std::mem::swap(&mut self.vector, &mut self.product);
            self.product.fill(0.0);
        }
        goes_on
    }

    /// Returns the current estimate of the largest singular value; `None` before the first pass, or if entries are not
    /// finite.
    pub(super) fn largest(&self) -> Option<f64> {
        let n = self.alphas.len();
        if n == 0 || self.alphas.iter().any(|alpha| !alpha.is_finite()) {
            return None;
        }
        let tridiagonal = DMatrix::from_fn(n, n, |row, column| match row.abs_diff(column) {
            0 => self.alphas[row],
            1 => self.betas[row.min(column)],
            _ => 0.0,
        });
        let square = SymmetricEigen::new(tridiagonal).eigenvalues.max();
        Some(square.max(0.0).sqrt())
    }
}

/// Returns the dot product, in eight sums that the compiler can compute in parallel.
fn dot(row: &[f32], vector: &[f64]) -> f64 {
    let mut sums = [0.0; 8];
    let (rows, rest) = row.as_chunks::<8>();
    let (vectors, vector_rest) = vector.as_chunks::<8>();
    for (xs, vs) in rows.iter().zip(vectors) {
        for ((sum, &x), v) in sums.iter_mut().zip(xs).zip(vs) {
            *sum += f64::from(x) * v;
        }
    }
    sums.iter().sum::<f64>() + rest.iter().zip(vector_rest).map(|(&x, v)| f64::from(x) * v).sum::<f64>()
}

fn length(vector: &[f64]) -> f64 {
    vector.iter().map(|x| x * x).sum::<f64>().sqrt()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn largest(columns: usize, matrix: &[f32]) -> f64 {
        let mut lanczos = Lanczos::new(columns);
        for _ in 0..STEPS {
            lanczos.rows(matrix);
            if !lanczos.step() {
                break;
            }
        }
        lanczos.largest().expect("finite")
    }

    /// The matrix ((3, 0), (4, 5)) has the singular values 3√5 and √5. The singular value of a matrix of rank one is
    /// the product of two lengths.
    #[test]
    fn small_matrices_are_exact() {
        assert!((largest(2, &[3.0, 0.0, 4.0, 5.0]) - 45f64.sqrt()).abs() < 1e-9);
        let rank_one: Vec<f32> = [1.0, 2.0, 2.0].iter().flat_map(|a| [3.0, 4.0].map(|b: f32| a * b)).collect();
        assert!((largest(2, &rank_one) - 15.0).abs() < 1e-9);
        assert!(largest(3, &[0.0; 9]).abs() <= 0.0);
    }

    /// The estimate is below the largest singular value (by nalgebra), by less than 2 %.
    #[test]
    fn random_matrices_are_near() {
        let mut random = Xoshiro256PlusPlus::seed_from_u64(3);
        for (rows, columns) in [(60, 60), (30, 90), (90, 30)] {
            let matrix: Vec<f32> = (0..rows * columns).map(|_| random.random_range(-1.0..1.0)).collect();
            let exact = DMatrix::from_row_iterator(rows, columns, matrix.iter().map(|&x| f64::from(x)));
            let exact = exact.singular_values().max();
            let got = largest(columns, &matrix);
            assert!(got <= exact * (1.0 + 1e-9) && got > 0.98 * exact, "{rows}×{columns}: {got} of {exact}");
        }
    }

    #[test]
    fn what_is_not_finite_has_none() {
        let mut lanczos = Lanczos::new(2);
        lanczos.rows(&[1.0, f32::NAN]);
        assert!(!lanczos.step());
        assert_eq!(lanczos.largest(), None);
    }
}
