//! Plain matrices, row by row.

use nalgebra::DMatrixView;
use rayon::prelude::*;

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
        const TILE: usize = 8;
        let mut transposed = Self::zeros(self.columns, self.rows);
        for top in (0..self.rows).step_by(TILE) {
            for left in (0..self.columns).step_by(TILE) {
                for i in top..(top + TILE).min(self.rows) {
                    for j in left..(left + TILE).min(self.columns) {
                        transposed.entries[j * self.rows + i] = self.entries[i * self.columns + j];
                    }
                }
            }
        }
        transposed
    }

    /// Entry by entry, from those of another matrix of the same shape.
    pub(super) fn zip(&self, other: &Self, f: impl Fn(f64, f64) -> f64 + Sync) -> Self {
        let entries = self.entries.par_iter().zip(&other.entries).with_min_len(4096).map(|(a, b)| f(*a, *b)).collect();
        Self { entries, ..*self }
    }

    /// A B, in full.
    pub(super) fn product(&self, other: &Self) -> Self {
        // nalgebra reads columns where these are rows: (A B)ᵀ = Bᵀ Aᵀ.
        let columns_of = |matrix: &Self| (matrix.columns, matrix.rows);
        let ((a, b), (c, d)) = (columns_of(self), columns_of(other));
        let product = DMatrixView::from_slice(&other.entries, c, d) * DMatrixView::from_slice(&self.entries, a, b);
        Self { rows: self.rows, columns: other.columns, entries: product.data.into() }
    }

    /// A∘B.
    pub(super) fn times(&self, other: &Self) -> Self {
        self.zip(other, |a, b| a * b)
    }

    /// Entry by entry, from the place.
    pub(super) fn build(rows: usize, columns: usize, f: impl Fn(usize, usize) -> f64 + Sync) -> Self {
        let mut matrix = Self::zeros(rows, columns);
        matrix.entries.par_chunks_exact_mut(columns).enumerate().for_each(|(i, row)| {
            for (j, entry) in row.iter_mut().enumerate() {
                *entry = f(i, j);
            }
        });
        matrix
    }
}
