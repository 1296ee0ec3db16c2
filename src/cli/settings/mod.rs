//! Defaults of flags, from the environment and from `sigprop.toml`.
//!
//! ```text
//! flag  >  SIGPROP_FLAG  >  [command] of the file  >  top of the file  >  default
//! ```
//!
//! A setting becomes the flag that it stands for, in front of those given, so that it may be what the flag may be. One
//! whose flag is given, or that does not go with what ranks above it, gives way.

mod environment;
mod file;

use std::{collections::HashSet, ffi::OsString};

use clap::{
    Arg, ArgAction, ArgMatches, Command, CommandFactory, FromArgMatches,
    error::{ContextKind, ErrorKind},
};

use super::Cli;

/// What is asked for, on the command line and elsewhere.
#[derive(Debug, Default)]
pub(crate) struct Invocation {
    /// The command line with all settings that hold.
    pub(crate) words: Vec<OsString>,
    /// A sentence for each place that settings are from.
    pub(crate) settings: Vec<String>,
    /// What stands for nothing.
    pub(crate) notes: Vec<String>,
    /// What gives way to what.
    pub(crate) details: Vec<String>,
    /// Flags whose setting holds; one that is off stands in no word.
    settled: HashSet<String>,
}

/// Why nothing can be done.
#[derive(Debug)]
pub(crate) enum Refusal {
    /// The command line, or a wish for help.
    Usage(clap::Error),
    /// A setting, and where it is from.
    Setting(String),
}

/// A flag with a value, from one place.
#[derive(Debug)]
struct Setting {
    /// Without dashes.
    flag: String,
    /// As the command line would say it; none for a flag that is off.
    words: Vec<OsString>,
    /// Variable, or file and line.
    place: String,
}

/// Settings of one rank: they must go together.
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

    /// Puts the settings of a layer in that hold beside what ranks above them.
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
    /// What is wrong.
    pub(super) fn text(self) -> String {
        match self {
            Self::Usage(error) => sentence(&error),
            Self::Setting(text) => text,
        }
    }
}

/// What is wrong, without how the command is used.
fn sentence(error: &clap::Error) -> String {
    let text = error.render().to_string();
    let text = text.strip_prefix("error: ").unwrap_or(&text);
    let text = text.split("\n\nUsage").next().unwrap_or_default();
    text.split("\n\nFor more information").next().unwrap_or_default().trim_end().to_owned()
}

/// Tells that a setting does not hold beside a flag, if one that switches something else off.
fn gives_way(setting: &Setting, error: &clap::Error) -> Option<String> {
    let other = error.get(ContextKind::PriorArg)?;
    Some(format!("{}: --{} gives way to {other}", setting.place, setting.flag))
}

fn parse(words: &[OsString]) -> Result<ArgMatches, clap::Error> {
    Cli::command().try_get_matches_from(words)
}

/// The command line with flags behind the name of the command, the first word that is it.
fn with(words: &[OsString], command: &str, flags: &[OsString]) -> Vec<OsString> {
    let place = words.iter().skip(1).position(|word| word == command).map_or(words.len(), |index| index + 2);
    let (before, behind) = words.split_at(place);
    [before, flags, behind].concat()
}

/// The flags of a command that have a name and a value, or are on or off.
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

/// The flags of all commands.
fn all_flags(sigprop: &Command) -> Vec<String> {
    let commands = [sigprop].into_iter().chain(sigprop.get_subcommands());
    let mut names: Vec<String> = commands.flat_map(flags).filter_map(long).collect();
    names.sort();
    names.dedup();
    names
}

/// The words for a value of a flag; what it must be where it is another.
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
