//! Families whose blocks fit a config of an unknown family, as far as its keys show.
//!
//! A family is named if it reads every key of the config that describes structure, if the ε of the config belongs to
//! the norm of the family, and if both read text or neither does.

use serde_json::{Map, Value};
use sigprop_stack::Weighting;

use super::families::{FAMILIES, Family};
use super::keys::Keys;
use super::{Options, families};
use crate::architecture::{Architecture, NormChoice, Positions};

/// The largest number of similar families that are named.
const SHOWN: usize = 4;
/// The smallest number of keys that a family must read to count as similar.
const FEWEST: usize = 3;

/// Parts of keys that describe no structure: training, generation, heads of tasks, formats and files.
const NEUTRAL: &[&str] = &[
    "architectures",
    "auto_map",
    "aux_loss",
    "cache",
    "checkpointing",
    "classif",
    "deterministic",
    "drop",
    "dtype",
    "early_stopping",
    "ep_size",
    "finetuning",
    "flash",
    "forced_",
    "fused",
    "fusion",
    "n_group",
    "ignore_index",
    "in_fp32",
    "is_encoder_decoder",
    "init_device",
    "init_std",
    "initializer",
    "jitter",
    "kernels",
    "label",
    "logits_to_keep",
    "mask_feature",
    "mask_time",
    "max_length",
    "max_position",
    "max_window_layers",
    "median_filter",
    "model_type",
    "mtp",
    "n_ctx",
    "name_or_path",
    "ngram",
    "nextn_predict",
    "num_beams",
    "offset_alibi",
    "out_features",
    "out_indices",
    "output_",
    "pad_vocab",
    "padding_idx",
    "prefix",
    "pretraining_tp",
    "problem_type",
    "quantization_config",
    "reshape_hidden",
    "return_",
    "seq_aux",
    "seq_length",
    "skip_bias_add",
    "spec_augment",
    "stage_names",
    "summary_",
    "suppress_tokens",
    "task_specific",
    "tie_word",
    "token_id",
    "token_index",
    "tokenizer",
    "topk_group",
    "topk_method",
    "transformers_version",
    "unk_",
    "upcast",
    "verbose",
    "xentropy",
    "z_loss",
];
/// Keys of networks that read images or audio.
const NO_TEXT: [&str; 4] = ["image_size", "patch_size", "num_channels", "num_mel_bins"];
/// Keys of the ε of LayerNorm.
const LAYER_NORM: [&str; 3] = ["layer_norm_eps", "layer_norm_epsilon", "layernorm_epsilon"];

/// Returns the families that read the largest number of keys of a config, in the order of the table. Only families
/// whose blocks may fit the config count. The list is empty if more than half of all families read equally many keys,
/// as for a config that has only sizes.
pub(super) fn similar(config: &Map<String, Value>, options: Options) -> Vec<&'static str> {
    let model_types = FAMILIES.iter().flat_map(|family| family.model_types.iter().copied());
    let scored: Vec<(usize, &str)> =
        model_types.filter_map(|name| Some((keys_read(config, name, options)?, name))).collect();
    let Some(best) = scored.iter().map(|(read, _)| *read).max().filter(|best| *best >= FEWEST) else {
        return Vec::new();
    };
    let nearest: Vec<&str> = scored.into_iter().filter(|(read, _)| *read == best).map(|(_, name)| name).collect();
    let is_nearest = |family: &&Family| family.model_types.iter().any(|name| nearest.contains(name));
    if 2 * FAMILIES.iter().filter(is_nearest).count() > FAMILIES.len() {
        return Vec::new();
    }
    nearest.into_iter().take(SHOWN).collect()
}

/// Returns the number of keys of a config that the family `name` reads; `None` if its blocks do not fit the config.
fn keys_read(config: &Map<String, Value>, name: &str, options: Options) -> Option<usize> {
    let family = families::find(name)?;
    let keys = Keys::new(config, name, options);
    let architecture = (family.read)(&keys).ok()?;
    architecture.resolved().ok()?;
    let understood =
        !keys.unread().any(|(key, value)| is_structural(key, value) && !agrees(key, value, config, &architecture));
    (understood && same_norm(config, &architecture) && same_input(config, &architecture)).then(|| keys.count_read())
}

/// Returns true if a key that a family does not read may describe blocks that it does not have.
fn is_structural(key: &str, value: &Value) -> bool {
    let name = key.to_ascii_lowercase();
    let has = |parts: &[&str]| parts.iter().any(|part| name.contains(part));
    let is_off = match value {
        Value::Null => true,
        // A flag that is false matters if it removes a bias or a norm.
        Value::Bool(on) => !on && !has(&["bias", "norm"]),
        Value::Number(number) => {
            let got = number.as_f64();
            let is = |x: f64| got.is_some_and(|got| (got - x).abs() <= 0.0);
            is(0.0) || is(1.0) && has(&["scale", "scaling", "multiplier", "factor"])
        }
        Value::Array(values) => values.is_empty(),
        Value::Object(values) => values.is_empty(),
        Value::String(_) => false,
    };
    !is_off && !has(NEUTRAL)
}

/// Returns true if a key that a family does not read describes a property that its blocks have anyway.
fn agrees(key: &str, value: &Value, config: &Map<String, Value>, architecture: &Architecture) -> bool {
    match (key, value.as_str()) {
        ("position_embedding_type", Some("absolute")) => architecture.positions == Positions::Learned,
        ("scoring_func", Some(word)) => {
            let weighting = architecture.experts.map(|experts| experts.weighting);
            matches!((word, weighting), ("softmax", Some(Weighting::Softmax)) | ("sigmoid", Some(Weighting::Sigmoid)))
        }
        ("sliding_window_size", None) => config.get("sliding_window") == Some(value),
        ("num_key_value_heads", None) => config.get("num_attention_heads") == Some(value),
        _ => false,
    }
}

/// Returns true if the ε of the config belongs to the kind of norm of the family.
fn same_norm(config: &Map<String, Value>, architecture: &Architecture) -> bool {
    let has = |key: &str| config.get(key).is_some_and(|value| !value.is_null());
    let norm = architecture.norm.unwrap_or(NormChoice::Layernorm);
    let (root_mean_square, layer) = (has("rms_norm_eps"), LAYER_NORM.into_iter().any(has));
    // T5 uses the key of LayerNorm's ε for its RMSNorm.
    let layer = layer && !has("relative_attention_num_buckets");
    (!root_mean_square || norm == NormChoice::Rmsnorm) && (!layer || norm == NormChoice::Layernorm)
}

/// Returns true if config and family both read images or audio, or neither does.
fn same_input(config: &Map<String, Value>, architecture: &Architecture) -> bool {
    NO_TEXT.iter().any(|key| config.contains_key(*key)) == architecture.stem.is_some()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn config(text: &str) -> Map<String, Value> {
        serde_json::from_str(text).expect("a config")
    }

    fn named(text: &str) -> Vec<&'static str> {
        similar(&config(text), Options::default())
    }

    /// Shortened configs of models that are not read. One key of each shows that its blocks are different.
    #[test]
    fn families_with_other_blocks_are_not_named() {
        let shape = r#""hidden_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 96"#;
        let llama = format!(
            r#"{shape}, "num_key_value_heads": 2, "rms_norm_eps": 1e-5, "rope_theta": 1e4, "vocab_size": 100, "hidden_act": "silu""#
        );
        assert_eq!(named(&format!("{{{llama}}}"))[0], "llama");
        for other in [
            r#""block_configs": [{"attention": {"no_op": true}}]"#,
            r#""patch_length": 32"#,
            r#""lm_head_bias": true"#,
            r#""use_qk_norm_of_mine": true"#,
            r#""layer_norm_eps": 1e-5"#,
            r#""image_size": 224"#,
        ] {
            assert_eq!(named(&format!("{{{llama}, {other}}}")), [""; 0], "{other}");
        }
        // BitNet has RMSNorm; Nemotron, which reads its activation, has LayerNorm.
        let bitnet = llama.replace("silu", "relu2");
        assert!(!named(&format!("{{{bitnet}}}")).contains(&"nemotron"));
        let dino = format!(
            r#"{shape}, "image_size": 224, "patch_size": 16, "num_channels": 3, "layer_norm_eps": 1e-5, "qkv_bias": true,
            "layerscale_value": 1.0, "hidden_dropout_prob": 0.0"#
        );
        assert!(named(&format!("{{{dino}}}")).contains(&"dinov2"));
        for other in [r#""rope_theta": 100.0"#, r#""num_register_tokens": 4"#, r#""key_bias": false"#] {
            assert_eq!(named(&format!("{{{dino}, {other}}}")), ["dinov3_vit"], "{other}");
        }
        assert_eq!(named(&format!("{{{llama}, \"cross_attention_layers\": [1]}}")), ["mllama_text_model"]);
        // PatchTST reads series, with batch norms.
        let patches = r#"{"d_model": 128, "num_hidden_layers": 3, "num_attention_heads": 16, "ffn_dim": 512, "bias": true,
            "norm_type": "batchnorm", "pre_norm": true, "patch_length": 12, "norm_eps": 1e-5}"#;
        assert_eq!(named(patches), [""; 0]);
        // Sizes alone say nothing about blocks.
        assert_eq!(named(&format!("{{{shape}, \"vocab_size\": 100}}")), [""; 0]);
    }

    /// The family of most published configs without `model_type` is the nearest, or among the nearest.
    #[test]
    fn published_configs_are_those_of_their_own_family() {
        let folder = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("data/models/zoo");
        let (mut all, mut found, mut others) = (0, 0, Vec::new());
        for entry in std::fs::read_dir(folder).expect("the folder exists") {
            let path = entry.expect("the folder is readable").path();
            if path.extension().is_none_or(|extension| extension != "json") {
                continue;
            }
            let mut config = config(&std::fs::read_to_string(&path).expect("a file"));
            let Some(Value::String(own)) = config.remove("model_type") else { continue };
            let Some(family) = families::find(&own) else { continue };
            all += 1;
            let nearest = similar(&config, Options::default());
            if nearest.iter().any(|name| family.model_types.contains(name)) {
                found += 1;
            } else {
                let keys = Keys::new(&config, &own, Options::default());
                let _ = (family.read)(&keys);
                let unread: Vec<&String> =
                    keys.unread().filter(|(key, value)| is_structural(key, value)).map(|(key, _)| key).collect();
                others.push(format!("{}: {own} leaves {unread:?}, nearest {nearest:?}", path.display()));
            }
        }
        assert!(all > 45 && 4 * found >= 3 * all, "{found} of {all}\n{}", others.join("\n"));
    }
}
