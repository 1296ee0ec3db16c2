//! Moments of φ(σz) and φ'(σz) and Hermite coefficients of φ(σz), z ~ N(0, 1), by quadrature on a grid of ln σ² with
//! cubic interpolation.

use std::sync::OnceLock;

use sigprop_stack::Activation;

use super::function::{Degrees, is_odd, large_degrees, small_degrees, value_and_derivative, widest};
use super::nodes::{Nodes, Precision};

/// The number of coefficients α_n, n from 0.
pub(super) const TERMS: usize = 80;
/// Distance of two rows in ln σ².
const STEP: f64 = 1.0 / 32.0;
/// Range of ln σ² in the table. Beyond the range, moments are their values at its nearer end times a power of σ.
const ENDS: [f64; 2] = [-36.0, 27.0];

/// The number of moments that precede the coefficients: E φ, E φ², E φ'² and E (zφ')², in this order.
const MOMENTS: usize = 4;

/// The index of the first row, at ln σ² = `FIRST` · `STEP`. It is before the range of ln σ², because cubics need
/// neighbours beyond both ends.
const FIRST: i64 = (ENDS[0] / STEP) as i64 - 1;
/// The number of rows, with the neighbours beyond both ends.
const ROWS: usize = ((ENDS[1] - ENDS[0]) / STEP) as usize + 4;

/// The moments and coefficients at one scale.
type Row = [f64; MOMENTS + TERMS];

/// The rows of an activation, each integrated when it is first asked for.
#[derive(Debug)]
pub(crate) struct Table {
    pub(crate) activation: Activation,
    rows: Vec<OnceLock<Box<Row>>>,
}

/// The interpolated moments and coefficients at one scale.
pub(super) struct AtScale<'t> {
    pub(super) mean: f64,
    pub(super) second: f64,
    pub(super) derivative_second: f64,
    /// E (zφ')².
    pub(super) slope_second: f64,
    rows: [&'t Row; 4],
    /// ln σ² of the first row.
    start: f64,
    /// Weights of the rows, for coefficients.
    weights: [f64; 4],
    /// Derivatives of the weights with respect to ln σ.
    slopes: [f64; 4],
}

impl Table {
    /// Returns an empty table.
    pub(crate) fn new(activation: Activation) -> Self {
        Self { activation, rows: vec![const { OnceLock::new() }; ROWS] }
    }

    /// Returns the moments and coefficients for an argument with this variance.
    pub(super) fn at(&self, variance: f64) -> AtScale<'_> {
        let (ln, [root, value, derivative, slope]) = self.inside(variance);
        let cell = (ln / STEP).floor();
        let place = ln / STEP - cell;
        let (weights, slopes) = cubic(place);
        let rows = [-1, 0, 1, 2].map(|offset| self.row(cell as i64 + offset));
        let column = |index: usize| -> f64 { rows.iter().zip(weights).map(|(row, weight)| weight * row[index]).sum() };
        AtScale {
            mean: column(0) * root,
            second: column(1) * value,
            derivative_second: column(2) * derivative,
            slope_second: column(3) * slope,
            slopes: slopes.map(|slope| slope * root * (2.0 / STEP)),
            rows,
            start: (cell - 1.0) * STEP,
            weights: weights.map(|weight| weight * root),
        }
    }

    /// Returns ln σ², limited to the range of the table, and the factors on the tabulated φ, φ², φ'² and (zφ')²: 1
    /// inside the range, powers of σ outside.
    fn inside(&self, variance: f64) -> (f64, [f64; 4]) {
        let [first, _] = ENDS;
        // A formula may have panels for fewer scales than the table has rows.
        let last = ENDS[1].min(2.0 * widest(self.activation).ln());
        let small = small_degrees(self.activation);
        let powers = |Degrees { value, derivative }, slope: f64| [0.5 * value, value, derivative, slope];
        if variance <= f64::MIN_POSITIVE {
            let at_zero = powers(small, small.derivative).map(|degree| if degree > 0.0 { 0.0 } else { 1.0 });
            return (first, at_zero);
        }
        let ln = variance.ln();
        let (end, degrees) = if ln < first {
            (first, powers(small, small.derivative))
        } else if ln > last {
            let large = large_degrees(self.activation);
            // Where φ has a slope only for |σz| ≲ 1, z² is of order 1/σ² there.
            let slope = if large.derivative < 0.0 { large.derivative - 1.0 } else { large.derivative };
            (last, powers(large, slope))
        } else {
            return (ln, [1.0; 4]);
        };
        (end, degrees.map(|degree| ((ln - end) * degree).exp()))
    }

    fn row(&self, place: i64) -> &Row {
        let new = || Box::new(integrated(self.activation, (0.5 * place as f64 * STEP).exp()));
        self.rows[(place - FIRST) as usize].get_or_init(new)
    }
}

impl AtScale<'_> {
    /// Returns α_n.
    pub(super) fn coefficient(&self, n: usize) -> f64 {
        self.rows.iter().zip(self.weights).map(|(row, weight)| weight * row[MOMENTS + n]).sum()
    }

    /// Returns dα_n/d ln σ.
    pub(super) fn slope(&self, n: usize) -> f64 {
        self.rows.iter().zip(self.slopes).map(|(row, slope)| slope * row[MOMENTS + n]).sum()
    }

    /// Returns the sum of α_n² over the orders beyond the last coefficient, and that of n α_n², without the terms of a
    /// ramp: `ramps` are its squares at σ = 1, and `half` is the sum of all of them, with or without n.
    pub(super) fn remainder(&self, ramps: impl Fn(usize) -> f64, half: f64) -> (f64, f64) {
        let root: f64 = self.weights.iter().sum();
        let of_row = |place: usize| {
            let (row, variance) = (self.rows[place], (self.start + place as f64 * STEP).exp());
            let rest = |n: usize| row[MOMENTS + n].powi(2) - variance * ramps(n);
            let all = [row[1] - variance * half, variance * (row[2] - half)];
            [all[0] - (0..TERMS).map(rest).sum::<f64>(), all[1] - (0..TERMS).map(|n| n as f64 * rest(n)).sum::<f64>()]
        };
        self.weights.iter().enumerate().fold((0.0, 0.0), |(squares, slopes), (place, weight)| {
            let [square, slope] = of_row(place);
            (squares + root * weight * square, slopes + root * weight * slope)
        })
    }

    /// Returns the number of coefficients up to the last one that is not negligible.
    pub(super) fn terms(&self) -> usize {
        const SMALL: f64 = 1e-9;
        let row = self.rows[1];
        let limit = SMALL * row[1].sqrt();
        (0..TERMS).rev().find(|n| row[MOMENTS + n].abs() > limit).map_or(0, |last| last + 1)
    }
}

/// Returns the cubic Lagrange weights of the points −1, 0, 1, 2 at `x`, and their derivatives.
fn cubic(x: f64) -> ([f64; 4], [f64; 4]) {
    let [a, b, c] = [x + 1.0, x - 1.0, x - 2.0];
    let weights = [x * b * c / -6.0, a * b * c / 2.0, a * x * c / -2.0, a * x * b / 6.0];
    let product = |u: f64, v: f64, w: f64| u * v + v * w + w * u;
    let slopes = [product(x, b, c) / -6.0, product(a, b, c) / 2.0, product(a, x, c) / -2.0, product(a, x, b) / 6.0];
    (weights, slopes)
}

fn integrated(activation: Activation, scale: f64) -> [f64; MOMENTS + TERMS] {
    let mut row = [0.0; MOMENTS + TERMS];
    for &(z, weight) in Nodes::new(activation, scale, Precision::Series).around(0.0).iter() {
        let (value, derivative) = value_and_derivative(activation, scale * z);
        let moments = [value, value * value, derivative * derivative, (z * derivative).powi(2)];
        row.iter_mut().zip(moments).for_each(|(sum, moment)| *sum += weight * moment);
        let (mut previous, mut hermite) = (0.0, 1.0);
        for (n, sum) in row[MOMENTS..].iter_mut().enumerate() {
            *sum += weight * value * hermite;
            let next = (z * hermite - (n as f64).sqrt() * previous) / ((n + 1) as f64).sqrt();
            (previous, hermite) = (hermite, next);
        }
    }
    if is_odd(activation) {
        row[0] = 0.0;
        row[MOMENTS..].iter_mut().step_by(2).for_each(|coefficient| *coefficient = 0.0);
    }
    row
}

#[cfg(test)]
mod tests {
    use super::*;
    use approx::assert_relative_eq;

    /// Returns the moments and coefficients at one variance.
    fn of(activation: Activation, variance: f64) -> AtScale<'static> {
        Box::leak(Box::new(Table::new(activation))).at(variance)
    }

    /// For variances far below the range of the table, φ acts like a line or a constant.
    #[test]
    fn small_arguments_see_a_line() {
        for variance in [1e-20, 1e-60, 1e-200] {
            assert_relative_eq!(of(Activation::Tanh, variance).second, variance, max_relative = 1e-9);
            assert_relative_eq!(of(Activation::Gelu, variance).second, 0.25 * variance, max_relative = 1e-6);
            assert_relative_eq!(of(Activation::Sigmoid, variance).second, 0.25, max_relative = 1e-9);
            assert_relative_eq!(of(Activation::Tanh, variance).derivative_second, 1.0, max_relative = 1e-9);
            assert_relative_eq!(of(Activation::Tanh, variance).coefficient(1).powi(2), variance, max_relative = 1e-9);
        }
        assert_eq!(of(Activation::Tanh, 0.0).second.to_bits(), 0);
    }

    /// For variances far above the range of the table, φ acts like a ramp, a parabola or a step.
    #[test]
    fn large_arguments_see_a_power() {
        use std::f64::consts::PI;
        for variance in [1e11f64, 1e13, 1e16, 1e100] {
            let std = variance.sqrt();
            for activation in [Activation::Gelu, Activation::GeluTanh, Activation::Silu, Activation::Mish] {
                let at = of(activation, variance);
                assert_relative_eq!(at.second, variance / 2.0, max_relative = 1e-5);
                assert_relative_eq!(at.mean, std / (2.0 * PI).sqrt(), max_relative = 1e-5);
                assert_relative_eq!(at.derivative_second, 0.5, max_relative = 1e-5);
                assert_relative_eq!(at.slope_second, 0.5, max_relative = 1e-5);
                assert_relative_eq!(at.coefficient(1), std / 2.0, max_relative = 1e-5);
            }
            assert_relative_eq!(of(Activation::Xielu, variance).second, 0.96 * variance.powi(2), max_relative = 1e-4);
            // ∫ sech⁴ and ∫ x² sech⁴, times the density at zero.
            let at = of(Activation::Tanh, variance);
            assert_relative_eq!(at.second, 1.0, max_relative = 1e-5);
            let density = 1.0 / (std * (2.0 * PI).sqrt());
            assert_relative_eq!(at.derivative_second, 4.0 / 3.0 * density, max_relative = 1e-4);
            let slope = (PI * PI / 9.0 - 2.0 / 3.0) * density / variance;
            assert_relative_eq!(at.slope_second, slope, max_relative = 1e-4);
        }
    }
}
