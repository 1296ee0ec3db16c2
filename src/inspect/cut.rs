//! The assignment of the entries of a tensor to its parts.

use crate::checkpoint::{Entry, Piece};
use crate::huggingface::Held;

/// The assignment of the entries of a tensor to its parts: some consecutive entries (a run) belong to the first part,
/// the next ones to the second part and so on. This is repeated to the end of the tensor.
pub(super) struct Cut {
    runs: Vec<usize>,
    /// For each part, the number of entries in one of its rows.
    rows: Vec<usize>,
}

impl Cut {
    pub(super) fn of(entry: &Entry, held: Option<&Held>) -> Self {
        let Some(held) = held.filter(|held| held.parts.len() > 1) else {
            let [rows, columns] = entry.matrix();
            return Self { runs: vec![(rows * columns).max(1)], rows: vec![columns] };
        };
        // The number of entries in one step along the axis of the parts.
        let step: usize = entry.shape.iter().skip(held.axis + 1).product();
        let runs: Vec<usize> = held.parts.iter().map(|part| part.shape[0] / held.groups * step).collect();
        // A run of parts that are side by side in a matrix is a row of the transposed part.
        let is_transposed = held.axis > 0 && step == 1;
        let rows = runs.iter().map(|&run| if is_transposed { run } else { step }).collect();
        Self { runs, rows }
    }

    pub(super) fn parts(&self) -> usize {
        self.runs.len()
    }

    /// Returns the number of entries in a row of part `index`.
    pub(super) fn row(&self, index: usize) -> usize {
        self.rows[index]
    }

    /// Returns the number of rows and columns of every part.
    pub(super) fn shapes(&self, entry: &Entry) -> impl Iterator<Item = [usize; 2]> {
        let [rows, columns] = entry.matrix();
        let rounds = rows * columns / self.runs.iter().sum::<usize>();
        self.runs.iter().zip(&self.rows).map(move |(run, &row)| [rounds * run / row.max(1), row])
    }

    /// Passes the entries of a piece to `each`, with the index of their part. If the piece consists of whole rows, each
    /// call passes whole rows of a part.
    pub(super) fn deal<'p>(&self, piece: Piece<'p>, mut each: impl FnMut(usize, &'p [f32])) {
        let round: usize = self.runs.iter().sum();
        let (mut rest, mut place) = (piece.entries, piece.first);
        while !rest.is_empty() {
            let mut left = place % round;
            let mut index = 0;
            while left >= self.runs[index] {
                left -= self.runs[index];
                index += 1;
            }
            let (run, others) = rest.split_at((self.runs[index] - left).min(rest.len()));
            each(index, run);
            place += run.len();
            rest = others;
        }
    }
}
