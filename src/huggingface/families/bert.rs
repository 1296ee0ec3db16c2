//! Encoders of text.

use sigprop_stack::Init;

use super::super::ImportError;
use super::super::init::{base, base_std};
use super::super::rotary::{Rotation, WindowRotation, rotary};
use super::{Keys, Standard, activation, biases, head_width, kv_heads, residual_outputs, tied};
use crate::architecture::{
    Activation, Architecture, EmbeddingProjection, Head, InitTable, NormChoice, NormPlacement, Positions,
};

/// BERT, RoBERTa, ELECTRA: norms after the residual sums, and a norm on the embeddings. Some descendants have norms
/// before the branches, and some of these have no norm on the embeddings.
pub(super) fn bert(keys: &Keys) -> Result<Architecture, ImportError> {
    let family = keys.family();
    let mut plain = bert_sizes(family).read(keys)?;
    if matches!(family, "albert" | "electra" | "roformer") {
        let width = if family == "roformer" { plain.d_model } else { 128 };
        plain.embedding_width = Some(keys.size("embedding_width", &["embedding_size"], width)?);
        plain.embedding_projection = EmbeddingProjection::Sum;
    }
    let (pre, large) = (matches!(family, "megatron-bert" | "roberta-prelayernorm"), family == "xlm-roberta-xl");
    let hidden = activation(keys, &["hidden_act"], if family == "albert" { "gelu_new" } else { "gelu" }, false)?;
    let dropout = if family == "albert" { 0.0 } else { 0.1 };
    Ok(Architecture {
        causal: keys.flag("causal", &["is_decoder"], false)?,
        activation: hidden,
        head_activation: Some(if matches!(family, "bert" | "megatron-bert" | "ernie" | "roformer" | "albert") {
            hidden
        } else {
            Activation::Gelu
        }),
        head_bias: true,
        norm_eps: keys.number("norm_eps", &["layer_norm_eps"], if large { 1e-5 } else { 1e-12 })?,
        norm_placement: if pre || large { NormPlacement::Pre } else { NormPlacement::Post },
        embedding_norm: !matches!(family, "megatron-bert" | "xlm-roberta-xl"),
        token_types: keys.count("token_types", &["type_vocab_size"], if large { 1 } else { 2 })?,
        dropout: keys.rate("dropout", &["hidden_dropout_prob"], dropout)?,
        attention_dropout: keys.rate("attention_dropout", &["attention_probs_dropout_prob"], dropout)?,
        head: tied(keys, true)?,
        hf_init: Some(base(keys, 0.02)?),
        ..plain
    })
}

/// ALBERT: BERT with one block for all blocks.
pub(super) fn albert(keys: &Keys) -> Result<Architecture, ImportError> {
    for (name, key) in [("groups of blocks", "num_hidden_groups"), ("blocks of a group", "inner_group_num")] {
        if keys.size(name, &[key], 1)? != 1 {
            let got = keys.raw(key).cloned().unwrap_or_default();
            let expected = "1: one block that runs num_hidden_layers times; several different blocks that share \
                            parameters within groups are not computed";
            return Err(ImportError::value(key, expected, &got, ""));
        }
    }
    // Two keys of the first code of the model, which no class reads.
    keys.same(&["down_scale_factor", "net_structure_type"]);
    let architecture = Architecture { shared_blocks: true, ..bert(keys)? };
    if architecture.dropout > 0.0 {
        keys.warn(
            "hidden_dropout_prob: the library's feed-forward network has no dropout; the prediction has".to_owned(),
        );
    }
    Ok(architecture)
}

/// Sizes of BERT's descendants.
fn bert_sizes(family: &str) -> Standard {
    let usual = Standard { layers: 12, width: 768, heads: 12, ffn: 3072, vocab: 30522, positions: 512 };
    match family {
        "albert" => Standard { width: 4096, heads: 64, ffn: 16384, vocab: 30000, ..usual },
        "electra" => Standard { width: 256, heads: 4, ffn: 1024, ..usual },
        "roberta" | "roberta-prelayernorm" => Standard { vocab: 50265, ..usual },
        "megatron-bert" => Standard { layers: 24, width: 1024, heads: 16, ffn: 4096, vocab: 29056, ..usual },
        "xlm-roberta-xl" => Standard { layers: 36, width: 2560, heads: 32, ffn: 10240, vocab: 250_880, positions: 514 },
        "bert-generation" => Standard { layers: 24, width: 1024, heads: 16, ffn: 4096, vocab: 50358, ..usual },
        "mpnet" => Standard { vocab: 30527, ..usual },
        "roformer" => Standard { vocab: 50000, positions: 1536, ..usual },
        _ => usual,
    }
}

/// Splinter: BERT without a head.
pub(super) fn splinter(keys: &Keys) -> Result<Architecture, ImportError> {
    Ok(Architecture { head: Head::None, head_activation: None, head_bias: false, ..bert(keys)? })
}

/// BERT for generation: no token types, and nothing before the head.
pub(super) fn generation(keys: &Keys) -> Result<Architecture, ImportError> {
    Ok(Architecture { token_types: 0, head_activation: None, ..bert(keys)? })
}

/// ERNIE: BERT. Its third kind of embedding is off by default.
pub(super) fn ernie(keys: &Keys) -> Result<Architecture, ImportError> {
    if keys.flag("task types", &["use_task_id"], false)? {
        let expected = "false: embeddings of tasks beside those of token types are not computed";
        return Err(ImportError::value("use_task_id", expected, &true.into(), ""));
    }
    bert(keys)
}

/// RoFormer: BERT with rotary positions.
pub(super) fn roformer(keys: &Keys) -> Result<Architecture, ImportError> {
    if keys.flag("rotated values", &["rotary_value"], false)? {
        return Err(ImportError::value("rotary_value", "false: rotated values are not computed", &true.into(), ""));
    }
    let mut architecture = bert(keys)?;
    let d_head = head_width(keys, &mut architecture, None)?;
    rotary(keys, &mut architecture, d_head, Rotation::new(1.0, 10_000.0))?;
    Ok(architecture)
}

/// MPNet: BERT without token types; scores have T5's relative positions, with one table for all blocks.
pub(super) fn mpnet(keys: &Keys) -> Result<Architecture, ImportError> {
    let plain = bert(keys)?;
    Ok(Architecture {
        token_types: 0,
        positions: Positions::LearnedRelative,
        relative_buckets: keys.size("relative_buckets", &["relative_attention_num_buckets"], 32)?,
        ..plain
    })
}

/// Nomic BERT: BERT with rotary positions and gated feed-forward networks, without biases.
pub(super) fn nomic(keys: &Keys) -> Result<Architecture, ImportError> {
    let sizes = Standard { layers: 12, width: 768, heads: 12, ffn: 3072, vocab: 30528, positions: 2048 };
    let plain = rotary_bert(keys, sizes, 1000.0, "silu")?;
    Ok(Architecture {
        head_activation: Some(activation(keys, &["hidden_act"], "silu", false)?),
        token_types: keys.size("token_types", &["type_vocab_size"], 2)?,
        qkv_biases: Some(false),
        attention_output_bias: Some(false),
        ffn_biases: Some(false),
        dropout: keys.rate("dropout", &["hidden_dropout_prob"], 0.0)?,
        ..plain
    })
}

/// GTE: BERT with rotary positions and gated feed-forward networks. All maps but gate and up have biases; biases start
/// at zero.
pub(super) fn gte(keys: &Keys) -> Result<Architecture, ImportError> {
    let sizes = Standard { layers: 12, width: 768, heads: 12, ffn: 3072, vocab: 250_048, positions: 8192 };
    let plain = rotary_bert(keys, sizes, 160_000.0, "gelu")?;
    let dropout = keys.rate("dropout", &["hidden_dropout_prob"], 0.1)?;
    Ok(Architecture {
        head_activation: Some(Activation::Gelu),
        token_types: keys.count("token_types", &["type_vocab_size"], 1)?,
        dropout,
        activation_dropout: dropout,
        ..plain
    })
}

/// BERT with rotary positions and gated feed-forward networks.
fn rotary_bert(keys: &Keys, sizes: Standard, theta: f64, gate: &str) -> Result<Architecture, ImportError> {
    let mut architecture = Architecture {
        activation: activation(keys, &["hidden_act"], gate, true)?,
        head_bias: true,
        norm_eps: keys.number("norm_eps", &["layer_norm_eps"], 1e-12)?,
        norm_placement: NormPlacement::Post,
        embedding_norm: true,
        attention_dropout: keys.rate("attention_dropout", &["attention_probs_dropout_prob"], 0.0)?,
        head: tied(keys, true)?,
        hf_init: Some(base(keys, 0.02)?),
        ..sizes.read(keys)?
    };
    let d_head = head_width(keys, &mut architecture, None)?;
    rotary(keys, &mut architecture, d_head, Rotation::new(1.0, theta))?;
    Ok(architecture)
}

/// EuroBERT: Llama without a causal mask.
pub(super) fn eurobert(keys: &Keys) -> Result<Architecture, ImportError> {
    let sizes = Standard { layers: 12, width: 768, heads: 12, ffn: 3072, vocab: 128_256, positions: 8192 };
    let mut architecture = Architecture {
        activation: activation(keys, &["hidden_act"], "silu", true)?,
        norm: Some(NormChoice::Rmsnorm),
        norm_eps: keys.number("norm_eps", &["rms_norm_eps"], 1e-5)?,
        attention_dropout: keys.rate("attention_dropout", &["attention_dropout"], 0.0)?,
        head: tied(keys, false)?,
        hf_init: Some(base(keys, 0.02)?),
        ..sizes.read(keys)?
    };
    biases(keys, &mut architecture)?;
    architecture.head_bias = architecture.ffn_biases == Some(true);
    kv_heads(keys, &mut architecture, None)?;
    let d_head = head_width(keys, &mut architecture, None)?;
    rotary(keys, &mut architecture, d_head, Rotation::new(1.0, 10_000.0))?;
    Ok(architecture)
}

/// ESM: norms before the branches, learned or rotary positions; embeddings are scaled as if some tokens were masked.
pub(super) fn esm(keys: &Keys) -> Result<Architecture, ImportError> {
    let sizes = Standard { layers: 12, width: 768, heads: 12, ffn: 3072, vocab: 33, positions: 1026 };
    let plain = sizes.read(keys)?;
    if keys.flag("folding model", &["is_folding_model"], false)? {
        return Err(ImportError::value(
            "is_folding_model",
            "false: what folds the protein is not computed",
            &true.into(),
            "",
        ));
    }
    let positions = keys.word("positions", &["position_embedding_type"], "absolute")?;
    // The share of tokens that training leaves unmasked; without masked tokens nothing divides by it.
    let kept = if keys.flag("token_dropout", &["token_dropout"], false)? { 1.0 - 0.15 * 0.8 } else { 1.0 };
    let mut architecture = Architecture {
        causal: keys.flag("causal", &["is_decoder"], false)?,
        activation: Activation::Gelu,
        head_activation: Some(Activation::Gelu),
        head_bias: true,
        norm_eps: keys.number("norm_eps", &["layer_norm_eps"], 1e-12)?,
        embedding_norm: keys.flag("embedding_norm", &["emb_layer_norm_before"], false)?,
        embedding_scale: kept,
        embedding_dropout: Some(0.0),
        dropout: keys.rate("dropout", &["hidden_dropout_prob"], 0.1)?,
        attention_dropout: keys.rate("attention_dropout", &["attention_probs_dropout_prob"], 0.1)?,
        head: tied(keys, true)?,
        hf_init: Some(base(keys, 0.02)?),
        ..plain
    };
    match positions.as_str() {
        "absolute" => {}
        "rotary" => {
            let d_head = head_width(keys, &mut architecture, None)?;
            rotary(keys, &mut architecture, d_head, Rotation::new(1.0, 10_000.0))?;
        }
        _ => {
            return Err(ImportError::value("position_embedding_type", "absolute or rotary", &positions.into(), ""));
        }
    }
    Ok(architecture)
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
        hf_init: Some(base(keys, 0.02)?),
        ..sizes.read(keys)?
    })
}

/// ModernBERT: norms before all branches except the first, gated feed-forward networks, and windows in two of three
/// blocks.
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
        // The map before the head is sampled like an output projection.
        hf_init: Some(residual_outputs(&InitTable { projection: output, ..InitTable::everywhere(drawn(std)) }, output)),
        ..plain
    };
    let d_head = head_width(keys, &mut architecture, None)?;
    let window = WindowRotation { key: "local_rope_theta", base: 10_000.0, scaled: true, d_head: None };
    rotary(keys, &mut architecture, d_head, Rotation { window: Some(window), ..Rotation::new(1.0, 160_000.0) })?;
    Ok(architecture)
}
