//! Sampled signals and gradients.

use std::ops::Range;

use crate::scalar::Scalar;

/// A batch of sequences of tokens: one row per token, one column per feature.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Array<T> {
    shape: Shape,
    width: usize,
    entries: Vec<T>,
}

/// How many tokens there are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Shape {
    /// Sequences.
    pub batch: usize,
    /// Tokens of a sequence.
    pub seq_len: usize,
}

impl Shape {
    /// Tokens of all sequences.
    pub(crate) fn tokens(self) -> usize {
        self.batch * self.seq_len
    }
}

impl<T: Scalar> Array<T> {
    /// An array of zeros.
    pub(crate) fn zeros(shape: Shape, width: usize) -> Self {
        Self { shape, width, entries: vec![T::default(); shape.tokens() * width] }
    }

    /// φ of every entry.
    pub(crate) fn map(&self, function: impl Fn(T) -> T) -> Self {
        Self { entries: self.entries.iter().map(|&x| function(x)).collect(), ..*self }
    }

    /// f(x, y) of every pair of entries at the same place.
    pub(crate) fn zip(&self, other: &Self, function: impl Fn(T, T) -> T) -> Self {
        let entries = self.entries.iter().zip(&other.entries).map(|(&x, &y)| function(x, y)).collect();
        Self { entries, ..*self }
    }

    /// Adds entry by entry.
    pub(crate) fn add(&mut self, other: &Self) {
        for (x, &y) in self.entries.iter_mut().zip(&other.entries) {
            *x += y;
        }
    }

    /// How many tokens there are.
    pub(crate) fn shape(&self) -> Shape {
        self.shape
    }

    /// Features of a token.
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

    /// The entries of each of `count` groups of every token.
    pub(crate) fn groups(&self, count: usize) -> impl Iterator<Item = &[T]> {
        self.entries.chunks_exact(self.width / count)
    }

    /// The entries of each of `count` groups of every token.
    pub(crate) fn groups_mut(&mut self, count: usize) -> impl Iterator<Item = &mut [T]> {
        self.entries.chunks_exact_mut(self.width / count)
    }

    /// The entries of each sequence.
    pub(crate) fn sequences(&self) -> impl Iterator<Item = &[T]> {
        self.entries.chunks_exact(self.shape.seq_len * self.width)
    }

    /// The entries of each sequence.
    pub(crate) fn sequences_mut(&mut self) -> impl Iterator<Item = &mut [T]> {
        self.entries.chunks_exact_mut(self.shape.seq_len * self.width)
    }

    /// Where the entries of one sequence lie.
    pub(crate) fn sequence(&self, index: usize) -> Range<usize> {
        let length = self.shape.seq_len * self.width;
        index * length..(index + 1) * length
    }
}
