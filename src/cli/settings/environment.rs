//! Defaults from the environment: `SIGPROP_SEQ_LEN` for `--seq-len`, of every command that has the flag.

use std::env;

use crate::nearest;
use clap::Command;

use super::{Layer, Refusal, Setting, all_flags, flags, words};

const PREFIX: &str = "SIGPROP_";

/// Returns the settings for a command, and a note on every variable that belongs to no flag.
pub(super) fn layer(command: &Command, sigprop: &Command) -> Result<(Layer, Vec<String>), Refusal> {
    let known = all_flags(sigprop);
    let mut layer = Layer { place: "environment".to_owned(), settings: Vec::new() };
    let mut unknown = Vec::new();
    let mut variables: Vec<(String, String)> = env::vars_os()
        .filter_map(|(name, value)| Some((name.into_string().ok()?, value.to_string_lossy().into_owned())))
        .filter(|(name, _)| name.starts_with(PREFIX))
        .collect();
    variables.sort();
    for (name, value) in variables {
        if known.iter().all(|flag| variable(flag) != name) {
            let flag = name[PREFIX.len()..].to_lowercase().replace('_', "-");
            let near = nearest(&flag, known.iter().map(String::as_str));
            let hint = near.map_or(String::new(), |flag| format!("; did you mean {}?", variable(flag)));
            unknown.push(format!("{name} is the variable of no flag{hint}"));
            continue;
        }
        let arg = flags(command).find(|arg| arg.get_long().is_some_and(|long| variable(long) == name));
        let Some(arg) = arg else { continue };
        let words = words(arg, &value).map_err(|error| Refusal::Setting(format!("{name}: {error}")))?;
        let flag = arg.get_long().expect("it was found by it").to_owned();
        layer.settings.push(Setting { flag, words, place: name });
    }
    Ok((layer, unknown))
}

/// Returns the name of the variable of a flag.
fn variable(flag: &str) -> String {
    format!("{PREFIX}{}", flag.to_uppercase().replace('-', "_"))
}
