//! Stochastic depth: a branch is dropped for all tokens of a sequence together, which strays its levels and its gradients.
//!
//! # Formula
//!
//! With a the share of a branch in E x'² and o = p/(1 − p), |x'|² is q = 1 − a of its average where the branch is dropped and
//! 1 + a o where it is kept. Components behind expand in a variance of ln |x'|², of which norms make E |x'|⁻² E |x'|² = e^V:
//!
//! ```text
//! V = ln E q E q⁻¹ = ln (1 + a² o/((1 − a)(1 + a o)))      of the levels u uᵀ, u = √V d/a
//! ```
//!
//! d = (d_m, d_t) being the branch's shares in the two levels (`domain/fluctuation.rs`). A first block whose branch is most of
//! the stream has V ≫ a² o.
//!
//! # Backward
//!
//! The gradient of a branch is there where the branch is kept. Gradients answer to levels L by e^(−R·L), and the products of
//! those of two tokens by e^(−(R + Q)·L), so that
//!
//! ```text
//! E g_i²      times e^(−R·L(o))/((1 − p) e^(−R·L(o)) + p e^(−R·L(−1)))      L(δ) = ln (1 + a δ) (1, 1) + δ (d − a (1, 1))
//!                                                                       of one token S ln (1 + a_i δ) + ρ·L(δ)
//! E g_a·g_b   likewise, of R + Q
//! E g²        times e^(½ (ρ·u)²)      cosines e^(Q·u (ρ + ½ Q)·u)      ρ = R − S of_all
//! ```
//!
//! the last in all branches: what single tokens know of levels, S, norms take with V, and what it has with the rest (`rules/norm.rs`).
//! A mask that keeps a branch of the share w in E g_x² adds its gradient and makes all smaller:
//!
//! ```text
//! Var ln Σ |g_x|²      has, of V(w) and (R·u)², (√V(w) − R·u)²
//! ```
//!
//! # Sampled
//!
//! Six blocks of width 128, 32 tokens (1500 networks, 6000 of Post-LN). Post-LN Xavier, p = 0.1: gradients in the first block up
//! to 8 % too large with S alone in place of R and Q, within 1.4 ± 0.8 % so; nine in ten of the gradients of weights under DSLM, p
//! = 0.3, 21 -> 7 %; ± of gradients there 101 -> 13 %, of the GPT-2 scheme 185 -> 8 % (docs/accuracy.md).
//!
//! # Assumptions
//!
//! Masks stray ln |x|² by V ≪ 1: nine gradients in ten are within 8 % where the largest V is 0.1 or less, 7 % at 0.2, 24 to 37 % at
//! 0.4, 47 to 69 % at 0.8, for sums of several masks are not log-normal; V is held to 2. Masks that stray more are told apart
//! (`src/predict/masks.rs`) as far as there are walks for it; a caveat tells where there are not. That a branch with a mean m_i (in
//! units of x') takes a + 2 m_i Σ_{j≠i} m_j with it, not a, is left out: another caveat.
//!
//! Source: ours.

use std::sync::Arc;

use nalgebra::Vector2;

use super::{Rule, firsts};
use crate::domain::{Domain, Flow, Fork, Gradient, Signal, bounded, by_position, of_all};
use crate::moments::{Few, Token, ln_sum, share};

/// Of E x'², the product of means: where there is more, means and lengths stray together.
pub(super) const LARGEST_CROSSED: f64 = 0.1;

impl Rule {
    fn keeps_all(&self) -> bool {
        self.odds.iter().all(|&odds| odds == 0.0)
    }

    /// V of one branch in the output, which it has this `share` of.
    pub(super) fn strayed(&self, index: usize, share: f64) -> f64 {
        // As of most sums.
        if self.odds[index] == 0.0 { 0.0 } else { strayed(share, self.odds[index]) }
    }

    /// The same as of the branch, which reaches the output with its share.
    pub(super) fn branch_strayed(&self, index: usize, share: f64) -> f64 {
        if share > 0.0 { self.strayed(index, share) / (share * share) } else { 0.0 }
    }

    /// Why masks make averages rough, if they do, in this `output`.
    pub(super) fn caveat_of_masks(&self, branches: &[Arc<Signal>], output: &Signal) -> Option<(&'static str, String)> {
        /// Sampled below: nine gradients in ten within 8 %.
        const LARGEST: f64 = 0.1;
        let (index, largest) = self.strayed_most(branches, output)?;
        if largest > LARGEST {
            let kind = "a branch that is dropped is much of the stream: few sequences, with short streams, have much of the gradients \
                        (sampled: nine in ten within 8 % where dropping one strays ln |x|² by a variance of up to 0.2, 37 % at \
                        0.4, 69 % at 0.8)";
            return Some((kind, format!("variance {largest:.2}")));
        }
        let crossed = self.crossed(index, &firsts(branches), output.token());
        let kind = "a branch that is dropped has a mean, which strays with lengths (sampled: 16 layers x + SiLU(W x), one in ten \
                    dropped: variances 25 % too small, correlations 0.2 too large)";
        let is_met = largest > 0.0 && crossed > LARGEST_CROSSED;
        is_met.then(|| (kind, format!("the means' product is {crossed:.2} of E x²")))
    }

    /// The branch whose mask strays one of the tokens of this `output` most, and V.
    pub(crate) fn strayed_most(&self, branches: &[Arc<Signal>], output: &Signal) -> Option<(usize, f64)> {
        if self.keeps_all() {
            return None;
        }
        let positions = by_position(branches).into_iter().zip(&output.tokens);
        let each = positions.flat_map(|(parts, y)| {
            let shares: Few<f64> = (0..parts.len()).map(|index| self.share(index, &parts, y)).collect();
            shares.into_iter().enumerate().map(|(index, share)| (index, self.strayed(index, share)))
        });
        each.max_by(|a, b| a.1.total_cmp(&b.1))
    }

    /// What of E x'² is twice the product of the mean of branch `index` with those of all others.
    fn crossed(&self, index: usize, branches: &[Token], output: &Token) -> f64 {
        let means = self.mean_parts(branches, output.ln_second);
        2.0 * means[index] * (means.iter().sum::<f64>() - means[index])
    }

    /// What the `gradient` at the output has of the mask of every branch.
    pub(super) fn masks(&self, domain: &Domain, fork: &Fork, gradient: &Gradient) -> Few<Mask> {
        if self.keeps_all() {
            return self.odds.iter().map(|_| Mask::default()).collect();
        }
        let beyond = gradient.response_beyond_tokens(of_all(domain.shared(fork.output.as_ref())));
        let [mut squares, mut alike] = [0.0; 2];
        for index in 0..self.odds.len() {
            let strayed = self.levels_strayed(index, fork);
            let [of_squares, of_cosines] = [0, 1].map(|column| beyond.column(column).dot(&strayed));
            squares += 0.5 * of_squares * of_squares;
            alike += (of_squares + 0.5 * of_cosines) * of_cosines;
        }
        let of = |(index, &odds): (usize, &f64)| {
            let unequal = Mask { squares: bounded(squares), cosines: bounded(alike), ..Mask::default() };
            if odds == 0.0 {
                return unequal;
            }
            let a = self.share_of_all(index, fork);
            let shares = fork.maps[index].diagonal();
            let levels = [odds, -1.0].map(|more| shares.map(|share| some(1.0 + a * more).ln() + more * (share - a)));
            let answers = |response: Vector2<f64>| levels.map(|levels| known(-response.dot(&levels)));
            let beside = |response: Vector2<f64>| ln_kept(odds, answers(response));
            let kept = beside(gradient.squares() + gradient.response.column(1)) - beside(gradient.squares());
            Mask { answers: answers(beyond.column(0).into_owned()), cosines: unequal.cosines + kept, ..unequal }
        };
        self.odds.iter().enumerate().map(of).collect()
    }

    /// ln of what the square of one token's gradient of this `steepness` is larger by where branch `index`, which has the share `a`
    /// in it, is kept.
    pub(super) fn ln_masked(&self, index: usize, a: f64, steepness: f64, mask: Mask) -> f64 {
        let odds = self.odds[index];
        if odds == 0.0 {
            return mask.squares;
        }
        let [kept, dropped] = [odds, -1.0].map(|more| -steepness * some(1.0 + a * more).ln());
        mask.squares + ln_kept(odds, [kept + mask.answers[0], dropped + mask.answers[1]])
    }

    /// What masks add to the variance of ln Σ |g|² at the fork beyond what the `gradient` at the output answers to the levels they
    /// stray, of branches that have these `shares` in it.
    pub(crate) fn masked(&self, fork: &Fork, gradient: &Gradient, shares: &[f64]) -> f64 {
        let of = |(index, &share): (usize, &f64)| {
            let own = self.strayed(index, share).sqrt();
            own * (own - 2.0 * known(gradient.squares().dot(&self.levels_strayed(index, fork))))
        };
        shares.iter().enumerate().filter(|(index, _)| self.odds[*index] > 0.0).map(of).sum()
    }

    /// u.
    fn levels_strayed(&self, index: usize, fork: &Fork) -> Vector2<f64> {
        let deviation = self.branch_strayed(index, self.share_of_all(index, fork)).sqrt();
        deviation * fork.maps[index].diagonal()
    }

    /// Of all tokens together.
    fn share_of_all(&self, index: usize, fork: &Fork) -> f64 {
        share(self.ln_gains[index] + ln_sum(fork.parts[index].levels()), ln_sum(fork.output.levels()))
    }
}

/// What gradients have of the mask of a branch, and of what those of all branches stray together.
#[derive(Clone, Copy, Default)]
pub(super) struct Mask {
    /// ln of squares where the branch is kept, and where it is dropped, beyond what single tokens know.
    answers: [f64; 2],
    /// ln of what squares are larger by than those of average levels, beyond what single tokens know.
    squares: f64,
    /// ln of what cosines are larger by.
    cosines: f64,
}

impl Mask {
    /// The cosines of the `gradient` where the branch is kept.
    pub(super) fn cosines(self, domain: &Domain, gradient: &Gradient) -> Arc<[f64]> {
        if self.cosines == 0.0 {
            return Arc::clone(&gradient.cosines);
        }
        let factor = self.cosines.exp();
        domain.map(gradient.tokens.len(), |_, _, place| (factor * gradient.cosines[place]).clamp(-1.0, 1.0))
    }
}

/// ln of what is e^`kept` where a branch is kept and e^`dropped` where it is not, beside its average.
fn ln_kept(odds: f64, [kept, dropped]: [f64; 2]) -> f64 {
    // 1 + odds is 1/(1 − p).
    kept + odds.ln_1p() - ln_sum([kept, dropped + odds.ln()].into_iter())
}

/// V of a branch of the share `a`.
fn strayed(a: f64, odds: f64) -> f64 {
    /// Beyond, nothing is as if it were log-normal.
    const LARGEST: f64 = 2.0;
    (a * a * odds / (some(1.0 - a) * (1.0 + a * odds))).ln_1p().min(LARGEST)
}

/// Nothing where networks stray beyond all numbers, of which a caveat tells.
fn known(answer: f64) -> f64 {
    if answer.is_finite() { answer } else { 0.0 }
}

/// What is next to nothing is not followed.
fn some(left: f64) -> f64 {
    left.max(f64::EPSILON)
}

#[cfg(test)]
mod tests {
    use super::strayed;

    /// E q E 1/q of two values, worked out by hand: p = 0.2, a = 0.5 has q = 0.5 or 1.125, and 0.2/0.5 + 0.8/1.125 = 1.1111.
    #[test]
    fn two_lengths_stray_by_what_norms_make_of_them() {
        approx::assert_relative_eq!(strayed(0.5, 0.25), (0.4_f64 + 0.8 / 1.125).ln(), max_relative = 1e-12);
        approx::assert_relative_eq!(strayed(1e-4, 0.25), 0.25e-8, max_relative = 1e-3);
        assert!(strayed(0.7, 0.0).abs() < f64::MIN_POSITIVE);
        assert!(strayed(1.0, 0.25).is_finite());
    }
}
