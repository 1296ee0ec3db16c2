//! `sigprop.toml` beside a command that may have any flag of it.
#![no_main]
#![allow(dead_code, unused_imports)]

#[path = "../../src/cli/mod.rs"]
mod cli;

use std::env::set_current_dir;

use cli::Invocation;
use libfuzzer_sys::fuzz_target;
use sigprop_fuzz::{file, folder};

fuzz_target!(
    init: set_current_dir(folder()).expect("the folder is there"),
    |data: &[u8]| {
        file("sigprop.toml", data);
        for command in ["predict", "validate"] {
            let _ = Invocation::read(["sigprop", command].map(Into::into).to_vec());
        }
    }
);
