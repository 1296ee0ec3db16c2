//! The functions of the Python package have the flags of the command: `python/python/sigprop/_commands.py` is generated
//! from them.
//!
//! `SIGPROP_PYTHON=write` writes it anew.

use std::any::TypeId;
use std::env;
use std::fmt::Write;
use std::fs;
use std::path::{Path, PathBuf};

use clap::{Arg, ArgAction, Command};
use sigprop::cli;

/// A function of the package.
struct Function {
    name: &'static str,
    /// The name of the command.
    command: &'static str,
    result: &'static str,
    /// Text before the description of the command.
    first: &'static str,
    /// True if it takes long enough to show progress.
    is_long: bool,
}

const FUNCTIONS: [Function; 7] = [
    Function { name: "predict", command: "predict", result: "Prediction", first: "", is_long: false },
    Function { name: "validate", command: "validate", result: "Validation", first: "", is_long: true },
    Function {
        name: "measure",
        command: "validate",
        result: "Measurement",
        first: "What sampled networks do: `validate` without the prediction.\n\n",
        is_long: true,
    },
    Function { name: "compare", command: "compare", result: "Comparison", first: "", is_long: true },
    Function { name: "recommend", command: "recommend", result: "Recommendation", first: "", is_long: true },
    Function { name: "phase", command: "phase", result: "PhaseMap", first: "", is_long: true },
    Function { name: "inspect", command: "inspect", result: "Inspection", first: "", is_long: false },
];

/// Headings of the flags that only make sense in a shell.
const SHELL_HEADINGS: [&str; 3] = ["General", "Gates", "Suites"];
/// Other flags that only make sense in a shell.
const SHELL_FLAGS: [&str; 11] = [
    "format",
    "json",
    "output",
    "curve",
    "explain_import",
    "explain_caveats",
    "edges",
    "help",
    "version",
    "sort",
    "shard",
];
/// Names that are keywords of Python and get a trailing underscore.
const KEYWORDS: [&str; 2] = ["as", "lambda"];
/// The largest length of a line.
const COLUMNS: usize = 100;

const HEAD: &str = r#""""The commands as functions. Written from the command's own flags by a test: change those, not this."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

from ._call import Observed, Path, Tokens, call
from ._model import Model
from ._results import (
    Comparison,
    Inspection,
    Measurement,
    PhaseMap,
    Prediction,
    Recommendation,
    Validation,
)
"#;

/// The name of an argument in Python.
fn name(arg: &Arg) -> String {
    let name = arg.get_long().map_or_else(|| arg.get_id().to_string(), |long| long.replace('-', "_"));
    if KEYWORDS.contains(&name.as_str()) { name + "_" } else { name }
}

fn is_switch(arg: &Arg) -> bool {
    matches!(arg.get_action(), ArgAction::SetTrue)
}

fn value_name(arg: &Arg) -> &str {
    arg.get_value_names().and_then(<[_]>::first).map_or("", |name| name.as_str())
}

/// Returns true if several values are written as one, with commas.
fn is_list(arg: &Arg) -> bool {
    value_name(arg) == "LIST" || arg.get_value_delimiter().is_some()
}

/// The Python type of an argument.
fn type_of(arg: &Arg) -> String {
    let parser = arg.get_value_parser().type_id();
    let is = |other: TypeId| parser == other;
    let words: Vec<String> =
        arg.get_possible_values().iter().map(|value| format!("\"{}\"", value.get_name())).collect();
    let one = match arg.get_id().as_str() {
        "model" | "config" => "Model".to_owned(),
        "observed" => return "Observed".to_owned(),
        "tokens" | "decoder_tokens" => return "Tokens".to_owned(),
        "threads" => "int | Literal[\"all\"]".to_owned(),
        _ if is(TypeId::of::<bool>()) => "bool".to_owned(),
        // A formula is no word.
        "activation" => format!("Literal[{}] | str", words.join(", ")),
        _ if !words.is_empty() => format!("Literal[{}]", words.join(", ")),
        _ if is(TypeId::of::<usize>()) || is(TypeId::of::<u64>()) => "int".to_owned(),
        _ if is(TypeId::of::<f64>()) => match value_name(arg) {
            "SIZE" | "ERROR" => "float | str".to_owned(),
            _ => "float".to_owned(),
        },
        _ if is(TypeId::of::<PathBuf>()) || value_name(arg).starts_with("FILE") => "Path".to_owned(),
        _ if arg.get_id() == "seeds" => "int".to_owned(),
        _ => "str".to_owned(),
    };
    let is_many = is_list(arg) || matches!(arg.get_action(), ArgAction::Append);
    if is_many { format!("{one} | Sequence[{one}]") } else { one }
}

/// The arguments of the function: positional ones, then flags.
fn arguments(command: &Command) -> (Vec<&Arg>, Vec<&Arg>) {
    let is_ours = |arg: &&Arg| {
        let heading = arg.get_help_heading().unwrap_or_default();
        let id = arg.get_id().as_str();
        !(arg.is_hide_set() || SHELL_HEADINGS.contains(&heading) || SHELL_FLAGS.contains(&id))
    };
    command.get_arguments().filter(is_ours).partition(|arg| arg.is_positional())
}

fn wrapped(text: &str, first: &str, others: &str) -> String {
    let (mut lines, mut line, mut is_empty) = (String::new(), first.to_owned(), true);
    for word in text.split_whitespace() {
        if !is_empty && line.chars().count() + 1 + word.chars().count() > COLUMNS {
            lines.push_str(&line);
            lines.push('\n');
            others.clone_into(&mut line);
            is_empty = true;
        }
        if !is_empty {
            line.push(' ');
        }
        line.push_str(word);
        is_empty = false;
    }
    lines + line.trim_end() + "\n"
}

fn docstring(function: &Function, command: &Command, arguments: &[&Arg]) -> String {
    let about = command.get_about().map(ToString::to_string).unwrap_or_default();
    let about = format!("{}{}.", function.first, about.trim_end_matches('.'));
    let mut text = String::new();
    for (index, paragraph) in about.split("\n\n").enumerate() {
        let first = if index == 0 { "    \"\"\"" } else { "\n    " };
        text += &wrapped(paragraph, first, "    ");
    }
    let after = command.get_after_help().map(ToString::to_string).unwrap_or_default();
    let after = after.split("Examples:").next().unwrap_or_default().trim();
    if !after.is_empty() {
        text.push('\n');
        for line in after.lines() {
            text += format!("    {line}").trim_end();
            text.push('\n');
        }
    }
    text += "\n    Args:\n";
    for arg in arguments {
        let help = arg.get_long_help().or_else(|| arg.get_help()).map(ToString::to_string).unwrap_or_default();
        text += &wrapped(&help.replace('\n', " "), &format!("        {}: ", name(arg)), "            ");
    }
    if function.is_long {
        text += "        progress: Show how far it is, with tqdm.\n";
    }
    text += "\n    Raises:\n        ValueError: What the command refuses, in its words.\n    \"\"\"\n";
    text.replace('\\', "\\\\")
}

fn write_function(function: &Function, out: &mut String) {
    let sigprop = cli::command();
    let command = sigprop.find_subcommand(function.command).expect("there is such a command");
    let (positions, flags) = arguments(command);
    let parameter = |out: &mut String, arg: &Arg| {
        let (name, of) = (name(arg), type_of(arg));
        let text = match () {
            () if is_switch(arg) => format!("{name}: bool = False"),
            () if arg.is_required_set() => format!("{name}: {of}"),
            () => format!("{name}: {of} | None = None"),
        };
        writeln!(out, "    {text},").expect("a text takes all");
    };
    writeln!(out, "\n\ndef {}(", function.name).expect("a text takes all");
    for arg in &positions {
        parameter(out, arg);
    }
    out.push_str("    *,\n");
    for arg in &flags {
        parameter(out, arg);
    }
    if function.is_long {
        out.push_str("    progress: bool = False,\n");
    }
    writeln!(out, ") -> {}:", function.result).expect("a text takes all");
    let all: Vec<&Arg> = positions.into_iter().chain(flags).collect();
    out.push_str(&docstring(function, command, &all));
    writeln!(out, "    return call(\"{}\", {}, locals(), _SWITCHES)", function.command, function.result)
        .expect("a text takes all");
}

fn module() -> String {
    let sigprop = cli::command();
    let commands = FUNCTIONS.iter().map(|function| sigprop.find_subcommand(function.command).expect("a command"));
    let switches = commands.flat_map(|command| arguments(command).1).filter(|arg| is_switch(arg));
    let mut switches: Vec<String> = switches.map(name).collect();
    switches.sort();
    switches.dedup();
    let mut out = HEAD.to_owned();
    out.push_str("\n# Flags without a value.\n_SWITCHES = frozenset(\n    {\n");
    for switch in switches {
        writeln!(out, "        \"{switch}\",").expect("a text takes all");
    }
    out.push_str("    }\n)\n");
    for function in &FUNCTIONS {
        write_function(function, &mut out);
    }
    out
}

#[test]
fn functions_have_the_flags_of_commands() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("python/python/sigprop/_commands.py");
    let text = module();
    if env::var_os("SIGPROP_PYTHON").is_some_and(|value| value == "write") {
        fs::write(&path, &text).expect("the folder can be written");
    }
    let committed = fs::read_to_string(&path).expect("it is committed");
    assert!(
        committed == text,
        "flags have changed: SIGPROP_PYTHON=write cargo test functions_have_the_flags writes the functions"
    );
}
