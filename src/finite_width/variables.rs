//! The variables in which one network differs from the infinitely wide one.
//!
//! ```text
//! y = (u_a, u_b, r_ab, r_a, r_b, U, R)      u_a = ln |x_a|²/n      r_ab = x_a·x_b/(|x_a||x_b|)      of two tagged tokens a, b
//!                                           r_a = mean_b x_a·x_b/(|x_a| √(mean_b |x_b|²))          of a and all others
//!                                           U = ln mean_a |x_a|²/n      R = mean_{a≠b} x_a·x_b/mean_a |x_a|²      of all
//! ```
//!
//! They are functions of one network. Source: van Kampen 2007, chapter X (expansion in the size of a system).

use nalgebra::{SMatrix, SVector};

use crate::mean_field::kernel::Kernel;
use crate::mean_field::signal::Signal;

/// How many variables a stream has.
pub(crate) const VARIABLES: usize = 7;
/// u_a.
pub(crate) const U_A: usize = 0;
/// u_b.
pub(crate) const U_B: usize = 1;
/// r_ab.
pub(crate) const R_AB: usize = 2;
/// r_a.
pub(crate) const R_A: usize = 3;
/// r_b.
pub(crate) const R_B: usize = 4;
/// U.
pub(crate) const U: usize = 5;
/// R.
pub(crate) const R: usize = 6;
/// Of a pair of tokens: u_a, u_b and r_ab.
pub(super) const PAIR: usize = 3;

/// One number per variable of a stream.
pub(crate) type Vector = SVector<f64, VARIABLES>;
/// One number per pair of variables.
pub(crate) type Matrix = SMatrix<f64, VARIABLES, VARIABLES>;

/// Second moments of two tokens of a stream at infinite width, averaged over its sequence.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Moments {
    pub(crate) width: f64,
    /// E x², times e^`ln_unit`.
    pub(super) own: f64,
    pub(super) ln_unit: f64,
    pub(crate) correlation: f64,
    /// E x, in units of the root of that of E x².
    pub(super) mean: Option<f64>,
}

impl Moments {
    pub(crate) fn of(x: &Signal) -> Self {
        let positions = &x.kernel.positions;
        let (own, correlation) = averages(&x.kernel);
        let mean = x.means.as_ref().map(|means| positions.sum(|node| means[node]) / positions.length);
        Self { width: x.width, own, ln_unit: x.kernel.ln_unit, correlation, mean }
    }

    /// Features without mean, of variance 1, of tokens with this correlation.
    pub(crate) fn unit(correlation: f64) -> Self {
        Self { width: 1.0, own: 1.0, ln_unit: 0.0, correlation, mean: None }
    }

    /// ln E x².
    pub(crate) fn ln_level(&self) -> f64 {
        self.own.ln() + self.ln_unit
    }

    /// Whether all of it is exactly zero.
    pub(crate) fn is_zero(&self) -> bool {
        self.own <= 0.0
    }

    /// (E x)² over E x².
    pub(crate) fn mean_share(&self) -> f64 {
        if self.own > 0.0 { self.mean.map_or(0.0, |mean| mean * mean / self.own) } else { 0.0 }
    }
}

/// E x_a² without its unit, and the correlation of two tokens, averaged over a sequence.
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

/// ln E g_a² and the correlation of two tokens, averaged over a sequence.
pub(crate) fn levels(kernel: &Kernel) -> (f64, f64) {
    let (own, correlation) = averages(kernel);
    (own.ln() + kernel.ln_unit, correlation)
}

/// A stream at infinite width, and the means of u and r less what they are there.
#[derive(Clone, Copy)]
pub(crate) struct About<'x> {
    pub(crate) x: &'x Moments,
    pub(crate) means: [f64; 2],
}

impl About<'_> {
    /// E x² and its unit, and r, at the means.
    pub(crate) fn level(&self) -> (f64, f64) {
        (self.x.own * self.means[0].exp(), self.x.ln_unit)
    }

    pub(crate) fn correlation(&self) -> f64 {
        (self.x.correlation + self.means[1]).clamp(-1.0, 1.0)
    }
}
