//! Elementwise product of factors with independent weights (gated feed-forward networks).
//!
//! # Formula
//!
//! ```text
//! E y_a y_b = Π_i E f_ia f_ib      mean' = Π mean_i      κ' + 1 = Π (κ_i + 1)
//! ```
//!
//! # Backward
//!
//! Factor i receives E g_a g_b Π_{j≠i} E f_ja f_jb; f_i·g_i = y·g, so its radial share is that of y.
//! Entries share their draws: the gain of factor i has relative entry variance κ of the others.
//!
//! # Assumptions
//!
//! Factors are independent given the norm of their common input.
//!
//! # Source
//!
//! The product of independent second moments; the 1/width terms are ours.

use crate::domain::{Concentration, Signal};
use crate::moments::{Token, TokenGradient, ln_correction};

/// The output from the outputs of the factors.
pub(crate) fn token(factors: &[Token]) -> Token {
    let width = factors[0].width;
    let kurtosis = factors.iter().map(|factor| factor.kurtosis + 1.0).product::<f64>() - 1.0;
    Token {
        ln_second: factors.iter().map(|factor| factor.ln_second).sum(),
        mean: factors.iter().map(|factor| factor.mean).product(),
        kurtosis,
        skewness: factors.iter().map(|factor| factor.skewness).product(),
        scale_variance: factors.iter().map(|factor| factor.scale_variance.sqrt()).sum::<f64>().powi(2),
        entry_variance: kurtosis / width,
        sensitivity: factors.iter().map(|factor| factor.sensitivity).sum(),
        ..Token::gaussian(width, 0.0)
    }
}

/// The gradient of factor `index`.
pub(crate) fn split(factors: &[Token], index: usize, gradient: &TokenGradient) -> TokenGradient {
    let others = factors.iter().enumerate().filter(|(i, _)| *i != index).map(|(_, factor)| factor);
    let ln_gain: f64 = others.clone().map(|factor| factor.ln_second).sum();
    let kurtosis = others.map(|factor| factor.kurtosis + 1.0).product::<f64>() - 1.0;
    let shared = (gradient.radial - 1.0 - gradient.steepness) * kurtosis / factors[index].width;
    TokenGradient { constant: 1.0, ..gradient.scaled(ln_gain + ln_correction(shared)) }
}

/// The concentration of the product `y`: what its factors have from their common input adds up.
pub(crate) fn concentration(factors: &[Signal], y: &Signal, mean_cosine: &dyn Fn(&Signal) -> f64) -> Concentration {
    let fresh = y.token().width.recip();
    let cosine = mean_cosine(y);
    let share = |factor: &Signal| {
        let own = mean_cosine(factor);
        if cosine < 1.0 && own > 0.0 { cosine / own * (1.0 - own) / (1.0 - cosine) } else { 0.0 }
    };
    let deviation: f64 =
        factors.iter().map(|factor| share(factor) * (factor.concentration.total - fresh).max(0.0).sqrt()).sum();
    Concentration {
        total: deviation * deviation + fresh,
        inherited: factors.iter().map(|factor| share(factor) * factor.concentration.inherited).sum(),
    }
}

/// The gradient at the common input, from those at the input of each factor; with the weights of
/// the factors in it.
pub(crate) fn join(factors: &[Token], gradient: &TokenGradient, parts: &[TokenGradient]) -> (TokenGradient, Vec<f64>) {
    let sensitivity: f64 = factors.iter().map(|factor| factor.sensitivity).sum();
    // Through the other factors the gradient grows with the scale of the input.
    let parts: Vec<TokenGradient> = parts
        .iter()
        .zip(factors)
        .map(|(part, factor)| {
            let others = sensitivity - factor.sensitivity;
            TokenGradient { steepness: part.steepness + (gradient.steepness - 1.0) * others, ..*part }
        })
        .collect();
    TokenGradient::join(&parts)
}
