//! Files that are mistaken for the config of a model.

use serde_json::{Map, Value};

use super::ImportError;

/// A kind of file that is mistaken for the config of a model.
struct Kind {
    /// A file with at least one of these keys may be of this kind.
    keys: &'static [&'static str],
    /// The name of the kind in the error message.
    name: &'static str,
    /// Advice in the error message: the file to pass instead.
    hint: &'static str,
}

const BESIDE: &str = "pass the config.json of the model, which is in the same folder";

const KINDS: &[Kind] = &[
    Kind {
        keys: &["_diffusers_version", "_class_name"],
        name: "a diffusers file",
        hint: "denoising networks are not computed; pass the config.json of a text encoder (text_encoder/config.json), or \
               describe a network in a TOML file (docs/model-files.md lists all keys)",
    },
    Kind {
        keys: &["peft_type", "lora_alpha", "base_model_name_or_path"],
        name: "the config of an adapter (PEFT)",
        hint: "pass the config.json of the model that it adapts",
    },
    Kind { keys: &["weight_map"], name: "the index of a checkpoint", hint: BESIDE },
    Kind {
        keys: &["image_processor_type", "feature_extractor_type", "image_mean", "do_rescale", "feature_size"],
        name: "the config of a preprocessor",
        hint: BESIDE,
    },
    Kind {
        keys: &[
            "tokenizer_class",
            "added_tokens_decoder",
            "model_max_length",
            "pre_tokenizer",
            "cls_token",
            "pad_token",
        ],
        name: "a file of a tokenizer",
        hint: BESIDE,
    },
    Kind { keys: &["processor_class", "image_seq_length"], name: "the config of a processor", hint: BESIDE },
    Kind {
        keys: &["pooling_mode_mean_tokens", "similarity_fn_name", "do_lower_case"],
        name: "a file of sentence-transformers",
        hint: BESIDE,
    },
    Kind {
        keys: &["_from_model_config", "max_new_tokens", "do_sample", "temperature", "eos_token_id", "bos_token_id"],
        name: "a generation config",
        hint: BESIDE,
    },
    Kind {
        keys: &["pretrained_cfg"],
        name: "a timm config",
        hint: "pass the config.json of the same model in transformers, or describe it in a TOML file (docs/model-files.md \
               lists all keys)",
    },
];

/// Keys that describe a network. A file with one of them is a config, whatever else it holds.
const SHAPE: &[&str] =
    &["model_type", "architectures", "hidden_size", "d_model", "n_embd", "num_hidden_layers", "n_layer", "text_config"];

/// Returns true if a JSON object is the config of a model of the library, and an error if it is another file of the
/// library.
pub(super) fn recognise(config: &Map<String, Value>) -> Result<bool, ImportError> {
    let has = |keys: &[&str]| keys.iter().any(|key| config.contains_key(*key));
    let certain = KINDS[..2].iter().find(|kind| has(kind.keys));
    if certain.is_none() && has(SHAPE) {
        // Architecture files have some of these keys, too.
        return Ok(has(&["model_type", "architectures", "hidden_size", "num_hidden_layers", "n_embd", "text_config"]));
    }
    match certain.or_else(|| KINDS.iter().find(|kind| has(kind.keys))) {
        None => Ok(false),
        Some(kind) => {
            let adapted = config.get("base_model_name_or_path").and_then(Value::as_str);
            let hint = adapted.map_or(kind.hint.to_owned(), |name| format!("{}, {name}", kind.hint));
            Err(ImportError::OtherFile { kind: kind.name, hint })
        }
    }
}
