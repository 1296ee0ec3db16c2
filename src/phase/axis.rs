//! The axes of a map: the number that is varied, its range, and the values at which predictions are made.

use std::{fmt, str::FromStr};

/// Number of values along an axis by default.
const POINTS: usize = 17;

/// Largest number of values along an axis.
const MAX_POINTS: usize = 1000;

/// One axis of a map.
///
/// ```
/// use sigprop::phase::Axis;
///
/// let axis: Axis = "weight-gain=0.1..10:5".parse()?;
/// assert_eq!((axis.name.as_str(), axis.points, axis.is_log), ("weight-gain", 5, true));
/// let axis: Axis = "branch-scale=0..1".parse()?;
/// assert_eq!((axis.points, axis.is_log), (17, false));
/// # Ok::<(), sigprop::phase::AxisError>(())
/// ```
#[derive(Clone, Debug, PartialEq)]
pub struct Axis {
    /// Name of the number that is varied.
    pub name: String,
    /// The smallest value.
    pub low: f64,
    /// The largest value.
    pub high: f64,
    /// Number of values; the axis has fewer if rounding to whole numbers makes some of them equal.
    pub points: usize,
    /// True if the values are evenly spaced in the logarithm.
    pub is_log: bool,
}

/// The error for a text that describes no axis.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("expected NAME=LOW..HIGH[:POINTS][:linear], {expected}, got {got}")]
pub struct AxisError {
    /// The part of the text that is expected.
    pub expected: &'static str,
    /// The text that was found in its place.
    pub got: String,
}

/// Reads an axis. It is logarithmic if it starts above zero, unless the text says that it is linear.
impl FromStr for Axis {
    type Err = AxisError;

    fn from_str(text: &str) -> Result<Self, AxisError> {
        let error = |expected, got: &str| AxisError { expected, got: got.to_owned() };
        let (name, rest) = text.split_once('=').ok_or_else(|| error("as weight-gain=0.1..10", text))?;
        let (rest, is_linear) = rest.strip_suffix(":linear").map_or((rest, false), |rest| (rest, true));
        let (range, points) = rest.split_once(':').map_or((rest, None), |(range, points)| (range, Some(points)));
        let ends = range.split_once("..").ok_or_else(|| error("with .. between LOW and HIGH", range))?;
        let end = |text: &str| {
            let value: Option<f64> = text.parse().ok();
            value.filter(|value| value.is_finite()).ok_or_else(|| error("LOW and HIGH finite numbers", text))
        };
        let (low, high) = (end(ends.0)?, end(ends.1)?);
        if low >= high {
            return Err(error("LOW below HIGH", range));
        }
        let count = |text: &str| {
            let count = text.parse().ok().filter(|points| (2..=MAX_POINTS).contains(points));
            count.ok_or_else(|| error("POINTS a whole number from 2 to 1000", text))
        };
        let points = points.map_or(Ok(POINTS), count)?;
        Ok(Self { name: name.to_owned(), low, high, points, is_log: low > 0.0 && !is_linear })
    }
}

/// Writes the axis in the form in which it is read.
impl fmt::Display for Axis {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { name, low, high, points, is_log } = self;
        let linear = if *is_log { "" } else { ":linear" };
        write!(out, "{name}={low}..{high}:{points}{linear}")
    }
}

impl Axis {
    /// The values along the axis, ascending. They are whole numbers if `is_whole` is true.
    pub(super) fn values(&self, is_whole: bool) -> Vec<f64> {
        let steps = self.points - 1;
        let value = |step: usize| match step {
            0 => self.low,
            step if step == steps => self.high,
            step => self.between([self.low, self.high], step as f64 / steps as f64),
        };
        let values = (0..self.points).map(value);
        let mut values: Vec<f64> = if is_whole { values.map(f64::round).collect() } else { values.collect() };
        values.dedup();
        values
    }

    /// The value at a `share` of the distance between `from` and `to`, on the linear or logarithmic scale of the axis.
    pub(super) fn between(&self, [from, to]: [f64; 2], share: f64) -> f64 {
        if self.is_log { from * (to / from).powf(share) } else { from + share * (to - from) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn axis(text: &str) -> Axis {
        text.parse().unwrap_or_else(|error| panic!("{error}"))
    }

    #[test]
    fn logarithms_go_in_equal_factors() {
        let values = axis("a=0.1..10:5").values(false);
        for (value, expected) in values.iter().zip([0.1, 10_f64.powf(-0.5), 1.0, 10_f64.sqrt(), 10.0]) {
            approx::assert_relative_eq!(*value, expected, max_relative = 1e-12);
        }
        assert_eq!(axis("a=0.1..0.3:3:linear").values(false), [0.1, 0.2, 0.3]);
        assert_eq!(axis("a=-1..1:3").values(false), [-1.0, 0.0, 1.0]);
        for text in ["a=0.1..10:5", "a=0.1..0.3:3:linear", "a=-1..1:17:linear"] {
            assert_eq!(axis(text).to_string(), text);
        }
    }

    #[test]
    fn whole_numbers_are_met_once() {
        assert_eq!(axis("layers=1..8:9").values(true), [1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 8.0]);
    }

    #[test]
    fn bad_axes_say_what_is_wrong() {
        let message = |text: &str| Axis::from_str(text).expect_err(text).to_string();
        assert!(message("weight-gain").ends_with("as weight-gain=0.1..10, got weight-gain"));
        assert!(message("a=1-2").ends_with("with .. between LOW and HIGH, got 1-2"));
        assert!(message("a=x..2").ends_with("finite numbers, got x"));
        assert!(message("a=1..inf").ends_with("finite numbers, got inf"));
        assert!(message("a=2..1").ends_with("LOW below HIGH, got 2..1"));
        assert!(message("a=nan..1").ends_with("finite numbers, got nan"));
        for points in ["1", "1001", "x", "", "5:log"] {
            let text = format!("a=1..2:{points}");
            assert!(message(&text).ends_with(&format!("from 2 to 1000, got {points}")), "{}", message(&text));
        }
    }
}
