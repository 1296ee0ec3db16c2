//! Mehler's series of functions of two Gaussian variables.
//!
//! Where φ' has a jump at zero, α_n falls only like n^(−7/4). The series of jump · ramp is therefore subtracted term by
//! term, and its kernel, which is known, is added back:
//!
//! ```text
//! E φ(u) φ(v) = jump² E ramp(u) ramp(v) + Σ_n (α_n(σ_u) α_n(σ_v) − jump² σ_u σ_v ramp_n²) ρⁿ
//! ramp(z) = max(z, 0)      ramp_0 = 1/√(2π), ramp_1 = ½, ramp_n = ± (n − 3)!!/√(2π n!) for even n, else 0
//! ```
//!
//! where E is the average over u and v; u, v are two Gaussian variables of mean zero; z is the argument of the ramp; φ
//! is the activation; jump is the jump of φ' at zero; ramp is the function max(z, 0); ramp_n is the Hermite coefficient
//! of order n of the ramp; α_n is the Hermite coefficient of order n of φ(σz), as in [`super`]; σ_u, σ_v are the
//! standard deviations of u and v; ρ is the correlation of u and v; n is the order of a Hermite polynomial.
//!
//! A formula may have most of its coefficients beyond the last term, such as sin(30 z) at orders about 900. Its moments
//! give the sum of the remainder and its slope at ρ = 1:
//!
//! ```text
//! Σ_(n ≥ N) α_n² ρⁿ ≈ R ρ^m      R = E φ² − Σ_(n < N) α_n²      m = (σ² E φ'² − Σ_(n < N) n α_n²)/R
//! ```
//!
//! where N is the number of terms; R is the sum of the remaining squares; m is the mean order of the remaining terms; σ
//! is the standard deviation of u and v; φ' is the derivative of φ. This is a lower bound by Jensen's inequality, and
//! exact at ρ = 1. For two scales, R is the geometric mean of both, and m the mean. Negative ρ count for odd functions
//! alone.

use std::f64::consts::PI;
use std::sync::LazyLock;

use sigprop_stack::Activation;

use super::closed::closed;
use super::function::{SELU_ALPHA, SELU_SCALE, is_odd};
use super::shape::shape;
use super::table::{AtScale, TERMS, Table};
use crate::mean_field::few::Few;
use crate::mean_field::kernel::{Kernel, correlation};

/// A function of the pair (u, v).
#[derive(Clone, Copy, Debug)]
pub(in crate::mean_field) enum Of {
    /// φ(u) φ(v).
    Values,
    /// φ'(u) φ'(v).
    Derivatives,
    /// φ'(u)u φ'(v)v.
    Slopes,
}

/// ramp_n², the squared coefficients of the ramp max(z, 0).
static RAMP: LazyLock<[f64; TERMS]> = LazyLock::new(|| {
    let mut squares = [0.0; TERMS];
    [squares[0], squares[1], squares[2]] = [0.5 / PI, 0.25, 0.25 / PI];
    for n in (4..TERMS).step_by(2) {
        let n_f64 = n as f64;
        squares[n] = squares[n - 2] * (n_f64 - 3.0).powi(2) / (n_f64 * (n_f64 - 1.0));
    }
    squares
});

/// Returns the jump of φ' at zero, for activations without a closed form.
fn jump(activation: Activation) -> f64 {
    match activation {
        Activation::Relu6 => 1.0,
        Activation::Selu => SELU_SCALE * (1.0 - SELU_ALPHA),
        Activation::Expression(expression) => shape(expression).jump,
        _ => 0.0,
    }
}

/// The coefficients of a series at all nodes: α_n, or dα_n/d ln σ.
pub(super) struct Series {
    of: Of,
    jump: f64,
    terms: usize,
    /// `terms` coefficients per node, one node after the other.
    coefficients: Vec<f64>,
    /// The remainders of a formula, per node; `None` for other activations, whose remainders are negligible.
    remainders: Option<Vec<Remainder>>,
    is_odd: bool,
}

/// The terms beyond the last one.
#[derive(Clone, Copy, Debug)]
struct Remainder {
    /// The root of the sum of their squares.
    root: f64,
    /// The mean of their orders.
    order: f64,
}

impl Remainder {
    fn new(scale: &AtScale<'_>, of: Of, variance: f64, jump: f64) -> Self {
        /// Smaller shares of E φ² are rounding errors.
        const ROUNDING: f64 = 1e-12;
        let square = jump * jump;
        let (left, slope) = scale.remainder(|n| square * RAMP[n], 0.5 * square);
        if left <= ROUNDING * scale.second {
            return Self { root: 0.0, order: 0.0 };
        }
        let total = match of {
            Of::Values | Of::Derivatives => left,
            Of::Slopes => {
                let terms = (0..TERMS).map(|n| scale.slope(n).powi(2) - variance * square * RAMP[n]);
                variance * (scale.slope_second - 0.5 * square) - terms.sum::<f64>()
            }
        };
        Self { root: total.max(0.0).sqrt(), order: (slope / left).max(TERMS as f64) }
    }
}

impl Series {
    /// Computes the coefficients for arguments with these variances.
    pub(super) fn new(table: &Table, variances: &[f64], of: Of) -> Self {
        let scales: Few<AtScale<'_>> = variances.iter().map(|&variance| table.at(variance)).collect();
        let terms = scales.iter().map(AtScale::terms).max().unwrap_or(0);
        let coefficient = |scale: &AtScale<'_>, n| match of {
            Of::Values | Of::Derivatives => scale.coefficient(n),
            Of::Slopes => scale.slope(n),
        };
        let coefficients = scales.iter().flat_map(|scale| (0..terms).map(|n| coefficient(scale, n))).collect();
        let jump = jump(table.activation);
        let remainders = matches!(table.activation, Activation::Expression(_)).then(|| {
            scales.iter().zip(variances).map(|(scale, &variance)| Remainder::new(scale, of, variance, jump)).collect()
        });
        Self { of, jump, terms, coefficients, remainders, is_odd: is_odd(table.activation) }
    }

    /// Returns the expectation of the function at all points of `x`. The `variances` are at the nodes, and products of
    /// `x` are in units of `unit`.
    pub(super) fn pairs(&self, x: &Kernel, variances: &[f64], unit: f64) -> Few<f64> {
        let mut second = vec![0.0; self.terms];
        x.map_pairs(variances, |point, ends, product| {
            let (first, nodes) = x.positions.nodes_of(point);
            let correlation = correlation(ends, product * unit);
            let terms = self.terms.min(terms(correlation));
            second[..terms].iter_mut().enumerate().for_each(|(n, sum)| {
                *sum = nodes
                    .iter()
                    .map(|&(node, weight)| self.coefficients[node as usize * self.terms + n] * weight)
                    .sum();
            });
            let beyond = self.remainders.as_ref().map_or(0.0, |remainders| {
                let with =
                    |node: u32| self.beyond([first, node as usize].map(|node| remainders[node]), ends, correlation);
                nodes.iter().map(|&(node, weight)| weight * with(node)).sum()
            });
            let first = &self.coefficients[first * self.terms..][..terms];
            self.at(first, &second[..terms], ends, correlation) + beyond
        })
    }

    /// Returns the sum of the terms beyond the last one for two tokens with these remainders.
    fn beyond(&self, [first, second]: [Remainder; 2], ends: [f64; 2], correlation: f64) -> f64 {
        let size = first.root * second.root;
        if size == 0.0 || (correlation < 0.0 && !self.is_odd) {
            return 0.0;
        }
        let order = 0.5 * (first.order + second.order);
        let power = size * correlation.abs().powf(order - 1.0);
        match self.of {
            Of::Values | Of::Slopes => power * correlation,
            Of::Derivatives => power * order / (ends[0] * ends[1]).sqrt(),
        }
    }

    fn at(&self, first: &[f64], second: &[f64], ends: [f64; 2], correlation: f64) -> f64 {
        let scale = (ends[0] * ends[1]).sqrt();
        let square = self.jump * self.jump;
        let (mut sum, mut slope) = (0.0, 0.0);
        for (n, (&a, &b)) in first.iter().zip(second).enumerate().rev() {
            slope = slope * correlation + sum;
            sum = sum * correlation + (a * b - scale * (square * RAMP[n]));
        }
        let ramp = || closed(Activation::Relu, ends, correlation).expect("it has a closed form");
        let (values, derivatives) = if square > 0.0 { ramp() } else { (0.0, 0.0) };
        match self.of {
            Of::Values | Of::Slopes => sum + values * square,
            Of::Derivatives => slope / scale + derivatives * square,
        }
    }
}

/// Returns the number of terms of a series in powers of ρ that are larger than rounding, at least four: at ρ = 0 the
/// second derivative of a slope needs the third power.
fn terms(correlation: f64) -> usize {
    const FEWEST: usize = 4;
    /// Powers of ρ below this count as rounding, with a margin for the factors of derivatives.
    const ROUNDING: f64 = 1e-20;
    let terms = ROUNDING.ln() / correlation.abs().ln();
    if (0.0..(TERMS - FEWEST) as f64).contains(&terms) { terms.ceil() as usize + FEWEST } else { TERMS }
}

#[cfg(test)]
mod tests {
    use super::super::function::value_and_derivative;
    use super::*;
    use crate::quadrature::gaussian_nodes;

    #[test]
    fn squares_of_the_ramp_add_up_to_a_half() {
        // The remainder falls like n^(−3/2).
        let sum: f64 = RAMP.iter().sum();
        assert!((sum - 0.5).abs() < 1e-3 && sum < 0.5, "{sum}");
    }

    #[test]
    fn jumps_are_those_of_the_derivative() {
        for activation in Activation::ALL {
            if closed(activation, [1.0, 1.0], 0.0).is_some() {
                continue;
            }
            let [right, left] = [1e-9, -1e-9].map(|x| value_and_derivative(activation, x).1);
            assert!((right - left - jump(activation)).abs() < 1e-6, "{activation:?}");
        }
    }

    /// The omitted terms are rounding at a correlation and of fourth order next to it, as second derivatives of slopes
    /// require.
    #[test]
    fn terms_that_are_left_out_are_rounding() {
        let (table, variance) = (Table::new(Activation::Tanh), 1.3);
        for correlation in [0.0, 1e-9, 0.03, 0.4, -0.7, 0.95] {
            for of in [Of::Values, Of::Derivatives, Of::Slopes] {
                let series = Series::new(&table, &[variance], of);
                for (beside, tolerance) in [(0.0, 1e-14), (1e-3, 1e-11)] {
                    let at = |terms: usize| -> f64 {
                        let coefficients = &series.coefficients[..terms.min(series.terms)];
                        series.at(coefficients, coefficients, [variance; 2], correlation + beside)
                    };
                    let (few, all) = (at(terms(correlation)), at(TERMS));
                    assert!((few - all).abs() < tolerance, "{correlation} {of:?}: {few}, not {all}");
                }
            }
        }
    }

    /// E φ² and E φ'² of the series at ρ = 1, where the omitted terms are largest, agree with quadrature. Derivatives
    /// are less accurate for φ with kinks away from zero.
    #[test]
    fn series_add_up_to_second_moments() {
        for activation in Activation::ALL {
            if closed(activation, [1.0, 1.0], 0.0).is_some() {
                continue;
            }
            for variance in [0.1f64, 1.0, 3.0] {
                let table = Table::new(activation);
                let exact = gaussian_nodes(0.0, variance.sqrt()).into_iter().fold([0.0; 3], |sums, (z, weight)| {
                    let (value, derivative) = value_and_derivative(activation, variance.sqrt() * z);
                    let slope = derivative * variance.sqrt() * z;
                    let squares = [value * value, derivative * derivative, slope * slope];
                    std::array::from_fn(|k| sums[k] + weight * squares[k])
                });
                for (of, exact, tolerance) in
                    [(Of::Values, exact[0], 5e-5), (Of::Derivatives, exact[1], 4e-3), (Of::Slopes, exact[2], 1e-2)]
                {
                    let series = Series::new(&table, &[variance], of);
                    let coefficients = &series.coefficients;
                    let got: f64 = series.at(coefficients, coefficients, [variance; 2], 1.0);
                    assert!((got / exact - 1.0).abs() < tolerance, "{activation:?} {variance} {of:?}: {got} {exact}");
                }
            }
        }
    }
}
