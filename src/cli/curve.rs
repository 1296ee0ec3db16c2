//! `--curve`: a curve in the terminal.

use std::{
    env,
    io::{self, IsTerminal},
};

use crate::report::Ink;
use anyhow::bail;
use clap::{Args, ValueEnum};
use terminal_size::{Width, terminal_size_of};

use super::output::Format;

/// Columns of a curve if the width of the terminal is unknown.
const COLUMNS: usize = 80;
/// The largest width of a curve, in columns: a wider one shows no more detail.
const MOST_COLUMNS: usize = 120;

/// The flag that draws a curve above the table.
#[derive(Args, Clone, Copy, Debug)]
#[command(next_help_heading = "Output")]
pub(crate) struct CurveArguments {
    /// Draw the variance over depth, forward and backward, above the table.
    #[arg(long, value_enum, value_name = "HOW", default_value_t = CurveChoice::Auto)]
    curve: CurveChoice,
}

/// When and how to draw the curve.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum CurveChoice {
    /// On a terminal: in braille if the locale is UTF-8, else in ASCII.
    Auto,
    /// In braille dots.
    Braille,
    /// In ASCII.
    Ascii,
    /// Not at all.
    Never,
}

impl CurveArguments {
    /// Returns how to draw the curve and its width in columns; `None` if it is not drawn. `to_stdout` is true if the
    /// table goes to standard output.
    pub(crate) fn ink(self, format: Format, to_stdout: bool) -> anyhow::Result<Option<(Ink, usize)>> {
        let ink = match self.curve {
            CurveChoice::Never => return Ok(None),
            CurveChoice::Auto if !to_stdout || !io::stdout().is_terminal() || format != Format::Table => {
                return Ok(None);
            }
            CurveChoice::Auto if !is_utf8() => Ink::Ascii,
            CurveChoice::Auto | CurveChoice::Braille => Ink::Braille,
            CurveChoice::Ascii => Ink::Ascii,
        };
        if format != Format::Table {
            bail!("--curve: expected --format table, the format with a curve above it, got another format");
        }
        let terminal = terminal_size_of(io::stdout()).filter(|_| to_stdout);
        let width = terminal.map_or(COLUMNS, |(Width(columns), _)| usize::from(columns).min(MOST_COLUMNS));
        Ok(Some((ink, width)))
    }
}

/// Returns true if the locale is UTF-8. The locale is the first of the variables LC_ALL, LC_CTYPE and LANG that is not
/// empty.
fn is_utf8() -> bool {
    let locale =
        ["LC_ALL", "LC_CTYPE", "LANG"].into_iter().find_map(|name| env::var(name).ok().filter(|v| !v.is_empty()));
    locale.is_some_and(|locale| {
        let locale = locale.to_ascii_lowercase();
        locale.contains("utf-8") || locale.contains("utf8")
    })
}
