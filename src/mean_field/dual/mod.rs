//! Dual activations: E φ(u) φ(v) for Gaussian u and v, and the same expectation for φ' and for φ'(u)u.
//!
//! Mehler's formula (Mehler 1866) gives them as series:
//!
//! ```text
//! E φ(u) φ(v)      = Σ_n α_n(σ_u) α_n(σ_v) ρⁿ
//! E φ'(u) φ'(v)    = d/dρ E φ(u) φ(v)/(σ_u σ_v)
//! E φ'(u)u φ'(v)v  = Σ_n (dα_n/d ln σ_u)(dα_n/d ln σ_v) ρⁿ
//! ```
//!
//! where E is the average over u and v; u, v are two Gaussian variables of mean zero; φ is the activation; φ' is the
//! derivative of φ; σ_u, σ_v are the standard deviations of u and v; ρ is the correlation of u and v; α_n is the
//! coefficient in φ(σz) = Σ_n α_n(σ) h_n(z), with the normalised Hermite polynomials h_n; n is the order of a Hermite
//! polynomial.
//!
//! Some activations have closed forms (`closed.rs`). Second moments of single tokens and α_n are computed by quadrature
//! ([`table`]).
//!
//! Source: Daniely et al. 2016; closed forms: Cho & Saul 2009.

pub(crate) mod closed;
pub(crate) mod expression;
pub(crate) mod function;
pub(crate) mod nodes;
mod series;
pub(crate) mod shape;
mod table;

use std::sync::Arc;

use sigprop_stack::Activation;

use self::closed::closed;
use self::function::{Degrees, homogeneous, large_degrees, small_degrees};
pub(super) use self::series::Of;
use self::series::Series;
pub(crate) use self::table::Table;
use super::few::Few;
use super::kernel::{Kernel, correlation};
use super::signal::Signal;

/// The dual of an activation, with the table from which it is computed.
#[derive(Clone, Debug)]
pub(crate) struct Dual(Arc<Table>);

impl Dual {
    /// Returns the dual of an activation with an empty table.
    pub(crate) fn new(activation: Activation) -> Self {
        Self(Arc::new(Table::new(activation)))
    }

    /// Returns the unit of E x² for table look-ups, and ln of the factors by which φ² and φ'² from the table are
    /// multiplied. The factors are 1 inside the range of the table and powers of the scale of x beyond it. For
    /// homogeneous φ they are powers at every scale.
    fn units(&self, ln_unit: f64) -> (f64, [f64; 2]) {
        const ENDS: [f64; 2] = [-60.0, 40.0];
        let inside = ln_unit.clamp(ENDS[0], ENDS[1]);
        let (inside, Degrees { value, derivative }) = match homogeneous(self.0.activation) {
            Some(degrees) => (0.0, degrees),
            None if ln_unit < inside => (inside, small_degrees(self.0.activation)),
            None => (inside, large_degrees(self.0.activation)),
        };
        (inside.exp(), [value, derivative].map(|degree| degree * (ln_unit - inside)))
    }

    /// Returns E φ, E φ², E φ'² and E (uφ')² for an argument u with this variance.
    fn moments(&self, variance: f64) -> [f64; 4] {
        let Some(Degrees { value, derivative }) = homogeneous(self.0.activation) else {
            let at = self.0.at(variance);
            return [at.mean, at.second, at.derivative_second, at.slope_second * variance];
        };
        let at = self.0.at(1.0);
        let power = |degree: f64| {
            if degree > 0.0 { (0..degree as usize).fold(1.0, |all, _| all * variance) } else { 1.0 }
        };
        let root = if variance > 0.0 { power(value).sqrt() } else { 0.0 };
        [
            root * at.mean,
            power(value) * at.second,
            power(derivative) * at.derivative_second,
            power(derivative + 1.0) * at.slope_second,
        ]
    }

    /// Returns E φ² and E φ'² for an argument with this variance.
    pub(crate) fn second_moments(&self, variance: f64) -> [f64; 2] {
        let [_, values, derivatives, _] = self.moments(variance);
        [values, derivatives]
    }

    /// Returns the expectation of `of`, a function of x at two tokens, at all points. `variances` are the variances of
    /// x at the nodes; products of x are in units of `unit`.
    fn pairs(&self, x: &Kernel, variances: &[f64], unit: f64, of: Of) -> Few<f64> {
        let activation = self.0.activation;
        if homogeneous(activation).is_none() && (matches!(of, Of::Slopes) || !is_closed(activation)) {
            return Series::new(&self.0, variances, of).pairs(x, variances, unit);
        }
        // u φ'(u) of a homogeneous function is its degree times φ(u).
        let degree = homogeneous(activation).map_or(1.0, |degrees| degrees.value);
        x.map_pairs(variances, |_, ends, product| {
            let correlation = correlation(ends, product * unit);
            let (values, derivatives) = closed(activation, ends, correlation).expect("it has a closed form");
            match of {
                Of::Values => values,
                Of::Derivatives => derivatives,
                Of::Slopes => values * (degree * degree),
            }
        })
    }

    /// Returns the kernel of the expectations of `of`, a function of a signal at two tokens. The entries of the signal
    /// are Gaussian, or form the direction of a Gaussian vector.
    ///
    /// Let f(v) be the expectation for directions and F(v) the one for Gaussian entries, at the variance v. A Gaussian
    /// vector has the additional length √(χ²/m) of m degrees of freedom: F(v) = E f(v χ²/m). Hence f = F − v²
    /// F''/m + O(1/m²), here by second differences.
    pub(super) fn of_signal(&self, x: &Signal, of: Of) -> Kernel {
        let gaussian = self.kernel(&x.kernel, of);
        let Some(degrees) = x.length_lost else { return gaussian };
        let [below, above] = SIDES.map(|side| self.kernel(&x.kernel.scaled(side), of));
        let [low, high] = [&below, &above].map(|kernel| (kernel.ln_unit - gaussian.ln_unit).exp());
        let corrected = |at: &Few<f64>, below: &Few<f64>, above: &Few<f64>| {
            let points = at.iter().zip(below).zip(above);
            points.map(|((&at, &below), &above)| without_length([below * low, at, above * high], degrees)).collect()
        };
        let own = corrected(&gaussian.own, &below.own, &above.own);
        let pairs = corrected(&gaussian.pairs, &below.pairs, &above.pairs);
        gaussian.with(gaussian.ln_unit, own, pairs)
    }

    /// Returns E φ of a signal at every node, in units of the root of e^`ln_unit`; `None` if φ is odd.
    pub(super) fn means_of_signal(&self, x: &Signal, ln_unit: f64) -> Option<Few<f64>> {
        let gaussian = self.means(&x.kernel, ln_unit)?;
        let Some(degrees) = x.length_lost else { return Some(gaussian) };
        let [below, above] = SIDES.map(|side| self.means(&x.kernel.scaled(side), ln_unit));
        let points = gaussian.iter().zip(below?).zip(above?);
        Some(points.map(|((&at, below), above)| without_length([below, at, above], degrees)).collect())
    }

    /// Returns the kernel of the expectations of `of`, a function of Gaussian entries at two tokens.
    fn kernel(&self, x: &Kernel, of: Of) -> Kernel {
        let (unit, [ln_values, ln_derivatives]) = self.units(x.ln_unit);
        let variances: Few<f64> = x.own.iter().map(|&own| own * unit).collect();
        let own = |&variance: &f64| {
            let [_, values, derivatives, slopes] = self.moments(variance);
            match of {
                Of::Values => values,
                Of::Derivatives => derivatives,
                Of::Slopes => slopes,
            }
        };
        let ln_unit = if matches!(of, Of::Derivatives) { ln_derivatives } else { ln_values };
        if x.is_zero() {
            // All tokens are zero, and therefore equal.
            let at_zero = own(&0.0);
            return Kernel { ln_unit, ..Kernel::new(&x.positions, |_| at_zero, |_| at_zero) };
        }
        x.with(ln_unit, variances.iter().map(own).collect(), self.pairs(x, &variances, unit, of))
    }

    /// Returns E φ of Gaussian entries at every node, in units of the root of e^`ln_unit`; `None` if φ is odd.
    fn means(&self, x: &Kernel, ln_unit: f64) -> Option<Few<f64>> {
        let (unit, [ln_values, _]) = self.units(x.ln_unit);
        let unit_of_mean = (0.5 * (ln_values - ln_unit)).exp();
        let mean = |&own: &f64| self.moments(own * unit)[0] * unit_of_mean;
        (!function::is_odd(self.0.activation)).then(|| x.own.iter().map(mean).collect())
    }

    /// Returns E (g x)_a (g x)_b, where `gradient` is the kernel of the gradient g at the input x.
    pub(crate) fn with_signal(&self, x: &Signal, gradient: &Kernel) -> Kernel {
        gradient.times(&self.of_signal(x, Of::Slopes)).over(&self.of_signal(x, Of::Derivatives))
    }
}

/// Step of second differences in v, relative to v.
const APART: f64 = 0.25;
const SIDES: [f64; 2] = [1.0 - APART, 1.0 + APART];

/// Returns f(v) of `of_signal` from F below, at and above the variance v, for a length with these degrees of freedom.
fn without_length([below, at, above]: [f64; 3], degrees: f64) -> f64 {
    at - (below - at * 2.0 + above) * (APART * APART * degrees).recip()
}

fn is_closed(activation: Activation) -> bool {
    closed(activation, [1.0, 1.0], 0.0).is_some()
}
