//! Overlaps of one row whose keys lie in two segments, beside ids that repeat.
//!
//! # Formula
//!
//! Keys of one segment share a part of their scores: the two parts differ by h ~ N(0, 2wσ), σ the likeness of two keys of one
//! segment. Each key lies in the first with probability z. With D = z e^{h/2} + (1 − z) e^{−h/2}, weights B
//! without segments become A_b = r B_b, r = e^{±h/2}/D, and the segments have P = z r_1 and 1 − P. Segments of two keys know
//! nothing of each other given z, so with E over z, h and the segment of a key
//!
//! ```text
//! E ΣG² = E ΣG_B² + (E r² − 1) E ΣB²       E ΣP² = E P² + (1 − P)²       E ΣA² = E r² E ΣB²
//! ```
//!
//! and likewise what T_KV = E Σ_bc K_bc V_bc A_b A_c − 2 E Σ_b A_b (KA)_b (VA)_b + E AᵀKA AᵀVA takes, for K and V of equal
//! ids E, equal segments S and equal keys I (cubes and squares of B as in [`super::repeats`]):
//!
//! ```text
//! EE  ΣG² − 2 (ΣG³ + 3 (r² − 1)(ΣGB² − ΣB³) + (r³ − 1) ΣB³) + (ΣG²)² + 2 (r² − 1) ΣG²ΣB² + (r²r² − 2 r² + 1)(ΣB²)²
//! EI  r² ΣB² − 2 (r² (ΣGB² − ΣB³) + r³ ΣB³) + r² ΣG²ΣB² + (r²r² − r²)(ΣB²)²
//! II  r² ΣB² − 2 r³ ΣB³ + r²r² (ΣB²)²
//! SS  4 E P² (1 − P)²                       ES, SI  2 ΣB² E r² (1 − P)², P that of the key's segment
//! ```
//!
//! ΣP² and SS also with what the weights of a segment stray by on their own, (ΣB² − 1/L)/(z (1 − z)) more in Var h. Two
//! rows that have nothing in common: E over h first.
//!
//! Beside sampled rows (256 Zipf ids of 30522, 8000 draws): w = 0.8, λ = σ = 0.3, E AᵀVA, T and T(0) of K = V within 1 %; w = 3, λ =
//! 0.2, σ = 0.5, within 1.2 %, of V = I 10 %, −3 % and 2 %: of large weights the own segment is larger, which is neglected.
//!
//! # Source
//!
//! Ours.

use nalgebra::{Matrix3, Vector3};

use super::repeats::{Repeated, Repeats};
use crate::domain::mean_share;
use crate::quadrature::hermite_nodes;

/// Of matrices E, S and I, in this order: keys of one id, of one segment, and single ones.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Kinds {
    /// E AᵀVA of one row.
    pub(crate) own: Vector3<f64>,
    /// The same of two that have nothing in common.
    pub(crate) mean: Vector3<f64>,
    /// T_KV and T_KV(0).
    pub(crate) passed: Matrix3<f64>,
    pub(crate) apart: Matrix3<f64>,
    /// E ΣP² that keys of one id and weight meet, of one row and of two.
    pub(crate) together: [f64; 2],
}

impl Kinds {
    /// Of ids alone: every key is a segment.
    pub(crate) fn of_ids(ids: &Repeated) -> Self {
        let kinds = |[e, i]: [f64; 2]| Vector3::new(e, i, i);
        Self {
            own: kinds(ids.own),
            mean: kinds(ids.mean),
            passed: alone(ids.passed()),
            apart: alone(ids.apart),
            together: [0.0; 2],
        }
    }

    /// Of `length` keys, two segments with these `shares` and ids, the latter by themselves; `difference` is the variance of h.
    pub(crate) fn of_segments(ids: &Repeated, shares: &[f64], difference: f64, length: f64) -> Self {
        let Repeated { own: [g, q], mean: [mean_g, mean_q], cubes: [ggg, gq, qa], squares: [g_g, g_q, q_q], apart } =
            *ids;
        let strays = (q - length.recip()).max(0.0);
        let given = Shares::new(shares, |_| difference);
        let straying = Shares::new(shares, |z| difference + strays / (z * (1.0 - z)));
        let Shares { square, cube, fourth, .. } = given;
        let single = square * q;
        let ee = g + (square - 1.0) * q - 2.0 * (ggg + 3.0 * (square - 1.0) * (gq - qa) + (cube - 1.0) * qa)
            + g_g
            + 2.0 * (square - 1.0) * g_q
            + (fourth - 2.0 * square + 1.0) * q_q;
        let ei = single - 2.0 * (square * (gq - qa) + cube * qa) + square * g_q + (fourth - square) * q_q;
        let ii = single - 2.0 * cube * qa + fourth * q_q;
        let [apart_ee, apart_ei, apart_ii] = apart;
        let mean_square = given.mean.square;
        Self {
            own: Vector3::new(g + (square - 1.0) * q, straying.together, single),
            mean: Vector3::new(mean_g + (mean_square - 1.0) * mean_q, straying.mean.together, mean_square * mean_q),
            passed: beside([ee, ei, ii], given.single * q, straying.segment),
            apart: beside(
                [apart_ee + (mean_square - 1.0) * apart_ii, mean_square * apart_ei, mean_square * apart_ii],
                given.mean.single * mean_q,
                straying.mean.segment,
            ),
            together: [given.together, given.mean.together],
        }
    }

    /// AᵀVA of flat attention, and what T, T(0) and (E AᵀVA − that of mean rows)/w are for w → 0, ⟨C K C, C V C⟩/L².
    pub(crate) fn flat(ids: &Repeats, shares: &[f64]) -> (Vector3<f64>, Matrix3<f64>) {
        let single = ids.length().recip();
        let spread = [(1.0, 1.0), (1.0, 0.0), (0.0, 0.0)].map(|(key, value)| ids.spread(key, value));
        if shares.is_empty() {
            return (Vector3::new(ids.flat(), single, single), alone(spread));
        }
        let apart = mean_share(shares, |z| 2.0 * z * (1.0 - z));
        let of_segments = mean_share(shares, |z| (2.0 * z * (1.0 - z)).powi(2));
        (Vector3::new(ids.flat(), 1.0 - apart, single), beside(spread, single * apart, of_segments))
    }
}

/// Of E E, E I and I I, where every key is a segment.
fn alone([ee, ei, ii]: [f64; 3]) -> Matrix3<f64> {
    Matrix3::new(ee, ei, ei, ei, ii, ii, ei, ii, ii)
}

/// Of E E, E I and I I, then of S with E or I, and S S.
fn beside([ee, ei, ii]: [f64; 3], with_segment: f64, ss: f64) -> Matrix3<f64> {
    Matrix3::new(ee, with_segment, ei, with_segment, ss, with_segment, ei, with_segment, ii)
}

/// Averages over z and h; of the mean over h alone in [`Self::mean`].
struct Shares {
    /// E r² and, of two keys, E r²r².
    square: f64,
    cube: f64,
    fourth: f64,
    /// 2 E r² (1 − P)².
    single: f64,
    /// E ΣP².
    together: f64,
    /// 4 E P² (1 − P)².
    segment: f64,
    mean: Means,
}

/// With means over h in place of each factor.
#[derive(Default)]
struct Means {
    square: f64,
    single: f64,
    together: f64,
    segment: f64,
}

impl Shares {
    /// Of the variance of h at z.
    fn new(shares: &[f64], variance: impl Fn(f64) -> f64) -> Self {
        let mut all = Self {
            square: 0.0,
            cube: 0.0,
            fourth: 0.0,
            single: 0.0,
            together: 0.0,
            segment: 0.0,
            mean: Means::default(),
        };
        let of_z = (shares.len() as f64).recip();
        for &z in shares {
            let std = variance(z).sqrt();
            let other = 1.0 - z;
            // r of both segments, r (1 − P) of both, P (1 − P).
            let mut means = [0.0; 5];
            for &(x, of_x) in hermite_nodes() {
                let odds = (std * x).exp();
                let second = 1.0 / (z * odds + other);
                let first = odds * second;
                let (p, p_other) = (z * first, other * second);
                let weight = of_z * of_x;
                let square = z * first * first + other * second * second;
                all.square += weight * square;
                all.cube += weight * (z * first.powi(3) + other * second.powi(3));
                all.fourth += weight * square * square;
                let [apart, apart_other] = [first * p_other, second * p];
                all.single += weight * 2.0 * (z * apart * apart + other * apart_other * apart_other);
                all.together += weight * (p * p + p_other * p_other);
                all.segment += weight * 4.0 * (p * p_other).powi(2);
                let told = [first, second, apart, apart_other, p * p_other];
                means.iter_mut().zip(told).for_each(|(mean, value)| *mean += of_x * value);
            }
            let [first, second, apart, apart_other, both] = means;
            all.mean.square += of_z * (z * first * first + other * second * second);
            all.mean.single += of_z * 2.0 * (z * apart * apart + other * apart_other * apart_other);
            all.mean.together += of_z * ((z * first).powi(2) + (other * second).powi(2));
            all.mean.segment += of_z * 4.0 * both * both;
        }
        all
    }
}

#[cfg(test)]
mod tests {
    use sigprop_stack::PowerLaw;

    use super::*;
    use crate::rules::embedding::SEGMENT_SHARES;

    /// Beside 8000 draws of 256 Zipf ids of 30522 and segments (numpy): w = 0.8, a third of the keys' cosines from ids and from
    /// segments each; numbers and relative standard errors of E AᵀVA, T and T(0), of E, S and I.
    #[test]
    fn rows_overlap_as_sampled() {
        /// Of large weights the own segment is larger, which is neglected.
        const NEGLECTED: f64 = 0.03;
        let repeats = Repeats::of(PowerLaw { vocab_size: 30522, exponent: 1.0 }, 256);
        let (w, id, segment) = (0.8, 0.3, 0.3);
        let ids = repeats.overlaps(w * (1.0 - segment), id / (1.0 - segment));
        let got = Kinds::of_segments(&ids, &SEGMENT_SHARES, 2.0 * w * segment, 256.0);
        for (got, expected, error) in [
            (got.own[0], 0.0237, 0.006),
            (got.own[1], 0.6810, 0.0025),
            (got.own[2], 0.0073, 0.002),
            (got.passed[(0, 0)], 20.32e-3, 0.004),
            (got.passed[(0, 1)], 2.178e-3, 0.008),
            (got.passed[(0, 2)], 6.961e-3, 0.002),
            (got.passed[(1, 1)], 125.3e-3, 0.008),
            (got.passed[(1, 2)], 2.223e-3, 0.007),
            (got.passed[(2, 2)], 7.115e-3, 0.002),
            (got.apart[(0, 0)], 15.20e-3, 0.004),
            (got.apart[(0, 1)], 1.178e-3, 0.007),
            (got.apart[(0, 2)], 3.797e-3, 0.001),
            (got.apart[(1, 1)], 118.2e-3, 0.008),
            (got.apart[(1, 2)], 1.201e-3, 0.006),
            (got.apart[(2, 2)], 3.873e-3, 0.001),
        ] {
            assert!((got / expected - 1.0_f64).abs() < NEGLECTED + 4.0 * error, "{got}, sampled {expected} ± {error}");
        }
    }

    /// Where scores do not differ, everything is as flat attention has it.
    #[test]
    fn equal_scores_are_flat_attention() {
        let repeats = Repeats::of(PowerLaw { vocab_size: 1000, exponent: 1.0 }, 64);
        let w = 1e-3;
        let ids = repeats.overlaps(0.6 * w, 0.5);
        let got = Kinds::of_segments(&ids, &SEGMENT_SHARES, 2.0 * 0.4 * w, 64.0);
        let (flat, spread) = Kinds::flat(&repeats, &SEGMENT_SHARES);
        for place in 0..3 {
            approx::assert_relative_eq!(got.own[place], flat[place], max_relative = 0.01);
            approx::assert_relative_eq!(got.mean[place], flat[place], max_relative = 0.01);
        }
        for (got, spread) in got.passed.iter().chain(&got.apart).zip(spread.iter().chain(&spread)) {
            approx::assert_relative_eq!(got, spread, max_relative = 0.02);
        }
    }
}
