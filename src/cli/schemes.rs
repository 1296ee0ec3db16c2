//! `sigprop schemes`: the initialisation schemes.

use std::io::{self, Write};

use sigprop::schemes::{About, SCHEMES};

use super::{Outcome, output::emit, prose::write_indented};

pub(crate) fn run() -> anyhow::Result<Outcome> {
    emit(None, write_schemes)?;
    Ok(Outcome::Done)
}

fn write_schemes(out: &mut dyn Write) -> io::Result<()> {
    for about in SCHEMES {
        writeln!(out, "{}", usage(about))?;
        write_indented("    ", 4, about.rule, out)?;
    }
    writeln!(out, "\n`sigprop explain NAME` tells the whole rule, its source and which tensors it touches.")
}

/// The text that `--scheme` takes: `normal:STD`, `dslm:k=2,alpha=1`.
pub(crate) fn usage(about: &About) -> String {
    let arguments = about.parameters.iter().map(|parameter| match parameter.default {
        Some(default) => format!("{}={default}", parameter.name),
        None => parameter.name.to_uppercase(),
    });
    let arguments: Vec<String> = arguments.collect();
    if arguments.is_empty() { about.name.to_owned() } else { format!("{}:{}", about.name, arguments.join(",")) }
}
