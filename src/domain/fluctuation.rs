//! How far the levels of one network stray from their expectation.
//!
//! Two levels of a sequence are followed, m = ln |Σ_a x_a|² of what its tokens have in common and s = ln Σ_a |x_a|²:
//! attention averages, so that the second of its outputs strays with the first of its inputs. Their deviations in one
//! network have the covariance B = Cov (m, s) over networks, and likewise those of gradients.
//!
//! What is said in [`crate::rules`] of one token's ln |x|² holds of the levels too, but that fresh draws of two tokens
//! are alike only as far as the tokens are. With w_a = E x_a²/Σ E x², ⟨·⟩ = Σ_ab w_a w_b ·_ab and p = ⟨c⟩:
//!
//! ```text
//! linear map      B' = h² B + 2/n_out (1, p; p, ⟨ĉ²⟩)
//! activation      B' = J B_scale Jᵀ + (κ_m, κ_m p; κ_m p, ⟨κ(c)⟩)/width      s' = χ s    m' − s' = σ (m − s)
//! norm            s' = (1 − e) s    m' = m − e s
//! attention       m' = m    s' = f m + (1 − f) s       f: how far its outputs are the same for all tokens
//! sum             s' = Σ a_i s_i    m' = Σ a_i p_i/p m_i
//!                 B' also + Σ_{i<j} 4 a_i a_j (p_i p_j/p², p_i p_j/p; ·, ⟨c_i c_j⟩)/width
//! ```
//!
//! κ(c) = Cov(φ(u)², φ(v)²)/(E φ²)² for arguments of correlation c, κ_m the same of the entries of Σ_a x_a, and
//! σ = d ln p'/d ln p. ĉ, the cosine of two tokens in one network, strays from c itself: E ĉ² = c² + γ (1 − c²)², with
//! γ the `concentration` of the token differences before fresh weights are met.
//!
//! Backward the same maps are met the other way round; U is the covariance at given levels of the signals. A network
//! whose signals stray by (m, s) here has ln Σ |g|² smaller by R·(m, s), R the `response`: norms bring e to s, scores
//! 2p/(1 − p) to m − s (their gradients are those of token differences, (1 − c)²), and R_x = Jᵀ R_y. The gradient so
//! strays with what the draws between x and y add to B: U' = U + R·(B_y − J B_x Jᵀ) R. At a site the whole is
//! U_ss + R·B R.
//!
//! Sampled on the stream, width 64 to 256: within 30 % in encoders, 20 % in MLPs (docs/accuracy.md).
//!
//! Assumptions: B, U ≪ 1; tokens alike in their levels; terms of order 1/width² are neglected.
//! Source: for one token Hanin & Nica 2018 (κ/width for ReLU); the rest is ours.

use nalgebra::{Matrix2, Vector2};

use super::{Domain, Flow, Gradient, Signal};

/// What strays: m first, then s.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Fluctuation {
    /// Covariance of what all entries share.
    pub(crate) scale: Matrix2<f64>,
    /// Covariance that averaging over finitely many entries adds.
    pub(crate) entries: Matrix2<f64>,
    /// What entries add to the variance of ln Σ (x − E x)².
    pub(crate) centred: f64,
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
            centred: 0.0,
            map: Matrix2::identity(),
            fresh: zero,
            kept: Matrix2::identity(),
        }
    }

    /// Of entries drawn for themselves.
    pub(crate) fn drawn(entries: Matrix2<f64>) -> Self {
        Self { entries, centred: entries[S], fresh: entries, kept: Matrix2::zeros(), ..Self::none() }
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

    /// Why what is said of one network is rough, if it is.
    pub(crate) fn caveat(self) -> Option<(&'static str, String)> {
        /// Sampled within a sixth below, up to 80 % too large beyond (MLP of width 64, GELU).
        const LARGEST: f64 = 1.0;
        let std = self.of_second().sqrt();
        (std > LARGEST).then(|| {
            (
                "one network strays by more than the factor e: ± is rough (standard deviation of ln up to 1)",
                format!("{std:.2}"),
            )
        })
    }

    /// Variance of the ln of the second moment.
    pub(crate) fn of_second(self) -> f64 {
        self.total()[S].max(0.0)
    }

    /// Variance of the ln of the variance.
    pub(crate) fn of_variance(self) -> f64 {
        (self.scale[S] + self.centred).max(0.0)
    }
}

/// Where s stands by itself.
pub(super) const S: (usize, usize) = (1, 1);

/// Covariance of the levels of one entry: `kurtosis` of its sum over tokens, `shared` = p, and what pairs of tokens
/// share of its `squares`.
pub(crate) fn levels_covariance(kurtosis: f64, shared: f64, squares: f64) -> Matrix2<f64> {
    Matrix2::new(kurtosis, kurtosis * shared, kurtosis * shared, squares)
}

/// s' = `scale` s, m' − s' = `alike` (m − s).
pub(crate) fn levels_map(scale: f64, alike: f64) -> Matrix2<f64> {
    Matrix2::new(alike, scale - alike, 0.0, scale)
}

/// E ĉ² of a cosine whose differences have relative variance `concentration`.
pub(crate) fn square(cosine: f64, concentration: f64) -> f64 {
    let beside = 1.0 - cosine * cosine;
    cosine * cosine + concentration * beside * beside
}

/// One term of a sum.
pub(crate) struct Term<'a> {
    /// Its share in the second moment of the sum.
    pub(crate) share: f64,
    pub(crate) cosines: &'a [f64],
    pub(crate) fluctuation: Fluctuation,
}

impl Domain {
    /// A sum of terms that come from one fork where `before` was strayed; with the output's `levels`, cosines and width.
    /// Also how the deviations of each term reach it.
    pub(crate) fn joined(
        &self,
        before: Fluctuation,
        terms: &[Term],
        levels: &(impl ExactSizeIterator<Item = f64> + Clone),
        cosines: &[f64],
        width: f64,
    ) -> (Fluctuation, Vec<Matrix2<f64>>) {
        let shared = |cosines: &[f64]| {
            let [shared] = self.pair_averages(levels.clone(), [cosines], [1.0], |[cosine]| [cosine]);
            shared.max(f64::MIN_POSITIVE)
        };
        let whole = shared(cosines);
        // p_i/p, where a token has a part of its own with every other.
        let parts: Vec<f64> = terms.iter().map(|term| (shared(term.cosines) / whole).min(term.share.recip())).collect();
        let diagonal = |(term, part): (&Term, &f64)| Matrix2::from_diagonal(&[term.share * part, term.share].into());
        let maps: Vec<Matrix2<f64>> = terms.iter().zip(&parts).map(diagonal).collect();
        let (mut kept, mut fresh) = (Matrix2::zeros(), Matrix2::zeros());
        for (index, (term, map)) in terms.iter().zip(&maps).enumerate() {
            kept += map * term.fluctuation.kept;
            fresh += map * term.fluctuation.own(before.total()) * map;
            for (other, part) in terms[..index].iter().zip(&parts) {
                let both = [term.cosines, other.cosines];
                let [alike] = self.pair_averages(levels.clone(), both, [1.0], |[one, other]| [one * other]);
                let shared = parts[index] * part;
                fresh += 4.0 * term.share * other.share / width
                    * Matrix2::new(shared, shared * whole, shared * whole, alike);
            }
        }
        let scale = kept * before.total() * kept.transpose() + fresh;
        let output = Fluctuation { scale, map: kept, fresh, kept: kept * before.kept, ..Fluctuation::none() };
        (output, maps)
    }

    /// p: the average cosine of all pairs of tokens, each with itself included.
    pub(crate) fn shared(&self, flow: &impl Flow) -> f64 {
        let [shared] = self.pair_averages(flow.levels(), [flow.cosines()], [1.0], |[cosine]| [cosine]);
        shared.clamp(0.0, 1.0)
    }

    /// p and ⟨ĉ²⟩ of cosines with this concentration.
    pub(crate) fn shared_and_squares(&self, flow: &impl Flow, concentration: f64) -> (f64, f64) {
        let both = |[cosine]: [f64; 1]| [cosine, square(cosine, concentration)];
        let [shared, squares] = self.pair_averages(flow.levels(), [flow.cosines()], [1.0; 2], both);
        (shared.clamp(0.0, 1.0), squares)
    }

    /// d ln `after`/d ln `before` of averages p of cosines, of whose pairs of different tokens a fixed part is left.
    pub(crate) fn alike_map(&self, count: usize, before: f64, after: f64) -> f64 {
        let alone = self.length(count).recip();
        let others = |shared: f64| if shared > 0.0 { (1.0 - alone / shared).max(0.0) } else { 0.0 };
        if others(before) > 0.0 { (others(after) / others(before)).min(1.0) } else { 0.0 }
    }
}

/// What a fork and its join leave for the way back.
pub(crate) struct Fork<'a> {
    /// The common input.
    pub(crate) x: &'a Signal,
    /// What was joined, and how its deviations reach the output.
    pub(crate) parts: &'a [Signal],
    pub(crate) maps: &'a [Matrix2<f64>],
    pub(crate) output: &'a Signal,
}

impl Fork<'_> {
    /// The response at the common input, from the `gradient` at the output and the `parts` of it at the input, which
    /// have these `shares` in it.
    pub(crate) fn response(&self, gradient: &Gradient, parts: &[Gradient], shares: &[f64]) -> Vector2<f64> {
        let through = |index: usize| self.maps[index] * self.parts[index].fluctuation.kept;
        let own = |index: usize| parts[index].response - through(index).transpose() * gradient.response;
        let owns: Vector2<f64> = (0..parts.len()).map(|index| shares[index] * own(index)).sum();
        self.output.fluctuation.map.transpose() * gradient.response + owns
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
