//! The elements of a curve, in its style.

use svg::node::element::{Path, Pattern, Rectangle};

use crate::report::chart::Style;

/// Strokes of a square tile of [`TILE`] pixels. They continue in the neighbouring tiles.
const HATCHES: [&str; 4] = [
    "M-2 2L2 -2M0 10L10 0M8 12L12 8",
    "M-2 8L2 12M0 0L10 10M8 -2L12 2",
    "M5 4.4V5.6M0 -0.6V0.6M10 -0.6V0.6M0 9.4V10.6M10 9.4V10.6",
    "M5 0V10",
];

/// Side of a tile, in pixels.
const TILE: f64 = 10.0;

impl Style {
    /// Returns a line along the SVG path `data`.
    pub(super) fn line(self, data: String) -> Path {
        let path = Path::new().set("d", data).set("fill", "none").set("stroke", self.colour());
        path.set("stroke-width", 1.8).set("stroke-linejoin", "round").set("stroke-dasharray", self.dashes())
    }

    /// Returns the area inside the SVG path `data`, in the translucent colour of the style.
    pub(super) fn area(self, data: String) -> Path {
        Path::new().set("d", data).set("fill", self.colour()).set("fill-opacity", 0.25)
    }

    /// Returns the pattern that [`Self::hatched`] refers to.
    pub(super) fn pattern(self) -> Pattern {
        let pattern = Pattern::new().set("id", self.hatch()).set("patternUnits", "userSpaceOnUse");
        let pattern = pattern.set("width", TILE).set("height", TILE);
        let wash = Rectangle::new().set("width", TILE).set("height", TILE).set("fill", self.colour());
        let strokes = Path::new().set("d", HATCHES[self.0 % HATCHES.len()]).set("stroke", self.colour());
        pattern.add(wash.set("fill-opacity", 0.12)).add(strokes.set("stroke-width", 1.4).set("stroke-linecap", "round"))
    }

    /// Returns the area inside the SVG path `data`, hatched.
    pub(super) fn hatched(self, data: String) -> Path {
        Path::new().set("d", data).set("fill", format!("url(#{})", self.hatch()))
    }

    fn hatch(self) -> String {
        format!("hatch-{}", self.0 % HATCHES.len())
    }

    /// Returns the marker at a place.
    pub(super) fn marker(self, (x, y): (f64, f64)) -> Path {
        let path = Path::new().set("d", self.outline()).set("fill", "#ffffff");
        let path = path.set("transform", format!("translate({x:.1} {y:.1})"));
        path.set("stroke", self.colour()).set("stroke-width", 1.2)
    }
}
