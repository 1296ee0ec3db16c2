//! DeBERTa-v2 and -v3: encoders of text whose contents have scores with relative positions.

use serde_json::Value;

use super::super::ImportError;
use super::super::init::base;
use super::{Keys, Standard, activation, tied};
use crate::architecture::{Architecture, Disentangled, NormPlacement, Positions};

/// DeBERTa-v2 and -v3: BERT with disentangled attention.
pub(super) fn deberta(keys: &Keys) -> Result<Architecture, ImportError> {
    let sizes = Standard { layers: 24, width: 1536, heads: 24, ffn: 6144, vocab: 128_100, positions: 512 };
    let plain = sizes.read(keys)?;
    refuse_convolution(keys)?;
    for key in ["embedding_size", "attention_head_size"] {
        let usual = if key == "embedding_size" { plain.d_model } else { plain.d_model / plain.n_heads.unwrap_or(1) };
        if keys.unnoted_size(&[key], usual)? != usual {
            let got = keys.raw(key).cloned().unwrap_or_default();
            return Err(ImportError::value(key, "that of the stream; another width is not computed", &got, ""));
        }
    }
    if !keys.flag("head of the first release", &["legacy"], true)? {
        keys.warn("legacy: the head has the names of the later release, which are not known".to_owned());
    }
    let hidden = activation(keys, &["hidden_act"], "gelu", false)?;
    let has_positions = keys.flag("positions in embeddings", &["position_biased_input"], true)?;
    let kinds = kinds(keys)?;
    let relative = keys.flag("relative positions", &["relative_attention"], false)?;
    let d_head = plain.d_model / plain.n_heads.unwrap_or(1);
    let architecture = Architecture {
        activation: hidden,
        head_activation: Some(hidden),
        head_bias: true,
        norm_eps: keys.number("norm_eps", &["layer_norm_eps"], 1e-7)?,
        norm_placement: NormPlacement::Post,
        embedding_norm: true,
        token_types: keys.count("token_types", &["type_vocab_size"], 0)?,
        positions: if has_positions { Positions::Learned } else { Positions::None },
        // The library divides by the number of scores in the config, even if positions are off.
        attention_scale: Some(
            ((1 + usize::from(kinds.keys) + usize::from(kinds.queries)) as f64 * d_head as f64).powf(-0.5),
        ),
        disentangled: if relative { disentangled(keys, kinds)? } else { None },
        dropout: keys.rate("dropout", &["hidden_dropout_prob"], 0.1)?,
        attention_dropout: keys.rate("attention_dropout", &["attention_probs_dropout_prob"], 0.1)?,
        head: tied(keys, true)?,
        hf_init: Some(base(keys, 0.02)?),
        ..plain
    };
    Ok(architecture)
}

/// The kinds of scores with relative positions: of queries, and of keys.
#[derive(Clone, Copy)]
struct Kinds {
    keys: bool,
    queries: bool,
}

/// Reads `pos_att_type`: words with `|` between them, or a list.
fn kinds(keys: &Keys) -> Result<Kinds, ImportError> {
    const KEY: &str = "pos_att_type";
    let words: Vec<String> = match keys.raw(KEY) {
        None | Some(Value::Null) => Vec::new(),
        Some(Value::String(text)) => text.to_lowercase().split('|').map(|word| word.trim().to_owned()).collect(),
        Some(Value::Array(list)) if list.iter().all(Value::is_string) => {
            list.iter().filter_map(|word| Some(word.as_str()?.to_owned())).collect()
        }
        Some(got) => return Err(ImportError::value(KEY, "words such as \"p2c|c2p\"", got, "")),
    };
    let has = |kind: &str| words.iter().any(|word| word == kind);
    keys.note("scores with positions", words.join("|"), KEY);
    Ok(Kinds { keys: has("c2p"), queries: has("p2c") })
}

/// Reads the table of relative positions; `None` if nothing has scores with it.
fn disentangled(keys: &Keys, kinds: Kinds) -> Result<Option<Disentangled>, ImportError> {
    let number = |key: &'static str| keys.raw(key).and_then(Value::as_i64).filter(|&number| number > 0);
    let positions = keys.unnoted_size(&["max_position_embeddings"], 512)?;
    let most = number("max_relative_positions").map_or(positions, |most| most as usize);
    let buckets = number("position_buckets").map(|buckets| buckets as usize);
    let norm = keys.word("norm of relative positions", &["norm_rel_ebd"], "none")?;
    let shared_maps = keys.flag("maps of contents for positions", &["share_att_key"], false)?;
    keys.note("rows of relative positions", 2 * buckets.unwrap_or(most), "position_buckets or max_relative_positions");
    Ok((kinds.keys || kinds.queries).then(|| Disentangled {
        span: buckets.unwrap_or(most),
        max_distance: buckets.map(|_| most),
        norm: norm.to_lowercase().split('|').any(|word| word.trim() == "layer_norm"),
        keys: kinds.keys,
        queries: kinds.queries,
        shared_maps,
    }))
}

/// Refuses the convolution that adds to the output of the first block of DeBERTa-v2 xlarge.
fn refuse_convolution(keys: &Keys) -> Result<(), ImportError> {
    let got = keys.raw("conv_kernel_size").cloned().unwrap_or_default();
    if got.as_f64().is_some_and(|kernel| kernel > 0.0) {
        let expected = "0: a convolution of the embeddings that is added after the first block is not computed";
        return Err(ImportError::value("conv_kernel_size", expected, &got, ""));
    }
    keys.same(&["conv_act", "conv_groups", "pooler_hidden_act", "pooler_dropout", "pooler_hidden_size"]);
    Ok(())
}
