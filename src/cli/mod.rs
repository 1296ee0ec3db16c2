//! Arguments, one file per subcommand, and where their output goes.

mod compare;
mod console;
mod curve;
mod description;
mod diff;
mod explain;
mod export;
mod folder;
mod head;
mod input;
mod inspect;
mod model;
mod models;
mod output;
mod parse;
mod phase;
mod plot;
mod predict;
mod prose;
mod recommend;
mod report;
mod sampling;
mod schemes;
mod shape;
mod source;
mod suite;
mod title;
mod update;
mod validate;

use std::process::ExitCode;

use clap::{Parser, Subcommand};

use console::{ColorChoice, Console};

/// Predicts how strongly signals and gradients flow through a deep network at initialisation, and
/// checks the prediction by sampling.
#[derive(Debug, Parser)]
#[command(
    version,
    propagate_version = true,
    after_help = "\
Examples:
  sigprop predict --layers 768 --scheme dslm       what a deep Transformer does with its signal
  sigprop predict gpt2 --format csv > gpt2.csv     every site of a known model
  sigprop validate --layers 12 --width 256         the same, beside sampled networks
  sigprop compare gpt2                             initialisations side by side
  sigprop phase --x weight-gain=0.2..5 --y branch-scale=0.05..2   where it can be trained
  sigprop inspect model.safetensors                what a checkpoint holds, and what it should
  sigprop explain deepnorm                         what a scheme does and where it is from

Exit status: 0 done, 1 a gate failed (--fail-on, --min-r2, --max-error,
--max-difference), 2 usage, configuration or
files, 130 interrupted."
)]
pub(crate) struct Cli {
    #[command(subcommand)]
    command: Command,

    /// Colour on the terminal; NO_COLOR is honoured by `auto`.
    #[arg(long, global = true, value_enum, default_value_t = ColorChoice::Auto, value_name = "WHEN", help_heading = "General")]
    color: ColorChoice,

    /// Only data and errors: no verdict, hints or progress on stderr.
    #[arg(short, long, global = true, help_heading = "General")]
    quiet: bool,
}

#[derive(Debug, Subcommand)]
enum Command {
    Predict(predict::Arguments),
    Validate(validate::Arguments),
    Compare(compare::Arguments),
    Recommend(recommend::Arguments),
    Phase(phase::Arguments),
    Inspect(inspect::Arguments),
    Diff(diff::Arguments),
    /// List the presets with their size and cost.
    Models,
    /// List the initialisation schemes with their arguments and rules.
    Schemes,
    Explain(explain::Arguments),
}

/// How a command that did its work ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Outcome {
    Done,
    GateFailed,
    Interrupted,
}

impl Outcome {
    pub(crate) fn exit_code(self) -> ExitCode {
        match self {
            Self::Done => ExitCode::SUCCESS,
            Self::GateFailed => ExitCode::from(1),
            Self::Interrupted => ExitCode::from(130),
        }
    }
}

impl Cli {
    pub(crate) fn console(&self) -> Console {
        Console::new(self.color, self.quiet)
    }

    pub(crate) fn run(self, console: Console) -> anyhow::Result<Outcome> {
        match self.command {
            Command::Predict(arguments) => arguments.run(console),
            Command::Validate(arguments) => arguments.run(console),
            Command::Compare(arguments) => arguments.run(console),
            Command::Recommend(arguments) => arguments.run(console),
            Command::Phase(arguments) => arguments.run(console),
            Command::Inspect(arguments) => arguments.run(console),
            Command::Diff(arguments) => arguments.run(console),
            Command::Models => models::run(),
            Command::Schemes => schemes::run(),
            Command::Explain(arguments) => arguments.run(),
        }
    }
}
