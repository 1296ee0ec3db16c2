//! One quantity over depth: a frame with curves, bands, points and marks.

use sigprop_stack::Number;
use svg::node::element::{Group, Line, Path, Rectangle, Text, Title};

use super::outline::{PlotPoint, at, between, open};
use crate::report::chart::{Axis, Curve, Panel};

/// Width inside the frame, in pixels.
pub(super) const WIDTH: f64 = 390.0;
/// Height inside the frame, in pixels.
pub(super) const HEIGHT: f64 = 220.0;

/// Number of markers on a curve that spans the whole width of the frame; a shorter curve has fewer.
const MARKERS: usize = 6;

const INK: &str = "#000000";
const FAINT: &str = "#dddddd";

/// The largest number of observed points of a curve that can still be distinguished.
const MAX_POINTS: usize = 40;

/// Returns a number n such that showing one of every n observed points of a curve keeps points distinguishable.
pub(super) fn stride(curve: &Curve) -> usize {
    curve.points.len().div_ceil(MAX_POINTS).max(1)
}

/// Draws a panel with the upper left corner of the frame at the origin.
pub(super) fn draw(panel: &Panel, depth: &Axis) -> Group {
    let frame = Frame { depth, value: panel.axis() };
    let mut group = Group::new().set("class", "panel").add(label(panel.title, (0.0, -10.0), "start", 13.0));
    group = frame.rules(group);
    for curve in panel.curves.iter().filter(|_| panel.shows_bands()) {
        group = frame.band(group, curve);
    }
    for (index, curve) in panel.curves.iter().enumerate() {
        group = frame.curve(group, curve, (index, panel.curves.len()));
    }
    for curve in &panel.curves {
        group = frame.points(group, curve);
        group = frame.marks(group, curve);
    }
    group
}

/// Returns a text with its anchor at a point of the picture; `size` is the size of its font in pixels.
pub(super) fn label(text: &str, (x, y): PlotPoint, anchor: &str, size: f64) -> Text {
    Text::new(printable(text)).set("x", x).set("y", y).set("font-size", size).set("text-anchor", anchor)
}

/// Replaces control characters, which XML does not have but the name of a network may.
fn printable(text: &str) -> String {
    text.replace(char::is_control, " ")
}

struct Frame<'a> {
    depth: &'a Axis,
    value: Axis,
}

impl Frame<'_> {
    fn place(&self, depth: f64, value: Number) -> Option<PlotPoint> {
        let (x, y) = (self.depth.share(depth.into())?, self.value.share(value)?);
        Some((WIDTH * x, HEIGHT * (1.0 - y)))
    }

    fn rules(&self, mut group: Group) -> Group {
        for tick in &self.depth.ticks {
            let x = WIDTH * tick.share;
            group = group.add(rule((x, 0.0), (x, HEIGHT), FAINT));
            group = group.add(label(&tick.label, (x, HEIGHT + 16.0), "middle", 11.0));
        }
        for tick in &self.value.ticks {
            let y = HEIGHT * (1.0 - tick.share);
            group = group.add(rule((0.0, y), (WIDTH, y), FAINT));
            group = group.add(label(&tick.label, (-7.0, y + 4.0), "end", 11.0));
        }
        let frame = Rectangle::new().set("width", WIDTH).set("height", HEIGHT);
        let scale = if self.value.is_log { "log" } else { "linear" };
        group.add(frame.set("class", scale).set("fill", "none").set("stroke", "#888888"))
    }

    fn band(&self, group: Group, curve: &Curve) -> Group {
        let side = |end: usize| -> Vec<PlotPoint> {
            curve.band.iter().filter_map(|(depth, ends)| self.place(*depth, ends[end])).collect()
        };
        let (lower, upper) = (side(0), side(1));
        if lower.is_empty() {
            return group;
        }
        group.add(curve.style.area(between(&lower, &upper)).set("class", "band"))
    }

    /// Draws the curve. A curve without observed points in a panel of several curves also gets markers, at other depths
    /// than the markers of the other curves.
    fn curve(&self, mut group: Group, curve: &Curve, (index, curves): (usize, usize)) -> Group {
        let places: Vec<PlotPoint> =
            curve.vertices.iter().filter_map(|(depth, value)| self.place(*depth, *value)).collect();
        let line = curve.style.line(open(&places)).set("class", "curve");
        group = group.add(line.add(Title::new(printable(&curve.name))));
        if curves == 1 || !curve.points.is_empty() {
            return group;
        }
        for marker in 0..MARKERS {
            let share = (marker as f64 + (index as f64 + 0.5) / curves as f64) / MARKERS as f64;
            if let Some(place) = at(&places, WIDTH * share) {
                group = group.add(curve.style.marker(place).set("class", "marker"));
            }
        }
        group
    }

    fn points(&self, mut group: Group, curve: &Curve) -> Group {
        for point in curve.points.iter().step_by(stride(curve)) {
            let Some(place) = self.place(point.depth, point.value) else { continue };
            if let Some([low, high]) = point.bar {
                // The end of a bar that has no logarithm is drawn at the bottom of the frame.
                let end = |end| self.value.share(end).map_or(HEIGHT, |share| HEIGHT * (1.0 - share));
                group = group.add(rule((place.0, end(low)), (place.0, end(high)), INK).set("class", "bar"));
            }
            group = group.add(curve.style.marker(place).set("class", "point").set("stroke", INK));
        }
        group
    }

    fn marks(&self, mut group: Group, curve: &Curve) -> Group {
        for mark in &curve.marks {
            let Some((x, y)) = self.place(mark.depth, mark.value) else { continue };
            let (anchor, shift) = if x > 0.85 * WIDTH { ("end", -7.0) } else { ("start", 7.0) };
            group = group.add(cross((x, y)).set("class", "mark"));
            group = group.add(rule((x, y), (x, HEIGHT), INK).set("stroke-dasharray", "1 3"));
            group = group.add(label(&mark.label, (x + shift, y + 12.0), anchor, 11.0));
        }
        group
    }
}

/// Returns the cross that shows a mark, centred at a point of the picture.
pub(super) fn cross((x, y): PlotPoint) -> Path {
    let path = Path::new().set("d", "M-4.5 -4.5L4.5 4.5M-4.5 4.5L4.5 -4.5");
    path.set("transform", format!("translate({x:.1} {y:.1})")).set("stroke", INK).set("stroke-width", 2.2)
}

pub(super) fn rule(from: PlotPoint, to: PlotPoint, colour: &str) -> Line {
    let pixel = |value: f64| format!("{value:.1}");
    let line = Line::new().set("x1", pixel(from.0)).set("y1", pixel(from.1));
    line.set("x2", pixel(to.0)).set("y2", pixel(to.1)).set("stroke", colour)
}
