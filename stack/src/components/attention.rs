//! Multi-head softmax attention over the tokens of a sequence.

use serde::{Deserialize, Serialize};

use crate::Node;

/// Multi-head softmax attention. Query, key and value are chains on the common input; their outputs
/// are cut into heads. Output width: `n_heads` · `d_head`.
///
/// Scores s_ab = `scale` · q_a·k_b, weights A = dropout(softmax_b s), output Σ_b A_ab v_b.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Attention {
    /// Query heads.
    pub n_heads: usize,
    /// Key and value heads; query head h uses key/value head ⌊h · `n_kv_heads` / `n_heads`⌋.
    pub n_kv_heads: usize,
    /// Width of one head.
    pub d_head: usize,
    /// Factor on q·k; 1/√`d_head` for ordinary attention.
    pub scale: f64,
    /// Probability that an attention weight is zeroed.
    pub dropout_rate: f64,
    /// Input to queries (width `n_heads` · `d_head`).
    pub query: Vec<Node>,
    /// Input to keys (width `n_kv_heads` · `d_head`).
    pub key: Vec<Node>,
    /// Input to values (width `n_kv_heads` · `d_head`).
    pub value: Vec<Node>,
}
