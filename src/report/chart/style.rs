//! The styles of curves: colour, dashes and markers, each of which distinguishes curves by itself.
//!
//! The colours are from Okabe and Ito (2008) and differ with any colour vision; their yellow is left out, as it is not
//! visible on white. In black and white dashes and markers distinguish curves: 5 and 6 have no common divisor, so 30
//! curves differ.

const COLOURS: [&str; 7] = ["#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#000000"];

const DASHES: [&str; 5] = ["none", "8 3", "2 3", "10 3 2 3", "4 2"];

/// Outlines of markers around the origin.
const MARKERS: [&str; 6] = [
    "M3.5 0A3.5 3.5 0 1 1 -3.5 0A3.5 3.5 0 1 1 3.5 0Z",
    "M-3 -3H3V3H-3Z",
    "M0 -4L4 3H-4Z",
    "M0 -4.5L4 0L0 4.5L-4 0Z",
    "M0 4L4 -3H-4Z",
    "M-1 -4H1V-1H4V1H1V4H-1V1H-4V-1H-1Z",
];

/// The style of the curve with this index.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Style(pub(crate) usize);

impl Style {
    pub(crate) fn colour(self) -> &'static str {
        COLOURS[self.0 % COLOURS.len()]
    }

    /// Returns the lengths of dashes and gaps, as SVG has them.
    pub(crate) fn dashes(self) -> &'static str {
        DASHES[self.0 % DASHES.len()]
    }

    /// Returns the outline of the marker, around the origin.
    pub(crate) fn outline(self) -> &'static str {
        MARKERS[self.0 % MARKERS.len()]
    }
}
