//! Overlaps of one row whose keys come in groups that share their score: repeated ids.
//!
//! # Formula
//!
//! Group g of G takes the share p_g of the keys, and its score is its own, with variance w. With
//! M_k(t) = E y^k e^{−y}, y = t e^z,
//!
//! ```text
//! E A_g  = ∫ p_g M_1(p_g t)/p_g Π_{h≠g} M_0(p_h t) dt/t          S2 = Σ_g E A_g² = ∫ Σ_g M_2(p_g t) Π_{h≠g} M_0 dt/t
//! S3, S22 likewise, with M_3/2 and (Σ_g M_4 + Σ_{g≠h} M_2 M_2)/6
//! ```
//!
//! exact; groups of nearly one size are integrated together. To first order in w, P_k = Σ p_g^k,
//!
//! ```text
//! Σ (E A_g)² − P_2 = 2w (P_2² − P_3)      S2 − Σ (E A_g)² = w (P_2 − 2 P_3 + P_2²)      T = P_2 − 2 P_3 + P_2²
//! ```
//!
//! so that [`Saturation`] is 1 for w → 0 in each of its numbers. Of the p_g L single keys of a group each has A_g/(p_g L):
//! Σ A² = Σ_g E A_g²/(p_g L), where small groups, which grow most, count as much as large ones ([`Single`]).
//!
//! # Source
//!
//! The product integral of [`super::integrals`], with unequal factors.

use super::integrals::{REACH, normal_nodes};

/// What a score variance makes of the first order.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Saturation {
    /// (S2 − Σ (E A_g)²) over its first order.
    pub(crate) value: f64,
    /// (Σ (E A_g)² − P_2) over its first order.
    pub(crate) shift: f64,
    /// T over its value for w = 0.
    pub(crate) slope: f64,
    /// (1 − S2)/(1 − P_2).
    pub(crate) first: f64,
    /// S2/P_2.
    pub(crate) own: f64,
    /// What single keys have of it.
    pub(crate) single: Single,
}

/// What a score variance makes of single keys, all of a group having its score.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Single {
    /// Σ A² over single keys, over its value for w = 0.
    pub(crate) squares: f64,
    /// Σ A² (1 − 2 A_g + ΣA_g²) over single keys, likewise.
    pub(crate) slope: f64,
}

impl Saturation {
    /// S2 less its value for w = 0.
    pub(crate) fn added(&self, groups: &[(f64, f64)]) -> f64 {
        (self.own - 1.0) * groups.iter().map(|(count, p)| count * p * p).sum::<f64>()
    }

    /// A part of the way to `other`.
    pub(crate) fn mixed(&self, other: &Self, part: f64) -> Self {
        let mix = |of: fn(&Self) -> f64| of(self) * (1.0 - part) + of(other) * part;
        Self {
            value: mix(|s| s.value),
            shift: mix(|s| s.shift),
            slope: mix(|s| s.slope),
            first: mix(|s| s.first),
            own: mix(|s| s.own),
            single: Single { squares: mix(|s| s.single.squares), slope: mix(|s| s.single.slope) },
        }
    }
}

/// For groups given as (how many, the share of the keys each has), shares adding up to 1.
pub(crate) fn saturation(groups: &[(f64, f64)], w: f64) -> Saturation {
    let power = |k: i32| groups.iter().map(|(count, p)| count * p.powi(k)).sum::<f64>();
    let (p2, p3) = (power(2), power(3));
    let flat = p2 - 2.0 * p3 + p2 * p2;
    let overlaps = Overlaps::new(groups, w);
    let shift = 2.0 * w * (p2 * p2 - p3);
    Saturation {
        value: (overlaps.s2 - overlaps.mean) / (w * flat),
        // Equal groups do not shift.
        shift: if shift < -1e-9 * p2 { (overlaps.mean - p2) / shift } else { 1.0 },
        slope: (overlaps.s2 - 2.0 * overlaps.s3 + overlaps.s22) / flat,
        first: (1.0 - overlaps.s2) / (1.0 - p2),
        own: overlaps.s2 / p2,
        // Σ p_g = 1, and single keys are as many as their groups are large.
        single: Single { squares: overlaps.single, slope: overlaps.single_passed / (1.0 - 2.0 * p2 + p2) },
    }
}

struct Overlaps {
    /// Σ (E A_g)².
    mean: f64,
    s2: f64,
    s3: f64,
    s22: f64,
    /// Σ E A_g²/p_g and Σ E A_g² (1 − 2 A_g + ΣA²)/p_g.
    single: f64,
    single_passed: f64,
}

impl Overlaps {
    fn new(groups: &[(f64, f64)], w: f64) -> Self {
        const STEP: f64 = 0.45;
        let std = w.sqrt();
        let nodes = normal_nodes((0.8 / std).min(0.8));
        let exponentials: Vec<(f64, f64)> = nodes.iter().map(|&(x, weight)| ((std * x).exp(), weight)).collect();
        let largest = groups.iter().map(|(_, p)| *p).fold(0.0, f64::max);
        let smallest = groups.iter().map(|(_, p)| *p).fold(1.0, f64::min);
        let (lower, upper) = (-REACH * std - 18.0, 4.0 + REACH * std - smallest.ln() + largest.ln());
        let count = ((upper - lower) / STEP).ceil() as usize;
        let mut means = vec![0.0; groups.len()];
        let (mut s2, mut s3, mut s22) = (0.0, 0.0, 0.0);
        let (mut single, mut single_passed) = (0.0, 0.0);
        for i in 0..=count {
            let t = (lower + STEP * i as f64 - largest.ln()).exp();
            let moments: Vec<[f64; 5]> = groups.iter().map(|(_, p)| moments(t * p, &exponentials)).collect();
            let ln_all: f64 = groups.iter().zip(&moments).map(|((count, _), m)| count * m[0].ln()).sum();
            if ln_all < -700.0 {
                continue;
            }
            let all = ln_all.exp();
            let (mut second, mut own, mut fourth) = (0.0, 0.0, 0.0);
            for (((count, _), m), mean) in groups.iter().zip(&moments).zip(&mut means) {
                *mean += all * m[1] / m[0];
                let square = m[2] / m[0];
                second += count * square;
                own += count * square * square;
                fourth += count * m[4] / m[0];
                s3 += all * count * m[3] / m[0] / 2.0;
            }
            s2 += all * second;
            s22 += all * (fourth + second * second - own) / 6.0;
            for ((count, p), m) in groups.iter().zip(&moments) {
                let [square, cube, fourth] = [2, 3, 4].map(|k| m[k] / m[0]);
                single += all * count / p * square;
                single_passed += all * count / p * (square - cube + (fourth + square * (second - square)) / 6.0);
            }
        }
        let mean = groups.iter().zip(&means).map(|((count, _), mean)| count * (STEP * mean).powi(2)).sum();
        Self {
            mean,
            s2: STEP * s2,
            s3: STEP * s3,
            s22: STEP * s22,
            single: STEP * single,
            single_passed: STEP * single_passed,
        }
    }
}

/// E y^k e^{−y} for k = 0 … 4, y = t e^z.
pub(super) fn moments(t: f64, exponentials: &[(f64, f64)]) -> [f64; 5] {
    let mut moments = [0.0; 5];
    for &(exponential, weight) in exponentials {
        let y = t * exponential;
        // Beyond, e^{−y} has underflowed and y^k with it.
        if y < 700.0 {
            let mut factor = weight * (-y).exp();
            for moment in &mut moments {
                *moment += factor;
                factor *= y;
            }
        }
    }
    moments[0] = moments[0].max(f64::MIN_POSITIVE);
    moments
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rules::softmax::integrals::row_overlaps;

    #[test]
    fn groups_of_one_size_are_plain_keys() {
        for (n, w) in [(8.0, 0.3), (64.0, 1.0), (64.0, 4.0)] {
            let [s2, s3, _, s22, ..] = row_overlaps(n, w);
            let got = Overlaps::new(&[(n, 1.0 / n)], w);
            approx::assert_relative_eq!(got.s2, s2, max_relative = 1e-5);
            approx::assert_relative_eq!(got.s3, s3, max_relative = 1e-5);
            approx::assert_relative_eq!(got.s22, s22, max_relative = 1e-5);
            approx::assert_relative_eq!(got.mean, 1.0 / n, max_relative = 1e-5);
        }
    }

    #[test]
    fn small_variances_give_the_first_order() {
        let groups = [(1.0, 0.4), (4.0, 0.05), (40.0, 0.01)];
        let got = saturation(&groups, 2e-3);
        let Single { squares, slope } = got.single;
        for ratio in [got.value, got.shift, got.slope, got.first, got.own, squares, slope] {
            approx::assert_relative_eq!(ratio, 1.0, epsilon = 0.01);
        }
    }

    /// Two groups of shares ¾ and ¼: A = 1/(1 + e^{−x}/3), x ~ N(0, 2w), one Gaussian integral each.
    #[test]
    fn two_groups_by_a_single_integral() {
        let w = 1.5f64;
        let expect = |f: &dyn Fn(f64) -> f64| {
            let nodes = crate::quadrature::gaussian_nodes(0.0, 1.0);
            nodes.iter().map(|(z, weight)| weight * f(1.0 / (1.0 + (-(2.0 * w).sqrt() * z).exp() / 3.0))).sum::<f64>()
        };
        let got = Overlaps::new(&[(1.0, 0.75), (1.0, 0.25)], w);
        let mean = expect(&|a| a);
        approx::assert_relative_eq!(got.mean, mean * mean + (1.0 - mean).powi(2), max_relative = 1e-5);
        approx::assert_relative_eq!(got.s2, expect(&|a| a * a + (1.0 - a).powi(2)), max_relative = 1e-5);
        approx::assert_relative_eq!(got.s3, expect(&|a| a.powi(3) + (1.0 - a).powi(3)), max_relative = 1e-5);
        let square = |a: f64| (a * a + (1.0 - a).powi(2)).powi(2);
        approx::assert_relative_eq!(got.s22, expect(&square), max_relative = 1e-5);
        // Three keys and one.
        let single = |a: f64| a * a / 0.75 + (1.0 - a).powi(2) / 0.25;
        approx::assert_relative_eq!(got.single, expect(&single), max_relative = 1e-5);
        let passed = |a: f64| {
            let squares = a * a + (1.0 - a).powi(2);
            let of = |a: f64| a * a * (1.0 - 2.0 * a + squares);
            of(a) / 0.75 + of(1.0 - a) / 0.25
        };
        approx::assert_relative_eq!(got.single_passed, expect(&passed), max_relative = 1e-5);
    }
}
