//! `sigprop schemes`: the initialisation schemes.

use std::io::{self, Write};

use crate::{
    report::{scheme_usage, schemes_json, schemes_rows},
    schemes::SCHEMES,
};
use clap::Args;

use super::{
    Outcome,
    console::Console,
    output::{DataArguments, Format},
    prose::write_indented,
};

/// List the initialisation schemes with their arguments and rules.
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  sigprop schemes
  sigprop schemes --format md -o schemes.md
  sigprop explain dslm                             all about one of them")]
pub(crate) struct Arguments {
    #[command(flatten)]
    data: DataArguments,
}

impl Arguments {
    pub(crate) fn run(self, console: Console) -> anyhow::Result<Outcome> {
        console.emit(self.data.output.as_ref(), |out| match self.data.format() {
            Format::Table => write_schemes(out),
            Format::Rows(format) => schemes_rows().write(format, out),
            Format::Json => schemes_json(out),
        })?;
        Ok(Outcome::Done)
    }
}

fn write_schemes(out: &mut dyn Write) -> io::Result<()> {
    for about in SCHEMES {
        writeln!(out, "{}", scheme_usage(about))?;
        write_indented("    ", 4, about.rule, out)?;
    }
    writeln!(out, "\n`sigprop explain NAME` prints the whole rule, its source and the tensors that it changes.")
}
