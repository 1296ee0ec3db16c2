//! Plain matrices, row by row.

use nalgebra::{DMatrixView, DMatrixViewMut};
use rayon::prelude::*;

use crate::domain::{TILE, mirror, rows_at_a_time, transpose};

#[derive(Clone, Debug)]
pub(super) struct Matrix {
    pub(super) rows: usize,
    pub(super) columns: usize,
    pub(super) entries: Vec<f64>,
}

impl Matrix {
    pub(super) fn zeros(rows: usize, columns: usize) -> Self {
        Self { rows, columns, entries: vec![0.0; rows * columns] }
    }

    pub(super) fn identity(count: usize) -> Self {
        Self::build(count, count, |i, j| f64::from(u8::from(i == j)))
    }

    /// Zero but for its diagonal.
    pub(super) fn of_diagonal(diagonal: &[f64]) -> Self {
        let count = diagonal.len();
        Self::build(count, count, |i, j| if i == j { diagonal[i] } else { 0.0 })
    }

    pub(super) fn column(entries: Vec<f64>) -> Self {
        Self { rows: entries.len(), columns: 1, entries }
    }

    pub(super) fn row(&self, row: usize) -> &[f64] {
        &self.entries[row * self.columns..(row + 1) * self.columns]
    }

    pub(super) fn row_mut(&mut self, row: usize) -> &mut [f64] {
        &mut self.entries[row * self.columns..(row + 1) * self.columns]
    }

    pub(super) fn rows_mut(&mut self) -> impl Iterator<Item = &mut [f64]> {
        self.entries.chunks_exact_mut(self.columns)
    }

    pub(super) fn diagonal(&self) -> Vec<f64> {
        (0..self.rows).map(|i| self.entries[i * (self.columns + 1)]).collect()
    }

    pub(super) fn transposed(&self) -> Self {
        Self::transpose_of(&self.entries, self.columns)
    }

    /// Of rows of length `columns`.
    pub(super) fn transpose_of(entries: &[f64], columns: usize) -> Self {
        let rows = entries.len() / columns.max(1);
        let mut transposed = Self::zeros(columns, rows);
        let bands = transposed.entries.par_chunks_mut(TILE * rows.max(1)).enumerate();
        let bands = bands.with_min_len(rows_at_a_time(TILE * rows));
        bands.for_each(|(band, rows_of)| transpose((rows_of, rows), 0, (entries, columns), band * TILE));
        transposed
    }

    /// Entry by entry, from those of another matrix of the same shape.
    pub(super) fn zip(&self, other: &Self, f: impl Fn(f64, f64) -> f64 + Sync) -> Self {
        let entries = self
            .entries
            .par_iter()
            .zip(&other.entries)
            .with_min_len(rows_at_a_time(1))
            .map(|(a, b)| f(*a, *b))
            .collect();
        Self { entries, ..*self }
    }

    /// A B, in full.
    pub(super) fn product(&self, other: &Self) -> Self {
        /// Rows at a time: for each of them the other matrix is packed again.
        const BAND: usize = 128;
        let mut product = Self::zeros(self.rows, other.columns);
        // nalgebra reads columns where these are rows: (A B)ᵀ = Bᵀ Aᵀ.
        let right = DMatrixView::from_slice(&other.entries, other.columns, other.rows);
        let bands =
            product.entries.par_chunks_mut(BAND * other.columns).zip(self.entries.par_chunks(BAND * self.columns));
        bands.for_each(|(product, rows)| {
            let count = rows.len() / self.columns;
            let left = DMatrixView::from_slice(rows, self.columns, count);
            right.mul_to(&left, &mut DMatrixViewMut::from_slice(product, other.columns, count));
        });
        product
    }

    /// Adds to every entry what `f` makes of the entries of other matrices there.
    pub(super) fn add<const N: usize>(&mut self, others: [&Self; N], f: impl Fn([f64; N]) -> f64 + Sync) {
        let rows = self.entries.par_chunks_mut(self.columns.max(1)).enumerate();
        let rows = rows.with_min_len(rows_at_a_time(self.columns));
        rows.for_each(|(i, row)| {
            let others = others.map(|other| other.row(i));
            for (j, entry) in row.iter_mut().enumerate() {
                *entry += f(others.map(|row| row[j]));
            }
        });
    }

    /// Σ_ij A_ij `f`_ij.
    pub(super) fn met(&self, f: impl Fn(usize, usize) -> f64) -> f64 {
        let row = |i: usize| self.row(i).iter().enumerate().map(|(j, entry)| entry * f(i, j)).sum::<f64>();
        (0..self.rows).map(row).sum()
    }

    /// A∘B.
    pub(super) fn times(&self, other: &Self) -> Self {
        self.zip(other, |a, b| a * b)
    }

    /// Symmetric, from the entries on the diagonal and below.
    pub(super) fn symmetric(count: usize, f: impl Fn(usize, usize) -> f64 + Sync) -> Self {
        let mut matrix = Self::zeros(count, count);
        let rows = matrix.entries.par_chunks_exact_mut(count.max(1)).enumerate();
        rows.with_min_len(rows_at_a_time(count)).for_each(|(i, row)| {
            for (j, entry) in row[..=i].iter_mut().enumerate() {
                *entry = f(i, j);
            }
        });
        mirror(&mut matrix.entries, count, 0);
        matrix
    }

    /// Entry by entry, from the place.
    pub(super) fn build(rows: usize, columns: usize, f: impl Fn(usize, usize) -> f64 + Sync) -> Self {
        let mut matrix = Self::zeros(rows, columns);
        let rows = matrix.entries.par_chunks_exact_mut(columns).enumerate();
        rows.with_min_len(rows_at_a_time(columns)).for_each(|(i, row)| {
            for (j, entry) in row.iter_mut().enumerate() {
                *entry = f(i, j);
            }
        });
        matrix
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn matrix(rows: usize, columns: usize) -> Matrix {
        Matrix::build(rows, columns, |i, j| ((3 * i + 5 * j) % 11) as f64 - 4.0)
    }

    /// Of whole numbers, so that every order of summing gives the same.
    #[test]
    fn products_and_transposes_agree_entry_by_entry() {
        for (n, k, m) in [(1, 1, 1), (3, 5, 2), (64, 9, 70), (131, 66, 17)] {
            let (a, b) = (matrix(n, k), matrix(k, m));
            let (product, transposed) = (a.product(&b), a.transposed());
            for i in 0..n {
                for j in 0..m {
                    let expected: f64 = (0..k).map(|e| a.row(i)[e] * b.row(e)[j]).sum();
                    assert_eq!(product.row(i)[j] as i64, expected as i64);
                }
                for j in 0..k {
                    assert_eq!(transposed.row(j)[i] as i64, a.row(i)[j] as i64);
                }
            }
        }
    }

    #[test]
    fn entries_of_others_are_added() {
        let (a, b) = (matrix(4, 3), matrix(4, 3));
        let mut sum = matrix(4, 3);
        sum.add([&a, &b], |[a, b]| 10.0 * a + b);
        assert!(sum.entries.iter().zip(&a.entries).all(|(sum, a)| *sum as i64 == (12.0 * a) as i64));
    }
}
