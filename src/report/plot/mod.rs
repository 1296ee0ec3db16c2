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

/// A picture, to be written in the format of one's choice.
pub struct Picture(Document);

impl Picture {
    /// Draws a prediction, one curve per stream.
    pub fn of_prediction(title: &str, prediction: &Prediction, shape: Shape) -> Self {
        Self::of_chart(title, &Chart::of_prediction(prediction, shape))
    }

    /// Draws a prediction and what was observed beside it.
    pub fn of_validation(title: &str, prediction: &Prediction, comparisons: &[Comparison], shape: Shape) -> Self {
        Self::of_chart(title, &Chart::of_validation(prediction, comparisons, shape))
    }

    /// Draws the schemes that are defined for the network: the stream that the gradient goes through.
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

    /// Writes it as SVG, with the fonts of whoever looks at it.
    pub fn write_svg(&self, out: &mut dyn Write) -> io::Result<()> {
        svg::write(&mut *out, &self.0)?;
        writeln!(out)
    }
}
