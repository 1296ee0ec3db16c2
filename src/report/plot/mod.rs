//! Pictures (SVG) of charts.

mod figure;
mod map;
mod outline;
mod panel;
mod style;
#[cfg(test)]
mod tests;

use std::io::{self, Write};

use super::chart::Chart;
use crate::{Prediction, agreement::Comparison, compare::Candidate, verdict::Shape};
use figure::Figure;
pub use map::phase_svg;

/// Draws a prediction, one curve per stream.
pub fn prediction_svg(title: &str, prediction: &Prediction, shape: Shape, out: &mut dyn Write) -> io::Result<()> {
    draw(title, &Chart::of_prediction(prediction, shape), out)
}

/// Draws a prediction and what was observed beside it.
pub fn validation_svg(
    title: &str,
    prediction: &Prediction,
    comparisons: &[Comparison],
    shape: Shape,
    out: &mut dyn Write,
) -> io::Result<()> {
    draw(title, &Chart::of_validation(prediction, comparisons, shape), out)
}

/// Draws the schemes that are defined for the network: the stream that the gradient goes through.
pub fn comparison_svg(title: &str, candidates: &[Candidate], out: &mut dyn Write) -> io::Result<()> {
    draw(title, &Chart::of_comparison(candidates), out)
}

fn draw(title: &str, chart: &Chart, out: &mut dyn Write) -> io::Result<()> {
    svg::write(&mut *out, &Figure { title, chart }.document())?;
    writeln!(out)
}
