//! Matrix products: a safe interface to the kernels of `gemm` for f32 and f64. The crate `gemm` itself also compiles
//! kernels for complex numbers, which takes minutes.
//!
//! Threads divide the rows or columns of a product among themselves, never the sum behind an entry, so that their
//! number does not change its bits. Each thread has a piece of whole rows or whole columns: `gemm`'s own way of
//! dividing a product takes up to an eighth longer.
//!
//! # Safety
//!
//! `gemm` reads and writes through raw pointers with strides. A [`View`] or [`ViewMut`] can only be made over a slice
//! that holds its last entry, so every address that the product touches lies inside. A [`ViewMut`] has exclusive access
//! to its slice, so the result overlaps no factor. Its entries lie at different addresses, because rows do not overlap
//! and it is divided by rows or by columns only. `gemm` implements f32 and f64, the only types that are [`Scalar`].
#![allow(unsafe_code)]

use std::{marker::PhantomData, ops::Range};

use gemm_common::Parallelism;
use rayon::{current_num_threads, join};

use crate::scalar::Scalar;

/// A kernel of `gemm`. Its arguments are rows, columns and depth; the result, its strides of columns and rows, and a
/// flag to read the old result; both matrices with their strides; the factors on the old result and on the product;
/// flags to conjugate complex numbers; the threads.
pub(crate) type Kernel<T> = unsafe fn(
    usize,
    usize,
    usize,
    *mut T,
    isize,
    isize,
    bool,
    *const T,
    isize,
    isize,
    *const T,
    isize,
    isize,
    T,
    T,
    bool,
    bool,
    bool,
    Parallelism,
);

/// The threads that work on a product.
#[derive(Clone, Copy)]
pub(crate) enum Threads {
    /// The calling thread alone. It serves products of which every thread computes others.
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

    /// Splits the matrix into its first `count` rows and the others.
    fn rows(self, count: usize) -> [Self; 2] {
        let others = &self.entries[count * self.row_stride..];
        [Self { rows: count, ..self }, Self { entries: others, rows: self.rows - count, ..self }]
    }

    /// Splits the matrix into its first `count` columns and the others.
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
    first: *mut T,
    rows: usize,
    columns: usize,
    row_stride: usize,
    slice: PhantomData<&'a mut [T]>,
}

// SAFETY: a mutable slice is `Send` too, and parts have no entry in common.
unsafe impl<T: Send> Send for ViewMut<'_, T> {}

impl<'a, T> ViewMut<'a, T> {
    /// `rows` rows of `columns` entries each, `row_stride` apart.
    pub(crate) fn new(entries: &'a mut [T], rows: usize, columns: usize, row_stride: usize) -> Self {
        assert_fits(entries.len(), rows, columns, row_stride);
        Self { first: entries.as_mut_ptr(), rows, columns, row_stride, slice: PhantomData }
    }

    /// Splits the matrix into its first `count` rows and the others.
    fn rows(self, count: usize) -> [Self; 2] {
        let others = self.first.wrapping_add(count * self.row_stride);
        [Self { rows: count, ..self }, Self { first: others, rows: self.rows - count, ..self }]
    }

    /// Splits the matrix into its first `count` columns and the others.
    fn columns(self, count: usize) -> [Self; 2] {
        let others = self.first.wrapping_add(count);
        [Self { columns: count, ..self }, Self { first: others, columns: self.columns - count, ..self }]
    }

    /// Splits the columns into `count` parts, fewer if these would be too small; each comes with its range of columns.
    pub(crate) fn parts(self, count: usize) -> Vec<(Range<usize>, Self)> {
        let (mut parts, mut first, mut others) = (Vec::with_capacity(count), 0, self);
        for left in (2..=count.min(others.columns / SMALLEST)).rev() {
            if others.columns < 2 * SMALLEST || others.rows < NARROWEST {
                break;
            }
            let columns = share(others.columns, 1, left);
            let [part, more] = others.columns(columns);
            parts.push((first..first + columns, part));
            (first, others) = (first + columns, more);
        }
        parts.push((first..first + others.columns, others));
        parts
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
    // A view of the same entries for the duration of this call.
    let out = ViewMut { ..*out };
    Piece { out, accumulate, factor, a, b }.shared_by(threads);
}

/// Some rows, or some columns, of a product.
struct Piece<'a, T> {
    out: ViewMut<'a, T>,
    accumulate: bool,
    factor: f64,
    a: View<'a, T>,
    b: View<'a, T>,
}

/// Smallest number of rows or columns of a piece of a divided product; strips narrower than [`NARROWEST`] are not
/// divided. `gemm` adds up small products (at most 64 rows and 64 columns, or 256 entries) in another order.
const SMALLEST: usize = 96;
const NARROWEST: usize = 4;
/// Numbers of rows and columns of pieces are multiples of this where there is a choice.
const STEP: usize = 32;

/// Returns the share `part`/`whole` of the number `side` of rows or columns, rounded up to a multiple of [`STEP`], with
/// at least [`SMALLEST`] on both sides of the cut. `side` must be at least twice [`SMALLEST`].
fn share(side: usize, part: usize, whole: usize) -> usize {
    (side * part / whole).next_multiple_of(STEP).clamp(SMALLEST, side - SMALLEST)
}

impl<T: Scalar> Piece<'_, T> {
    fn shared_by(self, threads: usize) {
        let (rows, columns) = (self.out.rows, self.out.columns);
        let side = rows.max(columns);
        if threads == 1 || side < 2 * SMALLEST || rows.min(columns) < NARROWEST {
            return self.multiply();
        }
        let part = threads / 2;
        let count = share(side, part, threads);
        let Self { out, accumulate, factor, a, b } = self;
        let ([out, other_out], [a, other_a], [b, other_b]) = if rows > columns {
            (out.rows(count), a.rows(count), [b; 2])
        } else {
            (out.columns(count), [a; 2], b.columns(count))
        };
        let one = Self { out, accumulate, factor, a, b };
        let other = Self { out: other_out, accumulate, factor, a: other_a, b: other_b };
        join(|| one.shared_by(part), || other.shared_by(threads - part));
    }

    fn multiply(self) {
        let Self { out, accumulate, factor, a, b } = self;
        // The kernel expects contiguous columns, so it computes the transposed product.
        // SAFETY: the views hold every entry that is read or written, the result overlaps neither
        // factor, and the shapes agree; see the header.
        unsafe {
            T::kernel()(
                out.columns,
                out.rows,
                a.columns,
                out.first,
                out.row_stride as isize,
                1,
                accumulate,
                b.entries.as_ptr(),
                b.row_stride as isize,
                b.column_stride as isize,
                a.entries.as_ptr(),
                a.row_stride as isize,
                a.column_stride as isize,
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

    /// Products with more rows, with more columns, and strips that stay whole; all deeper than `gemm` adds up at once.
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
