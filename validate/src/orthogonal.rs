//! Orthogonal weights: matrices with orthonormal rows or columns, whichever are fewer, from Haar's measure.
//!
//! ```text
//! W = γ Q or its transpose      Q e_j = −sign(x_j1) H_1 ⋯ H_j e_j      H_k = 1 − 2 v_k v_kᵀ/|v_k|²
//! v_k = x_k + sign(x_k1) |x_k| e_k      x_k ~ N(0, 1), zero before entry k
//! ```
//!
//! where Q has N rows and fewer or as many columns; γ = √N times the standard deviation of an entry; e_j is the unit
//! vector j; x_k1 is entry k of x_k, the first that is not zero.
//!
//! This Q is the factor of a Gaussian matrix Q R, R with a positive diagonal, but needs no such matrix: each x_k has a
//! stream of its own. The threads share the columns of Q, each of which is computed by one thread in f64.
//!
//! Source: Stewart 1980, *The efficient generation of random orthogonal matrices*; Mezzadri 2007 for the signs.

use rayon::prelude::*;
use sigprop_stack::Init;

use crate::{random::Streams, scalar::Scalar, vectorised::vectorised};

/// Number of partial sums of a scalar product, which become lanes of vector instructions.
const LANES: usize = 8;

/// An orthogonal weight.
pub(crate) struct Orthogonal {
    /// The columns of γ Q, one after the other.
    columns: Vec<f64>,
    /// Length of a column.
    length: usize,
    /// True if the rows of the weight are orthonormal, apart from γ: they are the columns of γ Q.
    has_columns_as_rows: bool,
}

impl Orthogonal {
    /// Samples the weight of this shape, `rows` × `columns`, whose entries have the standard deviation `std`.
    pub(crate) fn sample(streams: &Streams, std: f64, [rows, columns]: [usize; 2]) -> Self {
        let (length, count) = (rows.max(columns), rows.min(columns));
        let mut reflections = vec![0.0; length * count];
        let mut signs = vec![0.0; count];
        let each = reflections.par_chunks_exact_mut(length).zip(&mut signs).enumerate();
        each.for_each(|(k, (reflection, sign))| {
            let vector = &mut reflection[k..];
            streams.fill(k, Init::Normal { std: 1.0 }, vector);
            *sign = into_reflection(vector);
        });
        let gain = std * (length as f64).sqrt();
        let mut weight = vec![0.0; length * count];
        weight.par_chunks_exact_mut(length).enumerate().for_each(|(j, column)| {
            column[j] = -signs[j] * gain;
            for k in (0..=j).rev() {
                reflect(&reflections[k * length + k..(k + 1) * length], &mut column[k..]);
            }
        });
        Self { columns: weight, length, has_columns_as_rows: rows <= columns }
    }

    /// Writes row `row` of the weight.
    pub(crate) fn row<T: Scalar>(&self, row: usize, out: &mut [T]) {
        let (first, step) = if self.has_columns_as_rows { (row * self.length, 1) } else { (row, self.length) };
        for (entry, w) in out.iter_mut().zip(self.columns[first..].iter().step_by(step)) {
            *entry = T::from_f64(*w);
        }
    }
}

/// Turns x into v of length √2, so that H = 1 − v vᵀ, and returns the sign of the first entry of x.
fn into_reflection(x: &mut [f64]) -> f64 {
    let sign = 1f64.copysign(x[0]);
    x[0] += sign * dot(x, x).sqrt();
    let factor = (2.0 / dot(x, x).max(f64::MIN_POSITIVE)).sqrt();
    for entry in x {
        *entry *= factor;
    }
    sign
}

vectorised! {
    /// column −= v (v·column).
    fn reflect(v: &[f64], column: &mut [f64]) {
        let along = dot(v, column);
        for (entry, v) in column.iter_mut().zip(v) {
            *entry -= along * v;
        }
    }
}

#[allow(clippy::inline_always)]
#[inline(always)]
fn dot(a: &[f64], b: &[f64]) -> f64 {
    let (a, a_rest) = a.as_chunks::<LANES>();
    let (b, b_rest) = b.as_chunks::<LANES>();
    let mut sums = [0.0; LANES];
    for (a, b) in a.iter().zip(b) {
        for lane in 0..LANES {
            sums[lane] += a[lane] * b[lane];
        }
    }
    let rest: f64 = a_rest.iter().zip(b_rest).map(|(a, b)| a * b).sum();
    sums.iter().sum::<f64>() + rest
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::random::{Purpose, Random};

    fn rows(replicate: usize, std: f64, shape: [usize; 2]) -> Vec<Vec<f64>> {
        let streams = Random::new(5, replicate).streams(Purpose::Weight, "w");
        let weight = Orthogonal::sample(&streams, std, shape);
        let row = |row| {
            let mut out = vec![0.0; shape[1]];
            weight.row(row, &mut out);
            out
        };
        (0..shape[0]).map(row).collect()
    }

    fn transposed(matrix: &[Vec<f64>]) -> Vec<Vec<f64>> {
        (0..matrix[0].len()).map(|column| matrix.iter().map(|row| row[column]).collect()).collect()
    }

    #[test]
    fn fewer_rows_or_columns_are_orthonormal() {
        for (shape, std) in [([1, 1], 2.0), ([6, 6], 0.5), ([3, 20], 0.1), ([20, 3], 0.1), ([1, 9], 1.0)] {
            let weight = rows(0, std, shape);
            let short = if shape[0] <= shape[1] { weight } else { transposed(&weight) };
            let square = std * std * short[0].len() as f64;
            for (i, a) in short.iter().enumerate() {
                for (j, b) in short.iter().enumerate() {
                    let expected = if i == j { square } else { 0.0 };
                    approx::assert_relative_eq!(dot(a, b), expected, epsilon = 1e-12 * square);
                }
            }
        }
    }

    /// Mean, variance and fourth moment 3/(N (N + 2)) of the entry in the last row and column, and E (tr Q)² = 1 (Diaconis
    /// & Shahshahani 1994), of Haar's measure on N × N matrices; α = 1e-5 two-sided per check (|z| < 4.4).
    #[test]
    fn matrices_have_the_moments_of_haar_measure() {
        const COUNT: usize = 20_000;
        const N: usize = 4;
        let size = (N as f64).powf(-0.5);
        let matrices = (0..COUNT).map(|replicate| rows(replicate, size, [N, N]));
        let (corners, traces): (Vec<f64>, Vec<f64>) =
            matrices.map(|q| (q[N - 1][N - 1], (0..N).map(|i| q[i][i]).sum::<f64>())).unzip();
        let check = |name: &str, values: Vec<f64>, expected: f64| {
            let mean = values.iter().sum::<f64>() / COUNT as f64;
            let variance = values.iter().map(|value| (value - mean).powi(2)).sum::<f64>() / COUNT as f64;
            let z = (mean - expected) / (variance / COUNT as f64).sqrt();
            assert!(z.abs() < 4.4, "{name}: expected {expected}, got {mean}, z {z}");
        };
        let powers = |values: &[f64], power| values.iter().map(|value: &f64| value.powi(power)).collect::<Vec<_>>();
        check("mean", powers(&corners, 1), 0.0);
        check("variance", powers(&corners, 2), 0.25);
        check("fourth moment", powers(&corners, 4), 3.0 / 24.0);
        check("mean trace", powers(&traces, 1), 0.0);
        check("squared trace", powers(&traces, 2), 1.0);
    }
}
