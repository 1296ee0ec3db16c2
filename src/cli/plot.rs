//! `--plot`: pictures.

use std::{
    io::{self, Write},
    path::PathBuf,
};

use anyhow::Context;
use clap::{
    Args,
    builder::{PathBufValueParser, TypedValueParser},
};
use sigprop::report::write_file;

use super::folder::{cannot_write, claim_file};

/// Where a picture goes.
#[derive(Args, Debug)]
#[command(next_help_heading = "Output")]
pub(crate) struct PlotArguments {
    /// Also draw the stream over depth: variance and token correlation, forward and backward, with the band of one
    /// initialisation, and where float formats overflow.
    #[arg(long, value_name = "FILE.svg", value_parser = PathBufValueParser::new().try_map(svg))]
    plot: Option<PathBuf>,
}

/// Other formats have fonts or pages to carry, which converters do better.
fn svg(path: PathBuf) -> Result<PathBuf, String> {
    if path.extension().is_some_and(|extension| extension.eq_ignore_ascii_case("svg")) {
        Ok(path)
    } else {
        Err("expected a file named *.svg; `rsvg-convert -o FILE.png FILE.svg` makes other formats of it".to_owned())
    }
}

impl PlotArguments {
    /// Sees whether the picture can be written, before anything takes long.
    pub(crate) fn claim(&self) -> anyhow::Result<()> {
        self.plot.as_deref().map_or(Ok(()), claim_file)
    }

    /// Draws the picture, if one is wanted.
    pub(crate) fn draw(&self, draw: impl FnOnce(&mut dyn Write) -> io::Result<()>) -> anyhow::Result<()> {
        let Some(path) = &self.plot else { return Ok(()) };
        write_file(path, draw).with_context(|| cannot_write(path))
    }
}
