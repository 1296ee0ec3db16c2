//! What gradients through attention know of how sharp its rows are and how long its tokens, in both token domains.
//!
//! # Formula
//!
//! *Sharp rows have small gradients.* Where a norm divides the output, its gradient h is smaller where the row is
//! sharper: with S = `steepness` and ψ = (1 − c_v) E v²/(n_heads E z²), what S2 multiplies in ln |z|² of a row, and r = ΣA²/S2, by
//! (1 + ψ S2 (r − 1))^−S. r is taken as log-normal above 1/(n S2), its smallest value, with the variance S22/S2² − 1 (`squares_met`),
//! T as a linear function of r by E T ΣA². Gaussian scores, 16 to 512 keys, ψ S2 = S = 1: S2 0.87 to 0.99 of what it is otherwise at w ≤
//! 1, told within 0.04, T within 0.02; at w = 4 within 0.02 and 0.06 of 16 and 32 keys, within 0.12 of 512.
//!
//! *The output's own direction* has ρ = `radial` of what h has elsewhere, and the keys attended most lie in it, v_b·z =
//! A_b |v|² and what all share: T grows by (ρ − 1) ψ E ΣA² (A − ΣA²)² |h|²/|z|². Behind a norm ρ = 0. Where a row is sharp both are
//! small: with ΣA² = r E ΣA², r log-normal, and ΣA² (A − ΣA²)² as r² (one weight decides), 1 + κ = E ΣA⁴ ΣA²/(E ΣA⁴ E ΣA²) is e^(2 Var ln r)
//! and the average is (1 + ψ S2 κ)^(−(1 + S)/2) times the product of those of each (ψ S2 the part of r in |z|²). Gaussian scores, 16
//! to 512 keys, w = 1 and 4, ψ S2 = ½ and 1, S = 0 to 1: within 0.13, of what is 0.17 to 0.84 (mostly 0.05); T has at most a
//! quarter of it.
//!
//! *A longer token is attended more.* Keys and values of token b grow together, and x_b·g_b = v_b·g_v + k_b·g_k +
//! q_b·g_q has
//!
//! ```text
//! v_b·g_v = Σ_a A_ab h_a·v_b     k_b·g_k = Σ_a A_ab s_ab h_a·(v_b − z_a)     E (q·g_q)² = U/T of isotropic gradients
//! ```
//!
//! Under the softmax s_ab is μ = w (1 − S2) on average (E ΣA s by parts), with another query of correlation c beside
//! μ (1 + c). Where it meets itself, of E ΣA² (1 − A) s = w (2 (S2 − S3) − 3 (S3 − S4)), and of E ΣA² (1 − 2A + ΣA²) s², exact
//! (one query, 4 to 512 keys). So (`alone`, `pair`), averaged over the pairs of queries that E g_v² sums,
//!
//! ```text
//! E (v·g_v)(k·g_k)/E (v·g_v)² = (1 − c_v) μ (1 + c)     E (k·g_k)²/E (v·g_v)² = (1 − c_v) (μ² (1 + c)² + c μ)
//! ```
//!
//! which norms take off: at w = 1, uncorrelated tokens, 3.4/width of the gradient where an isotropic one lost 1/width.
//! Gradients of other tokens know nothing of this length: E (x_a·g_a)(x_a·g_b) has the first ratio once and not twice,
//! and the second not at all (`excess`).
//!
//! *Gradients are gathered.* What h_a knows of the norm of its own token, values and keys know of the tokens b they are
//! gathered at one part in L (`local`).
//!
//! Sampled: uncorrelated tokens behind a norm, w = 1, 64 tokens, width 128 (256): queries 11 (7) % too large without
//! the first two, 1.5 (0.5) % with them; 8 blocks of DSLM, width 128, gradient at the embeddings 11 % too large without
//! the last two, 2 % with them. E T_a T_c of two rows that are sharp together is left out.
//!
//! # Assumptions
//!
//! First order in ψ and 1/width; scores Gaussian, w at most 16. Of heads with slopes of their own (ALiBi) the first
//! stands for all in E (q·g_q)².
//!
//! # Source
//!
//! Ours.

use super::SHARPEST_SAMPLED;
use crate::moments::{TokenGradient, ratio};
use crate::quadrature::FIVE_HERMITE_NODES;
use crate::rules::softmax::Row;

/// What a gradient of the output makes of a row: S2 and T are multiplied, then T grows.
pub(super) struct Met {
    pub(super) squares: f64,
    pub(super) sharp: f64,
    pub(super) along: f64,
}

impl Met {
    /// Of a `row` of as many keys, whose S2 has `weight` ψ in ln |z|².
    pub(super) fn new(row: &Row, keys: f64, gradient: &TokenGradient, weight: f64) -> Self {
        let variance = (ratio(row.s22, row.s2 * row.s2) - 1.0).max(0.0);
        let squares = squares_met(variance, ratio(1.0, keys * row.s2), (weight * row.s2).min(1.0), gradient.steepness);
        let with_squares = ratio(row.t_s2, row.t() * row.s2) - 1.0;
        Self {
            squares,
            sharp: (1.0 + ratio(with_squares, variance) * (squares - 1.0)).max(0.0),
            along: (gradient.radial - 1.0)
                * weight
                * row.squares()
                * (1.0 + weight * row.s2 * row.sharp_together()).powf(-0.5 * (1.0 + gradient.steepness)),
        }
    }
}

/// E r q^−S/E q^−S with q = 1 + `part` (r − 1), r log-normal above its `least` value, with this `variance` and the mean 1.
fn squares_met(variance: f64, least: f64, part: f64, steepness: f64) -> f64 {
    let above = 1.0 - least;
    if variance <= 0.0 || above <= 0.0 {
        return 1.0;
    }
    let spread = (variance / (above * above)).ln_1p();
    let (mut all, mut met) = (0.0, 0.0);
    for (z, weight) in FIVE_HERMITE_NODES {
        let r = least + above * (spread.sqrt() * z - 0.5 * spread).exp();
        let smaller = weight * (1.0 + part * (r - 1.0)).powf(-steepness);
        all += smaller;
        met += smaller * r;
    }
    met / all
}

/// Variance of ln |z|² of which other outputs know nothing; S2 has n_heads ψ in `share` of one head.
pub(super) fn uneven(row: &Row, share: f64, n_heads: f64) -> f64 {
    share * share * (row.s22 - row.s2 * row.s2).max(0.0) / n_heads
}

/// E (q·g_q)² of a query, in units of that of isotropic gradients.
pub(super) fn query_radial(row: &Row) -> f64 {
    ratio(row.tilt, row.t())
}

/// μ of a row with this S2, w = `contrast`.
pub(super) fn tilt(s2: f64, contrast: f64) -> f64 {
    score_variance(contrast) * (1.0 - s2)
}

/// E (v·g_v)(k·g_k) and E (k·g_k)² where a query meets itself, in units of E (v·g_v)².
pub(super) fn alone(row: &Row, contrast: f64) -> [f64; 2] {
    let variance = score_variance(contrast);
    [row.leaning(variance), variance * (row.t() + row.outlying)].map(|moment| ratio(moment, row.s2))
}

/// The same where it meets another one, whose correlation with it is `cosine`.
pub(super) fn pair(tilt: f64, cosine: f64) -> [f64; 2] {
    let both = tilt * (1.0 + cosine);
    [both, both * both + cosine * tilt]
}

/// Beyond what was sampled it is not let grow.
fn score_variance(contrast: f64) -> f64 {
    contrast.min(SHARPEST_SAMPLED)
}
