//! `--plot`: pictures.

use std::path::{Path, PathBuf};

use crate::report::{Picture, write_file};
use anyhow::Context;
use clap::{
    Args,
    builder::{PathBufValueParser, TypedValueParser},
};

use super::{
    console::Console,
    folder::{cannot_write, claim_file},
};

/// The file of a picture.
#[derive(Args, Debug)]
#[command(next_help_heading = "Output")]
pub(crate) struct PlotArguments {
    /// Also draw the stream over depth: variance and token correlation, forward and backward, with the band of one
    /// initialisation, and where float formats overflow; *.svg, *.png or *.pdf.
    #[arg(long, value_name = "FILE", value_parser = PathBufValueParser::new().try_map(PlotFile::named))]
    plot: Option<PlotFile>,
}

/// The file of a picture, whose name gives its format.
#[derive(Clone, Debug)]
struct PlotFile {
    path: PathBuf,
    format: Format,
}

#[derive(Clone, Copy, Debug)]
enum Format {
    Svg,
    Png,
    Pdf,
}

impl PlotFile {
    fn named(path: PathBuf) -> Result<Self, &'static str> {
        let format = Format::of(&path).ok_or("expected a file named *.svg, *.png or *.pdf")?;
        Ok(Self { path, format })
    }
}

impl Format {
    fn of(path: &Path) -> Option<Self> {
        match path.extension()?.to_ascii_lowercase().to_str()? {
            "svg" => Some(Self::Svg),
            "png" => Some(Self::Png),
            "pdf" => Some(Self::Pdf),
            _ => None,
        }
    }
}

impl PlotArguments {
    /// Checks that the picture can be written, before anything takes long.
    pub(crate) fn claim(&self) -> anyhow::Result<()> {
        self.plot.as_ref().map_or(Ok(()), |file| claim_file(&file.path))
    }

    /// Draws the picture, if it is asked for. A program that runs the command always gets one.
    pub(crate) fn draw(&self, console: Console, draw: impl Fn() -> Picture) -> anyhow::Result<()> {
        if let Some(caller) = console.caller() {
            let mut picture = Vec::new();
            draw().write_svg(&mut picture)?;
            caller.take_picture(picture);
        }
        let Some(PlotFile { path, format }) = &self.plot else { return Ok(()) };
        let picture = draw();
        write_file(path, |out| match format {
            Format::Svg => picture.write_svg(out),
            Format::Png => picture.write_png(out),
            Format::Pdf => picture.write_pdf(out),
        })
        .with_context(|| cannot_write(path))
    }
}
