//! Fuzzes Hugging Face configs, read as every release and either tower reads them.
#![no_main]

use libfuzzer_sys::fuzz_target;
use sigprop::huggingface::{Options, Tower, Version, import};

fuzz_target!(|text: &str| {
    for version in [Version::V4, Version::V5Early, Version::V5] {
        for tower in [Tower::Text, Tower::Vision] {
            if let Ok(imported) = import(text, &Options { version, tower }) {
                let _ = imported.architecture.resolved();
            }
        }
    }
});
