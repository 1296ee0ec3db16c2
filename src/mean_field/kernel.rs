//! The kernel of a signal or of a gradient: second moments of single entries, averaged over networks.
//!
//! ```text
//! K_aa = E x_a² = own·e^ln_unit      K_ab = E x_a x_b = pairs·e^ln_unit
//! ```
//!
//! where a, b are positions of tokens; E is the average over random weights and over features; x_a, x_b are the same
//! entry of the vectors of tokens a and b; K_aa, K_ab are the entries of the kernel; own is a list with a number per
//! node; pairs is a list with a number per point of every class of pairs ([`super::positions`]); ln_unit is the
//! logarithm of the unit of both lists.
//!
//! Three words say where the numbers of both lists are:
//!
//! * a *node* is a position that is followed (others are interpolated), or a group of equivalent tokens;
//! * a *point* is a pair of positions that is followed, or a pair of groups;
//! * if ids are random, pairs with different ids are one *class* and pairs with the same id another; otherwise there is
//!   one class.
//!
//! In a plain encoder all tokens are equivalent. It has one node, one point, and one class, or two if ids are random.
//!
//! At infinite width this *kernel* decides everything that follows: entries are independent and, after a linear map,
//! jointly Gaussian. Entries of gradients have a kernel likewise. Source: Neal 1996; Lee et al. 2018 (NNGP); Poole
//! et al. 2016.

use std::sync::Arc;

use super::few::Few;
use super::positions::Positions;
use super::rotation::Rotation;

/// Second moments of the entries of all tokens, in units of e^`ln_unit`. The separate unit keeps the numbers finite
/// even after 10⁴ exploding layers.
#[derive(Clone, Debug)]
pub(crate) struct Kernel {
    /// The positions and pairs of positions that are followed.
    pub(crate) positions: Arc<Positions>,
    /// ln of the unit.
    pub(crate) ln_unit: f64,
    /// E x² at every node.
    pub(crate) own: Few<f64>,
    /// E x_a x_b of two different tokens, at every point, one class of pairs after the other.
    pub(crate) pairs: Few<f64>,
}

impl Kernel {
    /// Returns a kernel in units of 1, from a number per node and a number per point of every class.
    pub(crate) fn new(positions: &Arc<Positions>, own: impl Fn(usize) -> f64, pair: impl Fn(usize) -> f64) -> Self {
        let own = (0..positions.nodes()).map(own).collect();
        let pairs = (0..positions.points()).map(pair).collect();
        Self { positions: Arc::clone(positions), ln_unit: 0.0, own, pairs }
    }

    /// Returns a kernel at the same positions with other numbers, in units of e^`ln_unit`.
    pub(crate) fn with(&self, ln_unit: f64, own: Few<f64>, pairs: Few<f64>) -> Self {
        Self { positions: Arc::clone(&self.positions), ln_unit, own, pairs }
    }

    /// Returns the kernel of a signal that is exactly zero.
    pub(crate) fn zero(positions: &Arc<Positions>) -> Self {
        Self::new(positions, |_| 0.0, |_| 0.0)
    }

    /// Returns the kernel times `gain`.
    pub(crate) fn scaled(&self, gain: f64) -> Self {
        if gain == 0.0 {
            return Self::zero(&self.positions);
        }
        Self { ln_unit: self.ln_unit + gain.ln(), ..self.clone() }.balanced()
    }

    /// Returns this kernel, or a covariance, times a number that may be negative.
    pub(crate) fn multiplied(&self, factor: f64) -> Self {
        let times = |of: &Few<f64>| of.iter().map(|&number| number * factor).collect();
        self.with(self.ln_unit, times(&self.own), times(&self.pairs))
    }

    /// Returns the sum of kernels of uncorrelated signals, each times its factor.
    pub(crate) fn sum<'k>(parts: impl Iterator<Item = (f64, &'k Self)> + Clone) -> Self {
        let ln = |(factor, part): (f64, &Self)| factor.ln() + part.ln_unit;
        let ln_unit = parts.clone().map(ln).fold(f64::NEG_INFINITY, f64::max);
        let ln_unit = if ln_unit == f64::NEG_INFINITY { 0.0 } else { ln_unit };
        let mut sum: Option<Self> = None;
        for (factor, part) in parts {
            let factor = factor * (part.ln_unit - ln_unit).exp();
            let sum = sum.get_or_insert_with(|| Self { ln_unit, ..Self::zero(&part.positions) });
            let add = |(sum, &part): (&mut f64, &f64)| *sum += part * factor;
            sum.own.iter_mut().zip(&part.own).for_each(add);
            sum.pairs.iter_mut().zip(&part.pairs).for_each(add);
        }
        sum.expect("a sum has parts").balanced()
    }

    /// Returns this kernel plus `other`, which may be a covariance of two signals and negative.
    pub(crate) fn plus(&self, other: &Self) -> Self {
        let ln_unit = self.ln_unit.max(other.ln_unit);
        let [unit, of_other] = [self, other].map(|kernel| (kernel.ln_unit - ln_unit).exp());
        let sum = |a: &Few<f64>, b: &Few<f64>| a.iter().zip(b).map(|(&a, &b)| a * unit + b * of_other).collect();
        self.with(ln_unit, sum(&self.own, &other.own), sum(&self.pairs, &other.pairs))
    }

    /// Returns the product of both kernels, entry by entry: the kernel of the product of independent signals.
    pub(crate) fn times(&self, other: &Self) -> Self {
        let product = |a: &Few<f64>, b: &Few<f64>| a.iter().zip(b).map(|(&a, &b)| a * b).collect();
        let (own, pairs) = (product(&self.own, &other.own), product(&self.pairs, &other.pairs));
        self.with(self.ln_unit + other.ln_unit, own, pairs).balanced()
    }

    /// Returns E x_a x_b of two tokens with the same id minus E x_a x_b of two tokens with different ids, at every
    /// point of a class.
    pub(crate) fn of_same_ids(&self) -> Few<f64> {
        let [others, same] = [0, 1].map(|class| &self.pairs[self.positions.class(class)]);
        same.iter().zip(others).map(|(&same, &other)| same - other).collect()
    }

    /// Returns this kernel divided by `other`, entry by entry; the quotient is zero where `other` is zero.
    pub(crate) fn over(&self, other: &Self) -> Self {
        let ratio = |(&a, &b): (&f64, &f64)| if b == 0.0 { 0.0 } else { a / b };
        let quotient = |a: &Few<f64>, b: &Few<f64>| a.iter().zip(b).map(ratio).collect();
        let (own, pairs) = (quotient(&self.own, &other.own), quotient(&self.pairs, &other.pairs));
        self.with(self.ln_unit - other.ln_unit, own, pairs)
    }

    /// Returns the kernel of the signal plus an independent bias of this variance that is the same for all tokens.
    pub(crate) fn shifted(mut self, variance: f64) -> Self {
        if variance > 0.0 {
            let ln_unit = if self.is_zero() { variance.ln() } else { self.ln_unit.max(variance.ln()) };
            let [unit, more] = [self.ln_unit - ln_unit, variance.ln() - ln_unit].map(f64::exp);
            self.ln_unit = ln_unit;
            self.own.iter_mut().chain(&mut self.pairs).for_each(|number| *number = *number * unit + more);
        }
        self
    }

    /// Returns the values of `of` at all points. The arguments of `of` are a point, the values of `ends` at both
    /// tokens, and the product E x_a x_b.
    pub(crate) fn map_pairs(&self, ends: &[f64], mut of: impl FnMut(usize, [f64; 2], f64) -> f64) -> Few<f64> {
        let at = |(point, &product): (usize, &f64)| of(point, self.positions.ends(point, ends), product);
        self.pairs.iter().enumerate().map(at).collect()
    }

    /// Returns the kernel of the signal after a rotation.
    pub(crate) fn turned(&self, rotation: &Rotation) -> Self {
        let pairs = self.pairs.iter().enumerate().map(|(point, &pair)| pair * rotation.at(point));
        self.with(self.ln_unit, self.own.clone(), pairs.collect())
    }

    /// Returns Σ_ab over all tokens a, b of the product of two kernels, without their units.
    pub(crate) fn contracted(&self, other: &Self) -> f64 {
        let pairs = self.positions.sum_pairs(|point| self.pairs[point] * other.pairs[point]);
        self.positions.sum(|node| self.own[node] * other.own[node]) + pairs
    }

    /// Returns ln Σ_ab over all tokens a, b of the product of two kernels; −∞ if the terms with a ≠ b cancel the terms
    /// with a = b.
    pub(crate) fn ln_contracted(&self, other: &Self) -> f64 {
        let own = self.positions.sum(|node| self.own[node] * other.own[node]);
        let pairs = self.positions.sum_pairs(|point| self.pairs[point] * other.pairs[point]);
        ln_or_nothing(own, pairs) + self.ln_unit + other.ln_unit
    }

    /// Returns the sum of the kernel over all tokens a, b, without the unit.
    pub(crate) fn total(&self) -> f64 {
        self.positions.sum(|node| self.own[node]) + self.positions.sum_pairs(|point| self.pairs[point])
    }

    /// Returns ln of the sum of the kernel over all tokens a, b.
    pub(crate) fn ln_total(&self) -> f64 {
        let own = self.positions.sum(|node| self.own[node]);
        let pairs = self.positions.sum_pairs(|point| self.pairs[point]);
        ln_or_nothing(own, pairs) + self.ln_unit
    }

    /// Returns the kernel minus the number `common`, in units of e^`ln_unit`, at all nodes and points.
    pub(crate) fn less(&self, common: f64) -> Self {
        let less = |of: &Few<f64>| of.iter().map(|&number| number - common).collect();
        self.with(self.ln_unit, less(&self.own), less(&self.pairs))
    }

    /// Returns the doubly centred kernel K_ab − k_a − k_b + k̄, where k_a is the mean of K_ab over b ≠ a, and k̄ is the
    /// mean of k_a. Σ_ab G_ab K_ab stays the same for a gradient whose kernel has Σ_b G_ab = 0 for every a.
    pub(crate) fn doubly_centred(&self) -> Self {
        let positions = &self.positions;
        let others = (positions.length - 1.0).max(1.0);
        let rows = positions.row_sums(&positions.class_mean(|point| self.pairs[point]));
        let rows: Few<f64> = rows.iter().map(|&sum| sum / others).collect();
        let mean = positions.sum(|node| rows[node]) / positions.length;
        let own = self.own.iter().zip(&rows).map(|(&own, &row)| own - row * 2.0 + mean).collect();
        let pairs = self.map_pairs(&rows, |_, [a, b], pair| pair - a - b + mean);
        self.with(self.ln_unit, own, pairs)
    }

    /// Returns true if the signal is exactly zero.
    pub(crate) fn is_zero(&self) -> bool {
        self.own.iter().all(|&own| own <= 0.0)
    }

    /// Returns the kernel in the unit of its largest variance if its numbers are far from 1, because activations are
    /// tabulated near 1.
    fn balanced(mut self) -> Self {
        const LARGE: f64 = 1e10;
        let largest = self.own.iter().copied().fold(0.0, f64::max);
        if largest > 0.0 && !(LARGE.recip()..LARGE).contains(&largest) {
            self.ln_unit += largest.ln();
            let inverse = largest.recip();
            self.own.iter_mut().chain(&mut self.pairs).for_each(|number| *number *= inverse);
        }
        self
    }
}

/// Returns ln of the sum of two numbers; −∞ if they cancel except for rounding.
fn ln_or_nothing(own: f64, pairs: f64) -> f64 {
    const ROUNDING: f64 = 1e-12;
    let sum = own + pairs;
    if sum > ROUNDING * own.abs() { sum.ln() } else { f64::NEG_INFINITY }
}

/// Returns the correlation of two variables with these variances and this covariance; 0 if one of them is exactly zero.
pub(crate) fn correlation([a, b]: [f64; 2], covariance: f64) -> f64 {
    let scale = (a * b).sqrt();
    if scale > 0.0 { (covariance / scale).clamp(-1.0, 1.0) } else { 0.0 }
}

/// Kernels of the examples in the headers of the rules.
#[cfg(test)]
impl Kernel {
    /// Returns the kernel of `count` exchangeable tokens of this variance and correlation.
    pub(crate) fn of_tokens(count: f64, [variance, correlation]: [f64; 2]) -> Self {
        let positions = Arc::new(Positions::groups(&[count], None));
        Self::new(&positions, |_| variance, |_| variance * correlation)
    }

    /// Asserts that the means of E x_a² and of E x_a x_b over tokens and pairs of tokens are `variance` and
    /// `variance` · `correlation`.
    #[track_caller]
    pub(crate) fn assert_is(&self, [variance, correlation]: [f64; 2]) {
        let (positions, unit) = (&self.positions, self.ln_unit.exp());
        let pairs = positions.length * (positions.length - 1.0);
        let second = positions.sum(|node| self.own[node]) * (unit / positions.length);
        let product = positions.sum_pairs(|point| self.pairs[point]) * (unit / pairs);
        approx::assert_relative_eq!(second, variance, max_relative = 1e-6);
        approx::assert_relative_eq!(product, variance * correlation, epsilon = 1e-12, max_relative = 1e-6);
    }
}
