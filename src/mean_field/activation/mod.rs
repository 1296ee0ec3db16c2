//! Activation y = φ(x), entry by entry.
//!
//! ```text
//! E y_a y_b = E φ(u) φ(v)      E y_a = E φ(u)      (u, v) Gaussian with the moments of (x_a, x_b)
//! E g_a g_b' = E g_a g_b E φ'(u) φ'(v)             E (g' x)_a (g' x)_b = E g_a g_b E φ'(u)u φ'(v)v
//! ```
//!
//! With φ(σz) = Σ_n α_n(σ) h_n(z), h_n the normalised Hermite polynomials, and correlation ρ (Mehler 1866)
//!
//! ```text
//! E φ(u) φ(v) = Σ α_n(σ_u) α_n(σ_v) ρⁿ      σ_u σ_v E φ'φ' = d/dρ of it      E φ'(u)u φ'(v)v: dα_n/d ln σ in place of α_n
//! ```
//!
//! or closed forms ([`kernel`]); own moments and α_n by quadrature ([`table`]).
//!
//! Assumption: x has mean zero and is Gaussian, as behind a linear map. Source: Cho & Saul 2009; Poole et al. 2016.

pub(crate) mod function;
pub(crate) mod kernel;
pub(crate) mod nodes;
mod series;
mod table;

use std::sync::Arc;

use sigprop_stack::Activation;

use self::function::{Degrees, homogeneous, large_degrees, small_degrees};
use self::kernel::closed;
use self::series::Series;
pub(crate) use self::table::Table;
use super::moments::{Few, Gradient, Kernel, Next, Signal, correlation};
use super::scalar::Scalar;
use super::{MeanField, Parameter};

/// A function of the pair (u, v).
#[derive(Clone, Copy, Debug)]
enum Of {
    /// φ(u) φ(v).
    Values,
    /// φ'(u) φ'(v).
    Derivatives,
    /// φ'(u)u φ'(v)v.
    Slopes,
}

/// An activation with its table.
#[derive(Clone, Debug)]
pub(crate) struct Rule(Arc<Table>);

impl Rule {
    /// With a table of its own.
    pub(crate) fn new(activation: Activation) -> Self {
        Self(Arc::new(Table::new(activation)))
    }

    /// The unit of x that is looked up, and ln of the units of φ² and φ'² where it is another: beyond the scales of tables φ is
    /// a power.
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

    /// A function of both tokens at all points.
    fn pairs<S: Scalar>(&self, x: &Signal<S>, variances: &[S], unit: f64, of: Of) -> Few<S> {
        let activation = self.0.activation;
        if homogeneous(activation).is_none() && (matches!(of, Of::Slopes) || !is_closed(activation)) {
            return Series::new(&self.0, variances, of).pairs(x, variances, unit);
        }
        // u φ'(u) of a homogeneous function is its degree times φ(u).
        let degree = homogeneous(activation).map_or(1.0, |degrees| degrees.value);
        x.kernel.map_pairs(variances, |_, ends, product| {
            let correlation = correlation(ends, product * unit);
            let (values, derivatives) = closed(activation, ends, correlation).expect("it has a closed form");
            match of {
                Of::Values => values,
                Of::Derivatives => derivatives,
                Of::Slopes => values * (degree * degree),
            }
        })
    }

    /// A function of both tokens as a kernel.
    fn kernel<S: Scalar>(&self, x: &Signal<S>, of: Of) -> Kernel<S> {
        let (unit, [ln_values, ln_derivatives]) = self.units(x.kernel.ln_unit);
        let variances: Few<S> = x.kernel.own.iter().map(|&own| own * unit).collect();
        let own = |&variance: &S| {
            let at = self.0.at(variance);
            match of {
                Of::Values => at.second,
                Of::Derivatives => at.derivative_second,
                Of::Slopes => at.slope_second * variance,
            }
        };
        let ln_unit = if matches!(of, Of::Derivatives) { ln_derivatives } else { ln_values };
        x.kernel.with(ln_unit, variances.iter().map(own).collect(), self.pairs(x, &variances, unit, of))
    }

    /// E (g x)_a (g x)_b of the gradient g at the input x, whose kernel this is.
    pub(crate) fn with_signal<S: Scalar>(&self, x: &Signal<S>, gradient: &Kernel<S>) -> Kernel<S> {
        gradient.times(&self.kernel(x, Of::Slopes)).over(&self.kernel(x, Of::Derivatives))
    }
}

impl<S: Scalar> MeanField<S> for Rule {
    fn forward(&self, x: &Signal<S>) -> Signal<S> {
        let kernel = self.kernel(x, Of::Values);
        let (unit, [ln_values, _]) = self.units(x.kernel.ln_unit);
        let unit_of_mean = (0.5 * (ln_values - kernel.ln_unit)).exp();
        let means = x.kernel.own.iter().map(|&own| self.0.at(own * unit).mean * unit_of_mean).collect();
        let has_means = !function::is_odd(self.0.activation);
        Signal { means: has_means.then_some(means), ..Signal::centred(x.width, kernel) }
    }

    fn backward(&self, x: &Signal<S>, _: &Signal<S>, gradient: &Gradient<S>) -> Gradient<S> {
        let kernel = gradient.kernel.times(&self.kernel(x, Of::Derivatives));
        Gradient { next: Next::Activation(self.clone()), ..Gradient::independent(kernel) }
    }

    fn weights<'a>(&'a self, _: &Signal<S>, _: &Signal<S>, _: &Gradient<S>) -> Few<(Parameter<'a>, f64)> {
        Few::new()
    }
}

fn is_closed(activation: Activation) -> bool {
    closed(activation, [1.0, 1.0], 0.0).is_some()
}
