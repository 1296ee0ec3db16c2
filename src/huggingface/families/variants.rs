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

/// Nemotron-NAS (DeciLM): Llama whose blocks differ in the number of key and value heads and in the width of the
/// feed-forward network. Some blocks have only one of the two branches, or none.
pub(super) fn nemotron_nas(keys: &Keys) -> Result<Architecture, ImportError> {
    let mut architecture = Defaults::new(32, 4096, 32, 11008, 32000, 2048).read(keys)?;
    biases(keys, &mut architecture)?;
    let Some(all) = keys.raw("block_configs") else { return Ok(architecture) };
    let Some(blocks) = all.as_array().filter(|blocks| blocks.len() == architecture.n_layers) else {
        let expected = format!("one object for each of {} layers", architecture.n_layers);
        return Err(ImportError::value("block_configs", &expected, all, ""));
    };
    let (width, heads) = (architecture.d_model, architecture.n_heads.unwrap_or(1));
    for block in blocks {
        let kv_heads = branch(block, "attention")?.map(|attention| {
            let group = attention["n_heads_in_group"].as_u64().filter(|group| *group > 0);
            group.map(|group| heads / group as usize).filter(|kv_heads| *kv_heads > 0)
        });
        let d_ff = branch(block, "ffn")?.map(|ffn| match ffn["intermediate_size"].as_u64() {
            Some(size) => Some(size as usize),
            None => ffn["ffn_mult"].as_f64().map(|mult| multiplied(width, mult)),
        });
        let (Some(kv_heads), Some(d_ff)) = (kv_heads.unwrap_or(Some(0)), d_ff.unwrap_or(Some(0))) else {
            let expected = "n_heads_in_group of the attention, and ffn_mult or intermediate_size of the ffn";
            return Err(ImportError::value("block_configs", expected, block, ""));
        };
        architecture.block_kv_heads.push(kv_heads);
        architecture.block_d_ff.push(d_ff);
    }
    let without = architecture.block_kv_heads.iter().filter(|kv_heads| **kv_heads == 0).count();
    keys.note("blocks without attention", without, "block_configs");
    Ok(architecture)
}

/// Returns the object of a branch of a block; `None` if the block does not have this branch. Branches with keys for
/// structures that are not computed are refused.
fn branch<'a>(block: &'a Value, name: &'static str) -> Result<Option<&'a Value>, ImportError> {
    let branch = &block[name];
    let others = ["replace_with_linear", "sparsify", "num_sink_tokens", "window_length"];
    match others.into_iter().find(|key| !matches!(branch[key], Value::Null | Value::Bool(false))) {
        Some(key) => {
            let expected = "null or false: linear maps in place of a branch, sparse weights, sinks and windows of \
                            single blocks are not computed";
            Err(ImportError::value(key, expected, &branch[key], ""))
        }
        None => Ok((branch["no_op"] != true).then_some(branch)),
    }
}

/// Returns the width of a gated feed-forward network with a multiplier: two thirds of the product, rounded up to a
/// multiple of 256.
fn multiplied(width: usize, multiplier: f64) -> usize {
    ((2.0 * multiplier * width as f64 / 3.0).clamp(1.0, 1e6) as usize).next_multiple_of(256)
}

/// The text part of Mllama (Llama 3.2 Vision): Llama, and blocks that read an image. Without an image the library skips
/// these blocks; with one they add zero, because their gates start at zero. In both cases they are empty here.
pub(super) fn mllama(keys: &Keys) -> Result<Architecture, ImportError> {
    let defaults = Defaults {
        kv_heads: Some(8),
        eps: 1e-5,
        rotation: Rotation::new(1.0, 5e5),
        ..Defaults::new(40, 4096, 32, 14336, 128_256, 131_072)
    };
    let mut architecture = defaults.read(keys)?;
    architecture.attention_dropout = keys.rate("attention_dropout", &["dropout"], 0.0)?;
    let skipped = match keys.raw("cross_attention_layers") {
        None => vec![3, 8, 13, 18, 23, 28, 33, 38],
        Some(value) => {
            let layers = value.as_array().map(|layers| layers.iter().map(Value::as_u64).collect::<Option<Vec<u64>>>());
            layers
                .flatten()
                .ok_or_else(|| ImportError::value("cross_attention_layers", "indices of layers", value, ""))?
        }
    };
    let sizes = |size: Option<usize>| {
        let size = size.unwrap_or(1);
        (0..architecture.n_layers).map(|layer| if skipped.contains(&(layer as u64)) { 0 } else { size }).collect()
    };
    let (block_kv_heads, block_d_ff) =
        (sizes(architecture.n_kv_heads.or(architecture.n_heads)), sizes(architecture.d_ff));
    keys.note("empty blocks, which read images", skipped.len(), "cross_attention_layers");
    Ok(Architecture { block_kv_heads, block_d_ff, ..architecture })
}
