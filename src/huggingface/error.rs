//! What can be wrong with a config.

use serde_json::Value;

/// There is no family of that name.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "unknown family {got:?}{}; known are {known}",
    nearest.map(|name| format!("; did you mean {name}?")).unwrap_or_default()
)]
pub struct UnknownFamily {
    /// What was asked for.
    pub got: String,
    /// The family it most resembles.
    pub nearest: Option<&'static str>,
    /// All families.
    pub known: String,
}

/// A config that cannot be read or computed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ImportError {
    /// Not JSON, or not an object.
    #[error("not a config: {0}")]
    Json(String),
    /// Another file of the library.
    #[error("this is {kind}, not the config of a model; {hint}")]
    OtherFile {
        /// What it is.
        kind: &'static str,
        /// What to pass instead.
        hint: String,
    },
    /// Without `model_type` nothing says how to read the rest.
    #[error("the config has no model_type; {}", advice(similar))]
    NoModelType {
        /// Families with its keys, the nearest first.
        similar: Vec<&'static str>,
    },
    /// A family that is not known.
    #[error("unknown model_type {got:?}; {}", advice(similar))]
    UnknownModelType {
        /// What the config says.
        got: String,
        /// Families with its keys, the nearest first.
        similar: Vec<&'static str>,
    },
    /// A family whose networks are not of the kind that is computed.
    #[error("model_type {model_type} is not supported: {reason}")]
    Unsupported {
        /// The family.
        model_type: String,
        /// Why.
        reason: String,
    },
    /// A key that does not hold what it must.
    #[error("{key} must be {expected}, got {got}{}{hint}", if hint.is_empty() { "" } else { "; " })]
    Value {
        /// Name of the key.
        key: String,
        /// What it must be.
        expected: String,
        /// What it is.
        got: String,
        /// What to do about it; may be empty.
        hint: String,
    },
}

/// What to do with a config of none of the known families, of which some may have its keys.
fn advice(similar: &[&str]) -> String {
    const FILE: &str = "describe the network in a TOML file (docs/model-files.md lists all keys)";
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
        /// Of longer values only the beginning is shown.
        const LONGEST: usize = 60;
        let mut got = got.to_string();
        if let Some((end, _)) = got.char_indices().nth(LONGEST) {
            got.truncate(end);
            got.push('…');
        }
        Self::Value { key: key.to_owned(), expected: expected.to_owned(), got, hint: hint.to_owned() }
    }
}
