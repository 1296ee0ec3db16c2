//! Sampled signals and gradients.
//!
//! Every block needs arrays of the same few sizes, so a thread keeps used arrays and uses them again: fresh memory from
//! the system costs as much time as filling it. The threads of a replicate share the work on an array, in pieces that
//! do not depend on the number of threads.

use std::{mem, ops::Range};

use rayon::prelude::*;

use crate::{scalar::Scalar, vectorised::vectorised};

/// Number of entries that one thread works on at a time.
const PIECE: usize = 1 << 14;

/// Number of arrays of one size that are allocated at a time. Arrays not yet written take no memory.
const GROWTH: usize = 8;

/// A batch of sequences of tokens: one row per token, one column per feature.
#[derive(Debug, PartialEq)]
pub(crate) struct Array<T: Scalar> {
    shape: Shape,
    width: usize,
    entries: Vec<T>,
}

/// Numbers of sequences and tokens.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Shape {
    /// Number of sequences.
    pub batch: usize,
    /// Number of tokens of a sequence.
    pub seq_len: usize,
}

impl Shape {
    /// Number of tokens of all sequences.
    pub(crate) fn tokens(self) -> usize {
        self.batch * self.seq_len
    }
}

impl<T: Scalar> Drop for Array<T> {
    fn drop(&mut self) {
        let entries = mem::take(&mut self.entries);
        T::spares(|spares| spares.push(entries));
    }
}

impl<T: Scalar> Clone for Array<T> {
    fn clone(&self) -> Self {
        let mut copy = Self::unwritten(self.shape, self.width);
        copy.entries.copy_from_slice(&self.entries);
        copy
    }
}

/// Returns the spare array of this length that was given back last. If there is none, several arrays are allocated side
/// by side, which leaves no holes in memory; they stay unwritten as long as older spares suffice.
fn take<T: Scalar>(spares: &mut Vec<Vec<T>>, length: usize) -> Vec<T> {
    if let Some(index) = spares.iter().rposition(|spare| spare.len() == length) {
        return spares.remove(index);
    }
    spares.extend((1..GROWTH).map(|_| vec![T::default(); length]));
    vec![T::default(); length]
}

impl<T: Scalar> Array<T> {
    /// An array of zeros.
    pub(crate) fn zeros(shape: Shape, width: usize) -> Self {
        let mut array = Self::unwritten(shape, width);
        array.entries.fill(T::default());
        array
    }

    /// An array with arbitrary entries, all of which the caller must write.
    pub(crate) fn unwritten(shape: Shape, width: usize) -> Self {
        Self { shape, width, entries: T::spares(|spares| take(spares, shape.tokens() * width)) }
    }

    /// Returns the array whose entries are `function` of the entries of this one.
    pub(crate) fn map<F: Fn(T) -> T + Sync>(&self, function: F) -> Self {
        let mut output = Self::unwritten(self.shape, self.width);
        let pieces = output.entries.par_chunks_mut(PIECE).zip(self.entries.par_chunks(PIECE));
        pieces.for_each(|(y, x)| map_piece(y, x, &function));
        output
    }

    /// Replaces every entry x by `function`(x, y), with y the entry of `other` at the same place.
    pub(crate) fn zip<F: Fn(T, T) -> T + Sync>(mut self, other: &Self, function: F) -> Self {
        let pieces = self.entries.par_chunks_mut(PIECE).zip(other.entries.par_chunks(PIECE));
        pieces.for_each(|(x, y)| zip_piece(x, y, &function));
        self
    }

    /// Returns the weighted sum of `terms`: arrays of one shape, each with one factor per sequence.
    pub(crate) fn sum_of(terms: &[(&[T], &Self)]) -> Self {
        let [(of_first, first), others @ ..] = terms else { unreachable!("a checked sum has branches") };
        let mut output = Self::unwritten(first.shape, first.width);
        output.pieces_mut().for_each(|(sequence, range, sum)| {
            let factor = of_first[sequence];
            map_piece(sum, &first.entries[range.clone()], &|x| factor * x);
            for (factors, term) in others {
                add_multiple(sum, factors[sequence], &term.entries[range.clone()]);
            }
        });
        output
    }

    /// Multiplies all entries of a sequence by its factor; `factors` has one per sequence.
    pub(crate) fn times(mut self, factors: &[T]) -> Self {
        let one = T::from_f64(1.0);
        if factors.iter().any(|&factor| factor != one) {
            self.pieces_mut().for_each(|(sequence, _, piece)| {
                for x in piece {
                    *x *= factors[sequence];
                }
            });
        }
        self
    }

    /// Returns pieces of work that lie within one sequence each: the index of the sequence, the range of the piece
    /// among all entries, and its entries.
    fn pieces_mut(&mut self) -> impl ParallelIterator<Item = (usize, Range<usize>, &mut [T])> {
        let length = self.shape.seq_len * self.width;
        self.entries.par_chunks_mut(length).enumerate().flat_map(move |(sequence, entries)| {
            entries.par_chunks_mut(PIECE).enumerate().map(move |(index, piece)| {
                let start = sequence * length + index * PIECE;
                (sequence, start..start + piece.len(), piece)
            })
        })
    }

    /// Adds `row` to every token.
    pub(crate) fn add_row(&mut self, row: &[T]) {
        let rows = self.entries.par_chunks_exact_mut(self.width).with_min_len(PIECE.div_ceil(self.width));
        rows.for_each(|sum| add_multiple(sum, T::from_f64(1.0), row));
    }

    /// Multiplies every token by `factors`, one per feature.
    pub(crate) fn multiply_rows(&mut self, factors: &[T]) {
        for row in self.rows_mut() {
            row.iter_mut().zip(factors).for_each(|(x, &factor)| *x *= factor);
        }
    }

    /// Numbers of sequences and tokens.
    pub(crate) fn shape(&self) -> Shape {
        self.shape
    }

    /// Number of features of a token.
    pub(crate) fn width(&self) -> usize {
        self.width
    }

    /// All entries, token by token.
    pub(crate) fn entries(&self) -> &[T] {
        &self.entries
    }

    /// All entries, token by token.
    pub(crate) fn entries_mut(&mut self) -> &mut [T] {
        &mut self.entries
    }

    /// The entries of each token.
    pub(crate) fn rows(&self) -> impl Iterator<Item = &[T]> {
        self.entries.chunks_exact(self.width)
    }

    /// The entries of each token.
    pub(crate) fn rows_mut(&mut self) -> impl Iterator<Item = &mut [T]> {
        self.entries.chunks_exact_mut(self.width)
    }

    /// The entries of each sequence.
    pub(crate) fn sequences(&self) -> impl Iterator<Item = &[T]> {
        self.entries.chunks_exact(self.shape.seq_len * self.width)
    }

    /// The entries of each sequence.
    pub(crate) fn sequences_mut(&mut self) -> impl Iterator<Item = &mut [T]> {
        self.entries.chunks_exact_mut(self.shape.seq_len * self.width)
    }

    /// Returns the range, among all entries, of the entries of sequence `index`.
    pub(crate) fn sequence(&self, index: usize) -> Range<usize> {
        let length = self.shape.seq_len * self.width;
        index * length..(index + 1) * length
    }
}

vectorised! {
    fn map_piece<T: Scalar, F: Fn(T) -> T>(y: &mut [T], x: &[T], function: &F) {
        for (y, &x) in y.iter_mut().zip(x) {
            *y = function(x);
        }
    }
}

vectorised! {
    fn zip_piece<T: Scalar, F: Fn(T, T) -> T>(x: &mut [T], y: &[T], function: &F) {
        for (x, &y) in x.iter_mut().zip(y) {
            *x = function(*x, y);
        }
    }
}

vectorised! {
    /// sum += factor · x.
    fn add_multiple<T: Scalar>(sum: &mut [T], factor: T, x: &[T]) {
        for (sum, &x) in sum.iter_mut().zip(x) {
            *sum += factor * x;
        }
    }
}
