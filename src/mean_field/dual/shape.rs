//! Facts about a formula that other activations state by name, and the panels of its quadrature.
//!
//! # Formula
//!
//! A panel is an interval of x on which Gauss–Legendre's rule integrates φ, φ', φ² and φ'² to [`TOLERANCE`]. An interval
//! is halved until the rules of both halves confirm its own. An interval as narrow as rounding that they do not confirm
//! is a kink: it becomes the end of two panels. If a square on it is not negligible, averages over φ do not exist.
//!
//! # Assumptions
//!
//! Features of φ are not narrower than a tenth of |x|, or of 1/4. Beyond the panels, moments are powers of the scale of
//! x, with the exponents at the largest scale that panels cover.
//!
//! # Source
//!
//! Own derivation.

use std::collections::HashMap;
use std::sync::{LazyLock, Mutex, PoisonError};

use sigprop_stack::Expression;

use super::expression::{UnfitExpression, value_and_derivative};
use crate::quadrature::{fine_rule, nodes_between};

/// Degrees by which moments scale: E φ(s x)² → s^(2 value) E φ(x)² and E φ'(s x)² → s^(2 derivative) E φ'(x)².
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Degrees {
    pub(crate) value: f64,
    pub(crate) derivative: f64,
}

/// Facts about a formula that rules need.
#[derive(Debug)]
pub(crate) struct Shape {
    /// Why averages over φ do not exist; `None` if they do.
    pub(crate) unfit: Option<UnfitExpression>,
    /// The ends of the panels, in increasing order.
    pub(crate) breaks: Vec<f64>,
    /// The largest standard deviation of x at which panels cover its distribution.
    pub(crate) widest: f64,
    pub(crate) is_odd: bool,
    /// True if φ is constant on one side of zero, apart from the neighbourhood of zero.
    pub(crate) is_flat: bool,
    /// The jump of φ' at zero.
    pub(crate) jump: f64,
    pub(crate) small: Degrees,
    pub(crate) large: Degrees,
}

/// Returns the facts about a formula, which are computed once.
pub(crate) fn shape(expression: Expression) -> &'static Shape {
    static SHAPES: LazyLock<Mutex<HashMap<&'static str, &'static Shape>>> = LazyLock::new(Mutex::default);
    let known = |shapes: &HashMap<&'static str, &'static Shape>| shapes.get(expression.text()).copied();
    if let Some(shape) = known(&SHAPES.lock().unwrap_or_else(PoisonError::into_inner)) {
        return shape;
    }
    let new: &'static Shape = Box::leak(Box::new(Shape::new(expression)));
    SHAPES.lock().unwrap_or_else(PoisonError::into_inner).entry(expression.text()).or_insert(new)
}

/// The largest |x| of panels: fourteen standard deviations at the end of the tables of moments.
const FARTHEST: f64 = (1 << 24) as f64;
/// Standard deviations of x that panels must cover.
const COVERED: f64 = 10.0;
/// The standard deviations at which the degrees of small scales are taken.
const NEAREST: f64 = 1e-8;
/// The largest degree at which averages of fourth powers do not depend on arguments beyond the nodes.
const LARGEST_DEGREE: f64 = 6.0;

impl Shape {
    fn new(expression: Expression) -> Self {
        let sides = [1.0, -1.0].map(|sign| Panels::new(expression, sign));
        let reach = sides[0].reach.min(sides[1].reach);
        let mut breaks: Vec<f64> = sides.iter().flat_map(|side| side.ends.iter().copied()).collect();
        breaks.retain(|x| x.abs() <= reach);
        breaks.sort_by(f64::total_cmp);
        breaks.dedup();
        let at = |x| value_and_derivative(expression, x);
        let pairs = [0.137, 0.9, 1.7, 3.1, 8.3].map(|x| (at(x).0, at(-x).0));
        let is_odd = pairs.iter().all(|(right, left)| (right + left).abs() <= 1e-13 * right.abs()) && at(0.0).0 == 0.0;
        let is_flat = [4.0, -4.0].iter().any(|x| [1.0, 2.0].iter().all(|times| at(x * times).1 == 0.0));
        let jump = at(1e-9).1 - at(-1e-9).1;
        let mut shape = Self {
            unfit: sides.iter().find_map(|side| side.unfit),
            breaks,
            widest: reach / COVERED,
            is_odd,
            is_flat,
            jump: if jump.abs() > 1e-6 { jump } else { 0.0 },
            small: Degrees { value: 0.0, derivative: 0.0 },
            large: Degrees { value: 0.0, derivative: 0.0 },
        };
        if shape.unfit.is_none() {
            shape.unfit = shape.unfit_at_breaks(expression);
        }
        if shape.unfit.is_none() {
            shape.small = shape.degrees(expression, NEAREST);
            shape.large = shape.degrees(expression, 0.5 * shape.widest);
            shape.unfit = (shape.large.value > LARGEST_DEGREE).then_some(UnfitExpression::Growth);
        }
        shape
    }

    /// Checks φ at zero and its continuity at the ends of panels.
    fn unfit_at_breaks(&self, expression: Expression) -> Option<UnfitExpression> {
        let at = |x| value_and_derivative(expression, x);
        let usual = [-3.0, -1.0, 1.0, 3.0].map(|x: f64| at(x).0.abs()).into_iter().fold(0.0, f64::max);
        if !(at(0.0).0.is_finite() && at(0.0).1.is_finite()) {
            return Some(UnfitExpression::NotFinite { x: 0.0 });
        }
        self.breaks.iter().find_map(|&x| {
            let side = ROUNDING * x.abs().max(1.0);
            let [left, right] = [x - side, x + side].map(|x| at(x).0);
            let is_jump = (right - left).abs() > SEEN * left.abs().max(right.abs()).max(usual);
            is_jump.then_some(UnfitExpression::Jump { x })
        })
    }

    /// Returns the degrees between a scale of x and twice this scale. Degrees that are nearly halves are halves.
    fn degrees(&self, expression: Expression, scale: f64) -> Degrees {
        let seconds = [scale, 2.0 * scale].map(|scale| {
            nodes_between(&self.breaks, false, 0.0, scale).iter().fold(
                [0.0; 2],
                |[values, derivatives], &(z, weight)| {
                    let (value, derivative) = value_and_derivative(expression, scale * z);
                    [values + weight * value * value, derivatives + weight * derivative * derivative]
                },
            )
        });
        let degree = |of: usize| {
            let [first, second] = [seconds[0][of], seconds[1][of]];
            if !(first > 0.0 && second > 0.0) {
                return 0.0;
            }
            let degree = (second / first).ln() / 4f64.ln();
            let half = 0.5 * (2.0 * degree).round();
            if (degree - half).abs() < 1e-3 { half } else { degree }
        };
        Degrees { value: degree(0), derivative: degree(1) }
    }
}

/// The largest error of a panel, relative to the integral of |φ|, |φ'|, φ² or φ'² over it.
const TOLERANCE: f64 = 1e-11;
/// The width of rounding, relative to x.
const ROUNDING: f64 = 1e-13;
/// The size of a jump that is no rounding error.
const SEEN: f64 = 1e-6;
/// The largest number of panels that are tried on one side of zero.
const MOST_PANELS: usize = 20_000;

/// The |x| that panels must cover, so that they have the arguments of networks.
const LEAST_REACH: f64 = 8.0;

/// The panels on one side of zero, from zero on.
struct Panels {
    expression: Expression,
    sign: f64,
    ends: Vec<f64>,
    /// The largest |x| up to which panels are confirmed.
    reach: f64,
    tried: usize,
    /// The size of φ, φ', φ² and φ'² for arguments of order one. Errors that are small compared with it do not matter.
    sizes: [f64; 4],
    unfit: Option<UnfitExpression>,
}

/// The integrals of φ, φ', φ², φ'² over an interval, and those of their magnitudes.
#[derive(Clone, Copy)]
struct Integrals {
    signed: [f64; 4],
    sizes: [f64; 4],
}

impl Panels {
    fn new(expression: Expression, sign: f64) -> Self {
        let mut panels = Self { expression, sign, ends: vec![0.0], reach: 0.0, tried: 0, sizes: [0.0; 4], unfit: None };
        panels.sizes = panels.integrals(0.0, 2.0).sizes;
        let mut end = 0.25;
        while panels.reach < FARTHEST && panels.unfit.is_none() {
            let first = panels.ends.len();
            panels.cover(panels.reach, end);
            if panels.tried > MOST_PANELS {
                panels.ends.truncate(first);
                break;
            }
            panels.merge(first - 1);
            (panels.reach, end) = (end, 2.0 * end);
        }
        panels.ends.iter_mut().for_each(|x| *x *= sign);
        panels
    }

    /// Appends the ends of the panels of an interval without its start.
    fn cover(&mut self, start: f64, end: f64) {
        self.tried += 1;
        let middle = 0.5 * (start + end);
        if self.tried == MOST_PANELS && start < LEAST_REACH {
            self.unfit = self.unfit.or(Some(UnfitExpression::Unresolved { x: rounded(self.sign * middle) }));
        }
        if self.tried > MOST_PANELS || self.unfit.is_some() {
            return;
        }
        if self.is_panel(start, middle, end) {
            self.ends.push(end);
        } else if end - start > ROUNDING * end.max(1.0) {
            self.cover(start, middle);
            self.cover(middle, end);
        } else {
            self.unfit = self.unfit.or_else(|| self.unfit_at(start, end));
            // A kink: the narrow interval becomes an end.
            if let Some(last) = self.ends.last_mut().filter(|last| **last > 0.0) {
                *last = middle;
            }
        }
    }

    /// Replaces panels, from one on, by larger ones where these are confirmed.
    fn merge(&mut self, first: usize) {
        let ends = self.ends.split_off(first + 1);
        let mut start = self.ends[first];
        for (place, &end) in ends.iter().enumerate() {
            let goes_on = ends.get(place + 1).is_some_and(|&next| self.is_panel(start, end, next));
            if !goes_on {
                self.ends.push(end);
                start = end;
            }
        }
    }

    /// Returns true if the rule of one panel agrees with those of both parts.
    fn is_panel(&mut self, start: f64, middle: f64, end: f64) -> bool {
        let [all, first, second] = [(start, end), (start, middle), (middle, end)].map(|(a, b)| self.integrals(a, b));
        let width = end - start;
        (0..4).all(|k| {
            let size = all.sizes[k].max(width * self.sizes[k]);
            (all.signed[k] - first.signed[k] - second.signed[k]).abs() <= TOLERANCE * size
        })
    }

    fn integrals(&mut self, start: f64, end: f64) -> Integrals {
        let (middle, half) = (0.5 * (start + end), 0.5 * (end - start));
        let mut integrals = Integrals { signed: [0.0; 4], sizes: [0.0; 4] };
        for &(node, weight) in fine_rule() {
            let x = self.sign * (middle + half * node);
            let (value, derivative) = value_and_derivative(self.expression, x);
            for (k, part) in [value, derivative, value * value, derivative * derivative].into_iter().enumerate() {
                if !part.is_finite() {
                    self.unfit = self.unfit.or(Some(UnfitExpression::NotFinite { x: rounded(x) }));
                }
                integrals.signed[k] += half * weight * part;
                integrals.sizes[k] += half * weight * part.abs();
            }
        }
        integrals
    }

    /// Judges an interval of the width of rounding that no rule integrates.
    fn unfit_at(&mut self, start: f64, end: f64) -> Option<UnfitExpression> {
        let x = rounded(self.sign * 0.5 * (start + end));
        let sizes = self.integrals(start, end).sizes;
        let is_singular = sizes.iter().zip(self.sizes).any(|(size, usual)| *size > SEEN * usual.max(SEEN));
        is_singular.then_some(UnfitExpression::NotIntegrable { x })
    }
}

/// Returns a place with four digits, for messages. Places next to zero are zero.
fn rounded(x: f64) -> f64 {
    if x.abs() < 1e-9 { 0.0 } else { format!("{x:.3e}").parse().unwrap_or(x) }
}

#[cfg(test)]
mod tests;
