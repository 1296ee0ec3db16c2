//! Encoders of text.

use sigprop_stack::Init;

use super::super::ImportError;
use super::super::init::{base, base_std};
use super::super::rotary::{Rotation, WindowRotation, rotary};
use super::{Keys, Standard, activation, head_width, residual_outputs, tied};
use crate::architecture::{Activation, Architecture, EmbeddingProjection, InitTable, NormPlacement};

/// BERT, RoBERTa, ELECTRA: norms after the residual sums, a norm on the embeddings.
pub(super) fn bert(keys: &Keys) -> Result<Architecture, ImportError> {
    let electra = keys.family() == "electra";
    let vocab = if keys.family() == "roberta" { 50265 } else { 30522 };
    let sizes = if electra {
        Standard { layers: 12, width: 256, heads: 4, ffn: 1024, vocab, positions: 512 }
    } else {
        Standard { layers: 12, width: 768, heads: 12, ffn: 3072, vocab, positions: 512 }
    };
    let mut plain = sizes.read(keys)?;
    if electra {
        plain.embedding_width = Some(keys.size("embedding_width", &["embedding_size"], 128)?);
        plain.embedding_projection = EmbeddingProjection::Sum;
    }
    let hidden = activation(keys, &["hidden_act"], "gelu", false)?;
    Ok(Architecture {
        causal: keys.flag("causal", &["is_decoder"], false)?,
        activation: hidden,
        head_activation: Some(if keys.family() == "bert" { hidden } else { Activation::Gelu }),
        head_bias: true,
        norm_eps: keys.number("norm_eps", &["layer_norm_eps"], 1e-12)?,
        norm_placement: NormPlacement::Post,
        embedding_norm: true,
        token_types: keys.size("token_types", &["type_vocab_size"], 2)?,
        dropout: keys.rate("dropout", &["hidden_dropout_prob"], 0.1)?,
        attention_dropout: keys.rate("attention_dropout", &["attention_probs_dropout_prob"], 0.1)?,
        head: tied(keys, true)?,
        init: Some(base(keys, 0.02)?),
        ..plain
    })
}

/// DistilBERT: BERT without token types.
pub(super) fn distilbert(keys: &Keys) -> Result<Architecture, ImportError> {
    let sizes = Standard { layers: 6, width: 768, heads: 12, ffn: 3072, vocab: 30522, positions: 512 };
    let hidden = activation(keys, &["activation"], "gelu", false)?;
    Ok(Architecture {
        activation: hidden,
        head_activation: Some(hidden),
        head_bias: true,
        norm_eps: 1e-12,
        norm_placement: NormPlacement::Post,
        embedding_norm: true,
        dropout: keys.rate("dropout", &["dropout"], 0.1)?,
        attention_dropout: keys.rate("attention_dropout", &["attention_dropout"], 0.1)?,
        head: tied(keys, true)?,
        init: Some(base(keys, 0.02)?),
        ..sizes.read(keys)?
    })
}

/// ModernBERT: norms before the branches but for the first, gated, windows in two of three blocks.
pub(super) fn modernbert(keys: &Keys) -> Result<Architecture, ImportError> {
    let sizes = Standard { layers: 22, width: 768, heads: 12, ffn: 1152, vocab: 50368, positions: 8192 };
    let plain = sizes.read(keys)?;
    let std = base_std(keys, 0.02)?;
    let cutoff = match keys.raw("initializer_cutoff_factor") {
        Some(_) => keys.number("init cut", &["initializer_cutoff_factor"], 3.0)?,
        None => keys.number("init cut", &["initializer_cutoff_factor"], 2.0)?,
    };
    if cutoff.is_nan() || cutoff <= 0.0 {
        return Err(ImportError::value("initializer_cutoff_factor", "a positive number", &cutoff.into(), ""));
    }
    let drawn = |std: f64| Init::TruncatedNormal { std, cutoff };
    let output = drawn(std / (2.0 * plain.n_layers as f64).sqrt());
    keys.note("std of residual projections", std / (2.0 * plain.n_layers as f64).sqrt(), "std/√(2 · n_layers)");
    let window = keys.size("window", &["local_attention"], 128)?;
    let every = keys.size("blocks that see all", &["global_attn_every_n_layers"], 3)?;
    let attention = keys.flag("attention biases", &["attention_bias"], false)?;
    let mut architecture = Architecture {
        activation: activation(keys, &["hidden_activation"], "gelu", true)?,
        norm_eps: keys.number("norm_eps", &["norm_eps"], 1e-5)?,
        first_norm: false,
        embedding_norm: true,
        windows: (0..plain.n_layers).map(|i| if i % every == 0 { 0 } else { window }).collect(),
        biases: false,
        qkv_biases: Some(attention),
        attention_output_bias: Some(attention),
        ffn_biases: Some(keys.flag("ffn_biases", &["mlp_bias"], false)?),
        dropout: keys.rate("dropout", &["mlp_dropout"], 0.0)?,
        embedding_dropout: Some(keys.rate("embedding_dropout", &["embedding_dropout"], 0.0)?),
        attention_dropout: keys.rate("attention_dropout", &["attention_dropout"], 0.0)?,
        head: tied(keys, true)?,
        head_activation: Some(activation(keys, &["classifier_activation"], "gelu", false)?),
        head_bias: keys.flag("head_bias", &["decoder_bias"], true)?,
        // The map before the head is drawn like an output.
        init: Some(residual_outputs(&InitTable { projection: output, ..InitTable::everywhere(drawn(std)) }, output)),
        ..plain
    };
    let d_head = head_width(keys, &mut architecture, None)?;
    let window = WindowRotation { key: "local_rope_theta", base: 10_000.0, scaled: true };
    rotary(keys, &mut architecture, d_head, Rotation { window: Some(window), ..Rotation::new(1.0, 160_000.0) })?;
    Ok(architecture)
}
