//! The reasons why a file cannot be read as a checkpoint.

use std::io;
use std::path::{Path, PathBuf};

/// The reason why a file cannot be read as a checkpoint.
#[derive(Debug, thiserror::Error)]
pub enum CheckpointError {
    /// The file cannot be read.
    #[error("cannot read {}", path.display())]
    Io {
        /// The file.
        path: PathBuf,
        /// The error of the file system.
        source: io::Error,
    },
    /// The file is not in the expected format.
    #[error("{}: expected {expected}, got {got}", path.display())]
    Format {
        /// The file.
        path: PathBuf,
        /// The expected value.
        expected: String,
        /// The value that was found.
        got: String,
    },
    /// The file has a format, or a method of quantisation, that this program does not read.
    #[error("{}: expected safetensors of floats, got {got}; {advice}", path.display())]
    Foreign {
        /// The file or folder.
        path: PathBuf,
        /// The format that was found.
        got: String,
        /// The way to get a checkpoint that can be read.
        advice: &'static str,
    },
    /// A tensor is inconsistent, in itself or with the config.
    #[error("{}: tensor {tensor:?}: expected {expected}, got {got}", path.display())]
    Tensor {
        /// The file.
        path: PathBuf,
        /// The tensor.
        tensor: String,
        /// The expected value.
        expected: String,
        /// The value that was found.
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
