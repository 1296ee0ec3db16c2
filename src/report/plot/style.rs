//! The elements of a curve, in its style.

use svg::node::element::Path;

use crate::report::chart::Style;

impl Style {
    /// A line along `data`.
    pub(super) fn line(self, data: String) -> Path {
        let path = Path::new().set("d", data).set("fill", "none").set("stroke", self.colour());
        path.set("stroke-width", 1.8).set("stroke-linejoin", "round").set("stroke-dasharray", self.dashes())
    }

    /// The area inside `data`.
    pub(super) fn area(self, data: String) -> Path {
        Path::new().set("d", data).set("fill", self.colour()).set("fill-opacity", 0.25)
    }

    /// The marker at a place.
    pub(super) fn marker(self, (x, y): (f64, f64)) -> Path {
        let path = Path::new().set("d", self.outline()).set("fill", "#ffffff");
        let path = path.set("transform", format!("translate({x:.1} {y:.1})"));
        path.set("stroke", self.colour()).set("stroke-width", 1.2)
    }
}
