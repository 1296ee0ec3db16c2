//! Decoders whose heads have attention sinks: GPT-OSS, its bidirectional filter for private data, MiMo-V2-Flash.

use serde_json::Value;
use sigprop_stack::Weighting;

use super::super::ImportError;
use super::super::rotary::{Rotation, WindowRotation};
use super::llama::Defaults;
use super::mixture::{self, Mixture};
use super::{Keys, layer_types};
use crate::architecture::{Activation, Architecture};

/// GPT-OSS: windows in every other block, and experts with biases, (up + 1) times a QuickGELU of the gate. Its filter for
/// private data attends in both directions, with a window in every block.
pub(super) fn gpt_oss(keys: &Keys) -> Result<Architecture, ImportError> {
    let filter = keys.family() == "openai_privacy_filter";
    let sizes = if filter {
        Defaults { kv_heads: Some(2), ..Defaults::new(8, 640, 14, 640, 200_064, 131_072) }
    } else {
        Defaults { kv_heads: Some(8), ..Defaults::new(36, 2880, 64, 2880, 201_088, 131_072) }
    };
    let rotation = Rotation::new(1.0, 150_000.0);
    let mut architecture = Defaults { d_head: Some(64), eps: 1e-5, rotation, ..sizes }.read(keys)?;
    let biases = keys.flag("attention biases", &["attention_bias"], true)?;
    architecture.qkv_biases = Some(biases);
    architecture.attention_output_bias = Some(biases);
    architecture.ffn_biases = Some(true);
    architecture.activation = expert_activation(keys)?;
    architecture.experts = Some(Mixture::new(128, 4).read(keys, &architecture)?);
    architecture.attention_sinks = vec![true; architecture.n_layers];
    let window = keys.size("window", &["sliding_window"], 128)?;
    if filter {
        // The window reaches as many tokens to each side.
        architecture.windows = vec![2 * window; architecture.n_layers];
        architecture.causal = false;
    } else {
        let default = || (0..architecture.n_layers).map(|i| if i % 2 == 0 { window } else { 0 }).collect();
        architecture.windows = layer_types(keys, window)?.unwrap_or_else(default);
    }
    keys.same(&["initial_context_length", "experts_per_token"]);
    keys.note("biases of routers", "left out", "small compared with scores");
    Ok(architecture)
}

/// Returns the activation of the experts of GPT-OSS and MiniMax-M3. Its clamps are at several standard deviations.
pub(super) fn expert_activation(keys: &Keys) -> Result<Activation, ImportError> {
    let slope = keys.number("slope of the gate", &["swiglu_alpha"], 1.702)?;
    if (slope - 1.702).abs() > 1e-9 {
        return Err(ImportError::value("swiglu_alpha", "1.702, the slope of QuickGELU", &Value::from(slope), ""));
    }
    let limit = keys.number("clamp of gate and up", &["swiglu_limit"], 7.0)?;
    if limit < 7.0 {
        keys.warn(format!("gate and up are clamped at {limit}; the prediction leaves the clamp out"));
    }
    Ok(Activation::QuickGegluPlusOne)
}

/// MiMo-V2-Flash: blocks with a window have sinks, twice as many heads of keys and values, and another base of
/// rotations; values have a width and a factor of their own.
pub(super) fn mimo(keys: &Keys) -> Result<Architecture, ImportError> {
    let window = WindowRotation { key: "swa_rope_theta", base: 10_000.0, scaled: false, d_head: None };
    let rotation = Rotation { window: Some(window), ..Rotation::new(0.334, 5e6) };
    let defaults = Defaults {
        kv_heads: Some(4),
        d_head: Some(192),
        eps: 1e-5,
        rotation,
        ..Defaults::new(48, 4096, 64, 16384, 152_576, 131_072)
    };
    let mut architecture = defaults.read(keys)?;
    architecture.qkv_biases = Some(keys.flag("attention biases", &["attention_bias"], false)?);
    architecture.d_value = Some(keys.size("d_value", &["v_head_dim"], 128)?);
    architecture.value_scale = keys.number("value_scale", &["attention_value_scale"], 0.707)?;
    // A window of the reference implementation does not count the query.
    let window = match keys.maybe_size("window", &["sliding_window_size"])? {
        Some(before) => before + 1,
        None => keys.size("window", &["sliding_window"], 129)?,
    };
    let n_layers = architecture.n_layers;
    let default = || (0..n_layers).map(|i| if i == 0 || (i + 1) % 6 == 0 { 0 } else { window }).collect();
    architecture.windows = layer_types(keys, window)?.unwrap_or_else(default);
    let kv_heads = architecture.n_kv_heads.unwrap_or(4);
    let heads = |window: &usize| if *window > 0 { 2 * kv_heads } else { kv_heads };
    architecture.block_kv_heads = architecture.windows.iter().map(heads).collect();
    architecture.attention_sinks = architecture.windows.iter().map(|window| *window > 0).collect();
    let experts = Mixture {
        d_ff: Some(2048),
        weighting: Weighting::Sigmoid,
        normalised: Some(true),
        scale: Some(1.0),
        first_dense: Some(1),
        ..Mixture::new(256, 8)
    };
    architecture.experts = Some(experts.read(keys, &architecture)?);
    mixture::groups(keys, Weighting::Sigmoid, [1, 1])?;
    if let Some(kinds) = keys.raw("mlp_layer_types").and_then(Value::as_array) {
        let dense = kinds.iter().enumerate().filter(|(_, kind)| kind.as_str() == Some("dense"));
        architecture.dense_blocks = dense.map(|(block, _)| block).collect();
    }
    keys.same(&[
        "add_full_attention_sink_bias",
        "add_swa_attention_sink_bias",
        "attention_chunk_size",
        "hybrid_layer_pattern",
        "layernorm_epsilon",
        "moe_layer_freq",
        "n_shared_experts",
        "scoring_func",
        "sliding_window",
        "swa_head_dim",
        "swa_num_attention_heads",
        "swa_num_key_value_heads",
        "swa_v_head_dim",
        "topk_method",
    ]);
    Ok(architecture)
}
