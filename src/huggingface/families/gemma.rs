//! Gemma 1 to 3 with the blocks of T5Gemma, GLM and GLM-4: scaled embeddings, gains of 1 + w, norms at both ends of a branch.

use super::super::ImportError;
use super::super::init::base;
use super::super::rotary::{Rotation, WindowRotation, rotary};
use super::llama::Defaults;
use super::{Keys, Standard, activation, cap, head_width, kv_heads, layer_types, tied};
use crate::architecture::{Architecture, NormChoice, NormPlacement, QkNorm};

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
    let window = WindowRotation { key: "rope_local_base_freq", base: 10_000.0, scaled: false };
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
