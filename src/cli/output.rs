//! Where data goes, and in which format.

use std::{io, path::PathBuf};

use crate::{Sites, report::RowFormat};
use clap::{Args, ValueEnum, builder::PossibleValue};

use super::console::{Console, Paint};

/// The format of the data.
#[derive(Args, Clone, Copy, Debug)]
#[command(next_help_heading = "Output")]
pub(crate) struct FormatArguments {
    /// Format of the data; docs/formats.md describes every field.
    #[arg(long, value_enum, default_value_t = Format::Table)]
    format: Format,

    /// Short for --format json.
    #[arg(long, conflicts_with = "format")]
    json: bool,
}

impl FormatArguments {
    /// Returns the format that is asked for.
    pub(crate) fn format(self) -> Format {
        if self.json { Format::Json } else { self.format }
    }
}

/// Where data goes, and its format.
#[derive(Args, Clone, Debug)]
#[command(next_help_heading = "Output")]
pub(crate) struct DataArguments {
    #[command(flatten)]
    format: FormatArguments,

    /// Write the data to a file; `-` is standard output.
    #[arg(short, long, value_name = "FILE")]
    pub(crate) output: Option<PathBuf>,
}

impl DataArguments {
    /// Returns the format that is asked for.
    pub(crate) fn format(&self) -> Format {
        self.format.format()
    }

    /// Returns how a table is coloured: not at all in a file.
    pub(crate) fn paint(&self, console: Console) -> Paint {
        if self.output.is_none() { console.paint(&io::stdout()) } else { Paint(false) }
    }
}

/// A format of the data.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Format {
    /// A table for people.
    Table,
    /// Rows for programs or documents, with the same columns in each format.
    Rows(RowFormat),
    /// One JSON document with all results.
    Json,
}

impl ValueEnum for Format {
    fn value_variants<'a>() -> &'a [Self] {
        &[
            Self::Table,
            Self::Rows(RowFormat::Csv),
            Self::Json,
            Self::Rows(RowFormat::JsonLines),
            Self::Rows(RowFormat::Markdown),
        ]
    }

    fn to_possible_value(&self) -> Option<PossibleValue> {
        let (name, help) = match self {
            Self::Table => ("table", "For people"),
            Self::Rows(RowFormat::Csv) => ("csv", "One row per site, tensor or scheme"),
            Self::Json => ("json", "One document, with verdict and caveats"),
            Self::Rows(RowFormat::JsonLines) => ("jsonl", "The rows of csv, an object per line"),
            Self::Rows(RowFormat::Markdown) => ("md", "The rows of csv, as a table in Markdown, four digits"),
        };
        Some(PossibleValue::new(name).help(help))
    }
}

/// The sites to report.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum SiteChoice {
    /// The input of block 0, the output of each block, the final norm.
    Stream,
    /// Also the points inside blocks.
    All,
}

impl From<SiteChoice> for Sites {
    fn from(choice: SiteChoice) -> Self {
        match choice {
            SiteChoice::Stream => Self::Stream,
            SiteChoice::All => Self::All,
        }
    }
}
