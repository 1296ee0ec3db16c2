//! Multiplication by a number: moments by its square, cosines unchanged.

use sigprop_stack::Scale;

use super::PairRule;
use crate::domain::{GradientPairMap, PairMap};
use crate::moments::{PerToken, Token, TokenGradient};

pub(crate) struct Rule {
    ln_gain: f64,
    sign: f64,
}

impl Rule {
    pub(crate) fn new(scale: Scale) -> Self {
        Self { ln_gain: 2.0 * scale.factor.abs().ln(), sign: scale.factor.signum() }
    }
}

impl PairRule for Rule {
    fn tokens(&self, x: &[Token]) -> PerToken<Token> {
        let token = |x: &Token| Token {
            ln_second: x.ln_second + self.ln_gain,
            mean: self.sign * x.mean,
            skewness: self.sign * x.skewness,
            ..*x
        };
        x.iter().map(token).collect()
    }

    fn cosines<'a>(&'a self, _: &'a [Token], _: &'a [Token]) -> PairMap<'a> {
        Box::new(|_, _, cosine| cosine)
    }

    fn tokens_backward(&self, _: &[Token], _: &[Token], gradients: &[TokenGradient]) -> PerToken<TokenGradient> {
        gradients.iter().map(|gradient| gradient.scaled(self.ln_gain)).collect()
    }

    fn cosines_backward<'a>(&'a self, _: &'a [Token], _: &'a [TokenGradient]) -> GradientPairMap<'a> {
        Box::new(|_, _, _, gradient_cosine| gradient_cosine)
    }

    fn keeps_cosines(&self) -> bool {
        true
    }
}
