//! Overlaps of a row whose keys form groups of different size; a group has the keys of one id.
//!
//! There are N_m groups of m keys, n = Σ m N_m. Scores are √(wζ) u + √(w(1 − ζ)) z with one u per group and one z per
//! key. A sum over the keys of a group is averaged over u, divided by F_m = E_u M_0^m and multiplied by ∏ F^N. The
//! integral over t and M_k = E_z y^k e^{−y} with y = t e^s are as in `overlaps.rs`. The overlaps are
//!
//! ```text
//! squares     E AᵀKA = E ΣH                           and E AᵀA = E ΣG_2
//! mean        (E A)ᵀK(E A)                            of the mean row
//! passed      E tr KJKJ = E (ζ²ΣG_1² + (1 − ζ²)ΣG_2 − 2 Σ_b A_b (KA)_b² + (ΣH)²)
//!             E tr JKJ = E (ΣG_2 − 2 Σ_b A_b² (KA)_b + ΣG_2 ΣH)
//! apart       tr K E[J] K E[J]                        of two rows whose scores have nothing in common
//! ```
//!
//! where E is the average over random scores; A is the row of attention weights; K is the kernel of keys and also of
//! values, which is 1 for a key with itself, ζ for two keys of one group and 0 for two keys of different groups; G_1,
//! G_2 are the sums of A_b and of A_b² over the keys of a group; H is ζG_1² + (1 − ζ)G_2, the part of AᵀKA from one
//! group; tr is the trace of a matrix; J is the matrix of the derivatives ∂A_b/∂s_d of the weights by the scores; ζ is
//! the correlation of two keys with the same id; b is a position of a key.
//!
//! For small w, `squares` are P + w (D + 2X) and 1/n + w tr_a/n, `mean` is P + 2wX, `passed` are D and tr_a/n, and
//! `apart` is D. With Π, which subtracts the mean, P = 1ᵀK1/n², tr_a = tr ΠKΠ/n, D = tr (ΠKΠ)²/n² and
//! X = P² − |K1|²/n³.
//!
//! Assumption: the number of groups of every size is its mean. Source: ours.

use super::integrals::{moments, normal_nodes};
use crate::mean_field::positions::Counts;

/// Step of the trapezoidal rule in ln t, and in common scores if these vary enough. The error of the rule is
/// e^(−π²/step), and D is only a small part of the integral in long rows.
const STEP: f64 = 0.45;
/// Contributions are negligible where ln of the product of M_0 is below this number. The product only falls with t.
const NOTHING: f64 = -45.0;
/// Half-width of the integration over common scores, in standard deviations.
const REACH: f64 = 7.0;

/// Overlaps of a row whose keys form groups, as in the header. In a pair of numbers, the first is for keys that have
/// the correlation ζ within a group, the second for single keys.
pub(super) struct Overlaps {
    pub(super) squares: [f64; 2],
    pub(super) mean: f64,
    pub(super) passed: [f64; 2],
    pub(super) apart: f64,
}

/// Moments of the row for scores that hardly vary: P, tr_a, D and X.
pub(super) struct Flat {
    pub(super) mean: f64,
    pub(super) trace: f64,
    pub(super) spread: f64,
    pub(super) shift: f64,
}

impl Flat {
    pub(super) fn new(groups: &Counts, likeness: f64) -> Self {
        let length: f64 = groups.iter().map(|(ids, tokens)| ids * tokens).sum();
        let power = |k: i32| groups.iter().map(|(ids, tokens)| ids * (tokens / length).powi(k)).sum::<f64>();
        let [second, third] = [2, 3].map(power);
        let single = length.recip();
        let (square, other) = (likeness * likeness, 1.0 - likeness);
        let mean = likeness * second + other * single;
        let rows = square * third + 2.0 * likeness * other * second * single + other * other * single * single;
        let spread = square * second + (1.0 - square) * single - 2.0 * rows + mean * mean;
        Self { mean, trace: 1.0 - mean, spread, shift: mean * mean - rows }
    }
}

/// Returns the overlaps of groups at score variance `w`; `likeness` is ζ, the correlation of two keys of one group.
pub(super) fn overlaps(groups: &Counts, w: f64, likeness: f64) -> Overlaps {
    let length: f64 = groups.iter().map(|(ids, tokens)| ids * tokens).sum();
    let (std, common) = (w.sqrt(), (w * likeness).sqrt());
    // A step of a common score is at most STEP/0.55 standard deviations.
    let per_t = (0.55 / common).ceil().max(1.0);
    let unit = STEP / per_t;
    let half = (REACH * common / unit).ceil();
    let weights: Vec<f64> = (0..=2 * half as usize)
        .map(|index| (unit * (index as f64 - half) / common, unit / common))
        .map(|(u, step)| step * (-0.5 * u * u).exp() / std::f64::consts::TAU.sqrt())
        .collect();
    let scores = scores((w * (1.0 - likeness)).sqrt());
    // A share e^−20 of E G_1 is left out.
    let (lower, upper) = (-20.0 - REACH * std - length.ln(), 4.0 + REACH * std);
    let steps = ((upper - lower) / STEP).ceil() as usize;
    let places = steps * per_t as usize + weights.len();
    let known: Vec<Given> =
        (0..places).map(|index| Given::new((lower + unit * (index as f64 - half)).exp(), &scores)).collect();
    let mut sums = Sums::new(groups.len());
    for step in 0..=steps {
        let given = &known[step * per_t as usize..][..weights.len()];
        if !sums.add(groups, likeness, given, &weights) {
            break;
        }
    }
    sums.overlaps(groups, likeness)
}

/// Returns e^z and the weight of every node of the integration over z ~ N(0, std²).
fn scores(std: f64) -> Vec<(f64, f64)> {
    normal_nodes((0.7 / std).min(0.8)).into_iter().map(|(z, weight)| ((std * z).exp(), weight)).collect()
}

/// ln M_0 at t e^u, and products of r_k = M_k/M_0: r1, r2, r11, r3, r21, r111, r4, r31, r22, r211, r1111.
struct Given {
    ln: f64,
    products: [f64; 11],
}

impl Given {
    fn new(t: f64, scores: &[(f64, f64)]) -> Self {
        let [m0, rest @ ..] = moments(t, scores);
        let m0 = m0.max(f64::MIN_POSITIVE);
        let [one, two, three, four] = rest.map(|moment| moment / m0);
        let square = one * one;
        let of_three = [three, two * one, square * one];
        let of_four = [four, three * one, two * two, two * square, square * square];
        let [a, b, c] = of_three;
        let [d, e, f, g, h] = of_four;
        Self { ln: m0.ln(), products: [one, two, square, a, b, c, d, e, f, g, h] }
    }
}

/// Expectations of one group at one t.
struct Group {
    ln: f64,
    /// E G_1, where G_1 is the sum of the weights of the keys.
    first: f64,
    /// E G_1², where G_1 is the sum of the weights of the keys.
    all: f64,
    /// E G_2, where G_2 is the sum of the squared weights of the keys.
    keys: f64,
    /// E H, where H is the part of AᵀKA from the group.
    both: f64,
    /// E Σ_b A_b (KA)_b² and E Σ_b A_b² (KA)_b.
    rows: [f64; 2],
    /// E H² and E G_2 H.
    squares: [f64; 2],
}

impl Group {
    /// Computes the expectations of a group of m keys.
    fn new(m: f64, likeness: f64, given: &[Given], weights: &[f64]) -> Self {
        let (mut total, mut sums) = (0.0, [0.0; 11]);
        // M_0 falls with u.
        for (given, weight) in given.iter().zip(weights).take_while(|(given, _)| m * given.ln > NOTHING) {
            let weight = weight * (m * given.ln).exp();
            total += weight;
            sums.iter_mut().zip(&given.products).for_each(|(sum, product)| *sum += weight * product);
        }
        let total = total.max(f64::MIN_POSITIVE);
        let [r1, r2, r11, r3, r21, r111, r4, r31, r22, r211, r1111] = sums.map(|sum| sum / total);
        // These are the numbers of tuples of different keys.
        let pairs = m * (m - 1.0);
        let triples = pairs * (m - 2.0).max(0.0);
        let fours = triples * (m - 3.0).max(0.0);
        let square = likeness * likeness;
        let of_squares = |of_pairs: f64, of_triples: f64, of_fours: f64| {
            m * r4 + pairs * of_pairs + triples * of_triples + fours * of_fours
        };
        let of_both = of_squares(
            4.0 * likeness * r31 + (1.0 + 2.0 * square) * r22,
            (2.0 * likeness + 4.0 * square) * r211,
            square * r1111,
        );
        Self {
            ln: total.ln(),
            first: m * r1,
            all: m * r2 + pairs * r11,
            keys: m * r2,
            both: m * r2 + likeness * pairs * r11,
            rows: [
                m * r3 + pairs * r21 * likeness * (2.0 + likeness) + triples * r111 * square,
                m * r3 + pairs * r21 * likeness,
            ],
            squares: [of_both, of_squares(2.0 * likeness * r31 + r22, likeness * r211, 0.0)],
        }
    }
}

/// The integrals over t from which [`Overlaps`] follow.
struct Sums {
    squares: [f64; 2],
    passed: [f64; 2],
    /// E G_1, E G_1² and E G_2 of a group, per size of groups.
    each: Vec<[f64; 3]>,
    /// E G_1 G_1' of two groups, per pair of sizes.
    together: Vec<f64>,
}

impl Sums {
    fn new(groups: usize) -> Self {
        Self { squares: [0.0; 2], passed: [0.0; 2], each: vec![[0.0; 3]; groups], together: vec![0.0; groups * groups] }
    }

    /// Adds the integrand at one t. Returns false if it and the integrands at all later t are negligible.
    fn add(&mut self, groups: &Counts, likeness: f64, given: &[Given], weights: &[f64]) -> bool {
        let all: Vec<Group> = groups.iter().map(|&(_, m)| Group::new(m, likeness, given, weights)).collect();
        let ln: f64 = groups.iter().zip(&all).map(|((count, _), group)| count * group.ln).sum();
        if ln < NOTHING {
            return false;
        }
        let weight = STEP * ln.exp();
        let sum = |of: &dyn Fn(&Group) -> f64| -> f64 {
            groups.iter().zip(&all).map(|((count, _), group)| count * of(group)).sum()
        };
        let [both, keys, square] = [sum(&|group| group.both), sum(&|group| group.keys), likeness * likeness];
        let first = [sum(&|group| group.all) * square + keys * (1.0 - square), keys];
        let last = [
            both * both + sum(&|group| group.squares[0] - group.both * group.both),
            keys * both + sum(&|group| group.squares[1] - group.keys * group.both),
        ];
        for (index, squares) in [both, keys].into_iter().enumerate() {
            self.squares[index] += weight * squares;
            self.passed[index] += weight * (first[index] - sum(&|group| group.rows[index]) + last[index] / 6.0);
        }
        for (each, group) in self.each.iter_mut().zip(&all) {
            each.iter_mut().zip([group.first, group.all, group.keys]).for_each(|(sum, value)| *sum += weight * value);
        }
        for (row, one) in self.together.chunks_exact_mut(groups.len()).zip(&all) {
            row.iter_mut().zip(&all).for_each(|(sum, other)| *sum += weight * one.first * other.first);
        }
        true
    }

    fn overlaps(&self, groups: &Counts, likeness: f64) -> Overlaps {
        let other = 1.0 - likeness;
        let mean =
            groups.iter().zip(&self.each).map(|((count, m), [g, ..])| count * g * g * (likeness + other / m)).sum();
        // Σ_b' K_bb' over a group.
        let whole = |m: f64| other + likeness * m;
        let mut apart = 0.0;
        for (i, (&(count, m), [mean, all, keys])) in groups.iter().zip(&self.each).enumerate() {
            // These are E[J] of a key and of two keys of one group, then K E[J] of both.
            let own = (mean - keys) / m;
            let pair = if m > 1.0 { -(all - keys) / (m * (m - 1.0)) } else { 0.0 };
            let common = likeness * (own + (m - 1.0) * pair);
            let [own, pair] = [own, pair].map(|gradient| other * gradient + common);
            apart += count * m * (own * own + (m - 1.0) * pair * pair);
            for (j, &(others, of_other)) in groups.iter().enumerate() {
                let pairs = count * if i == j { count - 1.0 } else { others };
                let both = self.together[i * groups.len() + j];
                apart += pairs * both * both / (m * of_other) * whole(m) * whole(of_other);
            }
        }
        Overlaps { squares: self.squares, mean, passed: self.passed, apart }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::mean_field::softmax::overlaps::overlaps as of_equal_keys;

    fn told(of: &Overlaps) -> [f64; 6] {
        let ([both, keys], [passed, passed_keys]) = (of.squares, of.passed);
        [both, keys, of.mean, passed, passed_keys, of.apart]
    }

    /// Groups of two, two, one and three keys at w = 2 and ζ = 0.6 were sampled with NumPy (4 · 10⁶ rows); relative
    /// standard errors are below 3e-4.
    #[test]
    fn groups_are_as_sampled() {
        let of = overlaps(&vec![(2.0, 2.0), (1.0, 1.0), (1.0, 3.0)], 2.0, 0.6);
        let sampled = [0.3968, 0.2877, 0.2137, 0.1206, 0.1116, 0.07103];
        for (got, sampled) in told(&of).into_iter().zip(sampled) {
            approx::assert_relative_eq!(got, sampled, max_relative = 1e-3);
        }
    }

    /// Groups of one size whose keys are equal act as one key each; keys without correlation act one by one.
    #[test]
    fn groups_of_one_size_are_keys() {
        for w in [0.3, 2.0, 10.0] {
            let t = |[s2, s3, _, square]: [f64; 4]| s2 - 2.0 * s3 + square;
            let [alone, _] = of_equal_keys(8.0, w, 0.0);
            let of = overlaps(&vec![(8.0, 3.0)], w, 1.0);
            approx::assert_relative_eq!(of.squares[0], alone[0], max_relative = 1e-4);
            approx::assert_relative_eq!(of.passed[0], t(alone), max_relative = 1e-4);
            approx::assert_relative_eq!(of.mean, 1.0 / 8.0, max_relative = 1e-4);
            let [alone, _] = of_equal_keys(24.0, w, 0.0);
            let of = overlaps(&vec![(8.0, 3.0)], w, 1e-9);
            approx::assert_relative_eq!(of.squares[1], alone[0], max_relative = 1e-4);
            approx::assert_relative_eq!(of.passed[1], t(alone), max_relative = 1e-4);
        }
    }

    #[test]
    fn scores_that_hardly_vary_are_flat() {
        let (groups, w) = (vec![(20.0, 1.0), (3.0, 4.0), (1.0, 16.0)], 1e-3);
        for likeness in [0.3, 1.0] {
            let flat = Flat::new(&groups, likeness);
            let of = overlaps(&groups, w, likeness);
            let each = flat.trace / 48.0;
            let first = [
                flat.mean + w * (flat.spread + 2.0 * flat.shift),
                1.0 / 48.0 + w * each,
                flat.mean + 2.0 * w * flat.shift,
                flat.spread,
                each,
                flat.spread,
            ];
            for (got, first) in told(&of).into_iter().zip(first) {
                approx::assert_relative_eq!(got, first, max_relative = 3e-3);
            }
        }
    }
}
