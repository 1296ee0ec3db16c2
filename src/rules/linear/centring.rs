//! What a standardised weight sees of a token: x less the mean m of its features, for Ŵ x = Ŵ (x − m).
//!
//! # Formula
//!
//! With μ = E x/√(E x²) and k = `constant_share`
//!
//! ```text
//! E x'² = E x² (1 − μ²)(1 − k/width)      cosine' = (cosine − μ_a μ_b)/√((1 − μ_a²)(1 − μ_b²))
//! ```
//!
//! # Backward
//!
//! ```text
//! E g'² = E g² (1 − c/width)      ρ' = ρ E x'²/E x²      c' = 0
//! ```
//!
//! since x·g' = x'·g. The rest is that of LayerNorm without its division: [`crate::rules::norm`].

use nalgebra::Matrix2;
use sigprop_stack::{Norm, NormKind};

use crate::domain::{Domain, Fluctuation, GradientPairMap, PairMap, Signal};
use crate::moments::{PerToken, Token, TokenGradient, ln_correction, share};
use crate::rules::{PairRule, norm};

pub(crate) struct Centring(norm::Rule);

impl Centring {
    pub(crate) fn new() -> Self {
        Self(norm::Rule::new(&Norm::plain(NormKind::LayerNorm, 0.0)))
    }
}

impl PairRule for Centring {
    fn tokens(&self, x: &[Token]) -> PerToken<Token> {
        let token = |(x, normed): (&Token, Token)| Token {
            ln_second: self.0.ln_centred(x),
            scale_variance: self.0.norm_variance(x),
            uneven: x.uneven,
            sensitivity: x.sensitivity,
            ..normed
        };
        x.iter().zip(self.0.tokens(x)).map(token).collect()
    }

    fn cosines<'a>(&'a self, x: &'a [Token], _: &'a [Token]) -> PairMap<'a> {
        let centring = self.0.centring(x);
        Box::new(move |i, j, cosine| cosine * centring[i].0 * centring[j].0 - centring[i].1 * centring[j].1)
    }

    fn tokens_backward(&self, x: &[Token], y: &[Token], gradients: &[TokenGradient]) -> PerToken<TokenGradient> {
        let token = |(gradient, (x, y)): (&TokenGradient, (&Token, &Token))| {
            let left = share(y.ln_second, x.ln_second);
            TokenGradient {
                radial: left * gradient.radial,
                excess: left * gradient.excess,
                constant: 0.0,
                centred: 1.0,
                ..gradient.scaled(ln_correction(-gradient.constant / x.width))
            }
        };
        gradients.iter().zip(x.iter().zip(y)).map(token).collect()
    }

    fn cosines_backward<'a>(&'a self, _: &'a [Token], _: &'a [TokenGradient]) -> GradientPairMap<'a> {
        Box::new(|_, _, _, gradient_cosine| gradient_cosine)
    }

    fn fluctuation(&self, _: &Domain, x: &Signal, _: &Signal) -> Fluctuation {
        x.fluctuation.mapped(Matrix2::identity())
    }

    fn caveat(&self, x: &[Token]) -> Option<(&'static str, String)> {
        let x = x.iter().find(|x| x.mean * x.mean > 1.0 - 1e-9)?;
        let got = format!("1 − mean²/E x² is {:.1e}", 1.0 - x.mean * x.mean);
        Some(("a standardised weight sees nothing but rounding of a signal that is all mean", got))
    }
}
