//! Local cubics through the values at points of a list, and sparse matrices of their weights.

use smallvec::SmallVec;

/// Up to four neighbouring points: the index of the first, and the weight of each.
#[derive(Clone, Copy, Debug)]
pub(super) struct Stencil {
    pub(super) start: usize,
    pub(super) weights: [f64; 4],
}

/// Returns the weights of the cubic at `x`, which is between the points `cell` and `cell` + 1 with coordinates `xs`.
/// The cubic does not reach across `breaks`.
pub(super) fn stencil(xs: &[f64], breaks: &[usize], cell: usize, x: f64) -> Stencil {
    let last = xs.len() - 1;
    let left = breaks.iter().copied().filter(|&at| at <= cell).max().unwrap_or(0);
    let right = breaks.iter().copied().filter(|&at| at > cell).min().unwrap_or(last);
    let count = (right - left + 1).min(4);
    let before = usize::from(count > 2);
    let start = cell.saturating_sub(before).clamp(left, right + 1 - count);
    let mut weights = [0.0; 4];
    for (i, weight) in weights.iter_mut().enumerate().take(count) {
        let others = (0..count).filter(|&other| other != i);
        *weight = others.map(|o| (x - xs[start + o]) / (xs[start + i] - xs[start + o])).product();
    }
    Stencil { start, weights }
}

/// Returns the index of the last of these ascending positions that is at most `at`. If this is the very last position,
/// returns the index before.
pub(super) fn cell(positions: &[usize], at: usize) -> usize {
    let after = positions.partition_point(|&position| position <= at);
    after.saturating_sub(1).min(positions.len().saturating_sub(2))
}

/// A sparse matrix by rows.
#[derive(Clone, Debug, Default)]
pub(crate) struct Sparse {
    starts: Vec<u32>,
    entries: Vec<(u32, f64)>,
}

/// One row of a sparse matrix.
pub(super) type Entries = SmallVec<[(u32, f64); 16]>;

impl Sparse {
    /// Builds the matrix from its rows.
    pub(super) fn new(rows: impl Iterator<Item = Entries>) -> Self {
        let mut matrix = Self { starts: vec![0], entries: Vec::new() };
        for mut row in rows {
            row.sort_unstable_by_key(|&(column, _)| column);
            let first = matrix.entries.len();
            for (column, weight) in row.into_iter().filter(|(_, weight)| weight.abs() > 0.0) {
                match matrix.entries[first..].last_mut() {
                    Some((known, sum)) if *known == column => *sum += weight,
                    _ => matrix.entries.push((column, weight)),
                }
            }
            matrix.starts.push(matrix.entries.len() as u32);
        }
        matrix
    }

    /// The columns and weights of a row.
    pub(super) fn row(&self, row: usize) -> &[(u32, f64)] {
        &self.entries[self.starts[row] as usize..self.starts[row + 1] as usize]
    }

    /// The number of rows.
    pub(super) fn rows(&self) -> usize {
        self.starts.len() - 1
    }

    /// Returns the product with a vector.
    pub(super) fn times<'s>(&'s self, of: &'s [f64]) -> impl Iterator<Item = f64> + 's {
        (0..self.rows())
            .map(move |row| self.row(row).iter().map(|&(column, weight)| of[column as usize] * weight).sum())
    }
}
