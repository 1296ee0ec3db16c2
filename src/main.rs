//! The `sigprop` command.

mod cli;

use std::{
    env,
    io::{self, ErrorKind},
    process::ExitCode,
};

use cli::{Console, Invocation, Refusal};

fn main() -> ExitCode {
    let (cli, invocation) = match Invocation::read(env::args_os().collect()) {
        Ok(read) => read,
        Err(Refusal::Usage(error)) => {
            // A closed pipe is no error, and there is nobody to tell any other.
            let _ = error.print();
            return ExitCode::from(u8::try_from(error.exit_code()).unwrap_or(2));
        }
        Err(Refusal::Setting(error)) => {
            Console::before(&Invocation::default()).error(&error);
            return ExitCode::from(2);
        }
    };
    let console = cli.console(&invocation);
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
