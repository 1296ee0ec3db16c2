//! `sigprop man`: manual pages.

use std::{io::Write, path::PathBuf};

use anyhow::Context;
use clap::{Args, Command, CommandFactory};
use clap_mangen::Man;

use super::{
    Cli, Outcome,
    console::Console,
    folder::{claim, write_into},
    hint::did_you_mean,
};

/// Write the manual page of sigprop, or of one of its commands.
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  sigprop man | man -l -
  sigprop man predict | man -l -
  sigprop man -o ~/.local/share/man/man1    all pages")]
pub(crate) struct Arguments {
    /// Command to describe [default: sigprop itself].
    #[arg(value_name = "COMMAND")]
    command: Option<String>,

    /// Write the pages of all commands into a folder, which is made if need be.
    #[arg(short, long, value_name = "DIR", conflicts_with = "command", help_heading = "Output")]
    output: Option<PathBuf>,
}

impl Arguments {
    pub(crate) fn run(self, console: Console) -> anyhow::Result<Outcome> {
        let mut sigprop = Cli::command().disable_help_subcommand(true);
        sigprop.build();
        if let Some(folder) = &self.output {
            claim(folder)?;
            for command in [&sigprop].into_iter().chain(sigprop.get_subcommands()) {
                let name = command.get_display_name().unwrap_or(command.get_name());
                write_into(folder, &format!("{name}.1"), |out| page(command).render(out))?;
            }
            return Ok(Outcome::Done);
        }
        let command = self.command.as_deref().map_or(Ok(&sigprop), |name| named(&sigprop, name))?;
        console.emit(None, |mut out: &mut dyn Write| page(command).render(&mut out))?;
        Ok(Outcome::Done)
    }
}

fn named<'a>(sigprop: &'a Command, name: &str) -> anyhow::Result<&'a Command> {
    sigprop.find_subcommand(name).with_context(|| {
        let known: Vec<&str> = sigprop.get_subcommands().map(Command::get_name).collect();
        let hint = did_you_mean(name, known.iter().copied());
        format!("unknown command {name:?}{hint}; the commands are {}", known.join(", "))
    })
}

fn page(command: &Command) -> Man {
    Man::new(command.clone())
}
