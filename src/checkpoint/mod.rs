//! Checkpoints: the tensors of safetensors files, read in pieces.
//!
//! ```text
//! u64, little endian: length of the header   header: JSON   data
//! header: {"__metadata__": {…}, "h.0.ln_1.weight": {"dtype": "F32", "shape": [8], "data_offsets": [0, 32]}, …}
//! ```
//!
//! Offsets count from the end of the header; tensors fill the file without gaps.
//!
//! # Source
//!
//! The format of huggingface/safetensors, `README.md`. Its crate is not used to read: it takes a file as one slice
//! of bytes, and its errors do not say which tensor, what was expected and what was found. Tests write with it.

mod data;
mod error;
mod header;
mod index;
#[cfg(test)]
mod tests;

use std::path::{Path, PathBuf};

pub(crate) use data::LONGEST_ROW;
pub use data::Piece;
pub use error::CheckpointError;
pub use header::Dtype;

/// A tensor in a file.
#[derive(Clone, Debug, PartialEq)]
pub struct Entry {
    /// The file.
    pub path: PathBuf,
    /// Its name.
    pub name: String,
    /// How its entries are stored.
    pub dtype: Dtype,
    /// Its axes.
    pub shape: Vec<usize>,
    /// Where its data begin in the file.
    offset: u64,
}

/// All tensors of a checkpoint, by file and in the order of their data.
#[derive(Clone, Debug, PartialEq)]
pub struct Checkpoint {
    /// The tensors.
    pub entries: Vec<Entry>,
}

impl Checkpoint {
    /// Opens a file, the index of several, or a folder with either (`model.safetensors`,
    /// `model.safetensors.index.json`), and reads the headers.
    pub fn open(path: &Path) -> Result<Self, CheckpointError> {
        let path = if path.is_dir() { in_folder(path)? } else { path.to_owned() };
        let entries = match path.extension().and_then(|extension| extension.to_str()) {
            Some("json") => index::entries(&path)?,
            Some(_) | None => header::entries(&path)?,
        };
        Ok(Self { entries })
    }
}

/// The checkpoint of a folder.
fn in_folder(folder: &Path) -> Result<PathBuf, CheckpointError> {
    let names = ["model.safetensors", "model.safetensors.index.json"];
    names.map(|name| folder.join(name)).into_iter().find(|path| path.is_file()).ok_or_else(|| {
        let expected = format!("a folder with {}", names.join(" or "));
        CheckpointError::format(
            folder,
            &expected,
            &"neither; torch's *.bin are not read, save_pretrained writes safetensors",
        )
    })
}
