//! Which entries of a tensor belong to which part.

use crate::checkpoint::{Entry, Piece};
use crate::huggingface::Held;

/// How the entries of a tensor are dealt out to parts, again and again: so many to the first, so many to the second …
pub(super) struct Cut {
    runs: Vec<usize>,
    /// Entries of a row of each part.
    rows: Vec<usize>,
}

impl Cut {
    pub(super) fn of(entry: &Entry, held: Option<&Held>) -> Self {
        let Some(held) = held.filter(|held| held.parts.len() > 1) else {
            let [rows, columns] = entry.matrix();
            return Self { runs: vec![(rows * columns).max(1)], rows: vec![columns] };
        };
        // What one step along the axis of the parts holds.
        let step: usize = entry.shape.iter().skip(held.axis + 1).product();
        let runs: Vec<usize> = held.parts.iter().map(|part| part.shape[0] / held.groups * step).collect();
        // Side by side in a matrix, a run is a row of the transposed part.
        let is_transposed = held.axis > 0 && step == 1;
        let rows = runs.iter().map(|&run| if is_transposed { run } else { step }).collect();
        Self { runs, rows }
    }

    pub(super) fn parts(&self) -> usize {
        self.runs.len()
    }

    /// Entries of a row of part `index`.
    pub(super) fn row(&self, index: usize) -> usize {
        self.rows[index]
    }

    /// Rows and columns of every part.
    pub(super) fn shapes(&self, entry: &Entry) -> impl Iterator<Item = [usize; 2]> {
        let [rows, columns] = entry.matrix();
        let rounds = rows * columns / self.runs.iter().sum::<usize>();
        self.runs.iter().zip(&self.rows).map(move |(run, &row)| [rounds * run / row.max(1), row])
    }

    /// Hands the entries of a piece to `each` with the index of their part, in whole rows of the part where the
    /// piece is of whole rows.
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
