//! How a norm brings the tokens of a sum nearer, on average over networks.
//!
//! E x̂_a·x̂_b of normalised tokens is not E x_a·x_b over E |x|². With δ the relative deviations of x_a·x_b, |x_a|² and
//! |x_b|² in one network,
//!
//! ```text
//! E (1 + δ_ab)/√((1 + δ_a)(1 + δ_b)) = 1 − E δ_ab δ_a + ¾ E δ_a² + ¼ E δ_a δ_b
//! ```
//!
//! For entries drawn as one Gaussian vector per token that is −V (1 − c²)/4, Pearson's bias. The parts f_i of a sum, of
//! shares a_i and cosines c_i, are alike to different degrees; their products and their own entries (V_i) have
//!
//! ```text
//! c · (E …) = Σ_{i<j} 4 a_i a_j/width (¾ c + ¼ c c_i c_j − (c_i + c_j)/2) + Σ_i a_i² V_i (¾ c + ¼ c c_i² − c_i)
//! ```
//!
//! and what all tokens share, δ_a = s, δ_ab = m, has 1 + E s² − E m s = 1 − (1 − p) E (m − t) s: the levels that
//! [`super::Fluctuation`] follows, as they were before the sum, K. A norm that centres takes the share k_i/width of
//! each part off, k_i its `constant_share`, and with it the common part of the more alike ones:
//! c' − c = −Σ a_i k_i (c_i − c)/width.
//!
//! It matters in Post-LN, where the stream has a norm and a mean of its own and the branch has not, and where how alike
//! tokens are decides how large they are: a network whose tokens are more alike has larger averages to divide by, and
//! so grows less alike. It is told of sums whose input was normalised or just drawn; in other streams the scales of
//! single tokens and the levels of all stray together, and what they share is not known apart.
//!
//! Assumptions: averages over pairs of tokens; deviations ≪ 1.
//! Source: ours.

use nalgebra::{Matrix2, Vector2};

use super::{Domain, Signal, of_all};

impl Domain {
    /// Covariance of the levels that single tokens know of, where all others are known apart: nothing of a signal that
    /// was normalised, all of one just drawn.
    pub(crate) fn own_levels(&self, signal: &Signal) -> Option<Matrix2<f64>> {
        const LEFT: f64 = 1e-3;
        let token = signal.token();
        let alike = self.follows_levels().then(|| self.alike(signal, 0.0))?;
        let own = alike.drawn(token.even_variance());
        let beyond = (signal.fluctuation.total() - own).abs().max();
        (token.norm_variance().min(beyond) * token.width < LEFT).then_some(own)
    }
}

/// What a norm right behind a sum does to the average cosine.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct Mixed {
    /// By dividing: what it adds to c beside Pearson's bias.
    divided: f64,
    /// By centring.
    centred: f64,
    /// K: levels as they were before.
    kept: Matrix2<f64>,
}

/// A part of a sum.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Ingredient {
    /// a_i.
    pub(crate) share: f64,
    /// c_i.
    pub(crate) cosine: f64,
    /// V_i.
    pub(crate) entries: f64,
    /// k_i.
    pub(crate) constant: f64,
}

impl Mixed {
    /// Of a sum of `width` entries whose tokens have this average `cosine` and had the levels `kept` before it.
    pub(crate) fn new(parts: &[Ingredient], cosine: f64, width: f64, kept: Matrix2<f64>) -> Self {
        let pearson = -cosine * (1.0 - cosine * cosine) / 4.0;
        let mut mixed = Self { kept, ..Self::default() };
        let mut add = |variance: f64, mean: f64, both: f64| {
            mixed.divided += variance * (0.75 * cosine + 0.25 * cosine * both - mean - pearson);
        };
        for (index, part) in parts.iter().enumerate() {
            add(part.share * part.share * part.entries, part.cosine, part.cosine * part.cosine);
            for other in &parts[..index] {
                let variance = 4.0 * part.share * other.share / width;
                add(variance, 0.5 * (part.cosine + other.cosine), part.cosine * other.cosine);
            }
        }
        let centring = |part: &Ingredient| part.share * part.constant * (part.cosine - cosine) / width;
        mixed.centred = -parts.iter().map(centring).sum::<f64>();
        mixed
    }

    /// What a norm of this `exponent` brings tokens nearer whose average cosine is `cosine` behind it, and p `shared`.
    pub(crate) fn nearer(&self, exponent: f64, centres: bool, cosine: f64, shared: f64) -> f64 {
        let distance = 1.0 - cosine;
        let across = Vector2::new(1.0, -1.0).dot(&(self.kept * of_all(shared)));
        let levels = -cosine * exponent * across * (1.0 - shared) / distance;
        levels + (exponent * self.divided + if centres { self.centred } else { 0.0 }) / distance
    }
}

/// What an expansion for small deviations says, as far as it is believed: nothing where networks stray beyond all
/// numbers, of which a caveat tells.
pub(crate) fn bounded(correction: f64) -> f64 {
    const LARGEST: f64 = 0.5;
    if correction.is_finite() { correction.clamp(-LARGEST, LARGEST) } else { 0.0 }
}
