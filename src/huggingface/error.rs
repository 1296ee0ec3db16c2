//! Errors of reading a config.

use serde_json::Value;

/// The error for an unknown name of a family.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "unknown family {got:?}{}; known are {known}",
    nearest.map(|name| format!("; did you mean {name}?")).unwrap_or_default()
)]
pub struct UnknownFamily {
    /// The name that was asked for.
    pub got: String,
    /// The family with the most similar name.
    pub nearest: Option<&'static str>,
    /// The names of all families.
    pub known: String,
}

/// The reason why a config cannot be read, or its network cannot be computed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ImportError {
    /// The text is not JSON, or not an object.
    #[error("not a config: {0}")]
    Json(String),
    /// The file is not the config of a model but another file of the library, such as that of a tokenizer.
    #[error("this is {kind}, not the config of a model; {hint}")]
    OtherFile {
        /// The kind of file.
        kind: &'static str,
        /// The file to pass instead.
        hint: String,
    },
    /// The config has no `model_type`, which decides how the rest is read.
    #[error("the config has no model_type; {}", advice(similar))]
    NoModelType {
        /// The families that read the keys of the config, the nearest first.
        similar: Vec<&'static str>,
    },
    /// The family is not known.
    #[error("unknown model_type {got:?}; {}", advice(similar))]
    UnknownModelType {
        /// The `model_type` of the config.
        got: String,
        /// The families that read the keys of the config, the nearest first.
        similar: Vec<&'static str>,
    },
    /// The networks of the family have a structure that is not computed.
    #[error("model_type {model_type} is not supported: {reason}")]
    Unsupported {
        /// The family.
        model_type: String,
        /// The reason.
        reason: String,
    },
    /// A key does not have a valid value.
    #[error("{key} must be {expected}, got {got}{}{hint}", if hint.is_empty() { "" } else { "; " })]
    Value {
        /// The name of the key.
        key: String,
        /// The expected value.
        expected: String,
        /// The value that was found.
        got: String,
        /// Advice; may be empty.
        hint: String,
    },
}

/// Returns advice for a config of an unknown family, given the families that have its keys.
fn advice(similar: &[&str]) -> String {
    const FILE: &str = "describe the network in a TOML file (docs/model-files.md lists all keys), or predict the live \
                        module in Python (docs/live.md): sigprop.torch.predict(AutoModel.from_config(config), tokens)";
    match similar {
        [] => {
            let known: Vec<&str> = super::known().collect();
            format!("no known family reads all its keys: {FILE}; known are {}", known.join(", "))
        }
        [nearest, others @ ..] => {
            let others = if others.is_empty() { String::new() } else { format!(" (and of {})", others.join(", ")) };
            format!("its keys are those of {nearest}{others}: if its blocks are, too, use --as {nearest}, else {FILE}")
        }
    }
}

impl ImportError {
    pub(super) fn value(key: &str, expected: &str, got: &Value, hint: &str) -> Self {
        /// The number of characters of a value that are shown at most.
        const LONGEST: usize = 60;
        let mut got = got.to_string();
        if let Some((end, _)) = got.char_indices().nth(LONGEST) {
            got.truncate(end);
            got.push('…');
        }
        Self::Value { key: key.to_owned(), expected: expected.to_owned(), got, hint: hint.to_owned() }
    }
}
