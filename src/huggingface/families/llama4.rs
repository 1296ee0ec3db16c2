//! The text part of Llama 4: experts whose inputs are multiplied by the router's scores, and blocks without rotation.

use serde_json::Value;
use sigprop_stack::{Multiplied, Weighting};

use super::super::ImportError;
use super::super::rotary::Rotation;
use super::llama::{Defaults, rotated_blocks};
use super::{Keys, biases};
use crate::architecture::{Architecture, Experts, QkNorm};

pub(super) fn llama4(keys: &Keys) -> Result<Architecture, ImportError> {
    let defaults = Defaults {
        kv_heads: Some(8),
        d_head: Some(128),
        eps: 1e-5,
        rotation: Rotation::new(1.0, 5e5),
        ..Defaults::new(48, 5120, 40, 8192, 202_048, 131_072)
    };
    let mut architecture = defaults.read(keys)?;
    biases(keys, &mut architecture)?;
    architecture.ffn_biases = Some(false);
    let width = architecture.d_ff.unwrap_or(1);
    architecture.d_ff = Some(keys.size("d_ff of dense blocks", &["intermediate_size_mlp"], 16_384)?);
    let normed = keys.flag("qk_norm", &["use_qk_norm"], true)?;
    architecture.qk_norm = if normed { QkNorm::Rotated } else { QkNorm::None };
    architecture.rotated = rotated_blocks(keys, architecture.n_layers)?;
    architecture.experts = Some(Experts {
        n_experts: keys.size("n_experts", &["num_local_experts"], 16)?,
        top_k: keys.size("top_k", &["num_experts_per_tok"], 1)?,
        d_ff: width,
        shared_d_ff: width,
        shared_gate: false,
        weighting: Weighting::Sigmoid,
        weights_multiply: Multiplied::Inputs,
        normalised: false,
        router_scale: 1.0,
        own_norms: false,
        scale: 1.0,
        first_dense: 0,
        every: keys.size("every how many blocks", &["interleave_moe_layer_step"], 1)?,
    });
    if let Some(value) = keys.raw("moe_layers") {
        listed_blocks(keys, &mut architecture, value)?;
    }
    long_sequences(keys, &architecture)?;
    Ok(architecture)
}

/// Reads the list of the blocks with experts.
fn listed_blocks(keys: &Keys, architecture: &mut Architecture, value: &Value) -> Result<(), ImportError> {
    let number = |block: &Value| block.as_u64().and_then(|block| usize::try_from(block).ok());
    let blocks = value.as_array().and_then(|blocks| blocks.iter().map(number).collect::<Option<Vec<usize>>>());
    let blocks = blocks.ok_or_else(|| ImportError::value("moe_layers", "numbers of blocks", value, ""))?;
    architecture.dense_blocks = (0..architecture.n_layers).filter(|block| !blocks.contains(block)).collect();
    architecture.experts = architecture.experts.map(|experts| Experts { every: 1, ..experts });
    keys.note("blocks with experts", blocks.len(), "moe_layers");
    Ok(())
}

/// Warns about parts of attention that act only in sequences that are longer than a chunk.
fn long_sequences(keys: &Keys, architecture: &Architecture) -> Result<(), ImportError> {
    let tokens = keys.options.seq_len.unwrap_or(architecture.seq_len);
    let chunk = keys.size("tokens of a chunk", &["attention_chunk_size"], 8192)?;
    if tokens > chunk && !keys.is_null("attention_chunk_size") {
        keys.warn(format!(
            "attention sees all {tokens} tokens; the model has chunks of {chunk} in blocks that rotate \
             (attention_chunk_size), so that the first tokens of a chunk see few others"
        ));
    }
    let floor = keys.size("tokens before queries are scaled", &["floor_scale"], 8192)?;
    let strength = keys.number("growth of queries", &["attn_scale"], 0.1)?;
    if keys.flag("queries grow with their position", &["attn_temperature_tuning"], true)? && tokens >= floor {
        keys.warn(format!(
            "queries from token {floor} on are not multiplied by their factor, 1 + {strength} ln(1 + position/{floor}), \
             in blocks that do not rotate (attn_temperature_tuning)"
        ));
    }
    keys.same(&["layer_types"]);
    Ok(())
}
