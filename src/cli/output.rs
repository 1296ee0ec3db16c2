//! Where data goes.

use std::{
    io::{self, BufWriter, Write},
    path::{Path, PathBuf},
};

use anyhow::Context;
use clap::ValueEnum;
use sigprop::{Sites, report::write_file};

/// How data is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Format {
    /// For people.
    Table,
    /// One row per site.
    Csv,
    /// One document, with verdict and caveats.
    Json,
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

/// Writes to a file, or to stdout for none and for `-`.
pub(crate) fn emit(path: Option<&PathBuf>, write: impl FnOnce(&mut dyn Write) -> io::Result<()>) -> anyhow::Result<()> {
    if let Some(path) = path.filter(|path| path.as_path() != Path::new("-")) {
        return write_file(path, write).with_context(|| format!("cannot write {}", path.display()));
    }
    let mut out = BufWriter::with_capacity(1 << 16, io::stdout().lock());
    write(&mut out).and_then(|()| out.flush()).context("cannot write to standard output")
}
