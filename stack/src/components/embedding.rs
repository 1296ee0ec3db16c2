//! The source of a stream: embeddings of random token ids, or Gaussian vectors.

use serde::{Deserialize, Serialize};

use crate::Tensor;

/// The source of a stream.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Source {
    /// Embeddings of token ids.
    Embedding(Embedding),
    /// Gaussian vectors.
    Gaussian(Gaussian),
}

impl Source {
    /// Number of features of a token.
    pub fn width(&self) -> usize {
        match self {
            Self::Embedding(embedding) => embedding.width,
            Self::Gaussian(gaussian) => gaussian.width,
        }
    }
}

/// A sum of embeddings of random ids and of their positions.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Embedding {
    /// Number of features of a token.
    pub width: usize,
    /// The distribution of the ids.
    pub ids: Ids,
    /// Index of an earlier stream whose ids are also the ids of this one; `None` if they are independent of those of
    /// other streams.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub same_ids_as: Option<usize>,
    /// The embeddings that are added up.
    pub terms: Vec<EmbeddingTerm>,
}

impl Embedding {
    /// A sum of embeddings of ids that are independent of those of other streams.
    pub fn new(width: usize, ids: Ids, terms: Vec<EmbeddingTerm>) -> Self {
        Self { width, ids, same_ids_as: None, terms }
    }
}

/// The distribution of the ids of a sequence.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Ids {
    /// Ids sampled independently at every position.
    PowerLaw(PowerLaw),
    /// Given sequences, all equally likely.
    Given(GivenIds),
}

impl Ids {
    /// Number of different ids.
    pub fn vocab_size(&self) -> usize {
        match self {
            Self::PowerLaw(law) => law.vocab_size,
            Self::Given(given) => given.vocab_size,
        }
    }
}

/// Given sequences of ids.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct GivenIds {
    /// Number of different ids.
    pub vocab_size: usize,
    /// Sequences of `seq_len` ids each, all below `vocab_size`.
    pub sequences: Vec<Vec<u32>>,
}

/// Ids 0 … `vocab_size` − 1 with probability ∝ (id + 1)^(−`exponent`): 0 is uniform, 1 is Zipf.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PowerLaw {
    /// Number of different ids.
    pub vocab_size: usize,
    /// Exponent of the power law.
    pub exponent: f64,
}

impl PowerLaw {
    /// The probabilities of all ids, summing to 1.
    pub fn probabilities(&self) -> Vec<f64> {
        let weights: Vec<f64> = (1..=self.vocab_size).map(|rank| self.weight(rank)).collect();
        // Smallest first, so that 10^5 terms lose no digits.
        let total: f64 = weights.iter().rev().sum();
        weights.into_iter().map(|weight| weight / total).collect()
    }

    /// Probability that `count` positions have the same id: Σ p^count.
    pub fn repeat_probability(&self, count: i32) -> f64 {
        // Smallest first, so that 10^5 terms lose no digits.
        let weights = (1..=self.vocab_size).rev().map(|rank| self.weight(rank));
        let [total, repeated] =
            weights.fold([0.0, 0.0], |[total, repeated], weight| [total + weight, repeated + weight.powi(count)]);
        repeated / total.powi(count)
    }

    /// rank^−exponent, without the power function for Zipf's law, the usual case.
    fn weight(&self, rank: usize) -> f64 {
        if (self.exponent - 1.0).abs() < f64::EPSILON { 1.0 / rank as f64 } else { (rank as f64).powf(-self.exponent) }
    }
}

/// One summand of an [`Embedding`].
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum EmbeddingTerm {
    /// One row per id.
    Token {
        /// Shape `vocab_size` × width.
        table: Tensor,
    },
    /// One row per position.
    LearnedPosition {
        /// Shape `seq_len` × width.
        table: Tensor,
    },
    /// Fixed sinusoids: features 2i and 2i + 1 are `scale` times sin and cos of
    /// position · 10000^(−2i/width).
    SinusoidalPosition {
        /// Amplitude.
        scale: f64,
    },
    /// Row 0 of a table for every token: the segment embedding of a text in one segment.
    Constant {
        /// Shape `rows` × width.
        table: Tensor,
        /// Rows of the table.
        rows: usize,
    },
    /// Two segments, split at a position sampled uniformly from 0 ..= `seq_len` per sequence.
    Segment {
        /// Shape 2 × width.
        table: Tensor,
    },
}

impl EmbeddingTerm {
    /// The table that the term reads; `None` for sinusoids.
    pub fn table(&self) -> Option<&Tensor> {
        match self {
            Self::Token { table }
            | Self::LearnedPosition { table }
            | Self::Constant { table, .. }
            | Self::Segment { table } => Some(table),
            Self::SinusoidalPosition { .. } => None,
        }
    }
}

/// Gaussian vectors: x_a = `mean` + √`variance` (√`correlation` common + √(1 − `correlation`) own_a),
/// fresh for every sequence.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Gaussian {
    /// Number of features of a token.
    pub width: usize,
    /// Mean of every entry.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub mean: f64,
    /// Variance of one entry.
    pub variance: f64,
    /// Correlation between tokens, in [0, 1].
    pub correlation: f64,
}

/// Returns true if the mean is zero and need not be written.
#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde asks with a reference")]
fn is_zero(mean: &f64) -> bool {
    mean.abs() <= 0.0
}
