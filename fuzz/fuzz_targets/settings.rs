//! Fuzzes `sigprop.toml` next to a command that may have any of its flags.
#![no_main]

use std::env::set_current_dir;

use libfuzzer_sys::fuzz_target;
use sigprop::cli::read;
use sigprop_fuzz::{file, folder};

fuzz_target!(
    init: set_current_dir(folder()).expect("the folder is there"),
    |data: &[u8]| {
        file("sigprop.toml", data);
        for command in ["predict", "validate"] {
            let _ = read(["sigprop", command].map(Into::into).to_vec());
        }
    }
);
