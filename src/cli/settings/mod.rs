//! Defaults of flags, from the environment and from `sigprop.toml`.
//!
//! ```text
//! flag  >  SIGPROP_FLAG  >  [command] of the file  >  top of the file  >  default
//! ```
//!
//! A setting becomes the flag that it is for, in front of the flags that are given, so it may have any value that the
//! flag may have. It gives way if its flag is given, or if it conflicts with anything that ranks above it.

mod environment;
mod file;

use std::{collections::HashSet, ffi::OsString};

use clap::{
    Arg, ArgAction, ArgMatches, Command, CommandFactory, FromArgMatches,
    error::{ContextKind, ErrorKind},
};

use super::Cli;

/// The command line, completed by the settings.
#[derive(Debug, Default)]
pub(crate) struct Invocation {
    /// The words of the command line, with all settings that apply.
    pub(crate) words: Vec<OsString>,
    /// One line for each place that settings come from: the place and the words it adds to the command line.
    pub(crate) settings: Vec<String>,
    /// Notes on settings that belong to no flag.
    pub(crate) notes: Vec<String>,
    /// Notes on settings that are ignored because they conflict with a flag of higher rank.
    pub(crate) details: Vec<String>,
    /// Names of the flags that a setting has set, including flags set to off, which add no word to `words`.
    settled: HashSet<String>,
}

/// The reason why nothing can be done.
#[derive(Debug)]
pub(crate) enum Refusal {
    /// An error of the command line, or a request for help.
    Usage(clap::Error),
    /// An error of a setting, with the place it comes from.
    Setting(String),
}

/// A flag with a value, from one place.
#[derive(Debug)]
struct Setting {
    /// Name of the flag, without dashes.
    flag: String,
    /// The words of the command line; empty for a flag that is off.
    words: Vec<OsString>,
    /// Place of the setting: a variable, or file and line.
    place: String,
}

/// Settings from one source, such as the environment. They must not conflict with each other.
struct Layer {
    place: String,
    settings: Vec<Setting>,
}

impl Invocation {
    /// Reads the command line, the environment and the file.
    pub(crate) fn read(words: Vec<OsString>) -> Result<(Cli, Self), Refusal> {
        let mut matches = parse(&words).map_err(Refusal::Usage)?;
        let mut invocation = Self { words, ..Self::default() };
        let (name, isolated) = {
            let (name, own) = matches.subcommand().expect("clap requires a command");
            (name.to_owned(), own.get_flag("isolated"))
        };
        if !isolated {
            let sigprop = Cli::command();
            let command = sigprop.find_subcommand(&name).expect("clap knows its commands").clone();
            let command = command.args(sigprop.get_arguments().cloned());
            let (environment, unknown) = environment::layer(&command, &sigprop)?;
            invocation.notes.extend(unknown);
            for layer in [environment].into_iter().chain(file::layers(&command, &sigprop)?) {
                matches = invocation.settle(layer, &command, matches)?;
            }
        }
        let cli = Cli::from_arg_matches(&matches).map_err(Refusal::Usage)?;
        Ok((cli, invocation))
    }

    /// Adds the settings of a layer that do not conflict with the command line or with layers of higher rank, which are
    /// parsed in `above`. Returns the new parsed command line.
    fn settle(&mut self, layer: Layer, command: &Command, above: ArgMatches) -> Result<ArgMatches, Refusal> {
        let base = self.words.clone();
        let (_, own) = above.subcommand().expect("clap requires a command");
        let given: HashSet<String> = flags(command).filter(|arg| is_given(own, arg)).filter_map(long).collect();
        let is_open = |setting: &Setting| !given.contains(&setting.flag) && !self.settled.contains(&setting.flag);
        let mut waiting: Vec<Setting> = layer.settings.into_iter().filter(is_open).collect();
        let (mut matches, mut held) = (above, Vec::new());
        // One flag may need another one, which comes later.
        let mut progress = true;
        while progress {
            progress = false;
            let mut others = Vec::new();
            for setting in waiting {
                let tried = with(&self.words, command.get_name(), &setting.words);
                match parse(&tried) {
                    Ok(found) => {
                        held.extend(setting.words.iter().map(|word| word.to_string_lossy().into_owned()));
                        (self.words, matches, progress) = (tried, found, true);
                        self.settled.insert(setting.flag);
                    }
                    Err(error) if error.kind() == ErrorKind::MissingRequiredArgument => others.push(setting),
                    Err(error) if error.kind() == ErrorKind::ArgumentConflict => {
                        if parse(&with(&base, command.get_name(), &setting.words)).is_ok() {
                            return Err(setting.refused(&error));
                        }
                        self.details.extend(gives_way(&setting, &error));
                    }
                    Err(error) => return Err(setting.refused(&error)),
                }
            }
            waiting = others;
        }
        if !held.is_empty() {
            self.settings.push(format!("{}: {}", layer.place, held.join(" ")));
        }
        Ok(matches)
    }
}

impl Setting {
    fn refused(&self, error: &clap::Error) -> Refusal {
        Refusal::Setting(format!("{}: {}", self.place, sentence(error)))
    }
}

impl Refusal {
    /// Returns the error message.
    pub(super) fn text(self) -> String {
        match self {
            Self::Usage(error) => sentence(&error),
            Self::Setting(text) => text,
        }
    }
}

/// Returns the error message without the usage of the command.
fn sentence(error: &clap::Error) -> String {
    let text = error.render().to_string();
    let text = text.strip_prefix("error: ").unwrap_or(&text);
    let text = text.split("\n\nUsage").next().unwrap_or_default();
    text.split("\n\nFor more information").next().unwrap_or_default().trim_end().to_owned()
}

/// Returns a note that a setting gives way to a flag with which it conflicts, if the error names one.
fn gives_way(setting: &Setting, error: &clap::Error) -> Option<String> {
    let other = error.get(ContextKind::PriorArg)?;
    Some(format!("{}: --{} gives way to {other}", setting.place, setting.flag))
}

fn parse(words: &[OsString]) -> Result<ArgMatches, clap::Error> {
    Cli::command().try_get_matches_from(words)
}

/// Returns the command line with flags after the name of the command, which is the first word equal to it.
fn with(words: &[OsString], command: &str, flags: &[OsString]) -> Vec<OsString> {
    let place = words.iter().skip(1).position(|word| word == command).map_or(words.len(), |index| index + 2);
    let (before, behind) = words.split_at(place);
    [before, flags, behind].concat()
}

/// Returns the flags of a command that have a name and either take a value or are on or off.
fn flags(command: &Command) -> impl Iterator<Item = &Arg> {
    let is_setting = |arg: &&Arg| {
        let acts = matches!(arg.get_action(), ArgAction::Set | ArgAction::Append | ArgAction::SetTrue);
        acts && arg.get_long().is_some_and(|long| long != "isolated")
    };
    command.get_arguments().filter(is_setting)
}

fn long(arg: &Arg) -> Option<String> {
    arg.get_long().map(str::to_owned)
}

fn is_given(matches: &ArgMatches, arg: &Arg) -> bool {
    matches.value_source(arg.get_id().as_str()) == Some(clap::parser::ValueSource::CommandLine)
}

/// Returns the names of the flags of all commands, sorted.
fn all_flags(sigprop: &Command) -> Vec<String> {
    let commands = [sigprop].into_iter().chain(sigprop.get_subcommands());
    let mut names: Vec<String> = commands.flat_map(flags).filter_map(long).collect();
    names.sort();
    names.dedup();
    names
}

/// Returns the words for a value of a flag, or an error with the expected values.
fn words(arg: &Arg, value: &str) -> Result<Vec<OsString>, String> {
    let name = arg.get_long().expect("flags have names");
    if !matches!(arg.get_action(), ArgAction::SetTrue) {
        return Ok(vec![format!("--{name}={value}").into()]);
    }
    match value {
        "true" | "1" => Ok(vec![format!("--{name}").into()]),
        "false" | "0" => Ok(Vec::new()),
        _ => Err(format!("--{name}: expected true or false, got {value:?}")),
    }
}
