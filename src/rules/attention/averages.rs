//! Averages over the keys that a query sees: the matrix W of flat attention and its transpose, applied to a
//! matrix in as many steps as that has entries.

use std::ops::Range;

use rayon::prelude::*;
use sigprop_stack::Mask;

use super::matrix::Matrix;

/// W_ab = e^(−`slope` |a − b|)/Z_a for the keys b that query a sees; rows sum to 1.
#[derive(Clone, Debug)]
pub(super) struct Averages {
    /// Of each query; first and last key never move back.
    keys: Vec<Range<usize>>,
    n_keys: usize,
    slope: f64,
    /// 1/Z_a.
    weights: Vec<f64>,
}

impl Averages {
    pub(super) fn new(mask: Mask, n_queries: usize, n_keys: usize, slope: f64) -> Self {
        let keys = (0..n_queries).map(|a| mask.keys(a, n_keys)).collect();
        let mut averages = Self { keys, n_keys, slope, weights: vec![1.0; n_queries] };
        averages.weights = averages.of(&vec![1.0; n_keys]).into_iter().map(f64::recip).collect();
        averages
    }

    /// The matrix of all W_ab²; its rows do not sum to 1.
    pub(super) fn squared(&self) -> Self {
        let weights = self.weights.iter().map(|weight| weight * weight).collect();
        Self { slope: 2.0 * self.slope, weights, ..self.clone() }
    }

    /// Whether weights fall with distance.
    pub(super) fn decays(&self) -> bool {
        self.slope > 0.0
    }

    /// Where the keys of every query end, if all see the first one and no query fewer than those before it.
    pub(super) fn seen_from_the_first(&self) -> Option<Vec<usize>> {
        let ends: Vec<usize> = self.keys.iter().map(|keys| keys.end).collect();
        (self.keys.iter().all(|keys| keys.start == 0) && ends.is_sorted()).then_some(ends)
    }

    /// The keys of query `a` and their weights.
    pub(super) fn weighted_keys(&self, a: usize) -> impl Iterator<Item = (usize, f64)> {
        self.keys[a].clone().map(move |b| (b, self.weights[a] * self.decay(a.abs_diff(b))))
    }

    pub(super) fn n_keys(&self) -> usize {
        self.n_keys
    }

    /// The keys of every query.
    pub(super) fn keys(&self) -> &[Range<usize>] {
        &self.keys
    }

    /// Σ_b √(W_ab W_cb).
    pub(super) fn shared(&self) -> Matrix {
        let weights = self.weights.iter().map(|weight| weight.sqrt()).collect();
        let roots = Self { slope: 0.5 * self.slope, weights, ..self.clone() };
        roots.right(&roots.left(&Matrix::identity(self.n_keys)))
    }

    /// Queries of which each sees at least half of the keys that the next one sees, and the first and last.
    pub(super) fn halves(&self) -> Vec<usize> {
        let mut rows = vec![0];
        while let Some(&last) = rows.last().filter(|&&last| last + 1 < self.keys.len()) {
            rows.push((last + (self.keys[last].len() / 2).max(1)).min(self.keys.len() - 1));
        }
        rows
    }

    /// W∘X, row by row of the queries `rows`.
    pub(super) fn weigh(&self, rows: &[usize], x: &Matrix) -> Matrix {
        let mut y = Matrix::zeros(rows.len(), self.n_keys);
        for (place, &a) in rows.iter().enumerate() {
            let out = y.row_mut(place);
            for b in self.keys[a].clone() {
                out[b] = self.weights[a] * self.decay(a.abs_diff(b)) * x.row(a)[b];
            }
        }
        y
    }

    /// W x.
    pub(super) fn of(&self, x: &[f64]) -> Vec<f64> {
        self.left(&Matrix::column(x.to_vec())).entries
    }

    /// Wᵀ x.
    pub(super) fn transposed_of(&self, x: &[f64]) -> Vec<f64> {
        self.left_transposed(&Matrix::column(x.to_vec())).entries
    }

    /// W X.
    pub(super) fn left(&self, x: &Matrix) -> Matrix {
        let mut y = Matrix::zeros(self.keys.len(), x.columns);
        if self.slope > 0.0 {
            self.decaying(x, &mut y);
        } else {
            self.flat(x, &mut y);
        }
        for (row, weight) in y.rows_mut().zip(&self.weights) {
            scale(row, *weight);
        }
        y
    }

    /// W X and W X Wᵀ.
    pub(super) fn averaged(&self, x: &Matrix) -> (Matrix, Matrix) {
        let once = self.left(x);
        let twice = self.right(&once);
        (once, twice)
    }

    /// Wᵀ X.
    pub(super) fn left_transposed(&self, x: &Matrix) -> Matrix {
        let mut y = Matrix::zeros(self.n_keys, x.columns);
        if self.slope > 0.0 {
            self.decaying_transposed(x, &mut y);
        } else {
            self.flat_transposed(x, &mut y);
        }
        y
    }

    /// X Wᵀ.
    pub(super) fn right(&self, x: &Matrix) -> Matrix {
        by_bands(x, self.keys.len(), |columns| self.left(columns))
    }

    /// X W.
    pub(super) fn right_transposed(&self, x: &Matrix) -> Matrix {
        by_bands(x, self.n_keys, |columns| self.left_transposed(columns))
    }

    /// The diagonal of X Wᵀ.
    pub(super) fn diagonal(&self, x: &Matrix) -> Vec<f64> {
        let own = |a: usize| self.weighted_keys(a).map(|(b, weight)| weight * x.row(a)[b]).sum();
        (0..x.rows).map(own).collect()
    }

    /// The diagonal of Wᵀ X.
    pub(super) fn transposed_diagonal(&self, x: &Matrix) -> Vec<f64> {
        let mut own = vec![0.0; self.n_keys];
        for a in 0..x.rows {
            for (b, weight) in self.weighted_keys(a) {
                own[b] += weight * x.row(a)[b];
            }
        }
        own
    }

    /// Sums over the keys of each query, by moving both ends of the range.
    fn flat(&self, x: &Matrix, y: &mut Matrix) {
        let mut sum = vec![0.0; x.columns];
        let mut held = 0..0;
        for (a, keys) in self.keys.iter().enumerate() {
            for b in held.end..keys.end {
                add(&mut sum, 1.0, x.row(b));
            }
            for b in held.start..keys.start {
                add(&mut sum, -1.0, x.row(b));
            }
            held = keys.clone();
            y.row_mut(a).copy_from_slice(&sum);
        }
    }

    fn flat_transposed(&self, x: &Matrix, y: &mut Matrix) {
        let mut sum = vec![0.0; x.columns];
        let (mut come, mut gone) = (0, 0);
        for b in 0..self.n_keys {
            while self.keys.get(come).is_some_and(|keys| keys.start <= b) {
                add(&mut sum, self.weights[come], x.row(come));
                come += 1;
            }
            while gone < come && self.keys[gone].end <= b {
                add(&mut sum, -self.weights[gone], x.row(gone));
                gone += 1;
            }
            y.row_mut(b).copy_from_slice(&sum);
        }
    }

    /// e^(−slope · `distance`).
    fn decay(&self, distance: usize) -> f64 {
        if self.slope > 0.0 { (-self.slope * distance as f64).exp() } else { 1.0 }
    }

    /// Keys up to the query by a running sum that decays, then keys after it by one from the end.
    fn decaying(&self, x: &Matrix, y: &mut Matrix) {
        let step = self.decay(1);
        let mut sum = vec![0.0; x.columns];
        let mut start = 0;
        for (a, keys) in self.keys.iter().enumerate() {
            scale(&mut sum, step);
            if a < self.n_keys {
                add(&mut sum, 1.0, x.row(a));
            }
            for b in start..keys.start {
                add(&mut sum, -self.decay(a - b), x.row(b));
            }
            start = keys.start;
            y.row_mut(a).copy_from_slice(&sum);
        }
        sum.fill(0.0);
        let mut end = self.n_keys;
        for (a, keys) in self.keys.iter().enumerate().rev() {
            if a + 1 < self.n_keys {
                add(&mut sum, 1.0, x.row(a + 1));
            }
            scale(&mut sum, step);
            for b in keys.end.max(a + 1)..end {
                add(&mut sum, -self.decay(b - a), x.row(b));
            }
            end = keys.end.max(a + 1);
            add(y.row_mut(a), 1.0, &sum);
        }
    }

    /// The same sums, over the queries that see a key, each with its weight.
    fn decaying_transposed(&self, x: &Matrix, y: &mut Matrix) {
        for (a, keys) in self.keys.iter().enumerate() {
            for b in keys.clone() {
                add(y.row_mut(b), self.weights[a] * self.decay(a.abs_diff(b)), x.row(a));
            }
        }
    }
}

/// What `of` makes of the rows of `x` as columns, as rows of length `columns`: so many at a time as stay in a cache.
fn by_bands(x: &Matrix, columns: usize, of: impl Fn(&Matrix) -> Matrix + Sync) -> Matrix {
    const BAND: usize = 64;
    let mut y = Matrix::zeros(x.rows, columns);
    let bands = y.entries.par_chunks_mut(BAND * columns).zip(x.entries.par_chunks(BAND * x.columns));
    bands.for_each(|(y, rows)| {
        y.copy_from_slice(&of(&Matrix::transpose_of(rows, x.columns)).transposed().entries);
    });
    y
}

fn add(sum: &mut [f64], factor: f64, row: &[f64]) {
    for (sum, entry) in sum.iter_mut().zip(row) {
        *sum += factor * entry;
    }
}

fn scale(sum: &mut [f64], factor: f64) {
    for entry in sum {
        *entry *= factor;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// W entry by entry.
    fn dense(mask: Mask, n_queries: usize, n_keys: usize, slope: f64) -> Matrix {
        let mut w = Matrix::zeros(n_queries, n_keys);
        for a in 0..n_queries {
            let keys = mask.keys(a, n_keys);
            let weight = |b: usize| (-slope * a.abs_diff(b) as f64).exp();
            let total: f64 = keys.clone().map(weight).sum();
            for b in keys {
                w.row_mut(a)[b] = weight(b) / total;
            }
        }
        w
    }

    #[test]
    fn averages_agree_with_the_matrix_they_stand_for() {
        let masks = [
            Mask::FULL,
            Mask::CAUSAL,
            Mask { before: Some(2), after: Some(0) },
            Mask { before: Some(3), after: Some(1) },
        ];
        for mask in masks {
            for (n_queries, n_keys, slope) in [(7, 7, 0.0), (5, 9, 0.0), (7, 7, 0.3)] {
                if mask.after.is_some() && n_queries != n_keys {
                    continue;
                }
                let averages = Averages::new(mask, n_queries, n_keys, slope);
                let w = dense(mask, n_queries, n_keys, slope);
                let x: Vec<f64> = (0..n_keys).map(|b| (b as f64 * 1.7).sin()).collect();
                let g: Vec<f64> = (0..n_queries).map(|a| (a as f64 * 0.9).cos()).collect();
                for (a, got) in averages.of(&x).into_iter().enumerate() {
                    let expected: f64 = w.row(a).iter().zip(&x).map(|(w, x)| w * x).sum();
                    approx::assert_relative_eq!(got, expected, epsilon = 1e-12);
                    let expected: f64 = w.row(a).iter().zip(&x).map(|(w, x)| w * w * x).sum();
                    approx::assert_relative_eq!(averages.squared().of(&x)[a], expected, epsilon = 1e-12);
                }
                let rows = Matrix { rows: 65, columns: n_keys, entries: x.repeat(65) };
                let right = averages.right(&rows);
                for (got, expected) in right.entries.iter().zip(averages.of(&x).into_iter().cycle()) {
                    approx::assert_relative_eq!(*got, expected, epsilon = 1e-12);
                }
                let met = Matrix::build(n_queries, n_keys, |a, b| g[a] * x[b]);
                for (a, got) in averages.diagonal(&met).into_iter().enumerate() {
                    approx::assert_relative_eq!(got, g[a] * averages.of(&x)[a], epsilon = 1e-12);
                }
                for (b, got) in averages.transposed_diagonal(&met).into_iter().enumerate() {
                    approx::assert_relative_eq!(got, x[b] * averages.transposed_of(&g)[b], epsilon = 1e-12);
                }
                let rows = Matrix { rows: 65, columns: n_queries, entries: g.repeat(65) };
                let right = averages.right_transposed(&rows);
                for (got, expected) in right.entries.iter().zip(averages.transposed_of(&g).into_iter().cycle()) {
                    approx::assert_relative_eq!(*got, expected, epsilon = 1e-12);
                }
                for (b, got) in averages.transposed_of(&g).into_iter().enumerate() {
                    let expected: f64 = (0..n_queries).map(|a| w.row(a)[b] * g[a]).sum();
                    approx::assert_relative_eq!(got, expected, epsilon = 1e-12);
                }
            }
        }
    }
}
