//! `--report`: everything about a run in one HTML file.

use std::{
    io::{self, Write},
    path::PathBuf,
};

use crate::report::{Drawn, Origin, write_file};
use anyhow::Context;
use clap::{
    Args,
    builder::{PathBufValueParser, TypedValueParser},
};

use super::{
    Invocation,
    folder::{cannot_write, claim_file},
};

/// The file of a report.
#[derive(Args, Debug)]
#[command(next_help_heading = "Output")]
pub(crate) struct ReportArguments {
    /// Also write a report that a browser shows offline: verdict, curves to zoom and read, tables to filter and sort,
    /// formulas with their sources, and command, stack and plan to save as JSON.
    #[arg(long, value_name = "FILE.html", value_parser = PathBufValueParser::new().try_map(html))]
    report: Option<PathBuf>,
}

/// Checks the extension of a report: other programs recognise the file by it.
fn html(path: PathBuf) -> Result<PathBuf, String> {
    let is_html = path.extension().is_some_and(|extension| extension.eq_ignore_ascii_case("html"));
    if is_html { Ok(path) } else { Err("expected a file named *.html".to_owned()) }
}

impl ReportArguments {
    /// Checks that the report can be written, before anything takes long.
    pub(crate) fn claim(&self) -> anyhow::Result<()> {
        self.report.as_deref().map_or(Ok(()), claim_file)
    }

    /// Writes the report, if --report is given. `title` describes the network, and `seed` is the seed of its samples.
    /// `summary` writes the lines that the command prints below its table, and `write` writes the whole report.
    pub(crate) fn write(
        &self,
        invocation: &Invocation,
        (title, seed): (&str, u64),
        networks: impl FnOnce() -> anyhow::Result<Vec<Drawn>>,
        summary: impl FnOnce(&mut dyn Write) -> io::Result<()>,
        write: impl FnOnce(&Origin, &mut dyn Write) -> io::Result<()>,
    ) -> anyhow::Result<()> {
        let Some(path) = &self.report else { return Ok(()) };
        let mut text = Vec::new();
        summary(&mut text)?;
        let summary = String::from_utf8(text).context("what is printed is text")?;
        let words = invocation.words.iter().skip(1).map(|word| word.to_string_lossy().into_owned());
        let command: Vec<String> = ["sigprop".to_owned()].into_iter().chain(words).collect();
        let command_line = shlex::try_join(command.iter().map(String::as_str)).context("an argument holds no zeros")?;
        let networks = networks()?;
        let origin = Origin {
            title,
            command: &command,
            command_line: &command_line,
            settings: &invocation.settings,
            seed,
            summary: &summary,
            networks: &networks,
        };
        write_file(path, |out| write(&origin, out)).with_context(|| cannot_write(path))
    }
}
