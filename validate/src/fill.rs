//! Matrices that all threads write, row by row.
//!
//! Products read a factor fastest along the rows of the result. Turned over here, while rows are in a cache, a weight costs a
//! third more than to be drawn; `gemm` turns it over on one thread and takes up to half of the product's time for it.
//!
//! # Safety
//!
//! Entry (i, j) of `rows` × `width` is written at j · `rows` + i, i below `rows`, j below `width`: inside of `rows` · `width`
//! entries, which is asserted, and each by the one thread that has row i.
#![allow(unsafe_code)]

use rayon::prelude::*;

use crate::{scalar::Scalar, vectorised::vectorised};

/// Rows that are turned over at a time: a line of a cache, for f32.
const ROWS: usize = 16;

/// Entries between them, so that one column's do not share places in a cache.
const GAP: usize = 16;

/// Entries that one thread writes at a time, at least.
const PIECE: usize = 1 << 14;

/// Fills a matrix with rows of length `width`, each of which `write` writes.
pub(crate) fn fill_rows<T: Scalar>(width: usize, matrix: &mut [T], write: impl Fn(usize, &mut [T]) + Sync) {
    let rows = matrix.par_chunks_exact_mut(width).with_min_len(PIECE.div_ceil(width));
    rows.enumerate().for_each(|(row, out)| write(row, out));
}

/// Fills the transpose of a matrix with rows of length `width`, each of which `write` writes.
pub(crate) fn fill_transposed<T: Scalar>(width: usize, transpose: &mut [T], write: impl Fn(usize, &mut [T]) + Sync) {
    let rows = transpose.len() / width;
    assert_eq!(transpose.len(), rows * width, "{rows} × {width} entries");
    let columns = Columns(transpose.as_mut_ptr());
    let length = width + GAP;
    let blocks = (0..rows.div_ceil(ROWS)).into_par_iter().with_min_len(PIECE.div_ceil(ROWS * width));
    blocks.for_each_init(
        || vec![T::default(); ROWS * length],
        |buffer, block| {
            let first = block * ROWS;
            let count = ROWS.min(rows - first);
            for (row, out) in buffer.chunks_exact_mut(length).take(count).enumerate() {
                write(first + row, &mut out[..width]);
            }
            if count == ROWS {
                turn_over(buffer, length, width, &columns, first, rows);
            } else {
                for (row, entries) in buffer.chunks_exact(length).take(count).enumerate() {
                    for (column, &entry) in entries[..width].iter().enumerate() {
                        // SAFETY: see the header.
                        unsafe { columns.write(column * rows + first + row, entry) };
                    }
                }
            }
        },
    );
}

vectorised! {
    /// Writes [`ROWS`] rows of `width` entries, `length` apart, at the place `first` of columns `stride` apart.
    fn turn_over<T: Scalar>(rows: &[T], length: usize, width: usize, columns: &Columns<T>, first: usize, stride: usize) {
        for column in 0..width {
            let mut entries = [T::default(); ROWS];
            for (row, entry) in entries.iter_mut().enumerate() {
                *entry = rows[row * length + column];
            }
            // SAFETY: see the header.
            unsafe { columns.write(column * stride + first, entries) };
        }
    }
}

/// Where the columns are.
struct Columns<T>(*mut T);

// SAFETY: threads write different rows.
unsafe impl<T: Send> Sync for Columns<T> {}

impl<T: Scalar> Columns<T> {
    /// Writes an entry, or several that follow each other.
    ///
    /// # Safety
    ///
    /// There must be as many from `place` on, which nobody else reads or writes.
    #[allow(clippy::inline_always)]
    #[inline(always)]
    unsafe fn write<E>(&self, place: usize, entries: E) {
        // SAFETY: the caller's.
        unsafe { self.0.add(place).cast::<E>().write_unaligned(entries) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Fewer rows than are turned over at a time, as many, and some more; more than one piece of work.
    #[test]
    fn rows_become_columns() {
        for (rows, width) in [(1, 5), (3, 1), (16, 7), (37, 3), (100, 1000)] {
            let mut transpose = vec![0.0f64; rows * width];
            fill_transposed(width, &mut transpose, |row, out| {
                out.iter_mut().enumerate().for_each(|(column, entry)| *entry = (row * width + column) as f64);
            });
            for (place, entry) in transpose.into_iter().enumerate() {
                let (column, row) = (place / rows, place % rows);
                assert_eq!(entry as usize, row * width + column, "{rows} × {width}");
            }
        }
    }
}
