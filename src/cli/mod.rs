//! The command line: arguments, one file per subcommand, and where their output goes.

mod caller;
mod caveats;
mod compare;
mod completions;
mod console;
mod curve;
mod description;
mod diff;
mod explain;
mod export;
mod folder;
mod head;
mod hint;
mod input;
mod inspect;
mod man;
mod model;
mod models;
mod names;
mod output;
mod parse;
mod phase;
mod plot;
mod predict;
mod prose;
mod recommend;
mod report;
mod resume;
mod sampling;
mod schemes;
mod settings;
mod shape;
mod source;
mod suite;
mod title;
mod update;
mod validate;

use std::{
    ffi::OsString,
    io::{self, ErrorKind},
    time::Instant,
};

use clap::{CommandFactory, Parser, Subcommand};

use console::{ColorChoice, Console, Loudness};
use settings::{Invocation, Refusal};

pub use caller::{Caller, Reply};

/// Returns the command and its subcommands, with all flags.
pub fn command() -> clap::Command {
    Cli::command()
}

/// Reads the command line with its settings and runs nothing. Returns an error message if they are wrong.
#[doc(hidden)]
pub fn read(words: Vec<OsString>) -> Result<(), String> {
    Invocation::read(words).map(drop).map_err(Refusal::text)
}

/// Runs a command line that begins with the name of the program. Returns the exit status.
pub fn run(words: Vec<OsString>) -> u8 {
    let (cli, invocation) = match Invocation::read(words) {
        Ok(read) => read,
        Err(Refusal::Usage(error)) => {
            // A closed pipe is no error, and any other error cannot be reported to anyone.
            let _ = error.print();
            return u8::try_from(error.exit_code()).unwrap_or(2);
        }
        Err(Refusal::Setting(error)) => {
            Console::before(&Invocation::default()).error(&error);
            return 2;
        }
    };
    let console = cli.console(&invocation);
    match cli.run(console) {
        Ok(outcome) => outcome.exit_status(),
        Err(error) if is_closed_pipe(&error) => 0,
        Err(error) => {
            console.error(&format!("{error:#}"));
            2
        }
    }
}

/// Returns true if the reader of our output has closed it, as `head` does.
fn is_closed_pipe(error: &anyhow::Error) -> bool {
    error
        .chain()
        .filter_map(|cause| cause.downcast_ref::<io::Error>())
        .any(|cause| cause.kind() == ErrorKind::BrokenPipe)
}

/// Predicts how strongly signals and gradients flow through a deep network at initialisation, and
/// checks the prediction by sampling.
#[derive(Debug, Parser)]
#[command(
    version,
    propagate_version = true,
    after_help = "\
Examples:
  sigprop predict --layers 768 --scheme dslm     signals of a deep Transformer
  sigprop predict gpt2 --format csv > gpt2.csv   every site of a known model
  sigprop validate --layers 12 --width 256       compared with sampled networks
  sigprop compare gpt2                           initialisations side by side
  sigprop phase --x weight-gain=0.2..5 --y branch-scale=0.05..2   a map
  sigprop inspect model.safetensors              the state of a checkpoint
  sigprop explain deepnorm                       rule and source of a scheme
  sigprop models --json                          lists for programs

Defaults of flags are read from sigprop.toml in this folder or above. A
section holds the defaults of one command, the top those of all commands:
  scheme = \"dslm\"
  [validate]
  replicates = 64
SIGPROP_SEQ_LEN=128 in the environment is the default of --seq-len.
Precedence: flags, environment, file. Settings from the environment or the
file are reported.

Exit status: 0 done; 1 a gate failed (--fail-on, --min-r2, --max-error,
--max-difference); 2 usage, configuration or files; 130 interrupted."
)]
pub(crate) struct Cli {
    #[command(subcommand)]
    command: Command,

    /// Colour on the terminal; `auto` honours NO_COLOR.
    #[arg(long, global = true, value_enum, default_value_t = ColorChoice::Auto, value_name = "WHEN", help_heading = "General")]
    color: ColorChoice,

    /// Write only data and errors: no hints, notes or progress on stderr, and with -o or --format csv no verdict.
    #[arg(short, long, global = true, help_heading = "General")]
    quiet: bool,

    /// Report more on stderr: settings that gave way, the release, the run time.
    #[arg(short, long, global = true, conflicts_with = "quiet", help_heading = "General")]
    verbose: bool,

    /// Read neither sigprop.toml nor the environment: flags and defaults alone.
    #[arg(long, global = true, help_heading = "General")]
    isolated: bool,
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
    Models(models::Arguments),
    Schemes(schemes::Arguments),
    Explain(explain::Arguments),
    Completions(completions::Arguments),
    Man(man::Arguments),
}

/// How a command ended that did its work.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// The command did its work, and all gates passed.
    Done,
    /// A result is beyond a limit that was asked for.
    GateFailed,
    /// The command was ended early, and reported its results so far.
    Interrupted,
}

impl Outcome {
    /// Returns the exit status of the process.
    pub fn exit_status(self) -> u8 {
        match self {
            Self::Done => 0,
            Self::GateFailed => 1,
            Self::Interrupted => 130,
        }
    }
}

impl Cli {
    pub(crate) fn console<'a>(&self, invocation: &'a Invocation) -> Console<'a> {
        Console::new(self.color, self.loudness(), invocation)
    }

    fn loudness(&self) -> Loudness {
        match (self.quiet, self.verbose) {
            (true, _) => Loudness::Quiet,
            (false, false) => Loudness::Normal,
            (false, true) => Loudness::Verbose,
        }
    }

    pub(crate) fn run(self, console: Console) -> anyhow::Result<Outcome> {
        let start = Instant::now();
        console.tell_settings();
        let outcome = self.command.run(console)?;
        let seconds = start.elapsed().as_secs_f64();
        console.detail(&format!("sigprop {}, {seconds:.2} s", env!("CARGO_PKG_VERSION")));
        Ok(outcome)
    }
}

impl Command {
    fn run(self, console: Console) -> anyhow::Result<Outcome> {
        match self {
            Self::Predict(arguments) => arguments.run(console),
            Self::Validate(arguments) => arguments.run(console),
            Self::Compare(arguments) => arguments.run(console),
            Self::Recommend(arguments) => arguments.run(console),
            Self::Phase(arguments) => arguments.run(console),
            Self::Inspect(arguments) => arguments.run(console),
            Self::Diff(arguments) => arguments.run(console),
            Self::Models(arguments) => arguments.run(console),
            Self::Schemes(arguments) => arguments.run(console),
            Self::Explain(arguments) => arguments.run(console),
            Self::Completions(arguments) => arguments.run(console),
            Self::Man(arguments) => arguments.run(console),
        }
    }
}
