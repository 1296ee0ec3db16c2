//! What rows of one head have in common: keys that all queries score alike are passed more by all of them.
//!
//! # Formula
//!
//! Scores s_ab = √(w g_b) (√ρ x_b + √(1 − ρ) y_ab): x_b of all rows, y_ab of one, g_b ~ χ²_n/n what keys' lengths stray
//! by. Over y alone,
//!
//! ```text
//! j_b = E A_b (1 − A_b)     how a row follows the score of key b
//! d_b = Var A_b             how rows differ at it
//! ```
//!
//! from m_k(t; b) = E_y y^k e^{−y}, y = t e^s, the other keys by their mean over x and g (an error of order 1/n):
//!
//! ```text
//! E A_b = ∫ m_1 M_0^{n−1} d ln t      E A_b² = ∫ m_2 M_0^{n−1} d ln t
//! ```
//!
//! Told are the sums over keys of powers of j/Σj and d/Σd, relative to n equal keys over wρ: 1, 3, 6, 4, 4 for two, three,
//! four of j, for two of d and for j², d, where scores are small (log-normal weights). And, per 1/n_h, what lengths add.
//!
//! # Source
//!
//! Ours. Sampled: `rules/attention/concentration.rs`.

use super::integrals::{REACH, Steps, log_normal_nodes, moments, normal_nodes};

/// Cosines of queries at which it is tabulated, equally far apart.
pub(super) const COSINES: [f64; 3] = [0.1, 0.5, 0.9];
/// Of each: five numbers, and what lengths add to them.
pub(super) const NUMBERS: usize = 10;
/// n_h at which what lengths add is found.
const FREEDOM: f64 = 64.0;

/// How unequal keys are.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Shared {
    /// Σ j^k/(Σ j)^k for k = 2, 3, 4.
    pub(crate) followed: [f64; 3],
    /// Σ d²/(Σ d)².
    pub(crate) own: f64,
    /// Σ j² d/(Σ j² Σ d).
    pub(crate) between: f64,
}

impl Shared {
    /// Of very many keys.
    pub(crate) const NONE: Self = Self { followed: [0.0; 3], own: 0.0, between: 0.0 };

    /// Of `n` keys at `wrho`, from the table's numbers at this cosine.
    pub(super) fn of(n: f64, w_rho: f64, freedom: f64, numbers: [f64; NUMBERS]) -> Self {
        let [j2, j3, j4, d, jd] =
            std::array::from_fn(|place| (w_rho * numbers[place] + numbers[5 + place] / freedom).exp());
        let powers = [j2 / n, j3 / (n * n), j4 / n.powi(3)];
        Self { followed: powers.map(|power| power.min(1.0)), own: (d / n).min(1.0), between: (jd / n).min(1.0) }
    }
}

/// The numbers of the table at each of its cosines.
pub(super) fn numbers(n: f64, w: f64) -> [f64; NUMBERS * COSINES.len()] {
    let each = COSINES.map(|rho| {
        let plain = sums(n, w, rho, &[(1.0, 1.0)]);
        let spread = (2.0 / FREEDOM).sqrt();
        let longer = sums(n, w, rho, &[(1.0 - spread, 0.5), (1.0 + spread, 0.5)]);
        let added: [f64; 5] = std::array::from_fn(|place| FREEDOM * (longer[place] - plain[place]));
        (plain.map(|sum| sum / (w * rho)), added)
    });
    let mut all = [0.0; NUMBERS * COSINES.len()];
    for (numbers, (plain, added)) in all.chunks_exact_mut(NUMBERS).zip(each) {
        numbers[..5].copy_from_slice(&plain);
        numbers[5..].copy_from_slice(&added);
    }
    all
}

/// Variance of a row's own scores up to which A is linear in them, d = w g (1 − ρ) j², and the difference above rounding.
const LINEAR: f64 = 0.1;

/// What rounding leaves of a weight.
const NOTHING: f64 = 1e-30;

/// ln of the five sums over what they are of equal keys; `strengths` are values of g and their weights.
fn sums(n: f64, w: f64, rho: f64, strengths: &[(f64, f64)]) -> [f64; 5] {
    const STEP: f64 = 0.8;
    /// What falls short of it in ln t is of no weight.
    const LOWER: f64 = 7.5;
    /// Of a Gaussian variable; the error of the trapezoidal rule is e^(−2π²/step²).
    const COARSE: f64 = 1.2;
    let std = w.sqrt();
    let [common, own] = [rho, 1.0 - rho].map(|share| (w * share).sqrt());
    let shortest = strengths.iter().map(|(g, _)| g.sqrt()).fold(1.0, f64::min);
    let steps = Steps::new(common, COARSE * shortest, STEP);
    let (lower, upper) = (-n.ln() - 0.5 * w - LOWER, 4.0 + REACH * std);
    let count = ((upper - lower) / steps.ln_t).ceil() as usize;
    // Of every strength, steps in x that move ln t alike.
    let given: Vec<_> = strengths
        .iter()
        .map(|(g, _)| {
            let levels = normal_nodes(steps.x / g.sqrt());
            let own = log_normal_nodes(own * g.sqrt(), (0.9 / std).min(COARSE));
            let known = steps.table(lower, [count, levels.len()], |t| moments(t, &own));
            (levels, known)
        })
        .collect();
    let keys: Vec<(f64, f64)> = strengths
        .iter()
        .zip(&given)
        .flat_map(|(&(g, of_g), (levels, _))| levels.iter().map(move |(_, of_x)| (g, of_g * of_x)))
        .collect();
    // E A and E A² of each key.
    let mut means = vec![[0.0; 2]; keys.len()];
    for i in 0..count {
        let moments = || given.iter().flat_map(|(levels, known)| (0..levels.len()).map(move |j| known.at(i, j)));
        let alone: f64 = keys.iter().zip(moments()).map(|((_, weight), [zeroth, ..])| weight * zeroth).sum();
        let others = alone.powf(n - 1.0);
        if others < 1e-12 {
            break;
        }
        for (mean, [_, first, second, ..]) in means.iter_mut().zip(moments()) {
            mean[0] += steps.ln_t * others * first;
            mean[1] += steps.ln_t * others * second;
        }
    }
    let is_linear = w * (1.0 - rho) <= LINEAR;
    let average = |of: &dyn Fn(f64, f64) -> f64| {
        let each = keys.iter().zip(&means);
        each.map(|(&(g, weight), &[first, second])| {
            let j = (first - second).max(NOTHING);
            weight * of(j, if is_linear { g * j * j } else { (second - first * first).max(NOTHING) })
        })
        .sum::<f64>()
    };
    let (j, d, squares) = (average(&|j, _| j), average(&|_, d| d), average(&|j, _| j * j));
    let of_equal = [
        squares / (j * j),
        average(&|j, _| j.powi(3)) / j.powi(3),
        average(&|j, _| j.powi(4)) / j.powi(4),
        average(&|_, d| d * d) / (d * d),
        average(&|j, d| j * j * d) / (squares * d),
    ];
    of_equal.map(f64::ln)
}

#[cfg(test)]
mod tests {
    use super::super::Overlaps;

    /// Beside 400 draws of x and g with 4000 rows each (numpy; j² d and d² from halves of the rows), in the order n, w, ρ, n_h,
    /// known to the relative standard errors told.
    #[test]
    fn keys_are_as_unequal_as_sampled() {
        type Sampled = ([f64; 4], [f64; 5], [f64; 5]);
        const SAMPLED: [Sampled; 4] = [
            (
                [64.0, 4.0, 0.2, f64::INFINITY],
                [0.024_237, 8.271e-4, 3.69e-5, 0.042_412, 0.050_777],
                [0.004, 0.012, 0.027, 0.013, 0.017],
            ),
            (
                [64.0, 4.0, 0.2, 64.0],
                [0.025_108, 9.158e-4, 4.44e-5, 0.052_190, 0.059_052],
                [0.005, 0.017, 0.037, 0.020, 0.023],
            ),
            (
                [16.0, 1.0, 0.5, f64::INFINITY],
                [0.083_322, 8.640e-3, 1.0559e-3, 0.141_540, 0.146_202],
                [0.007, 0.018, 0.032, 0.017, 0.018],
            ),
            (
                [256.0, 2.0, 0.8, f64::INFINITY],
                [0.015_528, 6.438e-4, 4.68e-5, 0.173_802, 0.183_459],
                [0.012, 0.030, 0.060, 0.046, 0.047],
            ),
        ];
        /// Other keys by their mean: of order 1/n, and more where lengths stray.
        const NEGLECTED: f64 = 0.04;
        for ([n, w, rho, freedom], expected, errors) in SAMPLED {
            let found = Overlaps::new(n).shared(n, w, rho, freedom);
            let [j2, j3, j4] = found.followed;
            for ((found, expected), error) in [j2, j3, j4, found.own, found.between].iter().zip(expected).zip(errors) {
                let off = (found / expected - 1.0_f64).abs();
                assert!(off < NEGLECTED + 4.0 * error, "n {n} w {w} ρ {rho}: {found} {expected} ± {error}");
            }
        }
    }

    /// Log-normal weights where scores are small, and none told apart where rows share nothing.
    #[test]
    fn small_scores_are_log_normal() {
        let (n, w, rho) = (1e4, 0.01, 0.5);
        let found = Overlaps::new(n).shared(n, w, rho, f64::INFINITY);
        let [j2, j3, j4] = found.followed;
        let over = [j2 * n, j3 * n * n, j4 * n.powi(3), found.own * n, found.between * n];
        for (found, power) in over.iter().zip([1.0, 3.0, 6.0, 4.0, 4.0]) {
            approx::assert_relative_eq!(found.ln(), power * w * rho, max_relative = 0.03);
        }
        let apart = Overlaps::new(64.0).shared(64.0, 3.0, 0.0, f64::INFINITY);
        approx::assert_relative_eq!(apart.followed[0], 1.0 / 64.0, max_relative = 1e-9);
    }
}
