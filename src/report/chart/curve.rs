//! One stream of one network in one panel.

use sigprop_stack::Number;

use super::{Sense, Style};
use crate::agreement::{Bounds, CLOSE, Comparison};
use crate::report::std_error;

/// One stream of one network.
pub(crate) struct Curve {
    pub(crate) style: Style,
    /// Name of the curve, shown as a tooltip.
    pub(crate) name: String,
    /// The vertices: the number of blocks passed, and the value there.
    pub(crate) vertices: Vec<(f64, Number)>,
    /// The band: the number of blocks passed, and the interval in which a single initialisation is expected there.
    pub(crate) band: Vec<(f64, [Number; 2])>,
    pub(crate) points: Vec<Point>,
    pub(crate) marks: Vec<Mark>,
}

/// An observed number.
pub(crate) struct Point {
    pub(crate) depth: f64,
    pub(crate) value: Number,
    /// The 95 % interval; `None` if the standard error is not known.
    pub(crate) bar: Option<[Number; 2]>,
}

/// A marked place on a curve.
pub(crate) struct Mark {
    pub(crate) depth: f64,
    pub(crate) value: Number,
    /// The text of the mark.
    pub(crate) label: String,
}

impl Curve {
    /// Returns all numbers that the axis must hold.
    pub(super) fn numbers(&self, sense: Sense, with_band: bool) -> impl Iterator<Item = Number> {
        let vertices = self.vertices.iter().map(|(_, value)| *value);
        let bands = self.band.iter().filter(move |_| with_band).flat_map(|(_, ends)| *ends);
        let points = self.points.iter().map(|point| point.value);
        let bars = self.points.iter().filter_map(|point| point.bar).flatten();
        // The end of a bar at or below zero is not a size.
        let bars = bars.filter(move |end| sense != Sense::Size || end.value() > 0.0);
        vertices.chain(bands).chain(points).chain(bars)
    }
}

impl Point {
    pub(super) fn of(seen: &Comparison, depth: f64, sense: Sense) -> Self {
        Self { depth, value: seen.observed, bar: bar(seen, sense) }
    }
}

/// Returns the 95 % interval of an observed number: two standard errors to each side, or more if replicates are few
/// (Student's t). `None` if the standard error is not known.
fn bar(seen: &Comparison, sense: Sense) -> Option<[Number; 2]> {
    let error = std_error(seen).filter(Number::is_finite)?;
    let value = seen.observed;
    let reach = Bounds::new(CLOSE).of(seen.replicates);
    match sense {
        Sense::Size => {
            let share = error.ratio(&value);
            share
                .is_finite()
                .then(|| [-reach, reach].map(|errors| Number::scaled(1.0 + errors * share, value.ln_abs())))
        }
        Sense::Correlation => Some([-reach, reach].map(|errors| Number::from(value.value() + errors * error.value()))),
    }
}
