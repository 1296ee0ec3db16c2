//! Defaults from `sigprop.toml`, in the working folder or the nearest one above that has it.

use std::{
    env, fs,
    path::{Path, PathBuf},
};

use clap::{Arg, ArgAction, Command};
use toml::de::{DeTable, DeValue};

use super::{Layer, Refusal, Setting, all_flags, flags, words};
use crate::cli::hint::did_you_mean;

const NAME: &str = "sigprop.toml";

/// Returns the settings for a command and, ranked below, the settings for all commands. Empty if there is no file.
pub(super) fn layers(command: &Command, sigprop: &Command) -> Result<Vec<Layer>, Refusal> {
    let Some(path) = found() else { return Ok(Vec::new()) };
    let text = fs::read_to_string(&path).map_err(|error| {
        Refusal::Setting(format!("cannot read {}: {error}; --isolated goes without", path.display()))
    })?;
    File { path: &path, text: &text }.layers(command, sigprop)
}

fn found() -> Option<PathBuf> {
    let folder = env::current_dir().ok()?;
    folder.ancestors().map(|folder| folder.join(NAME)).find(|path| path.exists())
}

struct File<'a> {
    path: &'a Path,
    text: &'a str,
}

impl File<'_> {
    fn layers(&self, command: &Command, sigprop: &Command) -> Result<Vec<Layer>, Refusal> {
        let table = DeTable::parse(self.text)
            .map_err(|error| self.refused(error.span().map_or(0, |span| span.start), error.message().trim_end()))?;
        let everywhere = all_flags(sigprop);
        let (mut own, mut shared) = (Vec::new(), Vec::new());
        for (key, value) in table.get_ref() {
            let (name, offset) = (key.get_ref().as_ref(), key.span().start);
            match (value.get_ref(), sigprop.find_subcommand(name)) {
                (DeValue::Table(section), Some(of)) => {
                    let known: Vec<String> = flags(of).filter_map(super::long).collect();
                    for (key, value) in section {
                        let (flag, offset) = (key.get_ref().as_ref(), key.span().start);
                        self.check_key(flag, offset, &known)?;
                        if name == command.get_name() {
                            own.extend(self.setting(command, flag, value.get_ref(), offset)?);
                        }
                    }
                }
                (DeValue::Table(_), None) => {
                    let commands: Vec<String> = sigprop.get_subcommands().map(|of| of.get_name().to_owned()).collect();
                    self.check_key(name, offset, &commands)?;
                }
                (value, _) => {
                    self.check_key(name, offset, &everywhere)?;
                    shared.extend(self.setting(command, name, value, offset)?);
                }
            }
        }
        let layer = |settings| Layer { place: self.path.display().to_string(), settings };
        Ok(vec![layer(own), layer(shared)])
    }

    fn check_key(&self, key: &str, offset: usize, known: &[String]) -> Result<(), Refusal> {
        if known.iter().any(|name| name == key) {
            return Ok(());
        }
        let hint = did_you_mean(key, known.iter().map(String::as_str));
        Err(self.refused(offset, &format!("unknown key `{key}`{hint}")))
    }

    /// Returns the setting with the words that give a value on the command line; `None` if the command does not have
    /// the flag.
    fn setting(
        &self,
        command: &Command,
        key: &str,
        value: &DeValue,
        offset: usize,
    ) -> Result<Option<Setting>, Refusal> {
        let Some(arg) = flags(command).find(|arg| arg.get_long() == Some(key)) else { return Ok(None) };
        let values = values(arg, value).map_err(|error| self.refused(offset, &error))?;
        let words = values.iter().map(|value| words(arg, value)).collect::<Result<Vec<_>, _>>();
        let words = words.map_err(|error| self.refused(offset, &error))?.concat();
        Ok(Some(Setting { flag: key.to_owned(), words, place: self.place(offset) }))
    }

    fn place(&self, offset: usize) -> String {
        let before = self.text.get(..offset).unwrap_or(self.text);
        format!("{}:{}", self.path.display(), 1 + before.matches('\n').count())
    }

    fn refused(&self, offset: usize, message: &str) -> Refusal {
        Refusal::Setting(format!("{}: {message}", self.place(offset)))
    }
}

/// Returns one value, or several if the flag may be given several times.
fn values(arg: &Arg, value: &DeValue) -> Result<Vec<String>, String> {
    match value {
        DeValue::String(text) => Ok(vec![text.to_string()]),
        DeValue::Integer(number) => Ok(vec![number.to_string()]),
        DeValue::Float(number) => Ok(vec![number.to_string()]),
        DeValue::Boolean(truth) => Ok(vec![truth.to_string()]),
        DeValue::Array(list) if matches!(arg.get_action(), ArgAction::Append) => {
            let each = list.iter().map(|value| values(arg, value.get_ref())).collect::<Result<Vec<_>, _>>()?;
            Ok(each.concat())
        }
        DeValue::Array(_) | DeValue::Table(_) | DeValue::Datetime(_) => {
            let name = arg.get_long().unwrap_or_default();
            Err(format!("{name}: expected a text, a number, true or false, got {}", value.type_str()))
        }
    }
}
