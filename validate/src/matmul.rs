//! Matrix products: a safe interface to the `gemm` crate.
//!
//! Threads share the rows and columns of a product, never the sum behind an entry, so that their
//! number does not change its bits. Each has a piece of its own, of whole rows or whole columns: `gemm`'s own way of
//! sharing one takes up to an eighth longer.
//!
//! # Safety
//!
//! `gemm` reads and writes through raw pointers with strides. A [`View`] or [`ViewMut`] can only be
//! made over a slice that holds its last entry, so every address the product touches lies inside;
//! a [`ViewMut`] borrows its slice mutably, so the result overlaps no factor; its entries lie at
//! different addresses because rows do not overlap. Pieces of a product have no row, or no column, of the result in
//! common. `gemm` implements f32 and f64, the only types that are [`Scalar`].
#![allow(unsafe_code)]

use gemm::Parallelism;
use rayon::{current_num_threads, join};

use crate::scalar::Scalar;

/// Who works on a product.
#[derive(Clone, Copy)]
pub(crate) enum Threads {
    /// The calling thread: what is one of many products already shared out.
    Alone,
    /// All threads of the replicate.
    Shared,
}

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

    /// The first `count` rows, and the others.
    fn rows(self, count: usize) -> [Self; 2] {
        let others = &self.entries[count * self.row_stride..];
        [Self { rows: count, ..self }, Self { entries: others, rows: self.rows - count, ..self }]
    }

    /// The first `count` columns, and the others.
    fn columns(self, count: usize) -> [Self; 2] {
        self.transposed().rows(count).map(Self::transposed)
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
pub(crate) fn multiply<T: Scalar>(threads: Threads, out: &mut ViewMut<T>, factor: f64, a: View<T>, b: View<T>) {
    product(threads, out, false, factor, a, b);
}

/// out += `factor` · a b.
pub(crate) fn multiply_add<T: Scalar>(threads: Threads, out: &mut ViewMut<T>, factor: f64, a: View<T>, b: View<T>) {
    product(threads, out, true, factor, a, b);
}

fn product<T: Scalar>(threads: Threads, out: &mut ViewMut<T>, accumulate: bool, factor: f64, a: View<T>, b: View<T>) {
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
    let threads = match threads {
        Threads::Alone => 1,
        Threads::Shared => current_num_threads(),
    };
    let piece = Piece { out: out.entries.as_mut_ptr(), row_stride: out.row_stride, accumulate, factor, a, b };
    piece.shared_by(threads);
}

/// Some rows, or some columns, of a product.
struct Piece<'a, T> {
    /// The first entry of the result.
    out: *mut T,
    row_stride: usize,
    accumulate: bool,
    factor: f64,
    a: View<'a, T>,
    b: View<'a, T>,
}

// SAFETY: no other piece writes the same entries, and factors are only read.
unsafe impl<T: Sync> Send for Piece<'_, T> {}

impl<T: Scalar> Piece<'_, T> {
    /// Rows or columns of a piece, at least, of products that are no strips: `gemm` adds up small ones, of at most 64 of
    /// both or 256 entries, in another order.
    const SMALLEST: usize = 96;
    const NARROWEST: usize = 4;
    /// What numbers of rows and columns are multiples of, where there is a choice.
    const STEP: usize = 32;

    fn shared_by(self, threads: usize) {
        let (rows, columns) = (self.a.rows, self.b.columns);
        let side = rows.max(columns);
        if threads == 1 || side < 2 * Self::SMALLEST || rows.min(columns) < Self::NARROWEST {
            return self.multiply();
        }
        let part = threads / 2;
        let count = (side * part / threads).next_multiple_of(Self::STEP).clamp(Self::SMALLEST, side - Self::SMALLEST);
        let [first, second] = if rows > columns {
            let [a, others] = self.a.rows(count);
            let out = self.out.wrapping_add(count * self.row_stride);
            [Self { a, ..self }, Self { out, a: others, ..self }]
        } else {
            let [b, others] = self.b.columns(count);
            [Self { b, ..self }, Self { out: self.out.wrapping_add(count), b: others, ..self }]
        };
        join(|| first.shared_by(part), || second.shared_by(threads - part));
    }

    fn multiply(self) {
        let Self { out, row_stride, accumulate, factor, a, b } = self;
        // SAFETY: the views hold every entry that is read or written, the result overlaps neither
        // factor, and the shapes agree; see the header.
        unsafe {
            gemm::gemm(
                a.rows,
                b.columns,
                a.columns,
                out,
                1,
                row_stride as isize,
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
                Parallelism::None,
            );
        }
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
        multiply(Threads::Alone, &mut ViewMut::new(&mut out, 2, 2, 2), 1.0, a, b);
        assert_eq!(out.map(|x| x as i64), [19, 22, 43, 50]);
        multiply_add(Threads::Shared, &mut ViewMut::new(&mut out, 2, 2, 2), 2.0, a.transposed(), b);
        assert_eq!(out.map(|x| x as i64), [19 + 52, 22 + 60, 43 + 76, 50 + 88]);
    }

    /// Of more rows, of more columns, of a strip that cannot be shared; beyond the depth that `gemm` adds up at a time.
    #[test]
    fn threads_change_no_bit() {
        const DEPTH: usize = 1100;
        let entries = |count: usize| (0..count).map(|i| ((i * 7919 % 1013) as f32).sin()).collect::<Vec<_>>();
        for (rows, columns) in [(450, 200), (193, 700), (191, 130), (4, 900), (2, 900)] {
            let (a, b) = (entries(rows * DEPTH), entries(columns * DEPTH));
            let product = |threads: usize| {
                let mut out = vec![0.5f32; rows * (columns + 1)];
                let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build().expect("threads");
                pool.install(|| {
                    let (a, b) = (View::new(&a, rows, DEPTH, DEPTH), View::new(&b, columns, DEPTH, DEPTH));
                    let mut out = ViewMut::new(&mut out, rows, columns, columns + 1);
                    multiply_add(Threads::Shared, &mut out, 0.7, a, b.transposed());
                });
                out
            };
            let one = product(1);
            assert!([2, 3, 7].into_iter().all(|threads| product(threads) == one), "{rows} × {columns}");
        }
    }

    #[test]
    #[should_panic(expected = "2 rows 3 apart in 4 entries")]
    fn a_view_must_fit_its_slice() {
        View::new(&B, 2, 2, 3);
    }
}
