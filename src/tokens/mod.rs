//! Token ids from files: NumPy arrays, lists in CSV and JSON, and texts.
//!
//! The result is a list of equally long sequences for every kind of file. An array of any rank has its sequences along
//! the last axis; all other axes only count them.

mod error;
mod lists;
mod npy;
#[cfg(all(test, feature = "files"))]
mod tests;
#[cfg(feature = "files")]
mod text;

use std::{fs, path::Path};

pub use error::TokensError;
#[cfg(feature = "files")]
pub use text::read_text;

/// Sequences of ids, all of one length.
type Sequences = Vec<Vec<u32>>;

/// Reads the sequences of a `.npy`, `.csv` or `.json` file.
pub fn read_tokens(path: &Path) -> Result<Vec<Vec<u32>>, TokensError> {
    let parse = match path.extension().and_then(|extension| extension.to_str()) {
        Some("npy") => npy::parse,
        Some("csv") => lists::csv,
        Some("json") => lists::json,
        Some(_) | None => {
            let message = "expected a file named *.npy, *.csv or *.json; a text goes to --text";
            return Err(TokensError::new(path, message));
        }
    };
    let bytes = read(path)?;
    parse(&bytes).and_then(equally_long).map_err(|message| TokensError::new(path, message))
}

fn read(path: &Path) -> Result<Vec<u8>, TokensError> {
    fs::read(path).map_err(|error| TokensError::new(path, format!("cannot be read: {error}")))
}

/// Returns the sequences if all have the length of the first and it is not zero.
fn equally_long(sequences: Sequences) -> Result<Sequences, String> {
    let Some(length) = sequences.first().map(Vec::len).filter(|&length| length > 0) else {
        return Err("expected at least one id, got none".to_owned());
    };
    match sequences.iter().position(|sequence| sequence.len() != length) {
        None => Ok(sequences),
        Some(index) => {
            let got = sequences[index].len();
            Err(format!("sequence {}: expected {length} ids as in sequence 1, got {got}", index + 1))
        }
    }
}
