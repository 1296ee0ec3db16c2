//! Why a file is no checkpoint.

use std::io;
use std::path::{Path, PathBuf};

/// A file that is no checkpoint, and what is wrong with it.
#[derive(Debug, thiserror::Error)]
pub enum CheckpointError {
    /// It cannot be read.
    #[error("cannot read {}", path.display())]
    Io {
        /// The file.
        path: PathBuf,
        /// Why not.
        source: io::Error,
    },
    /// It is not of the format.
    #[error("{}: expected {expected}, got {got}", path.display())]
    Format {
        /// The file.
        path: PathBuf,
        /// What it must be.
        expected: String,
        /// What it is.
        got: String,
    },
    /// It is of a format, or quantised by a method, that is not read.
    #[error("{}: expected safetensors of floats, got {got}; {advice}", path.display())]
    Foreign {
        /// The file or folder.
        path: PathBuf,
        /// Its format.
        got: String,
        /// How to get a checkpoint that is read.
        advice: &'static str,
    },
    /// A tensor that does not hold together, or not with the config.
    #[error("{}: tensor {tensor:?}: expected {expected}, got {got}", path.display())]
    Tensor {
        /// The file.
        path: PathBuf,
        /// The tensor.
        tensor: String,
        /// What it must be.
        expected: String,
        /// What it is.
        got: String,
    },
}

impl CheckpointError {
    pub(super) fn io(path: &Path) -> impl FnOnce(io::Error) -> Self + '_ {
        |source| Self::Io { path: path.to_owned(), source }
    }

    pub(crate) fn format(path: &Path, expected: &str, got: &impl ToString) -> Self {
        Self::Format { path: path.to_owned(), expected: expected.to_owned(), got: got.to_string() }
    }

    pub(crate) fn tensor(path: &Path, tensor: &str, expected: String, got: String) -> Self {
        Self::Tensor { path: path.to_owned(), tensor: tensor.to_owned(), expected, got }
    }
}
