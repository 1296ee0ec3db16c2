//! Dropout: entries zeroed with probability p, survivors divided by 1 − p.
//!
//! # Formula
//!
//! ```text
//! E y_a² = E x_a²/(1 − p)      E y_a y_b = E x_a x_b      mean unchanged
//! ```
//!
//! # Backward
//!
//! The same with g in place of x; x·g is conserved. A mask of both x and g correlates their entries
//! like an activation with E φ²φ'²/(E φ² E φ'²) = 1/(1 − p).
//!
//! # Source
//!
//! Kedia et al. 2024, appendix on dropout; the 1/width terms are ours.

use sigprop_stack::Dropout;

use super::PairRule;
use crate::moments::{Token, TokenGradient, ln_correction};

pub(crate) struct Rule {
    keep: f64,
}

impl Rule {
    pub(crate) fn new(dropout: Dropout) -> Self {
        Self { keep: 1.0 - dropout.rate }
    }

    /// p/(1 − p).
    fn odds(&self) -> f64 {
        (1.0 - self.keep) / self.keep
    }
}

impl PairRule for Rule {
    fn token(&self, x: &Token) -> Token {
        Token {
            ln_second: x.ln_second - self.keep.ln(),
            mean: x.mean * self.keep.sqrt(),
            kurtosis: (x.kurtosis + 1.0) / self.keep - 1.0,
            entry_variance: x.entry_variance + self.odds() * (x.kurtosis + 1.0) / x.width,
            ..*x
        }
    }

    fn cosine(&self, _: [&Token; 2], _: [&Token; 2], cosine: f64) -> f64 {
        cosine * self.keep
    }

    fn token_backward(&self, x: &Token, _: &Token, gradient: &TokenGradient) -> TokenGradient {
        let shared = (gradient.radial - 1.0 - gradient.steepness) * self.odds() / x.width;
        gradient.scaled(ln_correction(shared) - self.keep.ln())
    }

    fn cosine_backward(&self, _: [&Token; 2], _: f64, _: [&TokenGradient; 2], gradient_cosine: f64) -> f64 {
        gradient_cosine * self.keep
    }
}
