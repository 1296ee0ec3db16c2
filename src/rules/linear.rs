//! Linear map y = W x + b.
//!
//! # Formula
//!
//! ```text
//! E y_a y_b = n_in s_w² E x_a x_b + s_b²        mean 0
//! V' = h² V + 2/n_out                           h = n_in s_w² E x²/E y²
//! E y⁴/(E y²)² = 3 + (1 − h)² (E b⁴/s_b⁴ − 3)
//! ```
//!
//! # Backward
//!
//! ```text
//! E g_a g_b' = n_out s_w² E g_a g_b · (1 + (ρ' − 1)/n_in)     ρ' = 1 + h (ρ − 1)
//! E dW² = Σ_ab E x_a x_b E g_a g_b     E db² = Σ_ab E g_a g_b
//! ```
//!
//! Pairs of tokens: W is known along both inputs, so that beside ρ' − 1 of one gradient two have
//!
//! ```text
//! (2 − c²)(α' − 1)/n_in     α = E (y_a·g_a)(y_a·g_b)/(E y² E g_a·g_b)      α' = 1 + h (α − 1)
//! ```
//!
//! (`across`; of the projection p_aᵀ K⁻¹ p_b of W^T g_a and W^T g_b on x_a and x_b, with those products of g_a with y_b that
//! gradients pointing anywhere have). Followed where nothing but ids tells tokens apart (`rules/sum.rs`).
//!
//! What attention gathers is made of products of gradients, which W knows along what all tokens share: a gradient of which
//! they are the part 1 − f has (2 − c)(α − 1) in place of ρ − 1 in that part (`along_all`), where the branch begins without a
//! norm. Sampled: values of Post-LN Xavier, width 64, were told to send 1.2 to 2.4 % too much without.
//!
//! Gradients answer to the levels of networks, too: `src/domain/fluctuation.rs`.
//!
//! Norms behind the map make gradients of longer outputs smaller, g_a by 1 − S δ_a/2, S the `steepness` and δ_a the
//! deviation of |x_a|²: E dW² loses S (V + V_u) of what a token gives with itself and S C of what two give, V and C of
//! [`Strayed`], V_u = `uneven`. To first order in δ. Sampled: attention's output weights, width 64, 64 uncorrelated tokens,
//! 9 ± 0.3 % (one head: 12) too large without, 1.3 ± 0.3 % with it; nothing where x was normalised.
//!
//! *Entries.* What an activation behind the map adds to what gradients have along signals, T_ij = Σ_a g_ai x_aj = Σ_k W_ki D_k (W x)_kj of
//! entries D_k that point anywhere, has Σ_i T_ii² of E W⁴: beyond |T|²/n_in the gains of a norm before it meet (E W⁴/s_w⁴ − 1)/2 of
//! what they do where W is Gaussian, 0.4 where it is uniform (`unmet`). What comes from further behind knows no entries. Sampled:
//! ReLU² under PyTorch's scheme, 48 uncorrelated tokens of width 64, gradients of correlation 0.6: gains 28 ± 1 % too large
//! without, 5 with it; 1.7 ± 1.2 % of Gaussian weights.
//!
//! # Standardised weights
//!
//! Ŵ = γ (W − mean)/|W − mean|, row by row: directions of length γ among those with sum zero, of which there are n_in − 1.
//! What such a row makes of x it makes of x less the mean m of its features (`linear/centring.rs`), like a row of
//! independent entries with s_w² = γ²/(n_in − 1), so that
//!
//! ```text
//! E y_a y_b = γ² n_in/(n_in − 1) E (x_a − m_a)(x_b − m_b)      γ² (E x_a x_b − E x_a E x_b) of independent features
//! E dx_a dx_b = n_out γ²/n_in E g_a g_b                        dx sums to zero
//! E dW² = γ²/(s_w² (n_in − 1)) (1 + (κ − 2)/n_in) Σ_ab E (x_a − m_a)(x_b − m_b) E g_a g_b
//! ```
//!
//! s_w² and κ = E W⁴/s_w⁴ being those of what is drawn: dŴ loses its mean and, 1 in n_in of it, what lies along its row,
//! and E |W − mean|⁻² exceeds 1/E |W − mean|² by (κ − 1)/n_in.
//!
//! That a row is of one length makes outputs a little less than Gaussian (E y⁴ = 3 (1 − 2/n_in) (E y²)² at given x),
//! which activations do not know: E f(y) is 1 − E f(u) He₄(u)/(4 n_in E f(u)) of what they take it for, 1 + 1/(4 n_in) for
//! the mean of ReLU, by which the variance that the next standardised map sees is 0.23/n_in smaller; nor do they know
//! that a gradient without mean has less along a signal with one. Gradients are off by 0.3/n_in per layer of ReLU.
//!
//! # Assumptions
//!
//! Independent zero-mean weights, if not standardised; the gradient depends on W only through the output (derivation of
//! the factor: [`crate::rules`]). Exact in the forward moments at any width.
//!
//! # Source
//!
//! Kedia et al. 2024 (arXiv 2403.09635), appendix on linear layers; the 1/n_in term is ours. Standardised weights: Qiao
//! et al. 2019 (arXiv 1903.10520); Brock et al. 2021 (arXiv 2101.08692), whose derivation leaves out 1/n_in.

pub(crate) mod centring;
pub(crate) mod steps;

use std::sync::Arc;

use nalgebra::{Matrix2, Vector2};
use sigprop_stack::Linear;

use super::PairRule;
use crate::domain::{
    Along, Answers, Concentration, Domain, Fluctuation, Gradient, GradientPairMap, Lengths, PairMap, Signal, Step,
    Strayed, bounded, part_map, square,
};
use crate::moments::{Few, PerToken, Token, TokenGradient, ln_correction, ln_sum, ratio, share};

/// E w⁴ of Gaussian entries of variance 1.
const GAUSSIAN: f64 = 3.0;

pub(crate) struct Rule {
    fan_in: f64,
    fan_out: f64,
    weight_variance: f64,
    /// ln of n_in s_w².
    ln_gain: f64,
    ln_bias_variance: f64,
    /// E b⁴ − 3 (E b²)² of an entry, over (E b²)².
    bias_excess: f64,
    /// E w⁴ of an entry of the weight over the square of its variance.
    weight_kurtosis: f64,
}

impl Rule {
    pub(crate) fn new(linear: &Linear) -> Self {
        let fan_in = linear.fan_in as f64;
        let weight_variance = match linear.standardised {
            Some(length) => length * length / (fan_in - 1.0),
            None => linear.weight.init.variance(),
        };
        Self {
            fan_in,
            fan_out: linear.fan_out as f64,
            weight_variance,
            ln_gain: (fan_in * weight_variance).ln(),
            bias_excess: linear
                .bias
                .as_ref()
                .and_then(|bias| bias.init.kurtosis())
                .map_or(0.0, |kurtosis| kurtosis - 3.0),
            weight_kurtosis: linear.weight.init.kurtosis().unwrap_or(GAUSSIAN),
            ln_bias_variance: linear.bias.as_ref().map_or(f64::NEG_INFINITY, |bias| bias.init.variance().ln()),
        }
    }

    fn ln_product(&self, x: &Token) -> f64 {
        self.ln_gain + x.ln_second
    }

    /// Share of the output's second moment that comes from W x.
    fn product_share(&self, x: &Token, y: &Token) -> f64 {
        share(self.ln_product(x), y.ln_second)
    }
}

/// ln E dW², from the input `x`, less its mean if the weight is standardised; with what tokens that are `alike` give more together.
pub(crate) fn ln_weight_gradient(linear: &Linear, domain: &Domain, x: &Signal, gradient: &Gradient, alike: f64) -> f64 {
    let kurtosis = linear.weight.init.kurtosis().unwrap_or_default();
    let own = linear.standardised.map_or(0.0, |_| ln_correction((kurtosis - 2.0) / linear.fan_in as f64));
    let beyond = lengths_met(domain, x, gradient) + domain.met_together(x, gradient) + alike;
    domain.ln_collected(x, gradient, beyond) + ln_jacobian(linear) + own
}

/// What of E Σ_ab x_a·x_b g_a·g_b is beyond the product of the expectations because norms behind the map divide by a
/// longer output.
fn lengths_met(domain: &Domain, x: &Signal, gradient: &Gradient) -> f64 {
    let token = x.token();
    if token.norm_variance() <= 0.0 || gradient.token().steepness <= 0.0 {
        return 0.0;
    }
    let (cosine, others) = (domain.mean_cosine(x), domain.length(x.tokens.len()) - 1.0);
    let Strayed { own, crossed, .. } = domain.strayed(x, cosine);
    let pairs = others * cosine * domain.mean_cosine(gradient) * bounded(crossed);
    -gradient.token().steepness * (bounded(own + token.uneven) + pairs)
}

/// ln of the square by which a step of what is drawn moves the weight in use, to leading order.
fn ln_jacobian(linear: &Linear) -> f64 {
    let drawn = |length: f64| length * length / (linear.weight.init.variance() * (linear.fan_in as f64 - 1.0));
    linear.standardised.map_or(0.0, |length| drawn(length).ln())
}

impl PairRule for Rule {
    fn entrywise(&self, _: &Domain, _: &Signal, _: &Gradient) -> Along {
        Along::NONE
    }

    fn unmet(&self, gradient: &Gradient) -> Along {
        gradient.entrywise.times((self.weight_kurtosis - GAUSSIAN) / (GAUSSIAN - 1.0))
    }

    fn tokens(&self, x: &[Token]) -> PerToken<Token> {
        let token = |x: &Token| {
            let ln_second = ln_sum([self.ln_product(x), self.ln_bias_variance].into_iter());
            let y = Token::gaussian(self.fan_out, ln_second);
            let product = self.product_share(x, &y);
            Token {
                scale_variance: product * product * x.norm_variance(),
                uneven: product * product * x.uneven,
                sensitivity: product * x.sensitivity,
                kurtosis: y.kurtosis + (1.0 - product).powi(2) * self.bias_excess,
                ..y
            }
        };
        x.iter().map(token).collect()
    }

    fn cosines<'a>(&'a self, x: &'a [Token], y: &'a [Token]) -> PairMap<'a> {
        let amplitudes = |part: &dyn Fn(&Token) -> f64| -> Few<f64> {
            x.iter().zip(y).map(|(x, y)| share(0.5 * part(x), 0.5 * y.ln_second)).collect()
        };
        let products = amplitudes(&|x| self.ln_product(x));
        let biases = amplitudes(&|_| self.ln_bias_variance);
        Box::new(move |i, j, cosine| products[i] * products[j] * cosine + biases[i] * biases[j])
    }

    fn tokens_backward(&self, x: &[Token], y: &[Token], gradients: &[TokenGradient]) -> PerToken<TokenGradient> {
        let ln_gain = (self.fan_out * self.weight_variance).ln();
        let token = |(gradient, (x, y)): (&TokenGradient, (&Token, &Token))| {
            let product = self.product_share(x, y);
            let radial = 1.0 + product * (gradient.radial - 1.0);
            let ln_gain = ln_gain + ln_correction((radial - 1.0) / self.fan_in);
            TokenGradient {
                radial,
                constant: 1.0,
                centred: 0.0,
                steepness: product * gradient.steepness,
                single: 1.0,
                excess: product * gradient.excess,
                ..gradient.scaled(ln_gain)
            }
        };
        gradients.iter().zip(x.iter().zip(y)).map(token).collect()
    }

    fn cosines_backward<'a>(&'a self, _: &'a [Token], _: &'a [TokenGradient]) -> GradientPairMap<'a> {
        Box::new(|_, _, _, gradient_cosine| gradient_cosine)
    }

    fn ln_strayed_backward(&self, _: &Domain, x: &Signal, gradient: &Gradient) -> [f64; 2] {
        if gradient.along_all == 0.0 {
            return [0.0; 2];
        }
        let y = Token::gaussian(self.fan_out, ln_sum([self.ln_product(x.token()), self.ln_bias_variance].into_iter()));
        [ln_correction(self.product_share(x.token(), &y) * gradient.along_all / self.fan_in), 0.0]
    }

    fn ln_across(&self, domain: &Domain, [x, y]: [&Signal; 2], gradient: &Gradient, across: f64) -> f64 {
        let product = self.product_share(x.token(), y.token());
        let both = (2.0 - domain.mean_cosine(x).powi(2)) * (across - 1.0);
        product * (both - (gradient.token().radial - 1.0)) / self.fan_in
    }

    fn constant(&self, _: f64) -> f64 {
        1.0
    }

    fn concentration(&self, x: &Signal, y: &Signal, mean_cosine: &dyn Fn(&Signal) -> f64) -> Concentration {
        let drawn = drawn_by(self.fan_out, x.concentration);
        if self.keeps_cosines() {
            return drawn;
        }
        // A bias is a direction of its own.
        let bias =
            1.0 - ratio(self.product_share(x.token(), y.token()) * mean_cosine(x), mean_cosine(y)).clamp(0.0, 1.0);
        Concentration { common: drawn.common + bias * (self.fan_out.recip() - drawn.common), ..drawn }
    }

    fn concentration_backward(&self, _: &Signal, gradient: &Gradient, _: &dyn Fn(&Signal) -> f64) -> Concentration {
        drawn_by(self.fan_in, gradient.concentration)
    }

    fn fluctuation(&self, domain: &Domain, x: &Signal, y: &Signal) -> Fluctuation {
        let product = self.product_share(x.token(), y.token());
        let alike = domain.alike(y, x.concentration.total);
        let before = if self.keeps_cosines() { alike.shared } else { domain.shared(x) };
        x.fluctuation.redrawn(part_map(product, before, alike.parts()), alike.drawn(2.0 / self.fan_out))
    }

    fn fluctuation_backward(&self, domain: &Domain, _: &Signal, gradient: &Gradient, _: Vector2<f64>) -> Fluctuation {
        let alone = 2.0 / self.fan_in;
        let drawn = domain.alike(gradient, gradient.concentration.total).drawn(alone);
        let with_signals = alone * self.redrawn(gradient) * Matrix2::new(0.0, 1.0, 1.0, 2.0);
        let redrawn = gradient.fluctuation.redrawn(Matrix2::identity(), drawn);
        Fluctuation { scale: redrawn.scale - with_signals, ..redrawn }
    }

    fn redrawn(&self, gradient: &Gradient) -> f64 {
        gradient.redrawn + gradient.squares()[1] / self.fan_out
    }

    fn step(&self, _: &Signal, s: f64, cosine: f64) -> Option<Step> {
        let ln_product = self.ln_gain + s;
        let after = ln_sum([ln_product, self.ln_bias_variance].into_iter());
        let product = share(ln_product, after);
        Some(Step {
            width: self.fan_in,
            ln_gains: [after - s, (self.fan_out * self.weight_variance).ln() - product / self.fan_in],
            drawn: [0.0, 2.0],
            together: product,
            radial: [product, 1.0],
            cosine: product * cosine + 1.0 - product,
            in_common: [0.0; 3],
        })
    }

    fn lengths(&self, x: &Signal, lengths: &Lengths) -> Option<Lengths> {
        let behind = lengths.behind(|s, cosine| self.step(x, s, cosine))?;
        Some(behind.with_entries(self.fan_out, x.concentration.total))
    }

    fn lengths_backward(
        &self,
        domain: &Domain,
        x: &Signal,
        gradient: &Gradient,
        (lengths, answers): (&Arc<Lengths>, &Answers),
    ) -> Option<Answers> {
        let alike = square(domain.mean_cosine(gradient), gradient.concentration.total);
        let with_signals = 2.0 * self.redrawn(gradient) * (1.0 - domain.shared(gradient));
        let in_common = [0.0, 0.0, 2.0 * (alike - with_signals)];
        answers.before(lengths, |s, cosine| Some(Step { in_common, ..self.step(x, s, cosine)? }))
    }

    fn keeps_cosines(&self) -> bool {
        self.ln_bias_variance == f64::NEG_INFINITY && self.weight_variance > 0.0
    }
}

/// Behind a matrix with this many outputs.
fn drawn_by(outputs: f64, before: Concentration) -> Concentration {
    let drawn = outputs.recip();
    Concentration { total: before.total + drawn, drawn, common: before.common + drawn, ..before }
}
