//! Fuzzes files of token ids: NumPy arrays and lists.
#![no_main]

use libfuzzer_sys::fuzz_target;
use sigprop::tokens::read_tokens;
use sigprop_fuzz::file;

fuzz_target!(|data: &[u8]| {
    for name in ["ids.npy", "ids.csv", "ids.json"] {
        if let Ok(sequences) = read_tokens(&file(name, data)) {
            assert!(sequences.iter().all(|sequence| !sequence.is_empty() && sequence.len() == sequences[0].len()));
        }
    }
});
