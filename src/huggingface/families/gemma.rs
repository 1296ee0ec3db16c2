//! Gemma 1 to 4 with the blocks of T5Gemma, GLM and GLM-4: scaled embeddings, gains of 1 + w, norms at both ends of a
//! branch.

use serde_json::Value;
use sigprop_stack::{Multiplied, Weighting};

use super::super::ImportError;
use super::super::init::base;
use super::super::rotary::{Rotation, WindowRotation, rotary};
use super::llama::Defaults;
use super::{Keys, Standard, activation, cap, head_width, kv_heads, layer_types, tied};
use crate::architecture::{Architecture, Experts, GlobalHeads, NormChoice, NormPlacement, QkNorm};

pub(super) fn gemma(keys: &Keys) -> Result<Architecture, ImportError> {
    let family = keys.family();
    let two = matches!(family, "gemma2" | "t5gemma");
    let (sizes, kv) = if family == "gemma" {
        (Standard { layers: 28, width: 3072, heads: 16, ffn: 24576, vocab: 256_000, positions: 8192 }, 16)
    } else {
        let positions = if two { 8192 } else { 131_072 };
        let vocab = if two { 256_000 } else { 262_208 };
        (Standard { layers: 26, width: 2304, heads: 8, ffn: 9216, vocab, positions }, 4)
    };
    let mut architecture = Architecture {
        activation: activation(keys, &["hidden_activation", "hidden_act"], "gelu_pytorch_tanh", true)?,
        norm: Some(NormChoice::Rmsnorm),
        norm_eps: keys.number("norm_eps", &["rms_norm_eps"], 1e-6)?,
        norm_placement: if family == "gemma" { NormPlacement::Pre } else { NormPlacement::Sandwich },
        biases: false,
        causal: true,
        attention_dropout: keys.rate("attention_dropout", &["attention_dropout"], 0.0)?,
        head: tied(keys, true)?,
        hf_init: Some(base(keys, 0.02)?),
        ..sizes.read(keys)?
    };
    kv_heads(keys, &mut architecture, Some(kv))?;
    let d_head = head_width(keys, &mut architecture, Some(256))?;
    let biases = keys.flag("attention biases", &["attention_bias"], false)?;
    architecture.qkv_biases = Some(biases);
    architecture.attention_output_bias = Some(biases);
    let three = family == "gemma3_text";
    let window = WindowRotation { key: "rope_local_base_freq", base: 10_000.0, scaled: false, d_head: None };
    let usual = Rotation::new(1.0, if three { 1e6 } else { 10_000.0 });
    rotary(keys, &mut architecture, d_head, Rotation { window: three.then_some(window), ..usual })?;
    architecture.embedding_scale = (architecture.d_model as f64).sqrt();
    keys.note("embedding_scale", architecture.embedding_scale, "√d_model");
    if family != "gemma" {
        let scalar = keys.number("query scale", &["query_pre_attn_scalar"], 256.0)?;
        if scalar.is_nan() || scalar <= 0.0 {
            return Err(ImportError::value("query_pre_attn_scalar", "a positive number", &scalar.into(), ""));
        }
        architecture.attention_scale = Some(scalar.powf(-0.5));
        let caps = if two { [Some(50.0), Some(30.0)] } else { [None; 2] };
        architecture.attention_softcap = cap(keys, "attention_softcap", "attn_logit_softcapping", caps[0])?;
        architecture.logit_softcap = cap(keys, "logit_softcap", "final_logit_softcapping", caps[1])?;
        let window = keys.size("window", &["sliding_window"], 4096)?;
        let pattern = if two {
            2
        } else {
            keys.size("window pattern", &["sliding_window_pattern", "_sliding_window_pattern"], 6)?
        };
        let default = || (1..=architecture.n_layers).map(|i| if i % pattern == 0 { 0 } else { window }).collect();
        architecture.windows = layer_types(keys, window)?.unwrap_or_else(default);
    }
    if three {
        architecture.qk_norm = QkNorm::Head;
        // In bidirectional attention the library places half of a window before the query and half after it.
        architecture.causal = !keys.flag("tokens see those behind them", &["use_bidirectional_attention"], false)?;
    }
    Ok(architecture)
}

/// Gemma 4 without embeddings per layer: norms of queries, keys and values. Blocks without a window have wider heads,
/// and the map of their keys may be that of their values. Experts are next to the feed-forward network, and both have
/// norms of their own.
pub(super) fn gemma4(keys: &Keys) -> Result<Architecture, ImportError> {
    let mut architecture = Architecture {
        activation: activation(keys, &["hidden_activation", "hidden_act"], "gelu_pytorch_tanh", true)?,
        norm: Some(NormChoice::Rmsnorm),
        norm_eps: keys.number("norm_eps", &["rms_norm_eps"], 1e-6)?,
        norm_placement: NormPlacement::Sandwich,
        qk_norm: QkNorm::HeadAndValue,
        biases: false,
        causal: keys.raw("use_bidirectional_attention").and_then(Value::as_str) != Some("all"),
        attention_dropout: keys.rate("attention_dropout", &["attention_dropout"], 0.0)?,
        attention_scale: Some(1.0),
        head: tied(keys, true)?,
        hf_init: Some(base(keys, 0.02)?),
        ..Standard { layers: 30, width: 2304, heads: 8, ffn: 9216, vocab: 262_144, positions: 131_072 }.read(keys)?
    };
    kv_heads(keys, &mut architecture, Some(4))?;
    let d_head = head_width(keys, &mut architecture, Some(256))?;
    let global = global_heads(keys, &architecture)?;
    architecture.global_heads = Some(global);
    let biases = keys.flag("attention biases", &["attention_bias"], false)?;
    architecture.qkv_biases = Some(biases);
    architecture.attention_output_bias = Some(biases);
    let window = WindowRotation { key: "rope_local_base_freq", base: 10_000.0, scaled: false, d_head: Some(d_head) };
    rotary(keys, &mut architecture, global.d_head, Rotation { window: Some(window), ..Rotation::new(1.0, 1e6) })?;
    architecture.embedding_scale = (architecture.d_model as f64).sqrt();
    keys.note("embedding_scale", architecture.embedding_scale, "√d_model");
    architecture.logit_softcap = cap(keys, "logit_softcap", "final_logit_softcapping", None)?;
    let window = keys.size("window", &["sliding_window"], 512)?;
    let default = || (1..=architecture.n_layers).map(|i| if i % 6 == 0 { 0 } else { window }).collect();
    architecture.windows = layer_types(keys, window)?.unwrap_or_else(default);
    // The library gives the last block no window, whatever the config says.
    if let Some(last) = architecture.windows.last_mut() {
        *last = 0;
    }
    if keys.count("blocks with keys of earlier blocks", &["num_kv_shared_layers"], 0)? > 0 {
        let got = keys.raw("num_kv_shared_layers").unwrap_or(&Value::Null);
        let expected = "0, because keys and values of an earlier block are not computed";
        return Err(ImportError::value("num_kv_shared_layers", expected, got, ""));
    }
    if keys.flag("experts", &["enable_moe_block"], false)? {
        architecture.experts = Some(Experts {
            n_experts: keys.size("n_experts", &["num_experts"], 128)?,
            top_k: keys.size("top_k", &["top_k_experts"], 8)?,
            d_ff: keys.size("d_ff of an expert", &["moe_intermediate_size"], 704)?,
            shared_d_ff: architecture.d_ff.unwrap_or(1),
            shared_gate: false,
            weighting: Weighting::Softmax,
            weights_multiply: Multiplied::Outputs,
            normalised: true,
            router_scale: (architecture.d_model as f64).powf(-0.5),
            own_norms: true,
            scale: 1.0,
            first_dense: 0,
            every: 1,
        });
    }
    keys.same(&["moe_intermediate_size", "num_experts", "top_k_experts", "use_double_wide_mlp"]);
    Ok(architecture)
}

/// Reads the heads of Gemma 4's blocks without a window.
fn global_heads(keys: &Keys, architecture: &Architecture) -> Result<GlobalHeads, ImportError> {
    let shared_values = keys.flag("values are keys", &["attention_k_eq_v"], false)?;
    let usual = architecture.n_kv_heads.or(architecture.n_heads).unwrap_or(1);
    // The library writes the sizes of each of these blocks into the config.
    let blocks = keys.nested("per_layer_config")?;
    let written = blocks.and_then(|blocks| blocks.values().next()).and_then(Value::as_object);
    let inner = written.map(|written| keys.inside(written));
    let (keys, heads, width) = match &inner {
        Some(inner) => (inner, "num_key_value_heads", "head_dim"),
        None => (keys, "num_global_key_value_heads", "global_head_dim"),
    };
    let given = keys.maybe_size("n_kv_heads without a window", &[heads])?;
    Ok(GlobalHeads {
        n_kv_heads: given.filter(|_| shared_values).unwrap_or(usual),
        d_head: keys.size("d_head without a window", &[width], 512)?,
        shared_values,
    })
}

/// GLM, GLM-4 and the text part of GLM-4V: biases of queries, keys and values. GLM has norms before its branches, the
/// others at both ends.
pub(super) fn glm(keys: &Keys) -> Result<Architecture, ImportError> {
    let defaults = if keys.family() == "glm4v_text" {
        Defaults { kv_heads: Some(2), eps: 1e-5, ..Defaults::new(40, 4096, 32, 13696, 151_552, 32_768) }
    } else {
        Defaults {
            kv_heads: Some(2),
            d_head: Some(128),
            eps: 1.562_5e-7,
            rotation: Rotation::new(0.5, 10_000.0),
            ..Defaults::new(40, 4096, 32, 13696, 151_552, 131_072)
        }
    };
    let mut architecture = defaults.read(keys)?;
    architecture.norm_placement = if keys.family() == "glm" { NormPlacement::Pre } else { NormPlacement::Sandwich };
    architecture.qkv_biases = Some(keys.flag("attention biases", &["attention_bias"], true)?);
    architecture.attention_output_bias = Some(false);
    Ok(architecture)
}
