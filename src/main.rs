//! The `sigprop` command.

mod cli;

use std::{
    io::{self, ErrorKind},
    process::ExitCode,
};

use clap::Parser;

fn main() -> ExitCode {
    let cli = match cli::Cli::try_parse() {
        Ok(cli) => cli,
        Err(error) => {
            // A closed pipe is no error, and there is nobody to tell any other.
            let _ = error.print();
            return ExitCode::from(u8::try_from(error.exit_code()).unwrap_or(2));
        }
    };
    let console = cli.console();
    match cli.run(console) {
        Ok(outcome) => outcome.exit_code(),
        Err(error) if is_closed_pipe(&error) => ExitCode::SUCCESS,
        Err(error) => {
            console.error(&format!("{error:#}"));
            ExitCode::from(2)
        }
    }
}

/// Whether the reader of our output went away, as `head` does.
fn is_closed_pipe(error: &anyhow::Error) -> bool {
    error
        .chain()
        .filter_map(|cause| cause.downcast_ref::<io::Error>())
        .any(|cause| cause.kind() == ErrorKind::BrokenPipe)
}
