//! Positions of numbers on an axis, and the numbers written next to it.
//!
//! An axis of sizes (variances) is logarithmic if the largest is more than ten times the smallest, or if sizes come
//! near the limits of f64. All other axes are linear and include zero: axes of correlations, and of sizes that hardly
//! change.

use std::f64::consts::LN_10;

use sigprop_stack::Number;

use crate::numerals::short;

/// The largest ratio of the largest to the smallest size on a linear axis.
const LARGEST_LINEAR_RATIO: f64 = 10.0;

/// The largest |log₁₀| of a size on a linear axis.
const LARGEST_LINEAR_EXPONENT: f64 = 300.0;

/// The smallest upper end of an axis of correlations. It keeps much smaller correlations visibly near zero.
const NOTABLE_CORRELATION: f64 = 0.1;

/// The approximate number of ticks of an axis.
const TICKS: f64 = 6.0;

/// The part of a step between ticks by which numbers may lie beyond the end of an axis. A correlation of −0.001, for
/// example, does not extend an axis that begins at zero.
const OVERHANG: f64 = 0.15;

/// The kind of the numbers on an axis.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Sense {
    /// A positive size, whose ratios matter.
    Size,
    /// A correlation, whose differences matter.
    Correlation,
}

/// A number next to an axis.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Tick {
    /// Position on the axis, from 0 (low end) to 1.
    pub(crate) share: f64,
    pub(crate) label: String,
}

/// A map from numbers to positions on an axis, as shares of its length.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Axis {
    /// True if coordinates are log₁₀ of the numbers.
    pub(crate) is_log: bool,
    /// Coordinate of the low end.
    pub(crate) low: f64,
    /// Coordinate of the high end.
    pub(crate) high: f64,
    pub(crate) ticks: Vec<Tick>,
}

impl Axis {
    /// Returns the axis that holds all `numbers`. A logarithmic axis ignores numbers without a logarithm.
    pub(crate) fn of(sense: Sense, numbers: impl Iterator<Item = Number>) -> Self {
        let numbers: Vec<Number> = numbers.filter(Number::is_finite).collect();
        if sense == Sense::Size {
            let (low, high) = range(numbers.iter().filter_map(log10));
            let is_wide = high - low > LARGEST_LINEAR_RATIO.log10();
            if low <= high && (is_wide || low.abs().max(high.abs()) > LARGEST_LINEAR_EXPONENT) {
                return Self::log(low, high);
            }
        }
        let held = match sense {
            Sense::Size => 0.0,
            Sense::Correlation => NOTABLE_CORRELATION,
        };
        let (low, high) = range(numbers.iter().map(Number::value).chain([0.0, held]));
        Self::linear(low, high)
    }

    /// Returns the axis of depth: the number of blocks passed, from 0 to `blocks`.
    pub(crate) fn depth(blocks: f64) -> Self {
        let high = blocks.max(1.0);
        let step = nice(high / TICKS).max(1.0);
        Self { is_log: false, low: 0.0, high, ticks: Vec::new() }.with_ticks(step, short)
    }

    /// Returns the axis from exactly `low` to `high`. A logarithmic axis needs positive ends.
    pub(crate) fn exact([low, high]: [f64; 2], is_log: bool) -> Self {
        if is_log {
            return Self::log_within(low.log10(), high.log10(), 0.0);
        }
        let axis = Self { is_log, low, high, ticks: Vec::new() };
        axis.with_ticks(nice((high - low) / TICKS), short)
    }

    fn linear(low: f64, high: f64) -> Self {
        let high = if high > low { high } else { 1.0 };
        let step = nice((high - low) / TICKS);
        let (low, high) = ((low / step + OVERHANG).floor() * step, (high / step - OVERHANG).ceil() * step);
        Self { is_log: false, low, high, ticks: Vec::new() }.with_ticks(step, short)
    }

    /// Returns the logarithmic axis of numbers whose log₁₀ is between `low` and `high`.
    fn log(low: f64, high: f64) -> Self {
        let padding = (0.03 * (high - low)).max(0.5 * (1.0 - (high - low)));
        Self::log_within(low, high, padding)
    }

    /// Returns the logarithmic axis from log₁₀ `low` to log₁₀ `high`, extended by `padding` at both ends.
    fn log_within(low: f64, high: f64, padding: f64) -> Self {
        let axis = Self { is_log: true, low: low - padding, high: high + padding, ticks: Vec::new() };
        if high - low > 3.0 {
            return axis.with_ticks(nice((high - low) / TICKS).max(1.0), |exponent| decimal(1.0, exponent));
        }
        let decades = axis.low.floor() as i64..=axis.high.floor() as i64;
        let numbers = decades.flat_map(|decade| [1.0, 2.0, 5.0].map(|digit: f64| (digit, decade as f64)));
        let ticks = numbers.map(|(digit, decade)| Tick {
            share: axis.share_of(decade + digit.log10()),
            label: decimal(digit, decade),
        });
        let ticks = ticks.filter(|tick| (0.0..=1.0).contains(&tick.share)).collect();
        Self { ticks, ..axis }
    }

    fn with_ticks(self, step: f64, label: impl Fn(f64) -> String) -> Self {
        let multiples = (self.low / step - 1e-9).ceil() as i64..=(self.high / step + 1e-9).floor() as i64;
        let values = multiples.map(|multiple| multiple as f64 * step);
        let ticks = values.map(|value| Tick { share: self.share_of(value), label: label(value) }).collect();
        Self { ticks, ..self }
    }

    fn share_of(&self, coordinate: f64) -> f64 {
        (coordinate - self.low) / (self.high - self.low)
    }

    /// Returns the coordinate of a number: itself or its log₁₀. `None` if the axis is logarithmic and the number has no
    /// logarithm.
    pub(crate) fn coordinate(&self, number: Number) -> Option<f64> {
        let coordinate = if self.is_log { log10(&number)? } else { number.value() };
        coordinate.is_finite().then_some(coordinate)
    }

    /// Returns the position of a number, from 0 to 1 or slightly beyond. `None` if it has no coordinate.
    pub(crate) fn share(&self, number: Number) -> Option<f64> {
        Some(self.share_of(self.coordinate(number)?).clamp(-0.05, 1.05))
    }
}

/// Returns the smallest and the largest value; (∞, −∞) if there is none.
fn range(values: impl Iterator<Item = f64>) -> (f64, f64) {
    values.fold((f64::INFINITY, f64::NEG_INFINITY), |(low, high), value| (low.min(value), high.max(value)))
}

/// Returns log₁₀ of a positive number; `None` for other numbers.
fn log10(number: &Number) -> Option<f64> {
    (number.value().is_sign_positive() && !number.is_zero() && number.is_finite()).then(|| number.ln_abs() / LN_10)
}

/// Returns the smallest of the numbers …, 1, 2, 5, 10, 20, 50, … that is not below `step`.
fn nice(step: f64) -> f64 {
    let decade = 10f64.powf(step.log10().floor());
    let digits = [1.0, 2.0, 5.0, 10.0].map(|digit| digit * decade);
    digits.into_iter().find(|nice| *nice >= step * (1.0 - 1e-9)).unwrap_or(10.0 * decade)
}

/// Formats `digit` · 10^`exponent`, as `0.05`, `200` or `2·10⁻¹²`.
fn decimal(digit: f64, exponent: f64) -> String {
    if (-3.0..=4.0).contains(&exponent) {
        return short(digit * 10f64.powf(exponent));
    }
    let raised: String = (exponent as i64).to_string().chars().map(superscript).collect();
    if digit > 1.0 { format!("{digit}·10{raised}") } else { format!("10{raised}") }
}

fn superscript(character: char) -> char {
    const DIGITS: [char; 10] = ['⁰', '¹', '²', '³', '⁴', '⁵', '⁶', '⁷', '⁸', '⁹'];
    character.to_digit(10).map_or('⁻', |digit| DIGITS[digit as usize])
}

#[cfg(test)]
mod tests {
    use super::*;

    fn axis(sense: Sense, values: &[f64]) -> Axis {
        Axis::of(sense, values.iter().copied().map(Number::from))
    }

    fn labels(axis: &Axis) -> Vec<&str> {
        axis.ticks.iter().map(|tick| tick.label.as_str()).collect()
    }

    #[test]
    fn sizes_over_a_decade_are_logarithmic() {
        let decade = axis(Sense::Size, &[1.0, 20.0]);
        assert!(decade.is_log);
        assert_eq!(labels(&decade), ["1", "2", "5", "10", "20"]);
        let decades = axis(Sense::Size, &[1e-12, 1e12]);
        assert_eq!(labels(&decades), ["10⁻¹⁰", "10⁻⁵", "1", "10⁵", "10¹⁰"]);
        // Zero has no logarithm, and does not affect the axis.
        assert_eq!(axis(Sense::Size, &[0.0, 1.0, 20.0]), decade);
        assert_eq!(decade.share(Number::ZERO), None);
    }

    #[test]
    fn all_else_starts_at_zero() {
        let flat = axis(Sense::Size, &[0.5, 1.0]);
        assert!(!flat.is_log);
        assert_eq!(labels(&flat), ["0", "0.2", "0.4", "0.6", "0.8", "1"]);
        assert_eq!(flat.share(0.5.into()), Some(0.5));
        let correlation = axis(Sense::Correlation, &[1e-6, 1.0]);
        assert!(!correlation.is_log);
        assert_eq!(labels(&axis(Sense::Correlation, &[-0.1, 0.1])), ["-0.1", "-0.05", "0", "0.05", "0.1"]);
        assert_eq!(labels(&axis(Sense::Correlation, &[1e-3])).last(), Some(&"0.1"));
        // Noise around zero does not extend the axis below zero.
        let noise = axis(Sense::Correlation, &[-0.004, 0.2]);
        assert_eq!(labels(&noise), ["0", "0.05", "0.1", "0.15", "0.2"]);
        assert!(noise.share((-0.004).into()).expect("linear") < 0.0);
    }

    #[test]
    fn works_beyond_f64() {
        let far = |exponent: f64| Number::from_ln(exponent * LN_10);
        let wide = Axis::of(Sense::Size, [far(-20_000.0), far(40_000.0)].into_iter());
        assert_eq!(labels(&wide)[..3], ["10⁻²⁰⁰⁰⁰", "10⁻¹⁰⁰⁰⁰", "1"]);
        let share = wide.share(far(10_000.0)).expect("it has a logarithm");
        assert!((share - 0.5).abs() < 1e-9, "{share}");
        let constant = Axis::of(Sense::Size, [far(400.0)].into_iter());
        assert!(constant.is_log);
        assert_eq!(labels(&constant), ["5·10³⁹⁹", "10⁴⁰⁰", "2·10⁴⁰⁰"]);
    }

    #[test]
    fn depth_ends_at_the_last_block() {
        let depth = Axis::depth(192.0);
        assert_eq!(labels(&depth), ["0", "50", "100", "150"]);
        assert_eq!(depth.share(192.0.into()), Some(1.0));
        assert_eq!(labels(&Axis::depth(2.0)), ["0", "1", "2"]);
    }
}
