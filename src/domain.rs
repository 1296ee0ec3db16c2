//! Tokens that are exchangeable but for what class their pair belongs to.
//!
//! All tokens have the same moments; ordered pairs of different tokens fall into a few classes
//! (same id, different ids …), each with its share of the pairs and its own cosine. Rules act on one
//! pair of tokens; this module lifts them to all.

use crate::moments::{Token, TokenGradient};
use crate::rules::PairRule;

/// The signal of all tokens.
#[derive(Clone, Debug)]
pub(crate) struct Signal {
    pub(crate) token: Token,
    /// E x_a x_b/E x² per pair class.
    pub(crate) cosines: Vec<f64>,
}

/// The gradient of all tokens.
#[derive(Clone, Debug)]
pub(crate) struct Gradient {
    pub(crate) token: TokenGradient,
    /// E g_a g_b/E g² per pair class.
    pub(crate) cosines: Vec<f64>,
    /// What E Σ_ab x_a·x_b g_a·g_b is beyond the product of the expectations, per token and in units
    /// of E x² E g²: it reaches the weights right before, and no further.
    pub(crate) coupling: f64,
}

impl Gradient {
    /// A gradient that meets its signal only on average.
    pub(crate) fn new(token: TokenGradient, cosines: Vec<f64>) -> Self {
        Self { token, cosines, coupling: 0.0 }
    }
}

/// A class of ordered pairs of different tokens.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct PairClass {
    /// Its share of all pairs.
    pub(crate) share: f64,
    /// Whether its two tokens carry the same id.
    pub(crate) same_id: bool,
    /// Whether its two tokens lie in the same segment.
    pub(crate) same_segment: bool,
}

/// How many tokens there are and how their pairs fall into classes.
#[derive(Clone, Debug)]
pub(crate) struct Exchangeable {
    pub(crate) seq_len: f64,
    pub(crate) classes: Vec<PairClass>,
}

impl Exchangeable {
    /// Average over all pairs.
    pub(crate) fn mean(&self, cosines: &[f64]) -> f64 {
        self.classes.iter().zip(cosines).map(|(class, cosine)| class.share * cosine).sum()
    }

    /// Average over all pairs of a product.
    pub(crate) fn mean_product(&self, a: &[f64], b: &[f64]) -> f64 {
        self.classes.iter().zip(a).zip(b).map(|((class, a), b)| class.share * a * b).sum()
    }

    /// Σ over pairs a ≠ b of x_a·g_a x_b·g_b and its diagonal, per token, in units of the diagonal:
    /// what multiplies `seq_len` E x² E g² in the gradient of a weight.
    pub(crate) fn coherence(&self, signal: &[f64], gradient: &[f64]) -> f64 {
        1.0 + (self.seq_len - 1.0) * self.mean_product(signal, gradient)
    }

    /// A rule, forward.
    pub(crate) fn apply(rule: &dyn PairRule, x: &Signal) -> Signal {
        let token = rule.token(&x.token);
        let cosines = x.cosines.iter().map(|&c| rule.cosine([&x.token, &x.token], [&token, &token], c)).collect();
        Signal { token, cosines }
    }

    /// A rule, backward from the output `y` to the input `x`.
    pub(crate) fn apply_backward(rule: &dyn PairRule, x: &Signal, y: &Token, gradient: &Gradient) -> Gradient {
        let token = rule.token_backward(&x.token, y, &gradient.token);
        let pairs = x.cosines.iter().zip(&gradient.cosines);
        let cosines = pairs
            .map(|(&c, &r)| rule.cosine_backward([&x.token, &x.token], c, [&gradient.token, &gradient.token], r))
            .collect();
        Gradient::new(token, cosines)
    }
}
