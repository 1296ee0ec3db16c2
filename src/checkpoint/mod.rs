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
//! The format of huggingface/safetensors, `README.md`. Its crate is not used for reading: it takes a file as one slice
//! of bytes, and its errors do not name the tensor, the expected value and the value found. Tests write files with it.

mod data;
mod error;
mod float8;
mod foreign;
mod header;
mod index;
mod low_rank;
mod quantised;
#[cfg(test)]
mod tests;

use std::fs;
use std::path::{Path, PathBuf};

pub(crate) use data::LONGEST_ROW;
pub use data::Piece;
pub use error::CheckpointError;
pub use header::Dtype;
pub use low_rank::LowRank;
use quantised::Scales;

/// A tensor in a file.
#[derive(Clone, Debug, PartialEq)]
pub struct Entry {
    /// The file.
    pub path: PathBuf,
    /// The name of the tensor.
    pub name: String,
    /// The number format of its entries.
    pub dtype: Dtype,
    /// The sizes of its axes.
    pub shape: Vec<usize>,
    /// The offset of its data in the file, in bytes.
    offset: u64,
    /// Scales by which its entries are multiplied; `None` without quantisation.
    scales: Option<Box<Scales>>,
    /// A product that is added to its entries; `None` without an adapter.
    added: Option<Box<LowRank>>,
}

/// All tensors of a checkpoint, by file and in the order of their data.
#[derive(Clone, Debug, PartialEq)]
pub struct Checkpoint {
    /// The tensors. Scales of quantised weights are stored with the tensors that they scale.
    pub entries: Vec<Entry>,
    /// The file that was opened, or the index of several.
    pub path: PathBuf,
    /// An index in the same folder that was not read; `None` if there is none.
    pub other: Option<PathBuf>,
}

const SINGLE: &str = "model.safetensors";
const INDEX: &str = "model.safetensors.index.json";
const ADAPTER: &str = "adapter_model.safetensors";

impl Checkpoint {
    /// Opens a file, the index of several, or a folder with either (`model.safetensors`,
    /// `model.safetensors.index.json`, `adapter_model.safetensors`), and reads the headers.
    pub fn open(path: &Path) -> Result<Self, CheckpointError> {
        let (path, other) = if path.is_dir() { in_folder(path)? } else { (path.to_owned(), None) };
        let entries = match path.extension().and_then(|extension| extension.to_str()) {
            Some("json") => index::entries(&path)?,
            Some(_) | None => header::entries(&path)?,
        };
        Ok(Self { entries: quantised::with_scales(&path, entries)?, path, other })
    }

    /// Returns the number of tensors that are multiplied by scales.
    pub fn scaled(&self) -> usize {
        self.entries.iter().filter(|entry| entry.scales.is_some()).count()
    }
}

/// Returns the checkpoint of a folder, and an index next to it that is not read. transformers also loads the single
/// file (`_get_resolved_checkpoint_files`).
fn in_folder(folder: &Path) -> Result<(PathBuf, Option<PathBuf>), CheckpointError> {
    let [single, index, adapter] =
        [SINGLE, INDEX, ADAPTER].map(|name| Some(folder.join(name)).filter(|path| path.is_file()));
    match (single, index, adapter) {
        (Some(single), index, _) => Ok((single, index)),
        (None, Some(path), _) | (None, None, Some(path)) => Ok((path, None)),
        (None, None, None) => Err(nothing(folder)?),
    }
}

/// Returns the error for a folder without a checkpoint that can be read.
fn nothing(folder: &Path) -> Result<CheckpointError, CheckpointError> {
    let files = fs::read_dir(folder).map_err(CheckpointError::io(folder))?;
    let mut files: Vec<String> =
        files.filter_map(|file| Some(file.ok()?.file_name().to_string_lossy().into_owned())).collect();
    files.sort();
    let others: Vec<&str> = files.iter().map(String::as_str).filter(|name| name.ends_with(".safetensors")).collect();
    let got = match others.as_slice() {
        [] => match foreign::in_folder(folder, &files) {
            Some(error) => return Ok(error),
            None => "none of them; save_pretrained writes the first or the second".to_owned(),
        },
        [one] => format!("{one}; name that file"),
        [first, ..] => format!("{} files such as {first}, and no index; name one of them", others.len()),
    };
    let expected = format!("a folder with {SINGLE}, {INDEX} or {ADAPTER}");
    Ok(CheckpointError::format(folder, &expected, &got))
}
