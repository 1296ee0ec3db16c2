//! Decoders that differ from Llama in one or two respects.

use serde_json::Value;

use super::super::ImportError;
use super::super::init::{base_std, normal};
use super::super::rotary::Rotation;
use super::llama::{Defaults, windows};
use super::{Keys, biases, cap, layer_types};
use crate::architecture::{Architecture, InitTable, NormPlacement, Positions, QkNorm};

/// Ministral 3: YaRN. Scores that grow with the position beyond the original context are left out, with a warning.
pub(super) fn ministral(keys: &Keys) -> Result<Architecture, ImportError> {
    let defaults = Defaults {
        kv_heads: Some(8),
        d_head: Some(128),
        eps: 1e-5,
        rotation: Rotation::new(1.0, 1e6),
        ..Defaults::new(34, 4096, 32, 14336, 131_072, 262_144)
    };
    let mut architecture = defaults.read(keys)?;
    windows(keys, &mut architecture, None)?;
    let rotation = keys.nested("rope_parameters")?;
    let number = |key| rotation.and_then(|rotation| rotation.get(key)).and_then(Value::as_f64);
    let original = number("original_max_position_embeddings").unwrap_or(16_384.0);
    let tokens = keys.options.seq_len.unwrap_or(architecture.seq_len);
    if number("llama_4_scaling_beta").is_some_and(|beta| beta != 0.0) && tokens as f64 > original {
        keys.warn(format!(
            "llama_4_scaling_beta is left out: queries beyond {original} tokens are not multiplied by their factor"
        ));
    }
    Ok(architecture)
}

/// EXAONE 4: norms on the outputs of branches. If some blocks have a window, the others do not rotate.
pub(super) fn exaone(keys: &Keys) -> Result<Architecture, ImportError> {
    let defaults = Defaults { kv_heads: Some(32), eps: 1e-5, ..Defaults::new(32, 4096, 32, 16384, 102_400, 2048) };
    let mut architecture = defaults.read(keys)?;
    architecture.norm_placement = NormPlacement::Reordered;
    architecture.qk_norm = QkNorm::Head;
    if keys.is_null("sliding_window") {
        keys.same(&["layer_types", "sliding_window_pattern"]);
        return Ok(architecture);
    }
    let window = keys.size("window", &["sliding_window"], 4096)?;
    // The pattern may be a word with a letter for every block, L for blocks with a window.
    let pattern = keys.raw("sliding_window_pattern");
    let pattern = match pattern.and_then(Value::as_str) {
        Some(word) => word.len().max(1),
        None => keys.size("window pattern", &["sliding_window_pattern"], 4)?,
    };
    let default = || (1..=architecture.n_layers).map(|i| if i % pattern == 0 { 0 } else { window }).collect();
    architecture.windows = layer_types(keys, window)?.unwrap_or_else(default);
    architecture.rotated = architecture.windows.iter().map(|window| *window > 0).collect();
    keys.note("rotated", "blocks with a window", "exaone4");
    Ok(architecture)
}

/// Hunyuan: norms of queries and keys, which commute with the rotation before them.
pub(super) fn hunyuan(keys: &Keys) -> Result<Architecture, ImportError> {
    let mut architecture = Defaults { eps: 1e-5, ..Defaults::new(32, 4096, 32, 11008, 290_943, 2048) }.read(keys)?;
    architecture.qk_norm = QkNorm::Head;
    biases(keys, &mut architecture)?;
    architecture.ffn_biases = Some(false);
    keys.same(&["use_qk_norm"]);
    Ok(architecture)
}

/// InternLM2: one bias flag for all maps of attention.
pub(super) fn internlm(keys: &Keys) -> Result<Architecture, ImportError> {
    let mut architecture = Defaults::new(32, 4096, 32, 11008, 103_168, 2048).read(keys)?;
    let biases = keys.flag("attention biases", &["bias"], true)?;
    architecture.qkv_biases = Some(biases);
    architecture.attention_output_bias = Some(biases);
    Ok(architecture)
}

/// Baichuan: rotary positions if the config has a number of positions (7B), else ALiBi (13B).
pub(super) fn baichuan(keys: &Keys) -> Result<Architecture, ImportError> {
    let rotary = keys.raw("max_position_embeddings").is_some();
    let defaults = if rotary {
        Defaults::new(32, 4096, 32, 11008, 125_696, 4096)
    } else {
        Defaults::new(40, 5120, 40, 13696, 125_696, 4096)
    };
    let mut architecture = defaults.read(keys)?;
    if !rotary {
        architecture.positions = Positions::Alibi;
        architecture.rotary_dim = None;
        keys.note("positions", "alibi", "no max_position_embeddings");
    }
    if architecture.vocab_size == 125_696 {
        // Baichuan 2 divides the rows of its head by their norms.
        let head = Some(normal((architecture.d_model as f64).powf(-0.5)));
        architecture.hf_init = architecture.hf_init.map(|init| InitTable { head, ..init });
        keys.note("head", "rows of norm 1", "vocab_size of Baichuan 2");
    }
    Ok(architecture)
}

/// nanochat: norms without parameters, also on the embeddings; no gate; attention outputs with a smaller std.
pub(super) fn nanochat(keys: &Keys) -> Result<Architecture, ImportError> {
    let defaults = Defaults { activation: "relu2", gated: false, ..Defaults::new(12, 768, 6, 8192, 50304, 2048) };
    let mut architecture = defaults.read(keys)?;
    architecture.qk_norm = QkNorm::Head;
    architecture.embedding_norm = true;
    biases(keys, &mut architecture)?;
    architecture.ffn_biases = Some(false);
    architecture.logit_softcap = cap(keys, "logit_softcap", "final_logit_softcapping", Some(15.0))?;
    let std = base_std(keys, 0.02)? / (2.0 * architecture.n_layers as f64).sqrt();
    keys.note("init std of attention outputs", std, "initializer_range/√(2 n_layers)");
    architecture.hf_init = architecture.hf_init.map(|init| InitTable { attention_output: normal(std), ..init });
    Ok(architecture)
}
