//! How the lengths of two tokens and their product stray together, in one network.
//!
//! With δ_a, δ_b, δ_ab the relative deviations of |x_a|², |x_b|² and x_a·x_b over networks, what is not linear in
//! lengths asks for
//!
//! ```text
//! V = E δ_a²    E = E δ_a δ_b    C = E δ_ab δ_a
//! ```
//!
//! which are V, V c² and V for entries drawn as one Gaussian vector per token. What all tokens have in common,
//! [`super::Fluctuation`] follows: of levels with the covariance B,
//!
//! ```text
//! E = Var s    V = E + D    C = Cov (m, s) + D β/2
//! ```
//!
//! D is what a token strays by itself: V as single tokens know it less E; at least what was just drawn, (1 − κ) of it, κ
//! = Var s of B = (1, 0; 0, q); at most that of Gaussian entries, (1 − c²) V, but for what masks draw. δ_ab has the part
//! β/2 of it from either token: 1/(1 + c) of Gaussian entries, 1 of masks, which cut entries of products too.
//!
//! A norm divides by lengths, E (1 + δ_ab)/√((1 + δ_a)(1 + δ_b)) = 1 − C + ¾ V + ¼ E (`rules/norm.rs`): Pearson's bias −V
//! (1 − c²)/4 of Gaussian entries; nothing of what is the same for all. A network whose tokens happen to be more alike
//! has larger averages to divide by and so stays less alike (Cov (m, s) > Var s): 3 % of 1 − c in deep Pre-LN streams of
//! width 128 where tokens are almost copies. Maps of one input that are multiplied grow together (`rules/product.rs`).
//!
//! Assumptions: averages over pairs of tokens; deviations ≪ 1. In a causal sequence, where levels of all say little of
//! one token, as for Gaussian entries. Source: ours.

use nalgebra::{Matrix2, Vector2};

use super::{Domain, Signal, of_all, variance_of_all};

/// V, E and C.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Strayed {
    pub(crate) own: f64,
    pub(crate) between: f64,
    pub(crate) crossed: f64,
}

impl Domain {
    /// Of two different tokens with this `cosine`.
    pub(crate) fn strayed(&self, signal: &Signal, cosine: f64) -> Strayed {
        let token = signal.token();
        self.strayed_by(signal, cosine, token.even_variance(), token.entry_variance, signal.fluctuation.total())
    }

    /// The same without what its own entries draw.
    pub(crate) fn inherited(&self, signal: &Signal, cosine: f64) -> Strayed {
        let token = signal.token();
        self.strayed_by(signal, cosine, token.scale_variance - token.uneven, 0.0, signal.fluctuation.scale)
    }

    /// From V as single tokens know it, what of it was just drawn, and the covariance of the levels.
    fn strayed_by(&self, signal: &Signal, cosine: f64, known: f64, drawn: f64, levels: Matrix2<f64>) -> Strayed {
        if !self.follows_levels() {
            return Strayed { own: known, between: cosine * cosine * known, crossed: known };
        }
        let masked = signal.token().masked;
        let alike = self.alike(signal, 0.0);
        let between = variance_of_all(levels, alike.shared);
        let drawn = (1.0 - variance_of_all(alike.drawn(1.0), alike.shared)) * drawn;
        let most = (1.0 - cosine * cosine) * known;
        let alone = (known - between).max(drawn).min(most).max(masked);
        let met = masked + (alone - masked) / (1.0 + cosine);
        let in_common = Vector2::new(1.0, 0.0).dot(&(levels * of_all(alike.shared)));
        Strayed { own: between + alone, between, crossed: in_common + met }
    }
}

/// What an expansion for small deviations says, as far as it is believed: nothing where networks stray beyond all
/// numbers, of which a caveat tells.
pub(crate) fn bounded(correction: f64) -> f64 {
    const LARGEST: f64 = 0.5;
    if correction.is_finite() { correction.clamp(-LARGEST, LARGEST) } else { 0.0 }
}
