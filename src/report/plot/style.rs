//! What tells curves apart: colour, dashes and markers, each by itself.
//!
//! Colours are those of Okabe and Ito (2008), told apart with any colour vision, but yellow, which is not seen on
//! white. In black and white dashes and markers tell: 5 and 6 have no common divisor, so that 30 curves differ.

use svg::node::element::{Path, Pattern, Rectangle};

const COLOURS: [&str; 7] = ["#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#000000"];

const DASHES: [&str; 5] = ["none", "8 3", "2 3", "10 3 2 3", "4 2"];

/// Outlines around the origin.
const MARKERS: [&str; 6] = [
    "M3.5 0A3.5 3.5 0 1 1 -3.5 0A3.5 3.5 0 1 1 3.5 0Z",
    "M-3 -3H3V3H-3Z",
    "M0 -4L4 3H-4Z",
    "M0 -4.5L4 0L0 4.5L-4 0Z",
    "M0 4L4 -3H-4Z",
    "M-1 -4H1V-1H4V1H1V4H-1V1H-4V-1H-1Z",
];

/// Strokes of a tile of [`TILE`] pixels, that meet those of its neighbours.
const HATCHES: [&str; 4] = [
    "M-2 2L2 -2M0 10L10 0M8 12L12 8",
    "M-2 8L2 12M0 0L10 10M8 -2L12 2",
    "M5 4.4V5.6M0 -0.6V0.6M10 -0.6V0.6M0 9.4V10.6M10 9.4V10.6",
    "M5 0V10",
];

/// Side of a tile, in pixels.
const TILE: f64 = 10.0;

/// How the curve of this index is drawn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Style(pub(super) usize);

impl Style {
    pub(super) fn colour(self) -> &'static str {
        COLOURS[self.0 % COLOURS.len()]
    }

    /// A line along `data`.
    pub(super) fn line(self, data: String) -> Path {
        let dashes = DASHES[self.0 % DASHES.len()];
        let path = Path::new().set("d", data).set("fill", "none").set("stroke", self.colour());
        path.set("stroke-width", 1.8).set("stroke-linejoin", "round").set("stroke-dasharray", dashes)
    }

    /// The area inside `data`.
    pub(super) fn area(self, data: String) -> Path {
        Path::new().set("d", data).set("fill", self.colour()).set("fill-opacity", 0.25)
    }

    /// What [`Self::hatched`] refers to.
    pub(super) fn pattern(self) -> Pattern {
        let pattern = Pattern::new().set("id", self.hatch()).set("patternUnits", "userSpaceOnUse");
        let pattern = pattern.set("width", TILE).set("height", TILE);
        let wash = Rectangle::new().set("width", TILE).set("height", TILE).set("fill", self.colour());
        let strokes = Path::new().set("d", HATCHES[self.0 % HATCHES.len()]).set("stroke", self.colour());
        pattern.add(wash.set("fill-opacity", 0.12)).add(strokes.set("stroke-width", 1.4).set("stroke-linecap", "round"))
    }

    /// The area inside `data`, hatched.
    pub(super) fn hatched(self, data: String) -> Path {
        Path::new().set("d", data).set("fill", format!("url(#{})", self.hatch()))
    }

    fn hatch(self) -> String {
        format!("hatch-{}", self.0 % HATCHES.len())
    }

    /// The marker at a place.
    pub(super) fn marker(self, (x, y): (f64, f64)) -> Path {
        let path = Path::new().set("d", MARKERS[self.0 % MARKERS.len()]).set("fill", "#ffffff");
        let path = path.set("transform", format!("translate({x:.1} {y:.1})"));
        path.set("stroke", self.colour()).set("stroke-width", 1.2)
    }
}
