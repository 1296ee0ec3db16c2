//! LayerNorm and RMSNorm.
//!
//! # Formula
//!
//! With q_c = E x² − mean² less the share of the sample mean (LayerNorm), or E x² (RMSNorm):
//!
//! ```text
//! E y² = gain² q_c/(q_c + ε)
//! cosine' = centred cosine · (1 − (1 − cosine²) V/4)
//! ```
//!
//! The bracket is the bias of a sample correlation: with δ the relative deviations of x_a·x_b,
//! |x_a|² and |x_b|², E (1 + δ_ab)/√((1 + δ_a)(1 + δ_b)) = 1 − E δ_ab δ_a + ¾V + ¼E δ_a δ_b, which
//! for Gaussian entries (V = 2/width) is 1 − (1 − cosine²)/(2 width), as for Pearson's r.
//!
//! # Backward
//!
//! The gradient loses its components along 1 (LayerNorm) and along x, then is divided by s; with
//! e = q_c/(q_c + ε):
//!
//! ```text
//! E g'² = gain² E g² / (q_c + ε) · (1 − ρ (1 − (1 − e)²)/width − c/width) · (1 + e(e+1)V/2 + e(1 − e)SV)
//! ρ' = (1 − e)² ρ     c' = 0 (LayerNorm)     S' = (1 − e) S + e
//! gradient cosine' = gradient cosine · (1 − (1 − cosine²)(ρ (1 − (1 − e)²)/width + e² V/4))
//! ```
//!
//! Two tokens lose components along two directions, their gradients have one component in common
//! to lose: (1 − 2/width + cosine²/width) against (1 − 1/width); and E 1/(s_a s_b) stays behind
//! E 1/s² like the correlation above.
//!
//! # Assumptions
//!
//! V ≪ 1; terms of order 1/width² are neglected. Equal gains, zero biases.
//!
//! # Source
//!
//! Kedia et al. 2024, appendix on layer normalisation, for the leading order; the rest is ours.

use sigprop_stack::{Norm, NormKind};

use super::PairRule;
use crate::moments::{Token, TokenGradient, ln_correction, share, width_caveat};

pub(crate) struct Rule {
    centres: bool,
    ln_eps: f64,
    ln_gain2: f64,
}

impl Rule {
    pub(crate) fn new(norm: &Norm) -> Self {
        Self { centres: norm.kind == NormKind::LayerNorm, ln_eps: norm.eps.ln(), ln_gain2: 2.0 * norm.gain.abs().ln() }
    }

    /// ln of the second moment that is divided by.
    fn ln_centred(&self, x: &Token) -> f64 {
        if self.centres {
            x.ln_second + ((1.0 - x.mean * x.mean) * (1.0 - x.constant_share / x.width)).ln()
        } else {
            x.ln_second
        }
    }

    /// ln(q_c + ε).
    fn ln_divisor(&self, x: &Token) -> f64 {
        let ln_centred = self.ln_centred(x);
        let (larger, smaller) = (ln_centred.max(self.ln_eps), ln_centred.min(self.ln_eps));
        larger + share(smaller, larger).ln_1p()
    }

    fn centred_cosine(&self, x: [&Token; 2], cosine: f64) -> f64 {
        if self.centres {
            let (a, b) = (x[0].mean, x[1].mean);
            (cosine - a * b) / ((1.0 - a * a) * (1.0 - b * b)).sqrt()
        } else {
            cosine
        }
    }

    /// e = q_c/(q_c + ε).
    fn exponent(&self, x: &Token) -> f64 {
        share(self.ln_centred(x), self.ln_divisor(x))
    }
}

impl PairRule for Rule {
    fn token(&self, x: &Token) -> Token {
        let exponent = self.exponent(x);
        Token {
            ln_second: self.ln_gain2 + exponent.ln(),
            mean: if self.centres { 0.0 } else { x.mean },
            scale_variance: (1.0 - exponent).powi(2) * x.norm_variance(),
            entry_variance: 0.0,
            sensitivity: (1.0 - exponent) * x.sensitivity,
            constant_share: if self.centres { 0.0 } else { x.constant_share },
            ..*x
        }
    }

    fn cosine(&self, x: [&Token; 2], _: [&Token; 2], cosine: f64) -> f64 {
        let centred = self.centred_cosine(x, cosine);
        let variance = 0.5 * (x[0].norm_variance() + x[1].norm_variance());
        centred * (1.0 - (1.0 - centred * centred) * variance / 4.0)
    }

    fn token_backward(&self, x: &Token, _: &Token, gradient: &TokenGradient) -> TokenGradient {
        let e = self.exponent(x);
        let constant = if self.centres { gradient.constant } else { 0.0 };
        let removed = (gradient.radial * (1.0 - (1.0 - e).powi(2)) + constant) / x.width;
        let variance = x.norm_variance();
        let fluctuation = 0.5 * e * (e + 1.0) * variance + e * (1.0 - e) * gradient.steepness * variance;
        let ln_gain = self.ln_gain2 - self.ln_divisor(x) + ln_correction(-removed) + ln_correction(fluctuation);
        TokenGradient {
            radial: (1.0 - e).powi(2) * gradient.radial,
            constant: if self.centres { 0.0 } else { gradient.constant },
            steepness: (1.0 - e) * gradient.steepness + e,
            ..gradient.scaled(ln_gain)
        }
    }

    fn cosine_backward(
        &self,
        x: [&Token; 2],
        cosine: f64,
        gradients: [&TokenGradient; 2],
        gradient_cosine: f64,
    ) -> f64 {
        let centred = self.centred_cosine(x, cosine);
        let mean = |value: &dyn Fn(usize) -> f64| 0.5 * (value(0) + value(1));
        let e = mean(&|i| self.exponent(x[i]));
        let radial = mean(&|i| gradients[i].radial) * (1.0 - (1.0 - e).powi(2)) / x[0].width;
        let variance = mean(&|i| x[i].norm_variance());
        gradient_cosine * (1.0 - (1.0 - centred * centred) * (radial + e * e * variance / 4.0))
    }

    fn caveat(&self, x: &Token) -> Option<(&'static str, String)> {
        if x.is_zero() && self.ln_eps == f64::NEG_INFINITY {
            return Some(("a norm without eps divides a zero signal by zero", "taken as zero".to_owned()));
        }
        if self.centres && x.mean * x.mean > 1.0 - 1e-9 {
            let got = format!("1 − mean²/E x² is {:.1e}", 1.0 - x.mean * x.mean);
            return Some(("LayerNorm of a signal that is all mean leaves rounding", got));
        }
        width_caveat(x)
    }
}
