//! The error for a file without sequences of ids.

use std::path::{Path, PathBuf};

/// The reason why a file holds no sequences of ids.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{}: {message}", path.display())]
pub struct TokensError {
    /// The file.
    pub path: PathBuf,
    /// The place of the error, the expected and the found value, and a hint.
    pub message: String,
}

impl TokensError {
    pub(super) fn new(path: &Path, message: impl Into<String>) -> Self {
        Self { path: path.to_owned(), message: message.into() }
    }
}
