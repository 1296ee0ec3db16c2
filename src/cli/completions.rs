//! `sigprop completions`: completion scripts for shells.

use clap::{Args, CommandFactory};
use clap_complete::{Shell, generate};

use super::{Cli, Outcome, console::Console};

/// Write a script that completes commands, flags and their values in a shell.
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  sigprop completions bash > ~/.local/share/bash-completion/completions/sigprop
  sigprop completions zsh > ~/.zfunc/_sigprop
  sigprop completions fish > ~/.config/fish/completions/sigprop.fish")]
pub(crate) struct Arguments {
    /// Shell to write the script for.
    #[arg(value_name = "SHELL")]
    shell: Shell,
}

impl Arguments {
    pub(crate) fn run(self, console: Console) -> anyhow::Result<Outcome> {
        // The generator panics where its writer fails, so it writes into memory first.
        let mut script = Vec::new();
        generate(self.shell, &mut Cli::command(), "sigprop", &mut script);
        console.emit(None, |out| out.write_all(&script))?;
        Ok(Outcome::Done)
    }
}
