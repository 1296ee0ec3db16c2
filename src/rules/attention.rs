//! Multi-head softmax attention, from the states of queries, keys and values; one file per token domain.

mod averages;
pub(crate) mod exchangeable;
pub(crate) mod gram;
mod matrix;

use sigprop_stack::Attention;

use crate::quadrature::gaussian_nodes;

/// Score variance up to which the rules were sampled (single heads, project notes; this project's own
/// twins: whole attention to about 1, softmax to 16).
const SHARPEST_SAMPLED: f64 = 16.0;

/// Scores before the softmax, cap included.
#[derive(Clone, Copy, Debug)]
struct Scores {
    /// ln of the variance of a score.
    ln_variance: f64,
    /// E (d cap(s)/ds)².
    slope: f64,
    /// Variance before the cap, in units of the cap's square.
    reach: f64,
}

impl Scores {
    /// Scores of queries and keys whose second moments have the product e^`ln_product`.
    ///
    /// cap(s) = c·tanh(s/c) of Gaussian s is taken as Gaussian of the same variance.
    fn new(attention: &Attention, ln_product: f64) -> Self {
        let ln_variance = (attention.scale.powi(2) * attention.d_head as f64).ln() + ln_product;
        let Some(cap) = attention.softcap else { return Self { ln_variance, slope: 1.0, reach: 0.0 } };
        let scale = (0.5 * ln_variance - cap.ln()).clamp(-300.0, 300.0).exp();
        let (mut square, mut slope) = (0.0, 0.0);
        for (z, weight) in gaussian_nodes(0.0, scale) {
            let tanh = libm::tanh(scale * z);
            square += weight * tanh * tanh;
            slope += weight * (1.0 - tanh * tanh).powi(2);
        }
        Self { ln_variance: 2.0 * cap.ln() + square.ln(), slope, reach: scale * scale }
    }
}

impl Scores {
    /// Why the cap is not taken exactly, if it is not.
    fn caveat(&self) -> Option<(&'static str, String)> {
        /// Gradients of queries and keys were sampled 4 % high at 0.03, 7 to 14 % at 0.5.
        const LARGEST_REACH: f64 = 0.01;
        (self.reach > LARGEST_REACH).then(|| {
            (
                "scores reach their cap, which bends what all keys share too",
                format!("score variance {:.2} of cap²", self.reach),
            )
        })
    }
}

/// What attention does with its scores, averaged over queries and heads.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Sharpness {
    /// ln E s² of the scores of keys in view, without what positions add.
    pub(crate) ln_score: f64,
    /// 1/E Σ_b A_ab².
    pub(crate) attended: f64,
    /// The same of scores that do not differ.
    pub(crate) in_view: f64,
}

/// `a`/`b`, 0 where there is nothing to compare.
fn ratio(a: f64, b: f64) -> f64 {
    if b > 0.0 { a / b } else { 0.0 }
}
