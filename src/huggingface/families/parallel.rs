//! Decoders whose attention and feed-forward network are parallel.

use super::super::ImportError;
use super::super::init::base;
use super::super::rotary::{Rotation, rotary};
use super::{Keys, Standard, activation, biases, head_width, kv_heads, layer_types, tied};
use crate::architecture::{Architecture, NormChoice, Parallel, Positions, QkNorm};

/// GPT-J and CodeGen: one norm for both branches, no biases in attention.
pub(super) fn gptj(keys: &Keys) -> Result<Architecture, ImportError> {
    let width = keys.size("d_model", &["n_embd", "hidden_size"], 4096)?;
    let sizes = Standard { layers: 28, width: 4096, heads: 16, ffn: 4 * width, vocab: 50400, positions: 2048 };
    let mut architecture = Architecture {
        activation: activation(keys, &["activation_function"], "gelu_new", false)?,
        norm_eps: keys.number("norm_eps", &["layer_norm_epsilon"], 1e-5)?,
        parallel: Parallel::SharedNorm,
        causal: true,
        qkv_biases: Some(false),
        attention_output_bias: Some(false),
        dropout: keys.rate("dropout", &["resid_pdrop"], 0.0)?,
        embedding_dropout: Some(keys.rate("embedding_dropout", &["embd_pdrop"], 0.0)?),
        attention_dropout: keys.rate("attention_dropout", &["attn_pdrop"], 0.0)?,
        head: tied(keys, false)?,
        head_bias: true,
        hf_init: Some(base(keys, 0.02)?),
        ..sizes.read(keys)?
    };
    let d_head = head_width(keys, &mut architecture, None)?;
    let rotated = keys.size("rotary_dim", &["rotary_dim"], 64)?.min(d_head);
    rotary(keys, &mut architecture, d_head, Rotation::new(rotated as f64 / d_head as f64, 10_000.0))?;
    Ok(architecture)
}

/// GPT-NeoX: parallel branches with a norm each, or sequential branches.
pub(super) fn neox(keys: &Keys) -> Result<Architecture, ImportError> {
    let sizes = Standard { layers: 44, width: 6144, heads: 64, ffn: 24576, vocab: 50432, positions: 2048 };
    let parallel = keys.flag("parallel", &["use_parallel_residual"], true)?;
    let attention_bias = keys.flag("attention biases", &["attention_bias"], true)?;
    let mut architecture = Architecture {
        activation: activation(keys, &["hidden_act"], "gelu", false)?,
        norm_eps: keys.number("norm_eps", &["layer_norm_eps"], 1e-5)?,
        parallel: if parallel { Parallel::OwnNorms } else { Parallel::None },
        causal: true,
        qkv_biases: Some(attention_bias),
        attention_output_bias: Some(attention_bias),
        dropout: keys.rate("dropout", &["hidden_dropout"], 0.0)?,
        attention_dropout: keys.rate("attention_dropout", &["attention_dropout"], 0.0)?,
        head: tied(keys, false)?,
        hf_init: Some(base(keys, 0.02)?),
        ..sizes.read(keys)?
    };
    let d_head = head_width(keys, &mut architecture, None)?;
    rotary(keys, &mut architecture, d_head, Rotation::new(0.25, 10_000.0))?;
    Ok(architecture)
}

/// Falcon in its three layouts: one norm for both branches (7B), one for each (40B), sequential branches (1B).
pub(super) fn falcon(keys: &Keys) -> Result<Architecture, ImportError> {
    let width = keys.size("d_model", &["hidden_size", "n_embed"], 4544)?;
    let ffn = keys.size("d_ff", &["ffn_hidden_size"], 4 * width)?;
    let sizes = Standard { layers: 32, width, heads: 71, ffn, vocab: 65024, positions: 2048 };
    let mut architecture = sizes.read(keys)?;
    let new = keys.flag("new decoder architecture", &["new_decoder_architecture"], false)?;
    let multi_query = keys.flag("one key and value head", &["multi_query"], true)?;
    let parallel = keys.flag("parallel", &["parallel_attn"], true)?;
    let norms = keys.count("norms of parallel branches", &["num_ln_in_parallel_attn"], if new { 2 } else { 1 })?;
    architecture.parallel = match (new || parallel, norms) {
        (false, _) => Parallel::None,
        (true, 2) if new => Parallel::OwnNorms,
        (true, _) => Parallel::SharedNorm,
    };
    if new {
        kv_heads(keys, &mut architecture, None)?;
    } else if multi_query {
        architecture.n_kv_heads = Some(1);
    }
    architecture.activation = activation(keys, &["activation"], "gelu", false)?;
    architecture.norm_eps = keys.number("norm_eps", &["layer_norm_epsilon"], 1e-5)?;
    architecture.biases = keys.flag("biases", &["bias"], false)?;
    architecture.causal = true;
    architecture.dropout = keys.rate("dropout", &["hidden_dropout"], 0.0)?;
    architecture.embedding_dropout = Some(0.0);
    architecture.attention_dropout = keys.rate("attention_dropout", &["attention_dropout"], 0.0)?;
    architecture.head = tied(keys, true)?;
    architecture.hf_init = Some(base(keys, 0.02)?);
    let d_head = head_width(keys, &mut architecture, None)?;
    if keys.flag("alibi", &["alibi"], false)? {
        architecture.positions = Positions::Alibi;
        // The library divides scores by √d_head after it has added the slopes of ALiBi, so that it divides the slopes,
        // too.
        architecture.alibi_scale = (d_head as f64).powf(-0.5);
        keys.note("alibi_scale", architecture.alibi_scale, "1/√d_head");
    } else {
        rotary(keys, &mut architecture, d_head, Rotation::new(1.0, 10_000.0))?;
    }
    Ok(architecture)
}

/// Phi: one norm for both branches; all linear maps have biases.
pub(super) fn phi(keys: &Keys) -> Result<Architecture, ImportError> {
    let sizes = Standard { layers: 24, width: 2048, heads: 32, ffn: 8192, vocab: 51200, positions: 2048 };
    let mut architecture = Architecture {
        activation: activation(keys, &["hidden_act"], "gelu_new", false)?,
        norm_eps: keys.number("norm_eps", &["layer_norm_eps"], 1e-5)?,
        parallel: Parallel::SharedNorm,
        causal: true,
        qk_norm: qk_norm(keys, &["qk_layernorm"])?,
        head_bias: true,
        dropout: keys.rate("dropout", &["resid_pdrop"], 0.0)?,
        embedding_dropout: Some(keys.rate("embedding_dropout", &["embd_pdrop"], 0.0)?),
        attention_dropout: keys.rate("attention_dropout", &["attention_dropout"], 0.0)?,
        head: tied(keys, false)?,
        hf_init: Some(base(keys, 0.02)?),
        ..sizes.read(keys)?
    };
    kv_heads(keys, &mut architecture, None)?;
    let d_head = head_width(keys, &mut architecture, None)?;
    rotary(keys, &mut architecture, d_head, Rotation::new(0.5, 10_000.0))?;
    Ok(architecture)
}

/// Cohere: one LayerNorm without bias for both branches, gated feed-forward networks.
pub(super) fn cohere(keys: &Keys) -> Result<Architecture, ImportError> {
    let sizes = Standard { layers: 40, width: 8192, heads: 64, ffn: 22528, vocab: 256_000, positions: 8192 };
    let mut architecture = Architecture {
        activation: activation(keys, &["hidden_act"], "silu", true)?,
        norm_eps: keys.number("norm_eps", &["layer_norm_eps"], 1e-5)?,
        parallel: Parallel::SharedNorm,
        causal: true,
        biases: false,
        qk_norm: qk_norm(keys, &["use_qk_norm"])?,
        attention_dropout: keys.rate("attention_dropout", &["attention_dropout"], 0.0)?,
        head: tied(keys, true)?,
        logit_scale: keys.number("logit_scale", &["logit_scale"], 0.0625)?,
        hf_init: Some(base(keys, 0.02)?),
        ..sizes.read(keys)?
    };
    kv_heads(keys, &mut architecture, None)?;
    let d_head = head_width(keys, &mut architecture, None)?;
    biases(keys, &mut architecture)?;
    let two = keys.family() == "cohere2";
    rotary(keys, &mut architecture, d_head, Rotation::new(1.0, if two { 10_000.0 } else { 5e5 }))?;
    if two {
        let window = keys.size("window", &["sliding_window"], 4096)?;
        let pattern = keys.size("window pattern", &["sliding_window_pattern"], 4)?;
        let default = || (1..=architecture.n_layers).map(|i| if i % pattern == 0 { 0 } else { window }).collect();
        architecture.windows = layer_types(keys, window)?.unwrap_or_else(default);
        architecture.rotated = architecture.windows.iter().map(|window| *window > 0).collect();
        keys.note("rotated", "blocks with a window", "cohere2");
    }
    Ok(architecture)
}

/// StableLM: LayerNorm, gated feed-forward networks, and parallel branches if the config sets them.
pub(super) fn stablelm(keys: &Keys) -> Result<Architecture, ImportError> {
    let sizes = Standard { layers: 32, width: 2560, heads: 32, ffn: 6912, vocab: 50304, positions: 4096 };
    let parallel = keys.flag("parallel", &["use_parallel_residual"], false)?;
    let mut architecture = Architecture {
        activation: activation(keys, &["hidden_act"], "silu", true)?,
        norm: Some(NormChoice::Layernorm),
        norm_eps: keys.number("norm_eps", &["layer_norm_eps"], 1e-5)?,
        parallel: if parallel { Parallel::SharedNorm } else { Parallel::None },
        causal: true,
        biases: false,
        qkv_biases: Some(keys.flag("qkv_biases", &["use_qkv_bias"], false)?),
        qk_norm: qk_norm(keys, &["qk_layernorm"])?,
        dropout: keys.rate("dropout", &["hidden_dropout"], 0.0)?,
        embedding_dropout: Some(0.0),
        attention_dropout: keys.rate("attention_dropout", &["attention_dropout"], 0.0)?,
        head: tied(keys, false)?,
        hf_init: Some(base(keys, 0.02)?),
        ..sizes.read(keys)?
    };
    kv_heads(keys, &mut architecture, None)?;
    let d_head = head_width(keys, &mut architecture, None)?;
    rotary(keys, &mut architecture, d_head, Rotation::new(0.25, 10_000.0))?;
    Ok(architecture)
}

fn qk_norm(keys: &Keys, names: &[&'static str]) -> Result<QkNorm, ImportError> {
    Ok(if keys.flag("qk_norm", names, false)? { QkNorm::Head } else { QkNorm::None })
}
