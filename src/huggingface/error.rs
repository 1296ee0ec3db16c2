//! What can be wrong with a config.

use serde_json::Value;

/// A config that cannot be read or computed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ImportError {
    /// Not JSON, or not an object.
    #[error("not a config: {0}")]
    Json(String),
    /// Without `model_type` nothing says how to read the rest.
    #[error("the config has no model_type")]
    NoModelType,
    /// A family that is not known.
    #[error(
        "unknown model_type {got:?}{}; known are {known}",
        nearest.map(|name| format!("; did you mean {name}?")).unwrap_or_default()
    )]
    UnknownModelType {
        /// What the config says.
        got: String,
        /// The family it most resembles.
        nearest: Option<&'static str>,
        /// All families.
        known: String,
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
