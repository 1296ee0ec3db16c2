//! Where data goes, and in which format.

use std::{io, path::PathBuf};

use crate::{Sites, report::RowFormat};
use clap::{Args, ValueEnum, builder::PossibleValue};

use super::console::{Console, Paint};

/// How data is written.
#[derive(Args, Clone, Copy, Debug)]
#[command(next_help_heading = "Output")]
pub(crate) struct FormatArguments {
    /// How to write the data; every field is in docs/formats.md.
    #[arg(long, value_enum, default_value_t = Format::Table)]
    format: Format,

    /// As --format json.
    #[arg(long, conflicts_with = "format")]
    json: bool,
}

impl FormatArguments {
    /// The format asked for.
    pub(crate) fn format(self) -> Format {
        if self.json { Format::Json } else { self.format }
    }
}

/// Where data goes, and how it is written.
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
    /// The format asked for.
    pub(crate) fn format(&self) -> Format {
        self.format.format()
    }

    /// How a table is painted where it goes.
    pub(crate) fn paint(&self, console: Console) -> Paint {
        if self.output.is_none() { console.paint(&io::stdout()) } else { Paint(false) }
    }
}

/// A format.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Format {
    /// For people.
    Table,
    /// For programs, or for a document: the same columns in each of them.
    Rows(RowFormat),
    /// One document, with all that was found.
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

/// Which sites are told.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum SiteChoice {
    /// What enters block 0, the output of each block, the final norm.
    Stream,
    /// The points inside blocks too.
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
