//! Fuzzes MODEL files, in both formats.
#![no_main]

use libfuzzer_sys::fuzz_target;
use sigprop::architecture::{Architecture, Format};

fuzz_target!(|text: &str| {
    for format in [Format::Toml, Format::Json] {
        if let Ok(architecture) = Architecture::from_file_text(text, format) {
            let _ = architecture.resolved();
        }
    }
});
