//! Matrices that all threads fill together, row by row.
//!
//! Products read a factor fastest along the rows of the result. Transposing a weight here, while its rows are in a
//! cache, adds a third to the time of sampling it. `gemm` transposes it on one thread, which takes up to half of the
//! time of the product.
//!
//! # Safety
//!
//! Entry (i, j) of `rows` × `width` is written at j · `rows` + i, with i below `rows` and j below `width`. This is
//! inside the `rows` · `width` entries, which is asserted, and only the one thread that has row i writes it.
#![allow(unsafe_code)]

use rayon::prelude::*;

use crate::{scalar::Scalar, vectorised::vectorised};

/// Number of rows that are transposed at a time: a cache line of f32.
const ROWS: usize = 16;

/// Number of unused entries between these rows in the buffer. Without them the entries of one column share places in a
/// cache.
const GAP: usize = 16;

/// Smallest number of entries that one thread writes at a time.
const PIECE: usize = 1 << 14;

/// Fills a matrix with rows of length `width`; `write` writes one row.
pub(crate) fn fill_rows<T: Scalar>(width: usize, matrix: &mut [T], write: impl Fn(usize, &mut [T]) + Sync) {
    let rows = matrix.par_chunks_exact_mut(width).with_min_len(PIECE.div_ceil(width));
    rows.enumerate().for_each(|(row, out)| write(row, out));
}

/// Fills the transpose of a matrix with rows of length `width`; `write` writes one row.
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
    /// Transposes [`ROWS`] rows of `width` entries. The rows start `length` entries apart in `rows`; the columns start
    /// `stride` entries apart in `columns`, from place `first` on.
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

/// A pointer to the transposed matrix, into which all threads write.
struct Columns<T>(*mut T);

// SAFETY: threads write different rows.
unsafe impl<T: Send> Sync for Columns<T> {}

impl<T: Scalar> Columns<T> {
    /// Writes one entry, or several consecutive ones.
    ///
    /// # Safety
    ///
    /// As many entries must exist from `place` on, and nobody else may read or write them.
    #[allow(clippy::inline_always)]
    #[inline(always)]
    unsafe fn write<E>(&self, place: usize, entries: E) {
        // SAFETY: the caller guarantees it.
        unsafe { self.0.add(place).cast::<E>().write_unaligned(entries) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Fewer rows than are transposed at a time, exactly as many, and more; also more than one piece of work.
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
