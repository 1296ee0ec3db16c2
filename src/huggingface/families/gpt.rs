//! Decoders with LayerNorm, ungated feed-forward networks and sequential branches.

use super::super::init::{base, base_std, normal};
use super::super::{ImportError, Version};
use super::{Keys, Standard, WIDTH, activation, named_activation, residual_outputs, skipped_layers, tied};
use crate::architecture::{Architecture, InitTable, NormPlacement, Positions};

/// GPT-2: residual projections have std/√(2 · blocks), except in releases of the library that omit this factor.
pub(super) fn gpt2(keys: &Keys) -> Result<Architecture, ImportError> {
    let architecture = gpt2_like(keys, "gelu_new")?;
    let by_layer = keys.flag("attention_scale_by_layer", &["scale_attn_by_inverse_layer_idx"], false)?;
    Ok(Architecture { attention_scale_by_layer: by_layer, ..architecture })
}

/// GPT-BigCode: one key and value head.
pub(super) fn bigcode(keys: &Keys) -> Result<Architecture, ImportError> {
    let architecture = gpt2_like(keys, "gelu_pytorch_tanh")?;
    let multi_query = keys.flag("one key and value head", &["multi_query"], true)?;
    Ok(Architecture { n_kv_heads: multi_query.then_some(1), ..architecture })
}

fn gpt2_like(keys: &Keys, default_activation: &str) -> Result<Architecture, ImportError> {
    let width = keys.unnoted_size(WIDTH, 768)?;
    let sizes = Standard { layers: 12, width: 768, heads: 12, ffn: 4 * width, vocab: 50257, positions: 1024 };
    let plain = sizes.read(keys)?;
    let std = base_std(keys, 0.02)?;
    let scaled = match keys.options.version {
        Version::V5Early => std,
        Version::V4 | Version::V5 => std / (2.0 * plain.n_layers as f64).sqrt(),
    };
    keys.note("std of residual projections", scaled, "std/√(2 · n_layers), dead in 5.0 to 5.14");
    let unscaled = !keys.flag("scaled scores", &["scale_attn_weights"], true)?;
    Ok(Architecture {
        activation: activation(keys, &["activation_function"], default_activation, false)?,
        norm_eps: keys.number("norm_eps", &["layer_norm_epsilon"], 1e-5)?,
        attention_scale: unscaled.then_some(1.0),
        causal: true,
        dropout: keys.rate("dropout", &["resid_pdrop"], 0.1)?,
        embedding_dropout: Some(keys.rate("embedding_dropout", &["embd_pdrop"], 0.1)?),
        attention_dropout: keys.rate("attention_dropout", &["attn_pdrop"], 0.1)?,
        head: tied(keys, true)?,
        hf_init: Some(residual_outputs(&InitTable::everywhere(normal(std)), normal(scaled))),
        ..plain
    })
}

/// GPT-Neo: unscaled scores, a window in every other block.
pub(super) fn neo(keys: &Keys) -> Result<Architecture, ImportError> {
    let width = keys.unnoted_size(WIDTH, 2048)?;
    let sizes = Standard { layers: 24, width: 2048, heads: 16, ffn: 4 * width, vocab: 50257, positions: 2048 };
    let plain = sizes.read(keys)?;
    let window = keys.size("window", &["window_size"], 256)?;
    let windows = match keys.raw("attention_layers").and_then(serde_json::Value::as_array) {
        Some(kinds) => kinds.iter().map(|kind| if kind == "local" { window } else { 0 }).collect(),
        None => attention_types(keys, plain.n_layers, window)?,
    };
    Ok(Architecture {
        activation: activation(keys, &["activation_function"], "gelu_new", false)?,
        norm_eps: keys.number("norm_eps", &["layer_norm_epsilon"], 1e-5)?,
        attention_scale: Some(1.0),
        causal: true,
        windows,
        qkv_biases: Some(false),
        dropout: keys.rate("dropout", &["resid_dropout"], 0.0)?,
        embedding_dropout: Some(keys.rate("embedding_dropout", &["embed_dropout"], 0.0)?),
        attention_dropout: keys.rate("attention_dropout", &["attention_dropout"], 0.0)?,
        head: tied(keys, true)?,
        hf_init: Some(base(keys, 0.02)?),
        ..plain
    })
}

/// Reads the window of every block from a list of kinds of layers, each with the number of its repetitions:
/// `[[["global", "local"], 12]]`.
fn attention_types(keys: &Keys, n_layers: usize, window: usize) -> Result<Vec<usize>, ImportError> {
    let Some(value) = keys.raw("attention_types") else {
        keys.note("windows", "every other block", "default of gpt_neo");
        return Ok((0..n_layers).map(|block| if block % 2 == 1 { window } else { 0 }).collect());
    };
    let wrong = || ImportError::value("attention_types", "kinds of layers and how often they repeat", value, "");
    let mut windows = Vec::new();
    for pair in value.as_array().ok_or_else(wrong)? {
        let kinds = pair.get(0).and_then(serde_json::Value::as_array).ok_or_else(wrong)?;
        let times = pair.get(1).and_then(serde_json::Value::as_u64).ok_or_else(wrong)?;
        for _ in 0..times.min(n_layers as u64) {
            windows.extend(kinds.iter().map(|kind| if kind == "local" { window } else { 0 }));
            if windows.len() > n_layers {
                return Err(wrong());
            }
        }
    }
    if windows.len() == n_layers { Ok(windows) } else { Err(wrong()) }
}

/// OPT: ReLU, norms before or after the branches, and token embeddings whose width may differ from that of the stream.
pub(super) fn opt(keys: &Keys) -> Result<Architecture, ImportError> {
    let sizes = Standard { layers: 12, width: 768, heads: 12, ffn: 3072, vocab: 50272, positions: 2048 };
    let plain = sizes.read(keys)?;
    let before = keys.flag("norms before branches", &["do_layer_norm_before"], true)?;
    let removed = keys.flag("no final norm", &["_remove_final_layer_norm"], false)?;
    let embedding = keys.maybe_size("embedding_width", &["word_embed_proj_dim"])?;
    Ok(Architecture {
        activation: activation(keys, &["activation_function"], "relu", false)?,
        norm_placement: if before { NormPlacement::Pre } else { NormPlacement::Post },
        final_norm: Some(before && !removed),
        embedding_width: embedding.filter(|width| *width != plain.d_model),
        biases: keys.flag("biases", &["enable_bias"], true)?,
        causal: true,
        dropout: keys.rate("dropout", &["dropout"], 0.1)?,
        embedding_dropout: Some(0.0),
        attention_dropout: keys.rate("attention_dropout", &["attention_dropout"], 0.0)?,
        head: tied(keys, true)?,
        hf_init: Some(base(keys, 0.02)?),
        ..plain
    })
}

/// GPT: norms after the residual sums. Since release 5.0 of the library its linear maps have a std of 0.02 for any
/// `initializer_range`.
pub(super) fn openai(keys: &Keys) -> Result<Architecture, ImportError> {
    let width = keys.unnoted_size(WIDTH, 768)?;
    let sizes = Standard { layers: 12, width: 768, heads: 12, ffn: 4 * width, vocab: 40478, positions: 512 };
    let std = normal(base_std(keys, 0.02)?);
    let maps = if keys.options.version == Version::V4 { std } else { normal(0.02) };
    let word = keys.word("activation", &["afn"], "gelu")?;
    Ok(Architecture {
        activation: named_activation("afn", if word == "gelu" { "gelu_new" } else { &word }, false)?,
        norm_eps: keys.number("norm_eps", &["layer_norm_epsilon"], 1e-5)?,
        norm_placement: NormPlacement::Post,
        causal: true,
        dropout: keys.rate("dropout", &["resid_pdrop"], 0.1)?,
        embedding_dropout: Some(keys.rate("embedding_dropout", &["embd_pdrop"], 0.1)?),
        attention_dropout: keys.rate("attention_dropout", &["attn_pdrop"], 0.1)?,
        head: tied(keys, true)?,
        hf_init: Some(InitTable { token: std, position: std, head: Some(std), ..InitTable::everywhere(maps) }),
        ..sizes.read(keys)?
    })
}

/// XGLM and BioGPT: scaled embeddings, sinusoidal or learned positions.
pub(super) fn xglm(keys: &Keys) -> Result<Architecture, ImportError> {
    let sinusoidal = keys.family() == "xglm";
    let vocab = if sinusoidal { 256_008 } else { 42384 };
    let positions = if sinusoidal { 2048 } else { 1024 };
    let plain = Standard { layers: 24, width: 1024, heads: 16, ffn: 4096, vocab, positions }.read(keys)?;
    let scaled = keys.flag("scaled embeddings", &["scale_embedding"], true)?;
    skipped_layers(keys, "layerdrop", 0.0)?;
    Ok(Architecture {
        activation: activation(keys, &["activation_function", "hidden_act"], "gelu", false)?,
        positions: if sinusoidal { Positions::Sinusoidal } else { Positions::Learned },
        embedding_scale: if scaled { (plain.d_model as f64).sqrt() } else { 1.0 },
        causal: true,
        dropout: keys.rate("dropout", &["dropout", "hidden_dropout_prob"], 0.1)?,
        attention_dropout: keys.rate(
            "attention_dropout",
            &["attention_dropout", "attention_probs_dropout_prob"],
            0.1,
        )?,
        activation_dropout: keys.rate("activation_dropout", &["activation_dropout"], 0.0)?,
        head: tied(keys, true)?,
        hf_init: Some(base(keys, 0.02)?),
        ..plain
    })
}

/// BLOOM: ALiBi, a norm on the embeddings.
pub(super) fn bloom(keys: &Keys) -> Result<Architecture, ImportError> {
    let width = keys.unnoted_size(WIDTH, 64)?;
    let sizes = Standard { layers: 2, width, heads: 8, ffn: 4 * width, vocab: 250_880, positions: 2048 };
    let plain = sizes.read(keys)?;
    let hidden = keys.rate("dropout", &["hidden_dropout"], 0.0)?;
    Ok(Architecture {
        activation: activation(keys, &[], "gelu_pytorch_tanh", false)?,
        norm_eps: keys.number("norm_eps", &["layer_norm_epsilon"], 1e-5)?,
        positions: Positions::Alibi,
        embedding_norm: true,
        skip_from_norm: keys.flag("skip_from_norm", &["apply_residual_connection_post_layernorm"], false)?,
        causal: true,
        dropout: hidden,
        embedding_dropout: Some(0.0),
        attention_dropout: keys.rate("attention_dropout", &["attention_dropout"], 0.0)?,
        head: tied(keys, true)?,
        hf_init: Some(base(keys, 0.02)?),
        ..plain
    })
}

/// MPT: ALiBi, no biases. The library's feed-forward network is four times as wide as the stream, for any
/// `expansion_ratio`.
pub(super) fn mpt(keys: &Keys) -> Result<Architecture, ImportError> {
    const EXPANSION: usize = 4;
    let width = keys.unnoted_size(WIDTH, 2048)?;
    let ffn = EXPANSION * width;
    let plain = Standard { layers: 24, width: 2048, heads: 16, ffn, vocab: 50368, positions: 2048 }.read(keys)?;
    if let Some(ratio) = keys.raw("expansion_ratio").filter(|ratio| ratio.as_f64() != Some(EXPANSION as f64)) {
        keys.warn(format!("expansion_ratio = {ratio} has no effect in the library, whose MptMLP has d_ff = 4 d_model"));
    }
    let nothing = serde_json::Map::new();
    let attention = keys.inside(keys.nested("attn_config")?.unwrap_or(&nothing));
    let alibi = attention.flag("alibi", &["alibi"], true)?;
    let scale = attention.maybe_number("attention_scale", &["softmax_scale"])?;
    let steepest = attention.number("alibi_bias_max", &["alibi_bias_max"], 8.0)?;
    if alibi && (steepest - 8.0).abs() > 0.0 {
        keys.warn(format!("attn_config.alibi_bias_max = {steepest} is not followed; slopes are those of 8"));
    }
    if let Some(init) = keys.nested("init_config")? {
        let name = init.get("name").and_then(serde_json::Value::as_str).unwrap_or("without a name");
        keys.warn(format!("init_config ({name}) is that of MPT's own code; the library draws by initializer_range"));
    }
    let dropout = attention.rate("attention_dropout", &["attn_pdrop"], 0.0)?;
    keys.absorb("attn_config", attention);
    Ok(Architecture {
        activation: activation(keys, &[], "gelu", false)?,
        norm_eps: keys.number("norm_eps", &["layer_norm_epsilon"], 1e-5)?,
        positions: if alibi { Positions::Alibi } else { Positions::Learned },
        attention_scale: scale,
        biases: !keys.flag("no biases", &["no_bias"], true)?,
        causal: true,
        dropout: keys.rate("dropout", &["resid_pdrop"], 0.0)?,
        embedding_dropout: Some(keys.rate("embedding_dropout", &["emb_pdrop"], 0.0)?),
        attention_dropout: dropout,
        head: tied(keys, true)?,
        hf_init: Some(base(keys, 0.02)?),
        ..plain
    })
}
