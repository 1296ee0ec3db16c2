//! Rotary positions: features i and i + n of every head are rotated by position · θ_i.
//!
//! # Formula
//!
//! ```text
//! E y_a y_b = κ(a − b) E x_a x_b      κ(Δ) = (2 Σ_i cos θ_i Δ + d_head − 2n)/d_head
//! ```
//!
//! Second moments of single tokens pass. What all keys share does not cancel in the softmax any more.
//!
//! # Backward
//!
//! The same factor on the gradients, exact if their pairs of features are alike, but for what attention knows of them
//! (`attention/gram/rotation.rs`).
//!
//! # Assumptions
//!
//! Features are alike before the rotation (Gaussian, behind a linear map).
//!
//! # Source
//!
//! Su et al. 2021 for the map; project notes, refinements §6, for κ.

use std::sync::Arc;

use sigprop_stack::Rotary;

use super::PairRule;
use crate::domain::{Gradient, GradientPairMap, PairMap};
use crate::moments::{PerToken, Token, TokenGradient};

pub(crate) struct Rule {
    /// κ, by distance.
    overlaps: Vec<f64>,
}

impl Rule {
    pub(crate) fn new(rotary: &Rotary, seq_len: usize) -> Self {
        Self { overlaps: overlaps(rotary, seq_len) }
    }
}

/// κ of the distances of `seq_len` positions.
pub(crate) fn overlaps(rotary: &Rotary, seq_len: usize) -> Vec<f64> {
    let d_head = rotary.d_head as f64;
    let passed = d_head - 2.0 * rotary.frequencies.len() as f64;
    let overlap = |distance: usize| {
        let cosines = rotary.frequencies.iter().map(|frequency| (frequency * distance as f64).cos());
        (2.0 * cosines.sum::<f64>() + passed) / d_head
    };
    (0..seq_len).map(overlap).collect()
}

impl PairRule for Rule {
    fn tokens(&self, x: &[Token]) -> PerToken<Token> {
        x.into()
    }

    fn cosines<'a>(&'a self, _: &'a [Token], _: &'a [Token]) -> PairMap<'a> {
        Box::new(|i, j, cosine| self.overlaps[i.abs_diff(j)] * cosine)
    }

    fn tokens_backward(&self, _: &[Token], _: &[Token], gradients: &[TokenGradient]) -> PerToken<TokenGradient> {
        gradients.into()
    }

    fn cosines_backward<'a>(&'a self, _: &'a [Token], _: &'a [TokenGradient]) -> GradientPairMap<'a> {
        Box::new(|i, j, _, gradient_cosine| self.overlaps[i.abs_diff(j)] * gradient_cosine)
    }

    fn told_cosines(&self, gradient: &Gradient) -> Option<Arc<[f64]>> {
        gradient.unturned.clone()
    }
}
