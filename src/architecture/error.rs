//! What can be wrong with an architecture.

/// An architecture that cannot be read or computed.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum ArchitectureError {
    /// A field that does not hold what it must.
    #[error("{field} must be {expected}, got {got}{}{hint}", if hint.is_empty() { "" } else { "; " })]
    Value {
        /// Name of the field.
        field: &'static str,
        /// What it must be.
        expected: String,
        /// What it is.
        got: String,
        /// What to do about it; may be empty.
        hint: String,
    },
    /// A file that cannot be read as an architecture.
    #[error("line {line}, column {column}: {message}")]
    File {
        /// Line, from 1.
        line: usize,
        /// Column, from 1.
        column: usize,
        /// What is wrong there.
        message: String,
    },
    /// A key of a file that changes nothing in the network that the file describes.
    #[error("`{key}` has no effect without {needs}; docs/model-files.md lists all keys")]
    NoEffect {
        /// Name of the key.
        key: String,
        /// Values of other keys with which it acts.
        needs: &'static str,
    },
    /// A configuration of another library.
    #[error("expected an architecture, got a Hugging Face config (it has a model_type), which must be JSON")]
    HuggingFace,
}
