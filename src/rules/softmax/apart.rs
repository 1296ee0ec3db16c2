//! A softmax in which one score is of another law, by the integrals over t of `integrals.rs`.
//!
//! # Formula
//!
//! n scores of variance w and one ~ N(μ, v), with M_k of the former and N_k of the latter, E y^k e^{−y}, y = t e^s:
//!
//! ```text
//! E ln Σ e^s = ∫ (e^{−t} − N_0 M_0^n) d ln t
//! E A_o = ∫ N_1 M_0^n d ln t      E A_o² = ∫ N_2 M_0^n d ln t      E Σ' A² = n ∫ N_0 M_2 M_0^{n−1} d ln t
//! ```

use super::integrals::{REACH, normal_nodes};

const STEP: f64 = 0.2;

/// What there is to know of the weights A.
pub(crate) struct Apart {
    /// E ln Σ e^s.
    pub(crate) ln_partition: f64,
    /// E A of the one.
    pub(crate) own: f64,
    /// E A² of the one.
    pub(crate) own_square: f64,
    /// E Σ A² of the others.
    pub(crate) others: f64,
}

impl Apart {
    /// Of `n` scores of variance `w`, and one of this mean and variance.
    pub(crate) fn new(n: f64, w: f64, [mean, variance]: [f64; 2]) -> Self {
        let (scores, one) = (Scores::new(0.0, w), Scores::new(mean, variance));
        let lower = -(n.ln() + scores.reach()).max(one.reach());
        let upper = 4.0 + REACH * w.sqrt();
        let mut sums = Self { ln_partition: 0.0, own: 0.0, own_square: 0.0, others: 0.0 };
        for node in 0..=((upper - lower) / STEP).ceil() as usize {
            let ln_t = lower + STEP * node as f64;
            let ([m0, _, m2], [n0, n1, n2]) = (scores.moments(ln_t), one.moments(ln_t));
            let rest = m0.powf(n);
            sums.ln_partition += STEP * ((-ln_t.exp()).exp() - n0 * rest);
            sums.own += STEP * n1 * rest;
            sums.own_square += STEP * n2 * rest;
            sums.others += STEP * n * n0 * m2 * m0.powf(n - 1.0);
        }
        sums
    }
}

/// A normal law by its nodes.
struct Scores {
    mean: f64,
    std: f64,
    nodes: Vec<(f64, f64)>,
}

impl Scores {
    fn new(mean: f64, variance: f64) -> Self {
        let std = variance.sqrt();
        Self { mean, std, nodes: normal_nodes((0.7 / std).min(0.8)) }
    }

    /// −ln t below which e^{−t e^s} is 1.
    fn reach(&self) -> f64 {
        self.mean + 0.5 * self.std * self.std + REACH * self.std + 25.0
    }

    /// E y^k e^{−y} of y = t e^s, for k = 0, 1, 2.
    fn moments(&self, ln_t: f64) -> [f64; 3] {
        let mut moments = [0.0; 3];
        for &(x, weight) in &self.nodes {
            let y = (ln_t + self.mean + self.std * x).exp();
            // Beyond, e^{−y} has underflowed and y^k with it.
            if y < 700.0 {
                let factor = weight * (-y).exp();
                for (moment, power) in moments.iter_mut().zip([1.0, y, y * y]) {
                    *moment += factor * power;
                }
            }
        }
        moments
    }
}

#[cfg(test)]
mod tests {
    use approx::assert_relative_eq;

    use super::super::integrals::{ln_partition, row_overlaps};
    use super::*;

    #[test]
    fn one_like_the_others_is_one_of_them() {
        for (n, w) in [(8.0_f64, 1.5), (1000.0, 0.05)] {
            let Apart { ln_partition: ln, own, own_square, others } = Apart::new(n - 1.0, w, [0.0, w]);
            let [s2, ..] = row_overlaps(n, w);
            assert_relative_eq!(ln, ln_partition(n, w), max_relative = 1e-6);
            assert_relative_eq!(own, 1.0 / n, max_relative = 1e-6);
            assert_relative_eq!(own_square, s2 / n, max_relative = 1e-6);
            assert_relative_eq!(others, s2 * (n - 1.0) / n, max_relative = 1e-6);
        }
    }

    /// Scores that hardly vary: A = e^μ/(e^μ + n).
    #[test]
    fn fixed_scores_are_a_plain_softmax() {
        let (n, mean) = (99.0_f64, 50.0_f64.ln());
        let found = Apart::new(n, 1e-12, [mean, 1e-12]);
        assert_relative_eq!(found.ln_partition, (50.0 + n).ln(), max_relative = 1e-6);
        assert_relative_eq!(found.own, 50.0 / 149.0, max_relative = 1e-6);
        assert_relative_eq!(found.own_square, (50.0_f64 / 149.0).powi(2), max_relative = 1e-6);
        assert_relative_eq!(found.others, n / 149.0_f64.powi(2), max_relative = 1e-6);
    }

    /// Far apart nothing overflows.
    #[test]
    fn one_far_above_takes_it_all() {
        let found = Apart::new(1000.0, 0.5, [2000.0, 4.0]);
        assert_relative_eq!(found.ln_partition, 2000.0, max_relative = 1e-6);
        assert_relative_eq!(found.own, 1.0, max_relative = 1e-6);
    }
}
