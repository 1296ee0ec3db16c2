//! MiniMax-M3: the experts of GPT-OSS, weighed by sigmoids, a shared expert, and indexers that keep blocks of keys.

use serde_json::Value;
use sigprop_stack::Weighting;

use super::super::ImportError;
use super::super::rotary::Rotation;
use super::llama::Defaults;
use super::mixture::Mixture;
use super::{Keys, mlp_layer_types, sinks};
use crate::architecture::{Architecture, Experts, QkNorm};

/// MiniMax-M3 and the text part of its multimodal model.
pub(super) fn minimax_m3(keys: &Keys) -> Result<Architecture, ImportError> {
    let defaults = Defaults {
        kv_heads: Some(4),
        d_head: Some(128),
        rotation: Rotation::new(1.0, 5e6),
        ..Defaults::new(60, 6144, 64, 3072, 200_064, 524_288)
    };
    let mut architecture = defaults.read(keys)?;
    architecture.activation = sinks::expert_activation(keys)?;
    architecture.qk_norm = QkNorm::Head;
    let mixture = Mixture { weighting: Weighting::Sigmoid, scale: Some(2.0), ..Mixture::new(128, 4) };
    let shared_d_ff = keys.size("d_ff of the shared expert", &["shared_intermediate_size"], 3072)?;
    architecture.experts = Some(Experts { shared_d_ff, ..mixture.read(keys, &architecture)? });
    architecture.d_ff = Some(keys.size("d_ff of dense blocks", &["dense_intermediate_size"], 12288)?);
    mlp_layer_types(keys, &mut architecture)?;
    let (indexer, tokens) = (Indexer::read(keys)?, keys.options.seq_len.unwrap_or(architecture.seq_len));
    if indexer.n_blocks > 0 && tokens > indexer.kept {
        keys.warn(format!(
            "attention sees all {tokens} tokens; indexers, which are left out, keep blocks of keys with {} tokens in {} of \
             {} blocks",
            indexer.kept, indexer.n_blocks, architecture.n_layers
        ));
    }
    keys.same(&[
        "first_k_dense_replace",
        "moe_intermediate_size",
        "n_shared_experts",
        "qk_norm_type",
        "rotary_dim",
        "use_gemma_norm",
        "use_qk_norm",
    ]);
    Ok(architecture)
}

/// The indexers of MiniMax-M3: heads of queries and one head of keys, whose scores choose the blocks of keys that a query
/// attends to.
pub(in crate::huggingface) struct Indexer {
    /// The number of blocks of the network with an indexer.
    n_blocks: usize,
    n_heads: usize,
    d_head: usize,
    /// The number of tokens that a query attends to at most.
    kept: usize,
}

impl Indexer {
    /// Reads the sizes from `sparse_attention_config`, else from keys of the config.
    pub(in crate::huggingface) fn read(keys: &Keys) -> Result<Self, ImportError> {
        let sparse = keys.nested("sparse_attention_config")?.cloned().unwrap_or_default();
        let inner = keys.inside(&sparse);
        let size =
            |name: &str, own: &'static str, key: &'static str, default: usize| match inner.maybe_size(name, &[own])? {
                Some(size) => Ok(size),
                None => keys.size(name, &[key], default),
            };
        let n_heads = size("heads of the indexer", "sparse_num_index_heads", "index_n_heads", 4)?;
        let d_head = size("d_head of the indexer", "sparse_index_dim", "index_head_dim", 128)?;
        let block = size("tokens of a block of keys", "sparse_block_size", "index_block_size", 128)?;
        let kept = size("blocks of keys that an indexer keeps", "sparse_topk_blocks", "index_topk_blocks", 16)?;
        let is_sparse = |kind: &&Value| kind.as_str() == Some("minimax_m3_sparse") || kind.as_u64() == Some(1);
        let listed = keys.raw("layer_types").or(inner.raw("sparse_attention_freq")).and_then(Value::as_array);
        let n_blocks = listed.map_or(0, |kinds| kinds.iter().filter(is_sparse).count());
        keys.absorb("sparse_attention_config", inner);
        Ok(Self { n_blocks, n_heads, d_head, kept: block * kept })
    }

    /// Returns the number of parameters of the indexers in a stream of this width.
    pub(in crate::huggingface) fn parameters(&self, width: u64) -> u64 {
        let (n_heads, d_head) = (self.n_heads as u64, self.d_head as u64);
        self.n_blocks as u64 * (width * (n_heads + 1) * d_head + 2 * d_head)
    }
}
