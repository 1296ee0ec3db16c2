//! The `sigprop` command.

use std::{env, process::ExitCode};

fn main() -> ExitCode {
    ExitCode::from(sigprop::cli::run(env::args_os().collect()))
}
