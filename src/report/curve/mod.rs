//! Curves in text, for terminals: forward and backward variance over depth.

mod canvas;
#[cfg(test)]
mod tests;

use std::io::{self, Write};

use super::chart::{Axis, Chart, Curve, Panel, Sense};
use crate::{Prediction, agreement::Comparison, verdict::Shape};
use canvas::Canvas;

/// Number of rows of a panel.
const ROWS: usize = 8;
/// Columns next to a panel, which hold its numbers.
const LABELS: usize = 9;
/// Columns between two panels.
const GAP: usize = 2;
/// The smallest width, in columns, of panels that are placed side by side: the length of the longest title. Narrower
/// panels are placed one below the other.
const BESIDE: usize = 39;
/// The smallest width of a panel, in columns.
const NARROWEST: usize = 24;
/// The smallest number of columns from one observed point of a curve to the next.
const POINT_ROOM: usize = 4;

/// The characters with which a curve is drawn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ink {
    /// Braille, with eight dots in a character.
    Braille,
    /// ASCII only.
    Ascii,
}

/// Draws a prediction, `width` columns wide.
pub fn prediction_curve(
    prediction: &Prediction,
    shape: Shape,
    (ink, width): (Ink, usize),
    out: &mut dyn Write,
) -> io::Result<()> {
    draw(&Chart::of_prediction(prediction, shape), ink, width, out)
}

/// Draws a prediction and the observed numbers, `width` columns wide.
pub fn validation_curve(
    prediction: &Prediction,
    comparisons: &[Comparison],
    shape: Shape,
    (ink, width): (Ink, usize),
    out: &mut dyn Write,
) -> io::Result<()> {
    draw(&Chart::of_validation(prediction, comparisons, shape), ink, width, out)
}

/// Draws one pair of panels per stream, side by side if there is room.
fn draw(chart: &Chart, ink: Ink, width: usize, out: &mut dyn Write) -> io::Result<()> {
    let depth = Axis::depth(chart.blocks());
    let half = width.saturating_sub(GAP) / 2;
    let (columns, width) = if half >= BESIDE { (2, half) } else { (1, width.max(NARROWEST)) };
    for (index, name) in chart.names.iter().enumerate() {
        let panels = chart.panels.iter().filter(|panel| panel.sense == Sense::Size);
        let blocks: Vec<Vec<String>> =
            panels.map(|panel| block(panel, &panel.curves[index], &depth, ink, width)).collect();
        if chart.names.len() > 1 {
            writeln!(out, "{name}")?;
        }
        for row in blocks.chunks(columns) {
            for line in 0..row[0].len() {
                let parts: Vec<String> = row.iter().map(|block| format!("{:width$}", block[line])).collect();
                writeln!(out, "{}", parts.join(&" ".repeat(GAP)).trim_end())?;
            }
        }
    }
    if chart.curves().any(|curve| !curve.points.is_empty()) {
        writeln!(out, "(o: observed)")?;
    }
    Ok(())
}

/// Returns the lines of one panel: title, curve, depth.
fn block(panel: &Panel, curve: &Curve, depth: &Axis, ink: Ink, width: usize) -> Vec<String> {
    let value = curve_axis(panel, curve);
    let inner = width - LABELS - 1;
    let mut canvas = Canvas::new(ink, inner, ROWS);
    let place = |(at, number)| Some((depth.share(f64::into(at))?, value.share(number)?));
    let places: Vec<(f64, f64)> = curve.vertices.iter().copied().filter_map(place).collect();
    canvas.curve(&places);
    let stride = (curve.points.len() * POINT_ROOM).div_ceil(inner).max(1);
    for point in curve.points.iter().step_by(stride) {
        if let Some(place) = place((point.depth, point.value)) {
            canvas.point(place);
        }
    }
    let scale = if value.is_log { ", log" } else { "" };
    let title: String = format!("{}{scale}", panel.title).chars().take(width).collect();
    let labels = labels(&value, ink);
    let bar = match ink {
        Ink::Braille => '│',
        Ink::Ascii => '|',
    };
    let rows = labels.iter().zip(canvas.rows()).map(|(label, row)| format!("{label:>LABELS$}{bar}{row}"));
    let mut lines: Vec<String> = std::iter::once(title).chain(rows).collect();
    let last = depth.high.to_string();
    lines.push(format!("{:LABELS$} 0{:^gap$}{last}", "", "blocks", gap = inner.saturating_sub(1 + last.len())));
    lines
}

/// Returns the axis of the values of one curve. The band is ignored, because it is not drawn.
fn curve_axis(panel: &Panel, curve: &Curve) -> Axis {
    let points = curve.points.iter().map(|point| point.value);
    Axis::of(panel.sense, curve.vertices.iter().map(|(_, value)| *value).chain(points))
}

/// Returns the label next to each row, from the top; most rows have none. Labels have at least one free row between
/// them.
fn labels(axis: &Axis, ink: Ink) -> Vec<String> {
    let mut labels = vec![String::new(); ROWS];
    for tick in axis.ticks.iter().filter(|tick| (0.0..=1.0).contains(&tick.share)) {
        let row = ((1.0 - tick.share) * (ROWS - 1) as f64).round() as usize;
        if labels[row.saturating_sub(1)..(row + 2).min(ROWS)].iter().all(String::is_empty) {
            labels[row] = match ink {
                Ink::Braille => tick.label.clone(),
                Ink::Ascii => ascii(&tick.label),
            };
        }
    }
    labels
}

/// Returns a label in ASCII: `2·10⁻¹²` as `2e-12`.
fn ascii(label: &str) -> String {
    let Some(start) = label.find(|sign| "⁻⁰¹²³⁴⁵⁶⁷⁸⁹".contains(sign)) else {
        return label.to_owned();
    };
    let (power, exponent) = label.split_at(start);
    let digit = power.strip_suffix("·10").unwrap_or("1");
    let plain = |sign: char| "⁰¹²³⁴⁵⁶⁷⁸⁹".chars().position(|raised| raised == sign);
    let exponent = exponent.chars().map(|sign| plain(sign).map_or("-".to_owned(), |number| number.to_string()));
    format!("{digit}e{}", exponent.collect::<String>())
}
