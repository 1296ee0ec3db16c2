//! The assignment of the entries of a tensor to its parts.

use crate::checkpoint::{Entry, Piece};
use crate::huggingface::Held;

/// The assignment of the entries of a tensor to its parts: a run of entries for the first part, a run for the second
/// and so on, repeated to the end.
pub(super) struct Cut {
    runs: Vec<usize>,
    /// The number of entries in a row of each part.
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

    /// Passes the entries of a piece to `each` with the index of their part. A piece of whole rows is passed in whole
    /// rows of the parts.
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
