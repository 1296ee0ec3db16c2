//! Texts as ids, cut into sequences.

use std::path::Path;

use tokenizers::Tokenizer;

use super::{Sequences, TokensError, read};

/// Reads a text as consecutive sequences of `seq_len` ids and drops the ids left over at its end. The ids come from a
/// `tokenizer.json`; without one they are the bytes of the text.
pub fn read_text(path: &Path, tokenizer: Option<&Path>, seq_len: usize) -> Result<Vec<Vec<u32>>, TokensError> {
    let bytes = read(path)?;
    let ids: Vec<u32> = match tokenizer {
        None => bytes.into_iter().map(u32::from).collect(),
        Some(tokenizer) => {
            let text = str::from_utf8(&bytes).map_err(|error| {
                let place = error.valid_up_to();
                TokensError::new(path, format!("byte {place}: expected UTF-8 text for a tokenizer, got another byte"))
            })?;
            encode(text, tokenizer)?
        }
    };
    chunks(&ids, seq_len).map_err(|message| TokensError::new(path, message))
}

/// Returns the ids of a text, without special tokens.
fn encode(text: &str, path: &Path) -> Result<Vec<u32>, TokensError> {
    let error = |error: tokenizers::Error| TokensError::new(path, format!("expected a tokenizer.json: {error}"));
    let mut tokenizer = Tokenizer::from_bytes(read(path)?).map_err(error)?;
    tokenizer.with_padding(None);
    tokenizer.with_truncation(None).map_err(error)?;
    let encoding = tokenizer.encode_fast(text, false).map_err(error)?;
    Ok(encoding.get_ids().to_vec())
}

pub(super) fn chunks(ids: &[u32], seq_len: usize) -> Result<Sequences, String> {
    let sequences: Sequences = ids.chunks_exact(seq_len.max(1)).map(<[u32]>::to_vec).collect();
    if sequences.is_empty() {
        let got = ids.len();
        return Err(format!(
            "expected a text of at least {seq_len} ids, one sequence, got {got}; --seq-len shortens it"
        ));
    }
    Ok(sequences)
}
