//! Errors of architectures.

/// An architecture that cannot be read or computed.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum ArchitectureError {
    /// A field with a value that is not allowed.
    #[error("{field} must be {expected}, got {got}{}{hint}", if hint.is_empty() { "" } else { "; " })]
    Value {
        /// Name of the field.
        field: &'static str,
        /// The expected value, in words.
        expected: String,
        /// The given value.
        got: String,
        /// A hint how to fix it; may be empty.
        hint: String,
    },
    /// A file that cannot be read as an architecture.
    #[error("line {line}, column {column}: {message}")]
    File {
        /// Line, from 1.
        line: usize,
        /// Column, from 1.
        column: usize,
        /// Description of the error.
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
