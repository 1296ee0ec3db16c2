//! The source of a stream: embeddings of random token ids, or Gaussian vectors.
//!
//! ```text
//! forward   x_a = Σ_terms table[row(a)]     row: the id, the position or the segment of token a
//! tables    dtable[r] = Σ_{a: row(a) = r} dx_a     over the tokens of one sequence
//! Gaussian  x_a = mean + std (√c common + √(1 − c) own_a)     common to a sequence, fresh for each
//! ```
//!
//! Rows of tables are sampled only where they are looked up: a vocabulary of 10⁵ costs nothing.

use std::collections::BTreeMap;

use rand::RngExt;
use sigprop_stack::{Embedding, EmbeddingTerm, Gaussian, Init};

use crate::{
    array::{Array, Shape},
    random::{Generator, Random, Streams},
    scalar::Scalar,
};

/// The ids and segments of all tokens.
pub(crate) struct Tokens {
    seq_len: usize,
    ids: Vec<usize>,
    /// The position at which the second segment of each sequence starts.
    splits: Vec<usize>,
}

impl Tokens {
    /// Samples independent ids with the distribution function `cumulative`; splits are uniform on 0 ..= `seq_len`.
    pub(crate) fn draw(shape: Shape, cumulative: &[f64], generator: &mut Generator) -> Self {
        let last = cumulative.len() - 1;
        let mut id = || {
            let u = generator.random::<f64>();
            cumulative.partition_point(|&below| below <= u).min(last)
        };
        let ids = (0..shape.tokens()).map(|_| id()).collect();
        let splits = (0..shape.batch).map(|_| generator.random_range(0..=shape.seq_len)).collect();
        Self { seq_len: shape.seq_len, ids, splits }
    }

    /// Takes the ids of given sequences, starting with number `first`. The first sequence follows the last one.
    pub(crate) fn given(shape: Shape, sequences: &[Vec<u32>], first: usize) -> Self {
        let chosen = (0..shape.batch).map(|index| &sequences[(first + index) % sequences.len()]);
        let ids = chosen.flat_map(|sequence| sequence.iter().map(|&id| id as usize)).collect();
        Self { seq_len: shape.seq_len, ids, splits: vec![shape.seq_len; shape.batch] }
    }

    /// Tokens without ids, for terms that depend on positions alone.
    pub(crate) fn positions(shape: Shape) -> Self {
        Self { seq_len: shape.seq_len, ids: Vec::new(), splits: Vec::new() }
    }

    fn position(&self, token: usize) -> usize {
        token % self.seq_len
    }

    fn segment(&self, token: usize) -> usize {
        usize::from(self.position(token) >= self.splits[token / self.seq_len])
    }
}

pub(crate) fn forward<T: Scalar>(embedding: &Embedding, tokens: &Tokens, shape: Shape, random: &Random) -> Array<T> {
    let mut output = Array::zeros(shape, embedding.width);
    for term in &embedding.terms {
        add(term, tokens, random, &mut output);
    }
    output
}

/// Adds one term to `output`.
pub(crate) fn add<T: Scalar>(term: &EmbeddingTerm, tokens: &Tokens, random: &Random, output: &mut Array<T>) {
    let mut embedded = vec![T::default(); output.width()];
    for (token, x) in output.rows_mut().enumerate() {
        match term {
            EmbeddingTerm::Token { table } => random.tensor_row(table, tokens.ids[token], &mut embedded),
            EmbeddingTerm::LearnedPosition { table } => {
                random.tensor_row(table, tokens.position(token), &mut embedded);
            }
            EmbeddingTerm::Constant { table, .. } => random.tensor_row(table, 0, &mut embedded),
            EmbeddingTerm::Segment { table } => random.tensor_row(table, tokens.segment(token), &mut embedded),
            EmbeddingTerm::SinusoidalPosition { scale } => {
                sinusoids(*scale, tokens.position(token), &mut embedded);
            }
        }
        for (x, &e) in x.iter_mut().zip(&embedded) {
            *x += e;
        }
    }
}

/// Returns the gradient of the rows of a table that one sequence looks up, by row: the id, the position or the segment.
pub(crate) fn table_gradient<T: Scalar>(
    term: &EmbeddingTerm,
    tokens: &Tokens,
    sequence: usize,
    gradient: &Array<T>,
) -> BTreeMap<usize, Vec<T>> {
    let mut rows = BTreeMap::<usize, Vec<T>>::new();
    let first = sequence * tokens.seq_len;
    for (token, dx) in gradient.rows().enumerate().skip(first).take(tokens.seq_len) {
        let row = match term {
            EmbeddingTerm::Token { .. } => tokens.ids[token],
            EmbeddingTerm::LearnedPosition { .. } => tokens.position(token),
            EmbeddingTerm::Constant { .. } => 0,
            EmbeddingTerm::Segment { .. } => tokens.segment(token),
            EmbeddingTerm::SinusoidalPosition { .. } => continue,
        };
        let sum = rows.entry(row).or_insert_with(|| vec![T::default(); dx.len()]);
        for (sum, &g) in sum.iter_mut().zip(dx) {
            *sum += g;
        }
    }
    rows
}

/// Samples normal vectors that are correlated between the tokens of a sequence.
pub(crate) fn gaussian<T: Scalar>(
    shape: Shape,
    &Gaussian { width, mean, variance, correlation }: &Gaussian,
    streams: &Streams,
) -> Array<T> {
    let (shared, own) = ((variance * correlation).sqrt(), (variance * (1.0 - correlation)).sqrt());
    let mut output = Array::zeros(shape, width);
    let mut common = vec![T::default(); width];
    for (sequence, rows) in output.sequences_mut().enumerate() {
        let first = sequence * (1 + shape.seq_len);
        streams.fill(first, Init::Normal { std: shared }, &mut common);
        for c in &mut common {
            *c += T::from_f64(mean);
        }
        for (token, row) in rows.chunks_exact_mut(width).enumerate() {
            streams.fill(first + 1 + token, Init::Normal { std: own }, row);
            for (x, &c) in row.iter_mut().zip(&common) {
                *x += c;
            }
        }
    }
    output
}

/// Writes the features of one position: features 2i and 2i + 1 are `scale` times sin and cos of position ·
/// 10000^(−2i/width).
fn sinusoids<T: Scalar>(scale: f64, position: usize, out: &mut [T]) {
    let width = out.len() as f64;
    for (feature, x) in out.iter_mut().enumerate() {
        let even = feature - feature % 2;
        let angle = position as f64 * 10_000f64.powf(-(even as f64) / width);
        *x = T::from_f64(scale * if feature % 2 == 0 { angle.sin() } else { angle.cos() });
    }
}

#[cfg(test)]
mod tests {
    use sigprop_stack::Tensor;

    use super::*;

    /// Two sequences of three tokens with one feature, by hand.
    #[test]
    fn gradients_of_equal_rows_add_within_a_sequence() {
        let tokens = Tokens { seq_len: 3, ids: vec![7, 2, 7, 2, 2, 2], splits: vec![1, 3] };
        let mut gradient = Array::<f64>::zeros(Shape { batch: 2, seq_len: 3 }, 1);
        gradient.entries_mut().copy_from_slice(&[1.0, 2.0, 4.0, 8.0, 16.0, 32.0]);
        let table = || Tensor { name: "table".to_owned(), init: Init::Zero };
        let rows = |term: &EmbeddingTerm, sequence| {
            let rows = table_gradient(term, &tokens, sequence, &gradient).into_iter();
            rows.map(|(row, entries)| (row, entries[0] as i64)).collect::<Vec<_>>()
        };
        let token = EmbeddingTerm::Token { table: table() };
        assert_eq!(rows(&token, 0), [(2, 2), (7, 5)]);
        assert_eq!(rows(&token, 1), [(2, 56)]);
        assert_eq!(rows(&EmbeddingTerm::LearnedPosition { table: table() }, 1), [(0, 8), (1, 16), (2, 32)]);
        assert_eq!(rows(&EmbeddingTerm::Segment { table: table() }, 0), [(0, 1), (1, 6)]);
        assert_eq!(rows(&EmbeddingTerm::Segment { table: table() }, 1), [(0, 56)]);
    }

    /// Width 4: the angles are the position and a hundredth of it.
    #[test]
    fn sinusoids_agree_with_their_definition() {
        let mut out = [0f64; 4];
        sinusoids(2.0, 1, &mut out);
        let expected = [1f64.sin(), 1f64.cos(), 0.01f64.sin(), 0.01f64.cos()];
        assert!(out.iter().zip(expected).all(|(x, e)| (x - 2.0 * e).abs() < 1e-12), "{out:?}");
        sinusoids(2.0, 0, &mut out);
        assert_eq!(out.map(|x| x as i64), [0, 2, 0, 2]);
    }
}
