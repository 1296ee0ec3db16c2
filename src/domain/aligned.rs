//! How far gradients and signals of one sequence line up across triples of tokens: what a step along the gradient of
//! a linear map does to the map's output on the same sequence.
//!
//! ```text
//! aligned = E_s Σ_tu Γ_tu K_ts K_us        K_ab = E x_a x_b,  Γ_ab = E g_a g_b,  s any token of the sequence
//! ```
//!
//! In the Gram domain this is tr(Γ K K)/L. With exchangeable tokens, in units of the diagonals, it is
//!
//! ```text
//! 1 + (L − 1) (⟨K²⟩ + 2 ⟨Γ K⟩) + (L − 1)(L − 2) E Γ_tu K_us K_st
//! ```
//!
//! with averages over the classes of pairs, and the last over triples of different tokens: all three alike with the
//! probability τ, exactly one pair of them with p − τ each, for ids and for segments independently.

use nalgebra::DMatrix;

use super::{Domain, Exchangeable, Flow, Gradient, PairClass, Signal, without_rounding};
use crate::moments::share;

/// Which of the pairs tu, us, st are alike.
const PATTERNS: [[bool; 3]; 5] =
    [[true; 3], [true, false, false], [false, true, false], [false, false, true], [false; 3]];

/// The probability of every pattern, from those that two and that three are alike.
fn probabilities(pair: f64, triple: f64) -> [f64; 5] {
    let one = pair - triple;
    [triple, one, one, one, 1.0 - 3.0 * pair + 2.0 * triple]
}

impl Domain {
    /// ln E_s Σ_tu Γ_tu K_ts K_us.
    pub(crate) fn ln_aligned(&self, x: &Signal, gradient: &Gradient) -> f64 {
        let (ln_x, ln_g) = (x.ln_level(), gradient.ln_level());
        if !(ln_x.is_finite() && ln_g.is_finite()) {
            return f64::NEG_INFINITY;
        }
        let aligned = match self {
            Self::Exchangeable(domain) => domain.aligned(&x.cosines, &gradient.cosines),
            Self::Gram { .. } => {
                let (x, gradient) = (matrix(x, ln_x), matrix(gradient, ln_g));
                (&gradient * &x).dot(&x) / x.nrows() as f64
            }
        };
        2.0 * ln_x + ln_g + without_rounding(aligned).ln()
    }
}

/// Cross products of all pairs, in units of e^`ln_unit`.
pub(super) fn matrix(flow: &impl Flow, ln_unit: f64) -> DMatrix<f64> {
    let roots: Vec<f64> = flow.levels().map(|level| share(0.5 * level, 0.5 * ln_unit)).collect();
    let count = roots.len();
    DMatrix::from_fn(count, count, |i, j| roots[i] * roots[j] * flow.cosines()[i * count + j])
}

impl Exchangeable {
    pub(super) fn aligned(&self, x: &[f64], gradient: &[f64]) -> f64 {
        let others = self.seq_len - 1.0;
        let pairs = self.mean_product(x, x) + 2.0 * self.mean_product(gradient, x);
        1.0 + others * pairs + others * (self.seq_len - 2.0).max(0.0) * self.mean_triple(gradient, x)
    }

    /// E Γ_tu K_us K_st over three different tokens.
    fn mean_triple(&self, gradient: &[f64], x: &[f64]) -> f64 {
        let ids = probabilities(self.share_of(|class| class.same_id), self.id_triple);
        let segments = probabilities(self.share_of(|class| class.same_segment), self.segment_triple);
        let mut mean = 0.0;
        for (id, id_share) in PATTERNS.iter().zip(ids) {
            for (segment, segment_share) in PATTERNS.iter().zip(segments) {
                let [tu, us, st] = [0, 1, 2].map(|pair| {
                    let known = |class: &PairClass| (class.same_id, class.same_segment) == (id[pair], segment[pair]);
                    self.classes.iter().position(known)
                });
                // A pair that never occurs is in no triple.
                if let (Some(tu), Some(us), Some(st)) = (tu, us, st) {
                    mean += id_share * segment_share * gradient[tu] * x[us] * x[st];
                }
            }
        }
        mean
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::moments::{Token, TokenGradient};

    fn flows(levels: &[f64], cosines: [&[f64]; 2]) -> (Signal, Gradient) {
        let tokens = levels.iter().map(|&level| Token::gaussian(64.0, level)).collect();
        let gradients = levels.iter().map(|&level| TokenGradient::isotropic(-level)).collect();
        let [x, g] = cosines.map(Arc::from);
        (Signal::new(tokens, x), Gradient::new(gradients, g))
    }

    fn pairs(count: usize, cosine: impl Fn(usize, usize) -> f64) -> Vec<f64> {
        (0..count * count).map(|place| (place / count, place % count)).map(|(i, j)| cosine(i, j)).collect()
    }

    /// Tokens of two ids, two and three times: every sum over triples by loops.
    #[test]
    fn matrices_agree_with_sums_over_triples() {
        let (ids, levels) = ([0, 1, 0, 1, 1], [0.0, 0.3, -0.5, 0.1, 1.0]);
        let cosine = |same: f64, other: f64| {
            pairs(5, |i, j| {
                if i == j {
                    1.0
                } else if ids[i] == ids[j] {
                    same
                } else {
                    other
                }
            })
        };
        let (k, g) = (cosine(0.6, 0.1), cosine(0.3, -0.2));
        let (x, gradient) = flows(&levels, [&k, &g]);
        let entry = |matrix: &[f64], sign: f64, i: usize, j: usize| {
            matrix[i * 5 + j] * (0.5 * sign * (levels[i] + levels[j])).exp()
        };
        let mut sum = 0.0;
        for (s, t, u) in (0..125).map(|n| (n / 25, n / 5 % 5, n % 5)) {
            sum += entry(&g, -1.0, t, u) * entry(&k, 1.0, t, s) * entry(&k, 1.0, u, s) / 5.0;
        }
        let got = Domain::Gram { alike: true }.ln_aligned(&x, &gradient).exp();
        assert!((got / sum - 1.0).abs() < 1e-12, "{got} {sum}");
    }

    /// With one class of pairs both domains agree; so they do with equal ids, on average over their draws: here
    /// three tokens of two equally likely ids, p = 1/2, τ = 1/4.
    #[test]
    fn domains_agree() {
        let averaged = |cosines: [[f64; 2]; 2]| -> f64 {
            let of = |draw: usize| {
                let id = |i: usize| draw >> i & 1;
                let cosine = |[same, other]: [f64; 2]| {
                    pairs(3, |i, j| {
                        if i == j {
                            1.0
                        } else if id(i) == id(j) {
                            same
                        } else {
                            other
                        }
                    })
                };
                let [k, g] = cosines.map(cosine);
                let (x, gradient) = flows(&[0.0; 3], [&k, &g]);
                Domain::Gram { alike: true }.ln_aligned(&x, &gradient).exp()
            };
            (0..8).map(of).sum::<f64>() / 8.0
        };
        let class = |same_id| PairClass { share: 0.5, same_id, same_segment: false };
        let domain = Exchangeable { id_triple: 0.25, ..Exchangeable::plain(3.0, vec![class(true), class(false)]) };
        for cosines in [[[0.7, 0.2], [0.4, -0.1]], [[0.3, 0.3], [0.2, 0.2]]] {
            let (x, gradient) = flows(&[0.0], [&cosines[0], &cosines[1]]);
            let got = Domain::Exchangeable(domain.clone()).ln_aligned(&x, &gradient).exp();
            let expected = averaged(cosines);
            assert!((got / expected - 1.0).abs() < 1e-12, "{got} {expected}");
        }
    }
}
