//! How a norm brings the tokens of a sum nearer, on average over networks.
//!
//! E x̂_a·x̂_b of normalised tokens is not E x_a·x_b over E |x|². With δ the relative deviations of x_a·x_b, |x_a|² and
//! |x_b|² in one network,
//!
//! ```text
//! E (1 + δ_ab)/√((1 + δ_a)(1 + δ_b)) = 1 − E δ_ab δ_a + ¾ E δ_a² + ¼ E δ_a δ_b
//! ```
//!
//! What all tokens share, δ_a = s, δ_ab = m, has 1 + E s² − E m s, both followed by [`super::Fluctuation`]. Of the rest,
//! entries drawn as one Gaussian vector per token have −V (1 − c)(1 − 3c)/4, and both together −V (1 − c²)/4, Pearson's
//! bias. The parts f_i of a sum, of shares a_i and cosines c_i, are alike to different degrees; then the rest is
//!
//! ```text
//! c · rest = Σ_{i<j} 4 a_i a_j/width (c_i c_j − (c_i + c_j)/2 + ¾ c (1 − c_i c_j))
//!          + Σ_i a_i² V_i (¾ c (1 − c_i²) − c_i (1 − c_i))
//! ```
//!
//! V_i being what the entries of f_i add. A norm that centres takes the share k_i/width of each part off, k_i its
//! `constant_share`, and with it the common part of the more alike ones: c' − c = −Σ a_i k_i (c_i − c)/width.
//!
//! It matters in Post-LN, where the stream has a norm and a mean of its own and the branch has not, and where how alike
//! tokens are decides how large they are: a network whose tokens are more alike has larger averages to divide by, and so
//! grows less alike.
//!
//! Assumptions: averages over pairs of tokens; deviations ≪ 1.
//! Source: ours.

/// What a norm right behind a sum does to the average cosine.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct Mixed {
    /// By dividing: c times the difference between the rest and that of Gaussian entries.
    pub(crate) divided: f64,
    /// By centring.
    pub(crate) centred: f64,
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
    /// Of a sum of `width` entries whose tokens have this average `cosine`.
    pub(crate) fn new(parts: &[Ingredient], cosine: f64, width: f64) -> Self {
        let as_one = -cosine * (1.0 - cosine) * (1.0 - 3.0 * cosine) / 4.0;
        let mut mixed = Self::default();
        for (index, part) in parts.iter().enumerate() {
            let own = 0.75 * cosine * (1.0 - part.cosine * part.cosine) - part.cosine * (1.0 - part.cosine);
            mixed.divided += part.share * part.share * part.entries * (own - as_one);
            mixed.centred -= part.share * part.constant * (part.cosine - cosine) / width;
            for other in &parts[..index] {
                let both = part.cosine * other.cosine;
                let crossed = both - 0.5 * (part.cosine + other.cosine) + 0.75 * cosine * (1.0 - both);
                mixed.divided += 4.0 * part.share * other.share / width * (crossed - as_one);
            }
        }
        mixed
    }
}
