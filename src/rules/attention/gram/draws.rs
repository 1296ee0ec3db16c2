//! Attention of one row over its scores, integrated at fixed nodes.
//!
//! # Formula
//!
//! Scores are L ξ + √δ η, L the pivoted Cholesky factor of their covariances, of so many columns at most, and δ what it leaves
//! of their variances. The standard normal ξ and η are nodes of an Owen-scrambled Sobol sequence, each with its mirror image, so
//! that odd moments vanish; the first dimensions, which are spread best, are those of the keys that are furthest from all others.
//!
//! # Assumptions
//!
//! Against 400 thousand random draws (16 keys that are averages of each other, 48 after eight averages, one of 64 far from all
//! others, 16 in groups of four, none alike; score variance 0.3 to 10), rms over scramblings in % of what scores add to
//! averages, slopes, single keys: 2048 nodes 0.2 to 2, 512 nodes 2 to 5 times that. 300 keys that are all unlike: within 5 %.
//!
//! # Source
//!
//! Burley, Practical Hash-based Owen Scrambling (2020), directions of Joe and Kuo (2008), by `sobol_burley`; quasi-Monte-Carlo
//! with the largest directions first: Acworth, Broadie and Glasserman (1998). Its use for softmax: ours.

use std::ops::Range;
use std::sync::{Arc, Mutex, PoisonError};

use rayon::prelude::*;
use sobol_burley::sample;
use statrs::distribution::{ContinuousCDF, Normal};

use crate::rules::attention::matrix::Matrix;

/// Nodes, with their mirror images: of scores that hardly differ and of sharp ones.
const LEAST: usize = 256;
const MOST: usize = 1024;
/// Score variance up to which there are the least.
const FLAT: f64 = 0.25;
/// Keys up to which there are most.
const FEW: usize = 256;
/// Pairs of nodes that are worked on at a time.
const BATCH: usize = 64;
/// Columns of L at most.
const LARGEST_RANK: usize = 128;
/// Dimensions of one sequence.
const DIMENSIONS: usize = 256;

/// What attention weights A are over their scores, for K and V of which the averages over the weights without scores, W, vanish.
pub(super) struct Drawn {
    /// E A.
    pub(super) mean: Vec<f64>,
    /// E A Aᵀ.
    pub(super) met: Matrix,
    /// E D(A).
    pub(super) spread: f64,
    /// E A_b A_b' (v_b − z)·(v_b' − z).
    pub(super) passed: Matrix,
}

impl Drawn {
    /// Of keys with the `weights` W; `score` is the score variance of a key of second moment 1, `contrast` that of the row.
    pub(super) fn new(weights: &[f64], [score, contrast]: [f64; 2], (k, v): (&Matrix, &Matrix)) -> Self {
        let n = weights.len();
        let scores = Scores::new(&Matrix::build(n, n, |i, j| score * k.row(i)[j]));
        let nodes = LEAST as f64 * (contrast / FLAT).clamp(1.0, (MOST / LEAST) as f64);
        let pairs = (nodes as usize * FEW / n.max(FEW)).next_power_of_two().max(LEAST) / 2;
        let both = k.times(v);
        let starts: Vec<usize> = (0..pairs).step_by(BATCH).collect();
        let batch = |&start: &usize| Self::sums(&scores.attention(weights, start..start + BATCH), k, v, &both);
        let mut batches = starts.par_iter().map(batch).collect::<Vec<_>>().into_iter();
        let mut all = batches.next().expect("there are nodes");
        for batch in batches {
            all.spread += batch.spread;
            for (sums, more) in [
                (&mut all.mean, batch.mean),
                (&mut all.passed.entries, batch.passed.entries),
                (&mut all.met.entries, batch.met.entries),
            ] {
                sums.iter_mut().zip(more).for_each(|(sum, more)| *sum += more);
            }
        }
        let part = 0.5 / pairs as f64;
        all.spread *= part;
        for sum in all.mean.iter_mut().chain(&mut all.passed.entries).chain(&mut all.met.entries) {
            *sum *= part;
        }
        all
    }

    /// Sums over `rows` of attention weights.
    fn sums(rows: &Matrix, k: &Matrix, v: &Matrix, both: &Matrix) -> Self {
        let n = rows.columns;
        let [along_k, along_v, along_both] = [k, v, both].map(|x| rows.product(x));
        let sum = |x: &[f64], y: &[f64]| x.iter().zip(y).map(|(x, y)| x * y).sum::<f64>();
        let (mut spread, mut mean) = (0.0, vec![0.0; n]);
        // A_b (v_b·z − z²/2).
        let mut halves = Matrix::zeros(rows.rows, n);
        for (node, halves) in halves.rows_mut().enumerate() {
            let [row, k, v, both] = [rows, &along_k, &along_v, &along_both].map(|x| x.row(node));
            let [p_k, p_v] = [k, v].map(|x| sum(row, x));
            let half: f64 = row.iter().zip(k).zip(v).map(|((a, k), v)| a * k * v).sum();
            spread += sum(row, both) - 2.0 * half + p_k * p_v;
            mean.iter_mut().zip(row).for_each(|(mean, a)| *mean += a);
            halves.iter_mut().zip(row).zip(v).for_each(|((half, a), v)| *half = a * (v - 0.5 * p_v));
        }
        let transposed = rows.transposed();
        let (met, half) = (transposed.product(rows), transposed.product(&halves));
        let passed = Matrix::build(n, n, |i, j| met.row(i)[j] * v.row(i)[j] - half.row(i)[j] - half.row(j)[i]);
        Self { mean, met, spread, passed }
    }

    /// tr(L K Lᵀ V), L = diag(E A) − E A Aᵀ.
    pub(super) fn linear(&self, k: &Matrix, v: &Matrix) -> f64 {
        let n = self.mean.len();
        let answers = Matrix::build(n, n, |i, j| if i == j { self.mean[i] } else { 0.0 } - self.met.row(i)[j]);
        let [of_k, of_v] = [k, v].map(|x| answers.product(x));
        of_k.entries.iter().zip(&of_v.entries).map(|(k, v)| k * v).sum()
    }
}

/// Normal scores: L, its columns being rows here, and √δ.
struct Scores {
    factor: Matrix,
    left: Vec<f64>,
    normals: Vec<Arc<[f64]>>,
}

impl Scores {
    fn new(covariance: &Matrix) -> Self {
        let (factor, left) = cholesky(covariance);
        let normals = normals(factor.rows + covariance.rows);
        Self { left: left.into_iter().map(|left| left.max(0.0).sqrt()).collect(), factor, normals }
    }

    /// Rows of attention weights of `pairs` of nodes, of keys that have the `weights` without scores.
    fn attention(&self, weights: &[f64], pairs: Range<usize>) -> Matrix {
        let (n, rank, count) = (weights.len(), self.factor.rows, pairs.len());
        let common = Matrix::build(count, rank, |node, of| self.normals[of][pairs.start + node]).product(&self.factor);
        let mut rows = Matrix::build(2 * count, n, |node, key| {
            let (place, sign) = if node < count { (node, 1.0) } else { (node - count, -1.0) };
            sign * (common.row(place)[key] + self.left[key] * self.normals[rank + key][pairs.start + place])
        });
        for row in rows.rows_mut() {
            let largest = row.iter().copied().fold(f64::NEG_INFINITY, f64::max);
            for (entry, weight) in row.iter_mut().zip(weights) {
                *entry = weight * (*entry - largest).exp();
            }
            let total: f64 = row.iter().sum();
            for entry in row {
                *entry /= total;
            }
        }
        rows
    }
}

/// Rows of L, transposed, and the diagonal of what is left.
fn cholesky(covariance: &Matrix) -> (Matrix, Vec<f64>) {
    /// Of the largest variance.
    const NOTHING: f64 = 1e-9;
    /// Variances that differ by less are equal: which of them is next is not left to rounding.
    const EQUAL: f64 = 1e-6;
    let n = covariance.rows;
    let mut left = covariance.diagonal();
    let largest = |left: &[f64]| left.iter().copied().fold(0.0, f64::max);
    let enough = NOTHING * largest(&left);
    let mut factor: Vec<f64> = Vec::new();
    while factor.len() < n.min(LARGEST_RANK) * n {
        let least = (1.0 - EQUAL) * largest(&left);
        let pivot = left.iter().rposition(|&left| left >= least).expect("a row has keys");
        let variance = left[pivot];
        if variance <= enough {
            break;
        }
        let mut next = covariance.row(pivot).to_vec();
        for row in factor.chunks_exact(n) {
            let part = row[pivot];
            next.iter_mut().zip(row).for_each(|(next, entry)| *next -= part * entry);
        }
        let std = variance.sqrt();
        for (next, left) in next.iter_mut().zip(&mut left) {
            *next /= std;
            *left -= *next * *next;
        }
        left[pivot] = 0.0;
        factor.extend(next);
    }
    (Matrix { rows: factor.len() / n, columns: n, entries: factor }, left)
}

/// Coordinates of the nodes in so many dimensions.
fn normals(dimensions: usize) -> Vec<Arc<[f64]>> {
    /// Sequences are of 24 bits.
    const HALF_A_STEP: f64 = 0.5 / (1 << 24) as f64;
    static KNOWN: Mutex<Vec<Arc<[f64]>>> = Mutex::new(Vec::new());
    let mut known = KNOWN.lock().unwrap_or_else(PoisonError::into_inner);
    let normal = Normal::standard();
    for dimension in known.len()..dimensions {
        let (set, place) = ((dimension / DIMENSIONS) as u32, (dimension % DIMENSIONS) as u32);
        let node = |index: usize| normal.inverse_cdf(f64::from(sample(index as u32, place, set)) + HALF_A_STEP);
        known.push((0..MOST / 2).map(node).collect());
    }
    known[..dimensions].to_vec()
}

#[cfg(test)]
mod tests {
    use approx::assert_relative_eq;

    use super::*;
    use crate::rules::softmax::{Overlaps, over_two_keys};

    fn met(shares: &[f64], w: f64) -> [f64; 2] {
        let n = shares.len();
        let drawn = Drawn::new(shares, [w; 2], (&Matrix::identity(n), &Matrix::identity(n)));
        [drawn.met.diagonal().iter().sum(), drawn.spread]
    }

    #[test]
    fn keys_that_are_unlike_are_a_plain_softmax() {
        // Sums over many keys that nothing tells apart gain least from nodes that are spread well.
        for (n, error) in [(4, 0.02), (16, 0.02), (64, 0.02), (300, 0.05)] {
            for w in [0.1, 1.0, 4.0, 16.0] {
                let row = Overlaps::new(n as f64).sharp_row(n as f64, w);
                let [s2, t] = met(&vec![1.0 / n as f64; n], w);
                assert_relative_eq!(s2, row.s2, max_relative = error);
                assert_relative_eq!(t, row.t(), max_relative = 1.5 * error);
            }
        }
    }

    #[test]
    fn two_keys_by_a_single_integral() {
        for w in [0.3_f64, 2.0, 30.0] {
            let squares = |a: f64| a * a + (1.0 - a).powi(2);
            let passed = |a: f64| squares(a) - 2.0 * (a.powi(3) + (1.0 - a).powi(3)) + squares(a).powi(2);
            let [s2, t] = met(&[0.75, 0.25], w);
            assert_relative_eq!(s2, over_two_keys(w, &squares), max_relative = 2e-3);
            assert_relative_eq!(t, over_two_keys(w, &passed), max_relative = 2e-2);
        }
    }

    /// Beyond the largest rank keys keep what they have alone.
    #[test]
    fn a_factor_and_what_it_leaves_make_the_covariances() {
        for n in [20, 200] {
            let entry = |i: usize, j: usize| if i == j { 1.5 } else { 0.9_f64.powi((i / 50 + j / 50) as i32) };
            let covariance = Matrix::symmetric(n, entry);
            let (factor, left) = cholesky(&covariance);
            let product = factor.transposed().product(&factor);
            for (i, left) in left.into_iter().enumerate() {
                assert_relative_eq!(product.row(i)[i] + left, 1.5, epsilon = 1e-9);
                for j in 0..i {
                    assert_relative_eq!(product.row(i)[j], entry(i, j), epsilon = 0.02);
                }
            }
        }
    }
}
