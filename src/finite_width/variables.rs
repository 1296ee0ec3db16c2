//! The variables in which one network differs from the infinitely wide one.
//!
//! ```text
//! y = (u_a, u_b, r_ab, r_a, r_b, U, R)
//! two tagged tokens a, b      u_a = ln |x_a|²/n                r_ab = x_a·x_b/(|x_a||x_b|)
//! a and all others            r_a = mean_{b≠a} x_a·x_b/(|x_a| √(mean_b |x_b|²))
//! all tokens                  U = ln mean_a |x_a|²/n           R = mean_{a≠b} x_a·x_b/mean_a |x_a|²
//! ```
//!
//! where y is the vector of the variables of one stream; a, b are positions of tokens; x_a, x_b are the vectors of
//! tokens a and b; n is the number of features; u_a, u_b are the logarithms of the mean squares of the two tagged
//! tokens; r_ab is the cosine of the two tagged tokens; r_a, r_b are the correlations of each tagged token with all
//! other tokens; U is the logarithm of the mean square of all tokens; R is the mean correlation of two different tokens
//! of the sequence; mean_a, mean_b, mean_{b≠a}, mean_{a≠b} are averages over the tokens in the index.
//!
//! Each network has its own values of these variables. Source: van Kampen 2007, chapter X (expansion in the size of a
//! system).

use nalgebra::{SMatrix, SVector};

use crate::mean_field::kernel::Kernel;
use crate::mean_field::signal::Signal;

/// The number of variables of a stream.
pub(crate) const VARIABLES: usize = 7;
/// The index of u_a, the logarithm of the mean square of token a.
pub(crate) const U_A: usize = 0;
/// The index of u_b, the logarithm of the mean square of token b.
pub(crate) const U_B: usize = 1;
/// The index of r_ab, the cosine of tokens a and b.
pub(crate) const R_AB: usize = 2;
/// The index of r_a, the correlation of token a with all other tokens.
pub(crate) const R_A: usize = 3;
/// The index of r_b, the correlation of token b with all other tokens.
pub(crate) const R_B: usize = 4;
/// The index of U, the logarithm of the mean square of all tokens.
pub(crate) const U: usize = 5;
/// The index of R, the mean correlation of two different tokens.
pub(crate) const R: usize = 6;
/// The number of variables of a pair of tokens: u_a, u_b and r_ab.
pub(super) const PAIR: usize = 3;

/// One number per variable of a stream.
pub(crate) type Vector = SVector<f64, VARIABLES>;
/// One number per pair of variables.
pub(crate) type Matrix = SMatrix<f64, VARIABLES, VARIABLES>;

/// Second moments of two tokens of a stream at infinite width, averaged over its sequence.
#[derive(Clone, Copy, Debug)]
pub(crate) struct PairMoments {
    pub(crate) width: f64,
    /// E x²/e^`ln_unit`.
    pub(super) own: f64,
    pub(super) ln_unit: f64,
    /// The correlation of two tokens.
    pub(crate) correlation: f64,
    /// E x/e^(`ln_unit`/2); `None` if the signal has no means.
    pub(super) mean: Option<f64>,
}

impl PairMoments {
    pub(crate) fn of(x: &Signal) -> Self {
        let positions = &x.kernel.positions;
        let (own, correlation) = averages(&x.kernel);
        let mean = x.means.as_ref().map(|means| positions.sum(|node| means[node]) / positions.length);
        Self { width: x.width, own, ln_unit: x.kernel.ln_unit, correlation, mean }
    }

    /// The moments of features of mean 0 and variance 1, whose tokens have this correlation.
    pub(crate) fn unit(correlation: f64) -> Self {
        Self { width: 1.0, own: 1.0, ln_unit: 0.0, correlation, mean: None }
    }

    /// Returns ln E x².
    pub(crate) fn ln_level(&self) -> f64 {
        self.own.ln() + self.ln_unit
    }

    /// Returns true if the signal is exactly zero.
    pub(crate) fn is_zero(&self) -> bool {
        self.own <= 0.0
    }

    /// Returns (E x)²/E x².
    pub(crate) fn mean_share(&self) -> f64 {
        if self.own > 0.0 { self.mean.map_or(0.0, |mean| mean * mean / self.own) } else { 0.0 }
    }
}

/// Returns E x_a² in units of e^`ln_unit`, and the correlation of two tokens, averaged over a sequence.
fn averages(kernel: &Kernel) -> (f64, f64) {
    let positions = &kernel.positions;
    let count = positions.length;
    let own = positions.sum(|node| kernel.own[node]) / count;
    if own <= 0.0 || count <= 1.0 {
        return (own, 0.0);
    }
    let pair = positions.sum_pairs(|point| kernel.pairs[point]) / (count * (count - 1.0));
    (own, (pair / own).clamp(-1.0, 1.0))
}

/// Returns ln E g_a² and the correlation of two tokens, averaged over a sequence.
pub(crate) fn levels(kernel: &Kernel) -> (f64, f64) {
    let (own, correlation) = averages(kernel);
    (own.ln() + kernel.ln_unit, correlation)
}

/// A stream at infinite width, and the shifts of its means at finite width.
#[derive(Clone, Copy)]
pub(crate) struct ExpansionPoint<'x> {
    pub(crate) x: &'x PairMoments,
    /// E u_a and E r_ab less their values at infinite width.
    pub(crate) means: [f64; 2],
}

impl ExpansionPoint<'_> {
    /// Returns E x² at the means, as a number and ln of its unit.
    pub(crate) fn level(&self) -> (f64, f64) {
        (self.x.own * self.means[0].exp(), self.x.ln_unit)
    }

    /// Returns the correlation of two tokens at the means.
    pub(crate) fn correlation(&self) -> f64 {
        (self.x.correlation + self.means[1]).clamp(-1.0, 1.0)
    }
}
