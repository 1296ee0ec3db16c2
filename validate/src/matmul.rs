//! Matrix products: a safe interface to the `gemm` crate.
//!
//! Threads share the rows and columns of a product, never the sum behind an entry, so that their
//! number does not change its bits.
//!
//! # Safety
//!
//! `gemm` reads and writes through raw pointers with strides. A [`View`] or [`ViewMut`] can only be
//! made over a slice that holds its last entry, so every address the product touches lies inside;
//! a [`ViewMut`] borrows its slice mutably, so the result overlaps no factor; its entries lie at
//! different addresses because rows do not overlap. `gemm` implements f32 and f64, the only types
//! that are [`Scalar`].
#![allow(unsafe_code)]

use gemm::Parallelism;

/// On the calling thread, for what is one of many products already shared out.
pub(crate) const ALONE: Parallelism = Parallelism::None;
/// On all threads of the replicate.
pub(crate) const SHARED: Parallelism = Parallelism::Rayon(0);

use crate::scalar::Scalar;

/// A matrix inside a slice: entry (i, j) at i · `row_stride` + j · `column_stride`.
#[derive(Clone, Copy)]
pub(crate) struct View<'a, T> {
    entries: &'a [T],
    rows: usize,
    columns: usize,
    row_stride: usize,
    column_stride: usize,
}

impl<'a, T> View<'a, T> {
    /// `rows` rows of `columns` entries each, `row_stride` apart.
    pub(crate) fn new(entries: &'a [T], rows: usize, columns: usize, row_stride: usize) -> Self {
        assert_fits(entries.len(), rows, columns, row_stride);
        Self { entries, rows, columns, row_stride, column_stride: 1 }
    }

    /// The transpose.
    pub(crate) fn transposed(self) -> Self {
        Self {
            rows: self.columns,
            columns: self.rows,
            row_stride: self.column_stride,
            column_stride: self.row_stride,
            ..self
        }
    }
}

/// A matrix to be written, inside a slice: entry (i, j) at i · `row_stride` + j.
pub(crate) struct ViewMut<'a, T> {
    entries: &'a mut [T],
    rows: usize,
    columns: usize,
    row_stride: usize,
}

impl<'a, T> ViewMut<'a, T> {
    /// `rows` rows of `columns` entries each, `row_stride` apart.
    pub(crate) fn new(entries: &'a mut [T], rows: usize, columns: usize, row_stride: usize) -> Self {
        assert_fits(entries.len(), rows, columns, row_stride);
        Self { entries, rows, columns, row_stride }
    }
}

fn assert_fits(length: usize, rows: usize, columns: usize, row_stride: usize) {
    assert!(rows > 0 && columns > 0 && columns <= row_stride, "{rows} × {columns} entries, rows {row_stride} apart");
    assert!((rows - 1) * row_stride + columns <= length, "{rows} rows {row_stride} apart in {length} entries");
}

/// out = `factor` · a b.
pub(crate) fn multiply<T: Scalar>(threads: Parallelism, out: &mut ViewMut<T>, factor: f64, a: View<T>, b: View<T>) {
    product(threads, out, false, factor, a, b);
}

/// out += `factor` · a b.
pub(crate) fn multiply_add<T: Scalar>(threads: Parallelism, out: &mut ViewMut<T>, factor: f64, a: View<T>, b: View<T>) {
    product(threads, out, true, factor, a, b);
}

fn product<T: Scalar>(
    threads: Parallelism,
    out: &mut ViewMut<T>,
    accumulate: bool,
    factor: f64,
    a: View<T>,
    b: View<T>,
) {
    assert!(
        out.rows == a.rows && out.columns == b.columns && a.columns == b.rows,
        "{} × {} is not {} × {} times {} × {}",
        out.rows,
        out.columns,
        a.rows,
        a.columns,
        b.rows,
        b.columns
    );
    // SAFETY: the three views hold every entry that is read or written, the result overlaps neither
    // factor, and the shapes agree; see the header.
    unsafe {
        gemm::gemm(
            out.rows,
            out.columns,
            a.columns,
            out.entries.as_mut_ptr(),
            1,
            out.row_stride as isize,
            accumulate,
            a.entries.as_ptr(),
            a.column_stride as isize,
            a.row_stride as isize,
            b.entries.as_ptr(),
            b.column_stride as isize,
            b.row_stride as isize,
            T::from_f64(1.0),
            T::from_f64(factor),
            false,
            false,
            false,
            threads,
        );
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// [1 2; 3 4] with a gap of one entry between the rows.
    const A: [f64; 5] = [1.0, 2.0, 9.0, 3.0, 4.0];
    const B: [f64; 4] = [5.0, 6.0, 7.0, 8.0];

    #[test]
    fn products_agree_with_hand_computed_ones() {
        let (a, b) = (View::new(&A, 2, 2, 3), View::new(&B, 2, 2, 2));
        let mut out = [1.0; 4];
        multiply(ALONE, &mut ViewMut::new(&mut out, 2, 2, 2), 1.0, a, b);
        assert_eq!(out.map(|x| x as i64), [19, 22, 43, 50]);
        multiply_add(SHARED, &mut ViewMut::new(&mut out, 2, 2, 2), 2.0, a.transposed(), b);
        assert_eq!(out.map(|x| x as i64), [19 + 52, 22 + 60, 43 + 76, 50 + 88]);
    }

    #[test]
    #[should_panic(expected = "2 rows 3 apart in 4 entries")]
    fn a_view_must_fit_its_slice() {
        View::new(&B, 2, 2, 3);
    }
}
