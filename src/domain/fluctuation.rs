//! How far the levels of one network stray from their expectation.
//!
//! Two levels of a sequence are followed, m = ln |Σ_a x_a|² of what its tokens have in common and t = ln Σ_a |x_a −
//! x̄|² of what they differ in: attention averages, so that all its outputs stray with m of its inputs, and a stream
//! whose tokens are copies of each other still has a t. Of all together, p = ⟨c⟩ with w_a = E x_a²/Σ E x² and ⟨·⟩ =
//! Σ_ab w_a w_b ·_ab,
//!
//! ```text
//! s = ln Σ_a |x_a|² = p m + (1 − p) t      ln (1 − p) of one network: t − s = p (t − m)
//! ```
//!
//! Their deviations in one network have the covariance B = Cov (m, t) over networks, and likewise those of gradients.
//! What is said in [`crate::rules`] of one token's ln |x|² holds of the levels too, but that fresh draws average over
//! as many tokens as differ, of which a sequence has 1/q = (1 − p)²/⟨(c − p)²⟩, and as directions they differ in, 1/γ,
//! γ their `concentration`:
//!
//! ```text
//! linear map      B' = B + 2/n_out (1, 0; 0, q + γ)
//! sum             `src/domain/joined.rs`
//! activation      m' = χ s + σ p (1 − p)/p' (m − t)         t' = χ s − σ p (1 − p)/(1 − p') (m − t)    σ = dp'/dp
//! norm            m' = m − e s                              t' = t − e s
//! attention       m' = m                                    t' = t + α (s + t) + β (t − s)
//! ```
//!
//! with χ and e as for one token; activations and products also draw entries ([`Entry`]). The differences of
//! attention's outputs follow those of the values, of the keys and of the queries (α and β:
//! `rules/attention/fluctuation.rs`).
//!
//! Backward the same maps are met the other way round; U is the covariance at given levels of the signals. A network
//! whose signals stray by (m, t) here has ln Σ |g|² smaller by R·(m, t), R the `response`: norms bring e to s, scores
//! −2 to t (their gradients are those of token differences, (1 − c)²), and R_x = Jᵀ R_y. The gradient so
//! strays with what the draws between x and y add to B: U' = U + R·(B_y − J B_x Jᵀ) R. At a site the whole is
//! U_ss + R·B R.
//!
//! Cosines of gradients answer to levels too: Q, −d ln of the average cosine/d (m, t), has κ'/κ p (1 − p)(−1, 1) more at an
//! activation that multiplies them by κ(c). What attention gathers is made of squares and of products of gradients
//! (`rules/attention/fluctuation.rs`): (R', Q') = (R, Q) G, and so is what it has with the fork by way of other branches; G goes
//! along from fork to join (`made`), where the response of a branch is (M − m)ᵀ (R, Q) G beyond its own, M and m what the output
//! and the branch have of the fork. A sum adds up both (`summed`). Norms, whose divisor strays with the levels, meet R
//! and Q (`rules/norm.rs`), and so do weights, whose gradients collect products of tokens, with s and m of their own:
//!
//! ```text
//! E Σ_ab x_a·x_b g_a·g_b also − E x² E g² Σ_ab of its part −s·C_s/L of squares and −(L p m − s)·(C_s + C_c) r of pairs
//! C = B ((R, Q) − S of_all) + K D                          D, K and S as in `rules/norm.rs` (`Domain::met_together`)
//! ```
//!
//! Sampled in DSLM of 24 blocks, width 64, 32 tokens (4000 networks, blocks 4, 8 and 16), what pairs are off by: at values −4.5,
//! −4.4, −3.0 ± 0.3 % (told −5.6, −5.2, −3.3), at attention's output −3.9, −4.6, −4.3 ± 0.3 % (−4.9, −5.2, −4.2), at the
//! feed-forward network's input −4.1, −4.0, −3.0 ± 0.3 % (−5.3, −4.8, −3.5).
//!
//! Single tokens know V of what is drawn, of which all tokens have in common what Gaussian entries of their cosines have, Var s
//! of B = V (1, 0; 0, q), but behind a sum, whose parts are alike to different degrees and add up theirs (`known`).
//!
//! What activations draw in squares of φ' goes with what they draw in signals, in squares of φ and, where branches have means, in
//! averages of φ, which meet the means of the others (`Gradient::averages`): the whole gradient answers to that, of which a branch is the
//! part a, so that at the fork (a − a²) of what is met within is met beside (`Gradient::again`).
//!
//! A map W' draws most where an earlier one, W, lined tokens' differences up: X = tr (W Wᵀ − 1)(W'ᵀ W' − 1)/width adds to
//! their t, with the variance 2/(fan-in of W · fan-out of W'). Backward W draws where W' lined gradients up: the same X.
//! With f and b, what activations between them hand on of it in signals and in gradients, the gradient strays by (b − R_t
//! f) X, so that at W, and beyond what is said above,
//!
//! ```text
//! U' − (2/fan-in) Y (0, 1; 1, 2)      Y = Σ R_t f b/fan-out of W and of all later maps     (`Gradient::redrawn`)
//! ```
//!
//! Attention and products end Y.
//! Sampled in a tanh MLP of 12 layers and width 64, 256 uncorrelated tokens (400 networks): the variance of ln Σ |g|² is
//! 8.0e-3 at the input; of gradients alone 16e-3, of signals alone 12e-3.
//!
//! Sampled on the stream, width 64 to 256: within 30 % in encoders (docs/accuracy.md); in MLPs single tokens are followed beside
//! levels ([`super::Lengths`]).
//!
//! Assumptions: B, U ≪ 1; tokens alike in their levels; terms of order 1/width² are neglected.
//! Source: for one token Hanin & Nica 2018 (κ/width for ReLU); the rest is ours.

use std::sync::Arc;

use nalgebra::{Matrix2, Vector2};

use super::{Domain, Entry, Flow, Gradient, Signal};
use crate::moments::{Few, ratio};

/// What strays: m first, then t.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Fluctuation {
    /// Covariance of what all entries share.
    pub(crate) scale: Matrix2<f64>,
    /// Covariance that averaging over finitely many entries adds.
    pub(crate) entries: Matrix2<f64>,
    /// What one entry draws.
    pub(crate) entry: Entry,
    /// What of the variance of ln Σ x² that entries add is not in that of ln Σ (x − E x)².
    pub(crate) of_mean: f64,
    /// Var s of what single tokens know, behind a sum.
    pub(crate) known: Option<f64>,
    /// What the last component made of the deviations that were there, and what it added.
    pub(crate) map: Matrix2<f64>,
    pub(crate) fresh: Matrix2<f64>,
    /// How the deviations at the last fork are still in it.
    pub(crate) kept: Matrix2<f64>,
}

impl Fluctuation {
    /// Of what is the same in all networks.
    pub(crate) fn none() -> Self {
        let zero = Matrix2::zeros();
        Self {
            scale: zero,
            entries: zero,
            entry: Entry::GAUSSIAN,
            of_mean: 0.0,
            known: None,
            map: Matrix2::identity(),
            fresh: zero,
            kept: Matrix2::identity(),
        }
    }

    /// Of entries drawn for themselves.
    pub(crate) fn drawn(entries: Matrix2<f64>) -> Self {
        Self { entries, fresh: entries, kept: Matrix2::zeros(), ..Self::none() }
    }

    /// Of what such entries draw.
    pub(crate) fn of_entry(entry: Entry, entries: Matrix2<f64>) -> Self {
        Self { entry, ..Self::drawn(entries) }
    }

    /// After a component that draws `entries` and maps all deviations by `map`.
    pub(crate) fn redrawn(self, map: Matrix2<f64>, entries: Matrix2<f64>) -> Self {
        let scale = map * self.total() * map.transpose();
        Self { scale, map, kept: map * self.kept, ..Self::drawn(entries) }
    }

    /// After a component that maps all deviations by `map`.
    pub(crate) fn mapped(self, map: Matrix2<f64>) -> Self {
        self.redrawn(map, Matrix2::zeros())
    }

    /// After a component that adds nothing.
    pub(crate) fn passed(self) -> Self {
        Self { map: Matrix2::identity(), fresh: Matrix2::zeros(), ..self }
    }

    /// Of a gradient with this `response` to what strays afresh.
    pub(crate) fn met(self, fresh: Matrix2<f64>, response: Vector2<f64>) -> Self {
        let added = response.dot(&(fresh * response)).max(0.0);
        Self { scale: self.scale.add_scalar(added), ..self }
    }

    /// At a fork.
    pub(crate) fn forked(self) -> Self {
        Self { kept: Matrix2::identity(), ..self }
    }

    /// What does not come from the fork, where `before` was strayed.
    pub(crate) fn own(self, before: Matrix2<f64>) -> Matrix2<f64> {
        self.total() - self.kept * before * self.kept.transpose()
    }

    pub(crate) fn total(self) -> Matrix2<f64> {
        self.scale + self.entries
    }

    /// Why what is said of one network is rough, if it is, where tokens share this much.
    pub(crate) fn caveat(self, shared: f64) -> Option<(&'static str, String)> {
        /// Sampled within a fifth below.
        const LARGEST: f64 = 1.0;
        let std = self.of_second(shared).sqrt();
        (std > LARGEST).then(|| {
            (
                "one network strays by more than the factor e: averages are rough behind activations other than ReLU (sampled: \
                 width 64, 24 layers: variances within a quarter, gradients down to a quarter with GELU, ever fewer with \
                 SiLU), and ± is where there are attention or residuals (standard deviation of ln up to 1)",
                format!("{std:.2}"),
            )
        })
    }

    /// Variance of the ln of the second moment, of tokens that share this much.
    pub(crate) fn of_second(self, shared: f64) -> f64 {
        variance_of_all(self.total(), shared).max(0.0)
    }

    /// Variance of the ln of the variance.
    pub(crate) fn of_variance(self, shared: f64) -> f64 {
        (variance_of_all(self.total(), shared) - self.of_mean).max(0.0)
    }
}

/// From (m, t) to s, of tokens that share this much.
pub(crate) fn of_all(shared: f64) -> Vector2<f64> {
    Vector2::new(shared, 1.0 - shared)
}

/// Var s.
pub(crate) fn variance_of_all(levels: Matrix2<f64>, shared: f64) -> f64 {
    of_all(shared).dot(&(levels * of_all(shared)))
}

/// Cov with ln (1 − p) of what has the covariance −`with_levels` with (m, t).
pub(crate) fn with_apart(with_levels: Vector2<f64>, shared: f64) -> f64 {
    Vector2::new(shared, -shared).dot(&with_levels)
}

/// From the levels of a part, with this `share` in the second moment of a whole, to the whole's: of what is shared, p,
/// and of what is not, each by the part's share in it.
pub(crate) fn part_map(share: f64, part: f64, [shared, apart]: [f64; 2]) -> Matrix2<f64> {
    /// What rounding leaves of them does not stray.
    const ROUNDING: f64 = 1e-12;
    let weight = |part: f64, whole: f64| if whole > ROUNDING { (share * part / whole).min(1.0) } else { 0.0 };
    Matrix2::from_diagonal(&[weight(part, shared), weight(1.0 - part, apart)].into())
}

/// s' = `scale` s, where what tokens share goes from `before` to `after`, by `slope` where it changes.
pub(crate) fn levels_map(scale: f64, slope: f64, before: f64, after: f64) -> Matrix2<f64> {
    let moved = slope * before * (1.0 - before);
    let common = if after > 0.0 { (moved / after).min(1.0) } else { 0.0 };
    // Of copies nothing is left to differ.
    let apart = if after < 1.0 { (moved / (1.0 - after)).min(1.0) } else { before };
    let all = scale * of_all(before);
    Matrix2::new(all[0] + common, all[1] - common, all[0] - apart, all[1] + apart)
}

impl Domain {
    /// What `parts` of a gradient, which have these `shares` in its squares, have in the products of two tokens' gradients, where
    /// nothing but ids tells them apart and there are any.
    pub(crate) fn of_pairs(&self, parts: &[Gradient], shares: &[f64]) -> Option<OfPairs> {
        if !self.follows_levels() {
            return None;
        }
        let products: Few<f64> = parts.iter().zip(shares).map(|(part, share)| share * self.mean_cosine(part)).collect();
        let all: f64 = products.iter().sum();
        (all > 0.0).then(|| OfPairs { shares: products.into_iter().map(|product| product / all).collect(), all })
    }

    /// p: the average cosine of all pairs of tokens, each with itself included.
    pub(crate) fn shared(&self, flow: &impl Flow) -> f64 {
        let [shared] = self.pair_averages(flow.levels(), [flow.cosines()], [1.0], |[cosine]| [cosine]);
        shared.clamp(0.0, 1.0)
    }

    /// p and q, of tokens whose differences have this concentration.
    pub(crate) fn alike(&self, flow: &impl Flow, concentration: f64) -> Alike {
        let both = |[cosine]: [f64; 1]| [cosine, (1.0 - cosine).powi(2)];
        let [shared, apart] = self.pair_averages(flow.levels(), [flow.cosines()], [1.0, 0.0], both);
        let shared = shared.clamp(0.0, 1.0);
        let distance = (1.0 - shared).powi(2);
        Alike { shared, alone: ratio(apart - distance, distance).clamp(0.0, 1.0), concentration }
    }

    /// dp'/dp of averages p of cosines, of whose pairs of different tokens a fixed part is left.
    pub(crate) fn part_left(&self, count: usize, before: f64, after: f64) -> f64 {
        let alone = self.length(count).recip();
        if before > alone { ((after - alone) / (before - alone)).clamp(0.0, 1.0) } else { 0.0 }
    }
}

/// How alike the tokens of a sequence are, and in how few directions they differ.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Alike {
    /// p.
    pub(crate) shared: f64,
    /// q.
    pub(crate) alone: f64,
    /// γ.
    pub(crate) concentration: f64,
}

impl Alike {
    /// p and 1 − p.
    pub(crate) fn parts(&self) -> [f64; 2] {
        [self.shared, 1.0 - self.shared]
    }

    /// Covariance of the levels of Gaussian entries that give ln |x|² of one token this `variance`: 2/width of all.
    pub(crate) fn drawn(&self, variance: f64) -> Matrix2<f64> {
        variance * Matrix2::from_diagonal(&[1.0, self.alone + self.concentration].into())
    }
}

/// The shares of parts in the products of two tokens' gradients, and the mean cosine of these.
pub(crate) struct OfPairs {
    pub(crate) shares: Few<f64>,
    pub(crate) all: f64,
}

/// The response of a sum of gradients, from those of its parts, which have these `shares` in it, and in products: Σ |g|² and
/// products of two tokens are sums over parts.
pub(crate) fn summed(shares: &[f64], pairs: Option<&OfPairs>, responses: &[Matrix2<f64>]) -> Matrix2<f64> {
    let squares: Vector2<f64> = responses.iter().zip(shares).map(|(r, share)| *share * r.column(0)).sum();
    let alike = pairs.map(|OfPairs { shares, .. }| {
        responses.iter().zip(shares).map(|(r, share)| *share * (r.column(0) + r.column(1))).sum::<Vector2<f64>>()
    });
    Matrix2::from_columns(&[squares, alike.map_or_else(Vector2::zeros, |pairs| pairs - squares)])
}

/// What a fork and its join leave for the way back.
pub(crate) struct Fork {
    /// The common input.
    pub(crate) x: Arc<Signal>,
    /// What was joined, and how what each part draws reaches the output.
    pub(crate) parts: Vec<Arc<Signal>>,
    pub(crate) maps: Few<Matrix2<f64>>,
    pub(crate) output: Arc<Signal>,
}

impl Fork {
    /// The response of every one of the `parts` at the common input to all that is there, from that of the `gradient` at
    /// the output and what each knows of its own branch.
    pub(crate) fn responses(&self, gradient: &Gradient, parts: &[Gradient]) -> Few<Matrix2<f64>> {
        let others = |index: usize| self.by_others(index).transpose() * gradient.response;
        (0..parts.len()).map(|index| others(index) * parts[index].made + parts[index].response).collect()
    }

    /// What the levels of the output have of those of the common input by way of all parts but this one.
    pub(crate) fn by_others(&self, index: usize) -> Matrix2<f64> {
        self.output.fluctuation.map - self.maps[index] * self.parts[index].fluctuation.kept
    }

    /// What strayed afresh between input and output, but for what the gradient of each part knows of its own draws.
    pub(crate) fn fresh(&self, shares: &[f64]) -> Matrix2<f64> {
        let before = self.x.fluctuation.total();
        let known = |index: usize| {
            let own = self.maps[index] * self.parts[index].fluctuation.own(before) * self.maps[index].transpose();
            shares[index].powi(2) * own
        };
        self.output.fluctuation.fresh - (0..self.parts.len()).map(known).sum::<Matrix2<f64>>()
    }
}
