//! Pictures of charts and maps.

#[cfg(feature = "pictures")]
mod converted;
mod figure;
mod map;
mod outline;
mod panel;
mod style;
#[cfg(test)]
mod tests;

use std::io::{self, Write};

use svg::Document;

use super::chart::Chart;
use crate::{Prediction, agreement::Comparison, compare::Candidate, phase::Phase, verdict::Shape};
use figure::Figure;

/// A picture that can be written in several formats.
pub struct Picture(Document);

impl Picture {
    /// Draws a prediction, one curve per stream.
    pub fn of_prediction(title: &str, prediction: &Prediction, shape: Shape) -> Self {
        Self::of_chart(title, &Chart::of_prediction(prediction, shape))
    }

    /// Draws a prediction and the observed numbers.
    pub fn of_validation(title: &str, prediction: &Prediction, comparisons: &[Comparison], shape: Shape) -> Self {
        Self::of_chart(title, &Chart::of_validation(prediction, comparisons, shape))
    }

    /// Draws the schemes that are defined for the network, one curve per scheme, for the stream that the gradient goes
    /// through.
    pub fn of_comparison(title: &str, candidates: &[Candidate]) -> Self {
        Self::of_chart(title, &Chart::of_comparison(candidates))
    }

    /// Draws a map.
    pub fn of_phase(title: &str, phase: &Phase) -> Self {
        Self(map::document(title, phase))
    }

    fn of_chart(title: &str, chart: &Chart) -> Self {
        Self(Figure { title, chart }.document())
    }

    /// Writes the picture as SVG, with the fonts of the viewer.
    pub fn write_svg(&self, out: &mut dyn Write) -> io::Result<()> {
        svg::write(&mut *out, &self.0)?;
        writeln!(out)
    }
}
