//! Linear maps whose Gaussian weights are never sampled: only their products with tokens and gradients are.
//!
//! # Formula
//!
//! W (`fan_out` × `fan_in`) has independent entries of variance σ², X (tokens × `fan_in`) is its input, G (tokens ×
//! `fan_out`) the gradient at its output. With X = L Q, the rows of Q orthonormal and L lower triangular up to the
//! order of tokens (X Xᵀ = L Lᵀ), and G Gᵀ = C Cᵀ,
//!
//! ```text
//! forward   Y  = X Wᵀ = L Z                        Z = Q Wᵀ      tokens × fan_out, independent of variance σ²
//! backward  dX = G W  = (G Zᵀ − C R Qᵀ) Q + C R    R fresh       tokens × fan_in, independent of variance σ²
//! ```
//!
//! because W = Zᵀ Q + W (1 − Qᵀ Q). On the span of the input the output determines the weights. On its complement they
//! are as independent as before, and G W' of independent W' is Gaussian with covariance σ² G Gᵀ between its rows.
//!
//! This is exact in distribution, jointly forward and backward, for a weight that is used once. It takes tokens² ×
//! width operations, where sampling the weights takes tokens × width².
//!
//! # Numbers
//!
//! Gram matrices, factors and Q are computed in f64: for nearly equal tokens only their small differences remain after
//! subtraction, and rows of Q are orthogonal up to ε times the ratio of the largest to the smallest |x|² along a
//! direction. Directions with less than [`SMALLEST`] of the largest token are left out.
//!
//! # Source
//!
//! Conditioning on linear observations: Rasmussen and Williams 2006, A.2; the pivoted factor: Higham, "Accuracy and
//! Stability of Numerical Algorithms", 2nd ed., §10.3.

use sigprop_stack::{Init, Linear, Tensor};

use super::add_bias;
use crate::{
    array::{Array, Shape},
    matmul::{Threads, View, ViewMut, multiply, multiply_add},
    random::{Purpose, Random},
    scalar::Scalar,
    vectorised::vectorised,
};

/// A remaining direction of the input is taken to be rounding of f32 if its |x_a|² is at most this share of the largest
/// one.
const SMALLEST: f64 = 1e-11;

/// Returns the output Y with the bias, and the orthonormal basis Q of the span of the tokens X (tokens × `fan_in`).
/// Rows of Q beyond the rank of X are zero.
pub(crate) fn forward<T: Scalar>(linear: &Linear, random: &Random, input: &Array<T>) -> (Array<T>, Array<T>) {
    let (tokens, shape) = (input.shape().tokens(), input.shape());
    let x = in_f64(input);
    let factor = Factor::of(gram(&x, tokens), tokens);
    let mut q = vec![0.0; x.len()];
    let width = linear.fan_in;
    multiply(
        Threads::Shared,
        &mut ViewMut::new(&mut q, tokens, width, width),
        1.0,
        View::new(&factor.inverse(), tokens, tokens, tokens),
        View::new(&x, tokens, width, width),
    );
    let mut basis = Array::unwritten(shape, width);
    for (entry, q) in basis.entries_mut().iter_mut().zip(q) {
        *entry = T::from_f64(q);
    }
    let z = fresh(&linear.weight, Purpose::Weight, random, shape, linear.fan_out);
    let mut output = product_of_square(&factor.lower::<T>(), &z);
    add_bias(linear.bias.as_ref(), 1, random, &mut output);
    (output, basis)
}

/// Returns the gradient at the input. `basis` is Q, which [`forward`] returned, and `gradient` is the gradient at the
/// output.
pub(crate) fn backward<T: Scalar>(linear: &Linear, random: &Random, basis: &Array<T>, gradient: &Array<T>) -> Array<T> {
    let (tokens, shape) = (gradient.shape().tokens(), gradient.shape());
    let c = Factor::of(gram(&in_f64(gradient), tokens), tokens).lower::<T>();
    let z = fresh::<T>(&linear.weight, Purpose::Weight, random, shape, linear.fan_out);
    let r = product_of_square(&c, &fresh(&linear.weight, Purpose::Rest, random, shape, linear.fan_in));
    // C R Qᵀ, then G Zᵀ minus it.
    let mut along = crossed(&r, basis);
    for (along, of_output) in along.iter_mut().zip(crossed(gradient, &z)) {
        *along = of_output - *along;
    }
    let mut input_gradient = r;
    let width = linear.fan_in;
    multiply_add(
        Threads::Shared,
        &mut ViewMut::new(input_gradient.entries_mut(), tokens, width, width),
        1.0,
        View::new(&along, tokens, tokens, tokens),
        View::new(basis.entries(), tokens, width, width),
    );
    input_gradient
}

/// Samples an array with one row of `width` entries per token. The entries are independent and have the distribution of
/// the entries of `weight`.
fn fresh<T: Scalar>(weight: &Tensor, purpose: Purpose, random: &Random, shape: Shape, width: usize) -> Array<T> {
    let mut rows = Array::unwritten(shape, width);
    random.rows(purpose, weight, width, rows.entries_mut());
    rows
}

fn in_f64<T: Scalar>(array: &Array<T>) -> Vec<f64> {
    array.entries().iter().map(|x| x.to_f64()).collect()
}

/// X Xᵀ of the tokens of `x`.
fn gram(x: &[f64], tokens: usize) -> Vec<f64> {
    let width = x.len() / tokens;
    let x = View::new(x, tokens, width, width);
    let mut gram = vec![0.0; tokens * tokens];
    multiply(Threads::Shared, &mut ViewMut::new(&mut gram, tokens, tokens, tokens), 1.0, x, x.transposed());
    gram
}

/// Returns A Bᵀ, tokens × tokens, of two arrays with the same tokens.
fn crossed<T: Scalar>(a: &Array<T>, b: &Array<T>) -> Vec<T> {
    let (tokens, width) = (a.shape().tokens(), a.width());
    let mut crossed = vec![T::default(); tokens * tokens];
    multiply(
        Threads::Shared,
        &mut ViewMut::new(&mut crossed, tokens, tokens, tokens),
        1.0,
        View::new(a.entries(), tokens, width, width),
        View::new(b.entries(), tokens, width, width).transposed(),
    );
    crossed
}

/// Returns L B, where L is tokens × tokens.
fn product_of_square<T: Scalar>(l: &[T], b: &Array<T>) -> Array<T> {
    let (tokens, width) = (b.shape().tokens(), b.width());
    let mut product = Array::unwritten(b.shape(), width);
    multiply(
        Threads::Shared,
        &mut ViewMut::new(product.entries_mut(), tokens, width, width),
        1.0,
        View::new(l, tokens, tokens, tokens),
        View::new(b.entries(), tokens, width, width),
    );
    product
}

/// The factor L of a Gram matrix L Lᵀ by the pivoted Cholesky method, which takes the token with the largest remainder
/// next.
struct Factor {
    /// The rows of the matrix, in the order of `order`; its first `rank` columns hold L.
    entries: Vec<f64>,
    /// Token of each row.
    order: Vec<usize>,
    rank: usize,
}

impl Factor {
    fn of(mut gram: Vec<f64>, tokens: usize) -> Self {
        let n = tokens;
        let mut order: Vec<usize> = (0..n).collect();
        let largest = (0..n).map(|i| gram[i * n + i]).fold(0.0, f64::max);
        let mut column = vec![0.0; n];
        for step in 0..n {
            let pivot = (step..n).max_by(|&i, &j| gram[i * n + i].total_cmp(&gram[j * n + j])).unwrap_or(step);
            let own = gram[pivot * n + pivot];
            if own <= SMALLEST * largest {
                return Self { entries: gram, order, rank: step };
            }
            order.swap(step, pivot);
            swap(&mut gram, n, step, pivot);
            let root = own.sqrt();
            gram[step * n + step] = root;
            for i in step + 1..n {
                gram[i * n + step] /= root;
                column[i] = gram[i * n + step];
            }
            for i in step + 1..n {
                subtract(&mut gram[i * n + step + 1..=i * n + i], column[i], &column[step + 1..=i]);
            }
        }
        Self { entries: gram, order, rank: n }
    }

    /// The factor L, tokens × tokens, with rows in the order of the tokens; columns beyond the rank are zero.
    fn lower<T: Scalar>(&self) -> Vec<T> {
        let n = self.order.len();
        let mut lower = vec![T::default(); n * n];
        for (i, &token) in self.order.iter().enumerate() {
            let own = (i + 1).min(self.rank);
            for (entry, &l) in lower[token * n..].iter_mut().zip(&self.entries[i * n..][..own]) {
                *entry = T::from_f64(l);
            }
        }
        lower
    }

    /// The matrix, tokens × tokens, that multiplies the tokens X to give their orthonormal basis Q; its rows beyond the
    /// rank are zero.
    fn inverse(&self) -> Vec<f64> {
        let n = self.order.len();
        let mut inverse = vec![0.0; n * n];
        for i in 0..self.rank {
            let (above, row) = inverse.split_at_mut(i * n);
            row[i] = 1.0;
            for (j, above) in above.chunks_exact(n).enumerate() {
                subtract(&mut row[..=j], self.entries[i * n + j], &above[..=j]);
            }
            row[..=i].iter_mut().for_each(|entry| *entry /= self.entries[i * n + i]);
        }
        let mut by_token = vec![0.0; n * n];
        for (row, ordered) in by_token.chunks_exact_mut(n).zip(inverse.chunks_exact(n)) {
            for (&token, &entry) in self.order.iter().zip(ordered) {
                row[token] = entry;
            }
        }
        by_token
    }
}

/// Exchanges rows and columns `i` < `j` of a symmetric matrix, of which only the lower triangle is used.
fn swap(matrix: &mut [f64], n: usize, i: usize, j: usize) {
    if i == j {
        return;
    }
    for k in 0..i {
        matrix.swap(i * n + k, j * n + k);
    }
    for k in i + 1..j {
        matrix.swap(k * n + i, j * n + k);
    }
    for k in j + 1..n {
        matrix.swap(k * n + i, k * n + j);
    }
    matrix.swap(i * n + i, j * n + j);
}

vectorised! {
    /// sum −= factor · x.
    fn subtract(sum: &mut [f64], factor: f64, x: &[f64]) {
        for (sum, x) in sum.iter_mut().zip(x) {
            *sum -= factor * x;
        }
    }
}

/// The reason why a weight must be sampled directly; `None` if it need not be.
pub(crate) fn refusal(linear: &Linear) -> Option<&'static str> {
    if linear.standardised.is_some() {
        return Some("its weights are standardised, so that entries of a row are not independent");
    }
    match linear.weight.init {
        Init::Normal { .. } | Init::Zero => None,
        Init::Uniform { .. } | Init::TruncatedNormal { .. } => Some("its weights are not Gaussian"),
        Init::Orthogonal { .. } => Some("its weights are orthogonal, so that entries are not independent"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// ε κ² of the tokens below, which differ by 10⁻⁴: the error in orthogonality from a factor of their Gram matrix.
    const ORTHOGONAL: f64 = 1e-6;

    fn linear(fan_in: usize, fan_out: usize) -> Linear {
        let weight = Tensor { name: "w".to_owned(), init: Init::Normal { std: 0.3 } };
        Linear { fan_in, fan_out, weight, bias: None, standardised: None }
    }

    /// Tokens of which the third equals the first, and the last nearly equals the second.
    fn tokens(count: usize, width: usize, salt: f64) -> Array<f64> {
        let mut array = Array::zeros(Shape { batch: 1, seq_len: count }, width);
        for (i, entry) in array.entries_mut().iter_mut().enumerate() {
            *entry = (1.3 * i as f64 + salt + (i * i % 7) as f64).sin();
        }
        let entries = array.entries_mut();
        entries.copy_within(..width, 2 * width);
        entries.copy_within(width..2 * width, (count - 1) * width);
        entries[(count - 1) * width] += 1e-4;
        array
    }

    fn dot(a: &[f64], b: &[f64]) -> f64 {
        a.iter().zip(b).map(|(a, b)| a * b).sum()
    }

    /// dX_a·x_b = (Wᵀ g_a)·x_b = g_a·(W x_b) = G_a·y_b for any weights, with fewer and with more tokens than features.
    #[test]
    fn one_weight_goes_forward_and_backward() {
        for (count, width) in [(5, 9), (12, 4)] {
            let (linear, random) = (linear(width, 7), Random::new(3, 0));
            let (x, g) = (tokens(count, width, 0.0), tokens(count, 7, 0.4));
            let (y, basis) = forward(&linear, &random, &x);
            let dx = backward(&linear, &random, &basis, &g);
            for (g, dx) in g.rows().zip(dx.rows()) {
                for (x, y) in x.rows().zip(y.rows()) {
                    approx::assert_relative_eq!(dot(dx, x), dot(g, y), epsilon = ORTHOGONAL);
                }
            }
            // The same token gives the same output.
            let rows: Vec<&[f64]> = y.rows().collect();
            assert!(rows[0].iter().zip(rows[2]).all(|(a, b)| (a - b).abs() < 1e-9));
        }
    }

    /// Q spans the tokens: its rows are orthonormal, and X Qᵀ Q = X.
    #[test]
    fn the_basis_is_orthonormal_and_complete() {
        for (count, width, rank) in [(5, 9, 4), (12, 4, 4)] {
            let x = tokens(count, width, 0.0);
            let (_, basis) = forward(&linear(width, 3), &Random::new(3, 0), &x);
            for (i, a) in basis.rows().enumerate() {
                for (j, b) in basis.rows().enumerate() {
                    let expected = if i == j && i < rank { 1.0 } else { 0.0 };
                    approx::assert_relative_eq!(dot(a, b), expected, epsilon = ORTHOGONAL);
                }
            }
            for x in x.rows() {
                let length: f64 = basis.rows().map(|q| dot(q, x).powi(2)).sum();
                approx::assert_relative_eq!(length, dot(x, x), max_relative = ORTHOGONAL);
            }
        }
    }
}
