//! Multi-head softmax attention between the tokens of one or two sequences.

use serde::{Deserialize, Serialize};

use super::Disentangled;
use crate::{Node, Tensor};

/// Multi-head softmax attention. Query, key and value are chains; their outputs are cut into heads.
/// Output width: `n_heads` · `d_value`.
///
/// Scores s_ab = cap(`scale` · q_a·k_b) + bias_ab for the keys b that `mask` lets query a attend to, weights A_ab =
/// dropout(e^(s_ab)/(e^ς + Σ_d e^(s_ad))) with the logit ς of a sink, output Σ_b A_ab v_b. Without a sink e^ς is 0.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Attention {
    /// Number of query heads.
    pub n_heads: usize,
    /// Number of key and value heads; query head h uses key/value head ⌊h · `n_kv_heads` / `n_heads`⌋.
    pub n_kv_heads: usize,
    /// Width of one head of queries and keys.
    pub d_head: usize,
    /// Width of one head of values.
    pub d_value: usize,
    /// Factor on q·k; 1/√`d_head` for ordinary attention.
    pub scale: f64,
    /// cap(s) = `softcap` · tanh(s/`softcap`); `None`: cap(s) = s.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub softcap: Option<f64>,
    /// The keys that a query attends to.
    #[serde(default)]
    pub mask: Mask,
    /// Bias added to the scores.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bias: Option<PositionBias>,
    /// Attention sinks, shape `n_heads` × 1: a learned logit ς per head, which takes part of the weight of every query
    /// and has no value. `None`: the weights of a query sum to 1.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sink: Option<Tensor>,
    /// Probability that an attention weight is zeroed.
    pub dropout_rate: f64,
    /// Chain from the input to the queries (width `n_heads` · `d_head`).
    pub query: Vec<Node>,
    /// Chain from the input to the keys (width `n_kv_heads` · `d_head`).
    pub key: Vec<Node>,
    /// Chain from the input to the values (width `n_kv_heads` · `d_value`).
    pub value: Vec<Node>,
    /// Index of the earlier stream whose output is the input of keys and values; `None`: the input of the queries.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub memory: Option<usize>,
}

impl Attention {
    /// Ordinary attention: every query attends to every key, and scores are q·k/√`d_head`.
    pub fn plain(n_heads: usize, n_kv_heads: usize, d_head: usize, [query, key, value]: [Vec<Node>; 3]) -> Self {
        Self {
            n_heads,
            n_kv_heads,
            d_head,
            d_value: d_head,
            scale: (d_head as f64).powf(-0.5),
            softcap: None,
            mask: Mask::FULL,
            bias: None,
            sink: None,
            dropout_rate: 0.0,
            query,
            key,
            value,
            memory: None,
        }
    }
}

/// The keys that query a attends to: positions a − `before` to a + `after`; `None` means no limit.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Mask {
    /// Number of positions before its own that a query attends to.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub before: Option<usize>,
    /// Number of positions after its own that a query attends to.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub after: Option<usize>,
}

impl Mask {
    /// Every query attends to every key.
    pub const FULL: Self = Self { before: None, after: None };
    /// A query attends to its own position and to earlier ones.
    pub const CAUSAL: Self = Self { before: None, after: Some(0) };

    /// Returns the keys, of `n_keys`, that query `a` attends to.
    pub fn keys(&self, a: usize, n_keys: usize) -> std::ops::Range<usize> {
        let first = self.before.map_or(0, |before| a.saturating_sub(before)).min(n_keys);
        let last = self.after.map_or(n_keys, |after| a.saturating_add(after).saturating_add(1).min(n_keys));
        first..last.max(first)
    }
}

/// Bias added to the score of a query a and a key b.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum PositionBias {
    /// −`slopes`\[head\] · |a − b| (ALiBi).
    Alibi {
        /// Slopes, one per query head.
        slopes: Vec<f64>,
    },
    /// A learned number per head and bucket of b − a (T5).
    Relative {
        /// Shape `buckets` × `n_heads`.
        table: Tensor,
        /// Number of buckets.
        buckets: usize,
        /// Distance from which on all keys share the last bucket.
        max_distance: usize,
        /// True if keys after the query have buckets of their own.
        bidirectional: bool,
    },
    /// Scores of contents with embeddings of relative positions (DeBERTa).
    Disentangled(Box<Disentangled>),
}

impl PositionBias {
    /// Returns T5's bucket of a key `offset` = b − a positions ahead: half of the buckets hold one distance each, the
    /// others grow logarithmically up to `max_distance`.
    pub fn bucket(offset: i64, buckets: usize, max_distance: usize, bidirectional: bool) -> usize {
        let (count, base, distance) = if bidirectional {
            let half = buckets / 2;
            (half, if offset > 0 { half } else { 0 }, offset.unsigned_abs() as usize)
        } else {
            (buckets, 0, (-offset).max(0) as usize)
        };
        let exact = count / 2;
        if distance < exact {
            return base + distance;
        }
        let ratio = (distance as f64 / exact as f64).ln() / (max_distance as f64 / exact as f64).ln();
        base + (exact + (ratio * (count - exact) as f64) as usize).min(count - 1)
    }
}
