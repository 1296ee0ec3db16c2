//! LayerNorm and RMSNorm. DyT and Derf are walked as what they are made of: a scale, an activation, the gains, whose
//! gradient is Σ_ab E g_a g_b E φ(αx_a) φ(αx_b).
//!
//! # Formula
//!
//! With q_c = E x² − mean² less the share of the sample mean (LayerNorm), or E x² (RMSNorm):
//!
//! ```text
//! E y² = gain² e exp(−e (1 − e) V)      e = q_c/(q_c + ε)
//! cosine' = centred cosine · (1 + e (V − C) − e² (V − E)/4 + e (1 − e/4) V_u)
//! ```
//!
//! The bracket is the bias of a sample correlation: x_a becomes x_a (1 − e δ_a/2 + …), δ the relative deviations of
//! x_a·x_b, |x_a|² and |x_b|² with V = E δ_a², C = E δ_ab δ_a, E = E δ_a δ_b ([`Strayed`]), against the same with b = a.
//! For Gaussian entries (V = C = 2/width, E = V cosine²) and e = 1 it is 1 − (1 − cosine²)/(2 width), as for Pearson's r;
//! of what products do not share (V_u = `uneven`, not in V here) C and E are zero. Per pair it is Pearson's; how far the
//! mean over pairs is from that, because networks stray as a whole, comes on top.
//!
//! Of parts of a sum that are alike to different degrees LayerNorm takes the share k_i/width of each off along (1, …, 1),
//! k_i its `constant_share`, and with it the common part of the more alike ones: −Σ a_i k_i (c_i − c)/width (`centring`).
//!
//! # Backward
//!
//! The gradient loses its components along 1 (LayerNorm) and along x, then is divided by s:
//!
//! ```text
//! E g'² = gain² E g² / (q_c + ε) · (1 − ρ (1 − (1 − e)²)/width − c/width) · exp(e(e+1)V/2 + e(1 − e)SV)
//! ρ' = (1 − e)² ρ     c' = 0 (LayerNorm)     S' = (1 − e) S + e
//! E dgain² = Σ_a E g_a² (1 + κ (ρ − 1)/width) + Σ_a≠b E g_a g_b (c + ½ c (3 − c²) κ (ρ − 2 ρ_u − 1)/width)
//! gradient cosine' = gradient cosine · (1 − (1 − cosine²)((ρ − 2 ρ_u) (1 − (1 − e)²)/width + e² V/4))
//! ```
//!
//! where ρ stands for all of the component that two gradients lose along one signal, ρ − 2 ρ_u too; that is α = `across` where it
//! is followed, and pairs lose (2 − cosine²)(α − ρ + 2 ρ_u)/width more, α' = (1 − e)² α.
//!
//! In E dgain² a gradient g = αx̂ + … has E g²x̂² beyond E g² E x̂²; that of another token, E g_b x̂_a by c = E x̂_a x̂_b only: what
//! remains of isotropic gradients that lost x̂_a and x̂_b is c (width − 5 + 2c²) for (width − 2 + c²) of their product.
//! Where parts along their signals go together, P = `along`, pairs have (1 + c²) P/width more, Σ x̂_a² x̂_b² being (1 + 2c²)
//! width. And where gradients answer to products of tokens, T_ij = Σ_a g_ai x̂_aj = H C with H symmetric and C the covariance of
//! the tokens: E dgain² = Σ_i T_ii² = (|T|² + tr T² + (tr T)²)/width. The first is in `coupling`, K, the last in P; tr T², of
//! H² (tr C)²/width where |T|² is H² tr C² = γ H² (tr C)², is K/(width γ) more. Sampled: DSLM of width 128, uncorrelated
//! tokens, the first feed-forward network: gains 12.5 ± 0.9 % too small without both, 5 ± 0.9 % with P, 0.4 ± 1.1 % with both;
//! a block of width 128 before attention: 7.6 ± 1.0 % too small without K/(width γ), right to 0.0 ± 1.0 % with it. All of K is
//! taken as of differences of tokens; where tokens are alike γ is large and little is left of the term. Queries and keys answer to
//! products with each other (`one_sided`, as is what tokens of one expert answer to): T is not symmetric there, and what one of them
//! has is the other's transposed, so that gains behind both collect the same; with K/(width γ) those of keys were 8 and 13 % too large
//! (width 128, two blocks).
//!
//! What an activation behind a map of entries that are not Gaussian adds to all these is met in part (`rules/linear.rs`, *Entries*). K is
//! also what gradients answer to by how alike tokens happen to be (`src/domain/nearness.rs`).
//!
//! Before the norm P is (1 − e)² of it.
//!
//! V is the variance of ln |x|² of one token with what strays in all tokens together, for LayerNorm of ln |x − m|²:
//! entries that have a mean have a fourth moment of their own about it.
//!
//! *Levels* (`src/domain/fluctuation.rs`). What takes off means divides by the scale of the rest, whose tokens share p° = (p − mean²)/(1 −
//! mean²): m' = m° − e s°, t' = t − e s°, s° = p° m° + (1 − p°) t. With f = mean²/p, m − t = (1 − f)(m° − t) + what averages of entries,
//! of variance (p − mean²)/width, add to m as they meet the mean, D = 4 (p − mean²) mean²/(p² width), so that at given m and t
//!
//! ```text
//! m° − t = k (m − t)      k = (1 − D/Var (m − t))/(1 − f), at most 1
//! ```
//!
//! *What strays together.* Networks of longer signals may be those whose tokens are more alike, to which gradients answer
//! (`response`: R, of ln Σ |g|², and Q, of ln of its cosines): with s the ln of what is divided by, B the covariance of the
//! levels, J = 1 − e (1, 1) ⊗ of_all theirs at the output,
//!
//! ```text
//! E g'² is larger by e^C     C = e of_allᵀ (B Jᵀ (R − S of_all) + K D)     cosines by the same of Q, without S
//! ```
//!
//! S of_all being what single tokens know (above); D is what the gradient at the end of the branch has with the fork by way
//! of other branches, K what the input has of the fork's levels (`Gradient::ln_beside`). Sampled: E g²/s² over E g² E s⁻² − 1 at the
//! norms after attention 1.7 to 2.0 % in the first blocks of Post-LN Xavier, 12 blocks of width 64 (16000 networks), told 1.9 to
//! 2.0 %; gradients at the embeddings of 12 such blocks with Pre-LN 5.6 ± 1.4 % too small without, 0.2 ± 1.4 % with it.
//! Of two gradients LayerNorm takes off k' = `constant` of what they have in common, of one k: cosines lose (k' − k)/width.
//!
//! Pairs that happen to be more alike have gradients more alike, and lose less of them: of the part (1 − c²) λ that they lose, λ = (ρ −
//! 2 ρ_u) (1 − (1 − e)²)/width + e² V/4, with a coupling K per token and P of pairs,
//!
//! ```text
//! E Σ_ab g_a'·g_b'   has, per token, 2 c λ K + c (tokens − 1) P (1 − (1 − e)²)/width more       (`coupled`)
//! ```
//!
//! of gradients of queries and keys alone, for it is next to nothing but where gradients add up to nothing: biases of keys.
//! Sampled: the last of eight to twelve blocks of width 128 and 256 whose keys have norms: squares of gradients of key biases 86, 80
//! and 74 % too small without, 57, 68 and 61 % with K, 19, 35 and 28 % with both. P of keys is not followed where every position is.
//!
//! Two tokens lose components along two directions, their gradients have one component in common
//! to lose: (1 − 2/width + cosine²/width) against (1 − 1/width), less ρ_u = `excess` for both; and E 1/(s_a s_b) stays
//! behind E 1/s² like the correlation above.
//!
//! # Assumptions
//!
//! V ≪ 1; terms of order 1/width² are neglected. Gains of one size; biases b, where there are any, are added behind it as one
//! draw for all tokens (`embedding/positions.rs`): E y_a y_b = gain² e E x̂_a x̂_b + E b², gradients as they are. With groups (queries and keys of
//! single heads) width is that of a group, and V of ln |x|² over it.
//!
//! # Source
//!
//! Kedia et al. 2024, appendix on layer normalisation, for the leading order; the rest is ours. DyT: Zhu et al. 2025,
//! *Transformers without Normalization*; Derf: Chen et al. 2025, *Stronger Normalization-Free Transformers*.

use nalgebra::{Matrix2, Vector2};
use sigprop_stack::{Norm, NormKind};

use super::PairRule;
use crate::domain::{
    Along, Concentration, Domain, Flow, Fluctuation, Gradient, GradientPairMap, PairMap, Signal, Step, Strayed,
    bounded, of_all,
};
use crate::moments::{Few, PerToken, Token, TokenGradient, ln_correction, ln_sum, ratio, share, width_caveat};

pub(crate) struct Rule {
    centres: bool,
    ln_eps: f64,
    ln_gain2: f64,
    groups: f64,
}

impl Rule {
    pub(crate) fn new(norm: &Norm) -> Self {
        Self {
            centres: norm.kind == NormKind::LayerNorm,
            ln_eps: norm.eps.ln(),
            ln_gain2: 2.0 * norm.gain.abs().ln(),
            groups: norm.groups as f64,
        }
    }

    /// ln of the second moment that is divided by.
    pub(super) fn ln_centred(&self, x: &Token) -> f64 {
        if self.centres {
            x.ln_second + ((1.0 - x.mean * x.mean) * (1.0 - self.groups * x.constant_share / x.width)).ln()
        } else {
            x.ln_second
        }
    }

    /// What the square of the component along a signal loses.
    fn removed(&self, x: &Token) -> f64 {
        1.0 - (1.0 - self.exponent(x)).powi(2)
    }

    /// λ: what products of the gradients of two uncorrelated tokens lose.
    fn lost(&self, x: &Token, gradient: &TokenGradient) -> f64 {
        let e = self.exponent(x);
        let radial = (gradient.radial - 2.0 * gradient.excess) * self.removed(x) * self.groups / x.width;
        radial + e * e * self.norm_variance(x) / 4.0
    }

    /// Whether 0/0 is taken as zero, and so is its gradient.
    fn has_nothing_to_divide_by(&self, x: &Token) -> bool {
        self.ln_eps == f64::NEG_INFINITY && x.is_zero()
    }

    /// ln(q_c + ε).
    fn ln_divisor(&self, x: &Token) -> f64 {
        let ln_centred = self.ln_centred(x);
        let (larger, smaller) = (ln_centred.max(self.ln_eps), ln_centred.min(self.ln_eps));
        larger + share(smaller, larger).ln_1p()
    }

    /// Tokens of which ε leaves some short and others not: behind the next attention gradients lose their components along
    /// outputs that the long ones decide, of which rows of scores are taken not to know.
    fn uneven_eps(&self, x: &[Token]) -> Option<(&'static str, String)> {
        /// That of OLMo 2 at width 192, standard deviation 0.02, 64 tokens, ε 1e-5, where gradients were sampled.
        const SPREAD: f64 = 0.1;
        let (least, most) = x.iter().fold((1.0_f64, 0.0_f64), |(least, most), x| {
            let exponent = self.exponent(x);
            (least.min(exponent), most.max(exponent))
        });
        (most - least > SPREAD).then(|| {
            (
                "ε of a norm is near the variance of some tokens and not of others, so that their outputs differ in length: \
                 gradients of queries, of keys and of all before the next attention are up to 25 % too high. Use a smaller norm_eps \
                 or larger weights",
                format!("ε is {:.0} to {:.0} % of what it divides", 100.0 * (1.0 - most), 100.0 * (1.0 - least)),
            )
        })
    }

    /// e = q_c/(q_c + ε).
    fn exponent(&self, x: &Token) -> f64 {
        share(self.ln_centred(x), self.ln_divisor(x))
    }

    /// Variance of the ln of what is divided by, |x|² or |x − m|², over one group: its entries are fewer.
    pub(super) fn norm_variance(&self, x: &Token) -> f64 {
        let (_, kurtosis) = x.centred();
        let centred = if self.centres && x.kurtosis > 0.0 { kurtosis / x.kurtosis } else { 1.0 };
        x.scale_variance + self.groups * x.entry_variance * centred
    }

    /// Cov of −ln of what is divided by with what the gradient at the output answers to levels: of ln Σ |g|², and of ln of the
    /// average cosine.
    fn with_divisor(&self, domain: &Domain, x: &Signal, gradient: &Gradient) -> [f64; 2] {
        let (e, all) = (self.exponent(x.token()), of_all(domain.shared(x)));
        let with_all = x.fluctuation.total() * all;
        let of_output = with_all - Vector2::repeat(e * all.dot(&with_all));
        (e / self.groups * gradient.response_beyond_tokens(all).transpose() * of_output).into()
    }

    /// From the levels of x those of what is left of it, and ln of what tokens are divided by.
    fn levels(&self, domain: &Domain, x: &Signal) -> (Matrix2<f64>, Vector2<f64>) {
        let shared = domain.shared(x);
        let mean = if self.centres { x.token().mean.powi(2) } else { 0.0 };
        let left = ratio(shared - mean, shared).max(0.0);
        let levels = x.fluctuation.total();
        let strays = levels[(0, 0)] - 2.0 * levels[(0, 1)] + levels[(1, 1)];
        let averages = 4.0 * ratio(left * mean, shared * x.token().width);
        let kept = if mean > 0.0 { ratio((1.0 - ratio(averages, strays)).max(0.0), left).min(1.0) } else { 1.0 };
        let centred = Matrix2::new(kept, 1.0 - kept, 0.0, 1.0);
        let still_shared = ratio(shared - mean, 1.0 - mean).max(0.0);
        (centred, self.exponent(x.token()) * centred.transpose() * of_all(still_shared))
    }

    /// Centred cosines: amplitudes of the cosines and of the means that are taken off.
    pub(super) fn centring(&self, x: &[Token]) -> Few<(f64, f64)> {
        let factors = |x: &Token| {
            if self.centres {
                let amplitude = (1.0 - x.mean * x.mean).max(f64::MIN_POSITIVE).sqrt().recip();
                (amplitude, amplitude * x.mean)
            } else {
                (1.0, 0.0)
            }
        };
        x.iter().map(factors).collect()
    }
}

/// What the gains of a norm multiply, from its input `x` and its output `y`.
pub(crate) fn normed(norm: &Norm, [x, y]: [&Signal; 2]) -> Signal {
    Signal { tokens: Rule::new(&Norm { gain: 1.0, ..*norm }).tokens(&x.tokens), ..y.clone() }
}

/// ln E dgain²: how the gradient meets the signal that gains multiply entry by entry.
pub(crate) fn ln_gain_gradient(domain: &Domain, normed: &Signal, gradient: &Gradient) -> f64 {
    // The squares of a gradient and of its signal meet more at one entry, because the gradient has a part along it.
    let ln_total = ln_sum(gradient.levels());
    let meeting = |radial: &dyn Fn(&TokenGradient) -> f64| -> f64 {
        let tokens = normed.tokens.iter().zip(gradient.tokens.iter());
        tokens.map(|(y, g)| share(g.ln_second, ln_total) * y.kurtosis * (radial(g) - 1.0) / y.width).sum()
    };
    let unmet = gradient.unmet;
    let own = meeting(&|g| g.radial + unmet.radial);
    let cosine = domain.mean_cosine(normed);
    let alike = domain.mean_cosine(gradient) * 0.5 * cosine * (3.0 - cosine * cosine);
    let along = (gradient.along + unmet.pairs) * (1.0 + cosine * cosine) / normed.token().width;
    // Of two gradients along one signal.
    let across = |g: &TokenGradient| match gradient.across {
        Some(across) => across + unmet.across,
        None => g.radial - 2.0 * g.excess + unmet.radial,
    };
    let others = (domain.length(normed.tokens.len()) - 1.0) * (alike * meeting(&across) + along);
    let response = gradient.nearness.response - gradient.nearness.one_sided + unmet.response;
    let symmetric = domain.met_here(normed, response) + if gradient.one_sided { 0.0 } else { gradient.coupling };
    let crossed = ratio(symmetric, normed.token().width * normed.concentration.total);
    domain.ln_collected(normed, gradient, own + others + crossed + domain.met_together(normed, gradient))
}

impl PairRule for Rule {
    fn tokens(&self, x: &[Token]) -> PerToken<Token> {
        let token = |x: &Token| {
            let exponent = self.exponent(x);
            let (skewness, kurtosis) = if self.centres { x.centred() } else { (x.skewness, x.kurtosis) };
            Token {
                skewness,
                kurtosis,
                ln_second: self.ln_gain2 + exponent.ln(),
                mean: if self.centres { 0.0 } else { x.mean },
                scale_variance: (1.0 - exponent).powi(2) * self.norm_variance(x),
                uneven: (1.0 - exponent).powi(2) * x.uneven,
                masked: (1.0 - exponent).powi(2) * x.masked,
                entry_variance: 0.0,
                sensitivity: (1.0 - exponent) * x.sensitivity,
                constant_share: if self.centres { 0.0 } else { x.constant_share },
                ..*x
            }
        };
        x.iter().map(token).collect()
    }

    fn cosines<'a>(&'a self, x: &'a [Token], _: &'a [Token]) -> PairMap<'a> {
        let centring = self.centring(x);
        let variance = |x: &Token| {
            let e = self.exponent(x);
            (e * e * (self.norm_variance(x) - x.uneven), 0.5 * e * (1.0 - 0.25 * e) * x.uneven)
        };
        let variances: Few<(f64, f64)> = x.iter().map(variance).collect();
        Box::new(move |i, j, cosine| {
            let centred = cosine * centring[i].0 * centring[j].0 - centring[i].1 * centring[j].1;
            let [shared, uneven] = [variances[i].0 + variances[j].0, variances[i].1 + variances[j].1];
            centred * (1.0 - (1.0 - centred * centred) * shared / 8.0 + uneven)
        })
    }

    fn step(&self, x: &Signal, s: f64, cosine: f64) -> Option<Step> {
        let x = Token { ln_second: s, ..*x.token() };
        let (e, ln_gain) = (self.exponent(&x), self.ln_gain2 - self.ln_divisor(&x));
        let centring = if self.centres { self.groups / x.width } else { 0.0 };
        Some(Step {
            width: x.width,
            ln_gains: [self.ln_gain2 + e.ln() - s, ln_gain - centring],
            drawn: [0.0; 2],
            together: -self.groups * self.removed(&x),
            radial: [(1.0 - e).powi(2); 2],
            cosine: self.cosines(&[x], &[])(0, 0, cosine),
            in_common: [0.0; 3],
        })
    }

    fn tokens_backward(&self, x: &[Token], _: &[Token], gradients: &[TokenGradient]) -> PerToken<TokenGradient> {
        let token = |(gradient, x): (&TokenGradient, &Token)| {
            if self.has_nothing_to_divide_by(x) {
                return gradient.scaled(f64::NEG_INFINITY);
            }
            let e = self.exponent(x);
            let constant = if self.centres { gradient.constant } else { 0.0 };
            let removed = self.groups * (gradient.radial * self.removed(x) + constant) / x.width;
            let variance = self.norm_variance(x);
            let fluctuation = 0.5 * e * (e + 1.0) * variance + e * (1.0 - e) * gradient.steepness * variance;
            let ln_gain = self.ln_gain2 - self.ln_divisor(x) + ln_correction(-removed) + fluctuation;
            TokenGradient {
                radial: (1.0 - e).powi(2) * gradient.radial,
                constant: if self.centres { 0.0 } else { gradient.constant },
                centred: f64::from(self.centres),
                steepness: (1.0 - e) * gradient.steepness + e,
                single: 1.0,
                excess: (1.0 - e).powi(2) * gradient.excess,
                ..gradient.scaled(ln_gain)
            }
        };
        gradients.iter().zip(x).map(token).collect()
    }

    fn cosines_backward<'a>(&'a self, x: &'a [Token], gradients: &'a [TokenGradient]) -> GradientPairMap<'a> {
        let centring = self.centring(x);
        let losses: Few<f64> = x.iter().zip(gradients).map(|(x, gradient)| 0.5 * self.lost(x, gradient)).collect();
        Box::new(move |i, j, cosine, gradient_cosine| {
            let centred = cosine * centring[i].0 * centring[j].0 - centring[i].1 * centring[j].1;
            gradient_cosine * (1.0 - (1.0 - centred * centred) * (losses[i] + losses[j]))
        })
    }

    fn ln_across(&self, domain: &Domain, [x, _]: [&Signal; 2], gradient: &Gradient, across: f64) -> f64 {
        let removed = self.removed(x.token());
        let radial = gradient.token().radial - 2.0 * gradient.token().excess;
        let cosine = domain.mean_cosine(x);
        -removed * self.groups * (2.0 - cosine * cosine) * (across - radial) / x.token().width
    }

    fn coupled(&self, domain: &Domain, x: &Signal, gradient: &Gradient) -> f64 {
        if !gradient.one_sided {
            return 0.0;
        }
        let others = domain.length(x.tokens.len()) - 1.0;
        let removed = self.removed(x.token()) * self.groups / x.token().width;
        let met = 2.0 * self.lost(x.token(), gradient.token()) * gradient.coupling + removed * others * gradient.along;
        bounded(domain.mean_cosine(x) * met)
    }

    fn along(&self, _: &Domain, x: &Signal, gradient: &Gradient) -> f64 {
        (1.0 - self.exponent(x.token())).powi(2) * gradient.along
    }

    fn unmet(&self, _: &Gradient) -> Along {
        Along::NONE
    }

    fn across(&self, _: &Domain, x: &Signal, across: f64) -> f64 {
        (1.0 - self.exponent(x.token())).powi(2) * across
    }

    fn concentration(&self, x: &Signal, y: &Signal, mean_cosine: &dyn Fn(&Signal) -> f64) -> Concentration {
        let Concentration { total, unequal, .. } = x.concentration;
        let cosine = mean_cosine(y).clamp(0.0, 1.0);
        // Of two independent variances with a fixed sum; what differs most is divided most (of a Gamma law).
        let left = |own: f64| {
            let common = 4.0 * total * cosine;
            ratio(own * common, own * (1.0 - cosine) + common)
        };
        let unequal = (left(2.0 * total + unequal) - left(2.0 * total)) / (1.0 + 4.0 * (1.0 - cosine) * unequal);
        Concentration { unequal, ..x.concentration }
    }

    fn ln_strayed(&self, domain: &Domain, x: &Signal) -> f64 {
        /// Below, what is left out is less than 1e-4 of V.
        const LEAST: f64 = 1e-4;
        let e = self.exponent(x.token());
        let curved = e * (1.0 - e);
        if curved > LEAST { bounded(-curved * domain.norm_variance(x)) } else { 0.0 }
    }

    fn ln_strayed_backward(&self, domain: &Domain, x: &Signal, gradient: &Gradient) -> [f64; 2] {
        if !domain.follows_levels() {
            return [0.0; 2];
        }
        let e = self.exponent(x.token());
        let strayed = domain.strayed_in_common(x) / self.groups;
        let [together, of_cosines] = self.with_divisor(domain, x, gradient);
        let squares = (0.5 * e * (e + 1.0) + e * (1.0 - e) * gradient.token().steepness) * strayed + together;
        let centred = if self.centres { gradient.constant - gradient.token().constant } else { 0.0 };
        [squares, of_cosines - self.groups * centred / x.token().width].map(bounded)
    }

    fn constant(&self, constant: f64) -> f64 {
        if self.centres { 0.0 } else { constant }
    }

    fn drawn_together(&self, domain: &Domain, x: &Signal, y: &Signal) -> f64 {
        let (token, cosine) = (x.token(), domain.mean_cosine(y));
        if cosine >= 1.0 {
            return 0.0;
        }
        let e = self.exponent(token);
        let Strayed { own, between, crossed } = domain.strayed(x, cosine);
        let divided = e * (own - crossed) - e * e * (own - between) / 4.0;
        let pearson = -e * e * (1.0 - cosine * cosine) * token.even_variance() / 4.0;
        let centred = if self.centres { x.centring } else { 0.0 };
        (cosine * (divided - pearson) - centred) / (1.0 - cosine)
    }

    fn fluctuation(&self, domain: &Domain, x: &Signal, _: &Signal) -> Fluctuation {
        let (centred, divided) = self.levels(domain, x);
        let row = divided.transpose();
        x.fluctuation.mapped(centred - Matrix2::from_rows(&[row, row]))
    }

    fn response(&self, domain: &Domain, x: &Signal, _: &Gradient) -> Vector2<f64> {
        self.levels(domain, x).1
    }

    fn caveat(&self, x: &[Token]) -> Option<(&'static str, String)> {
        if x.iter().any(|x| self.has_nothing_to_divide_by(x)) {
            return Some(("a norm without eps divides a zero signal by zero", "taken as zero".to_owned()));
        }
        if let Some(x) = x.iter().find(|x| self.centres && x.mean * x.mean > 1.0 - 1e-9) {
            let got = format!("1 − mean²/E x² is {:.1e}", 1.0 - x.mean * x.mean);
            return Some(("LayerNorm of a signal that is all mean leaves rounding", got));
        }
        self.uneven_eps(x).or_else(|| width_caveat(&x[0]))
    }
}
