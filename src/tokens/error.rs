//! Why a file holds no sequences of ids.

use std::path::{Path, PathBuf};

/// A file that holds no sequences of ids: what is wrong, and where.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{}: {message}", path.display())]
pub struct TokensError {
    /// The file.
    pub path: PathBuf,
    /// Place, what was expected, what was found, and a hint.
    pub message: String,
}

impl TokensError {
    pub(super) fn new(path: &Path, message: impl Into<String>) -> Self {
        Self { path: path.to_owned(), message: message.into() }
    }
}
