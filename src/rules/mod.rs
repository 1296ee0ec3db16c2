//! Moment rules, one file per component, each written once for a pair of tokens.
//!
//! # The 1/width terms
//!
//! Expectations over initialisations are products of gains only up to terms of order 1/width, and
//! through depth these add up (3.5 % in a gradient after 24 blocks of width 256). They come from
//! a few correlations, each followed by one number that travels with the state:
//!
//! * *Norms fluctuate, and keep fluctuating.* Var ln |x|² is `norm_variance` V. A norm divides by
//!   the fluctuating norm, and E s^(−2e) = q^(−e) (1 + e(e+1)V/2). A gradient that will still be
//!   divided by norms further down shrinks where the norm is large: `steepness` S says by how much,
//!   and a gain with exponent e on top of it brings the cross term e S V.
//! * *Gradients know the radial direction.* A norm removes the component along its input, and a
//!   linear map conserves x·g exactly, (Wx)·g = x·(Wᵀg). With ρ = E (x·g)²/(E x² E g² width) =
//!   `radial`, a linear map given its forward product has E |Wᵀg|² = n_out s² E |g|²
//!   (1 + (ρ − 1)/n_in), and ρ itself goes through unchanged. So do the products of x with gradients of other tokens
//!   (`across`, `along`).
//! * *Lengths are attended to.* Attention gathers gradients from all tokens, so that steepness ends there but for what
//!   norms have in common (`local`); it makes a longer token count for more (`excess`); and its rows are not equally
//!   sharp (`uneven`): `attention/lengths.rs`.
//! * *Entries share their draws.* Where φ(u)² is large, φ'(u)² is too, and so are a mask in signals and in gradients and the other
//!   factors of a product. With y the entries of the signal whose norm is known and m what gradients are multiplied by from there on
//!   back, entry by entry, E g'² has 1 + (ρ − 1 − S)(E m²y²/(E m² E y²) − 1)/width in all: factors do not add up but multiply, so that
//!   each has (ρ − 1 − S) f `single`, f its own and `single` the product of those behind it. Neglected: 1/width².
//!
//! In a sum x' = Σ β_i f_i(x) with shares a_i = β_i² E f_i²/E x'² and sensitivities χ_i
//! (d ln E f_i²/d ln |x|²; 1 for the skip),
//!
//! ```text
//! V' = (Σ a_i χ_i)² V + Σ_{i<j} 4 a_i a_j/width + Σ a_i² (V_i − χ_i² V)
//! ```
//!
//! *Token differences live in few directions.* The realised products of two token differences fluctuate with
//! relative variance γ = `concentration`, 1/width for independent features. It matters where two independent maps
//! of one input meet, as queries and keys of attention do: E D̂_bb'² = D_bb'² + γ D_bb D_b'b'. A linear map adds
//! 1/n_out; an activation or product keeps the share c² that is linear in the differences, c = d ln(1 − f)/d ln(1 − ρ),
//! and adds E V²/(E V)²/width, V how much an entry differs; masks add differences of their own in all directions. A
//! branch deviates with its input: with ℓ_i the product of its c's (behind attention the part that follows the queries)
//! and shares s_i of the difference, a sum has
//! γ' = (Σ s_i ℓ_i)² γ + Σ s_i² (γ_i − ℓ_i² γ) + (1 − Σ s_i²)/width, so that through depth γ grows with the stream.
//!
//! *Networks stray as a whole.* How alike the tokens of one network are strays too, attention's averages and so the
//! norms of all tokens stray with it: [`Fluctuation`], `src/domain/strayed.rs`.
//!
//! Applied to stacks of feed-forward blocks these local rules reproduce the recursions that were
//! derived and sampled for whole Pre-LN and Post-LN stacks; terms of order 1/width² are neglected.

pub(crate) mod activation;
pub(crate) mod attention;
pub(crate) mod concat;
pub(crate) mod convolution;
pub(crate) mod dropout;
pub(crate) mod embedding;
pub(crate) mod linear;
pub(crate) mod mixture;
pub(crate) mod norm;
pub(crate) mod prepend;
pub(crate) mod product;
pub(crate) mod rotary;
pub(crate) mod scale;
pub(crate) mod softmax;
pub(crate) mod sum;

use std::sync::Arc;

use nalgebra::Vector2;

use crate::domain::{
    Along, Answers, Concentration, Domain, Fluctuation, Gradient, GradientPairMap, Lengths, Nearness, PairMap, Signal,
    Step,
};
use crate::moments::{PerToken, Token, TokenGradient};

/// A component that acts on every token by itself. *Cosine* is E x_a x_b / √(E x_a² E x_b²), the raw
/// cross product of two tokens a, b, in units of their second moments.
pub(crate) trait PairRule {
    /// Every token, forward.
    fn tokens(&self, x: &[Token]) -> PerToken<Token>;
    /// The cosine of two outputs `y`, from that of the inputs `x`.
    fn cosines<'a>(&'a self, x: &'a [Token], y: &'a [Token]) -> PairMap<'a>;
    /// Every token's gradient, from the output `y` to the input `x`.
    fn tokens_backward(&self, x: &[Token], y: &[Token], gradients: &[TokenGradient]) -> PerToken<TokenGradient>;
    /// The cosine of two gradients at the inputs `x`, from that of the inputs and that at the outputs.
    fn cosines_backward<'a>(&'a self, x: &'a [Token], gradients: &'a [TokenGradient]) -> GradientPairMap<'a>;
    /// How much of what keeps tokens apart is gone on average over networks, from input `x` to output `y`, because how
    /// alike tokens are strays with how large they are; negative where they are kept apart.
    fn drawn_together(&self, _domain: &Domain, _x: &Signal, _y: &Signal) -> f64 {
        0.0
    }
    /// What maps of cosines c, forward and backward, gain because those of the input `x` stray in each network: these, times (1 −
    /// c²)².
    fn bent(&self, _domain: &Domain, _x: &Signal) -> [f64; 2] {
        [0.0; 2]
    }
    /// ln of E y² over networks over what it is at the mean scale of `x`, where that is not linear in it.
    fn ln_strayed(&self, _domain: &Domain, _x: &Signal) -> f64 {
        0.0
    }
    /// ln of what straying in common beyond what single tokens know adds to the gradient at the input `x`, and to its cosines.
    fn ln_strayed_backward(&self, _domain: &Domain, _x: &Signal, _gradient: &Gradient) -> [f64; 2] {
        [0.0; 2]
    }
    /// ln of what cosines of gradients gain, from the output to the input of the pair given, because gradients of two tokens
    /// meet the signal of one.
    fn ln_across(&self, _domain: &Domain, _: [&Signal; 2], _gradient: &Gradient, _across: f64) -> f64 {
        0.0
    }
    /// How gradients of two tokens meet the signal of one (see [`Gradient`]) at the input `x`, from the same at the output.
    fn across(&self, _domain: &Domain, _x: &Signal, across: f64) -> f64 {
        across
    }
    /// What two gradients have in common along (1, …, 1) (see [`Gradient`]) at the input, from the same at the output.
    fn constant(&self, constant: f64) -> f64 {
        constant
    }
    /// d ln κ/dc of the cosines c of the input `x`, where cosines of gradients are multiplied by κ(c).
    fn gain_slope(&self, _domain: &Domain, _x: &Signal) -> f64 {
        0.0
    }
    /// Whether cosines, forward and backward, pass as they are.
    fn keeps_cosines(&self) -> bool {
        false
    }
    /// The cosines of the gradient at the input, where what the gradient comes from knows them.
    fn told_cosines(&self, _gradient: &Gradient) -> Option<Arc<[f64]>> {
        None
    }
    /// The concentration of the output (see [`Signal`]); `mean_cosine` averages over pairs.
    fn concentration(&self, x: &Signal, _y: &Signal, _mean_cosine: &dyn Fn(&Signal) -> f64) -> Concentration {
        x.concentration
    }
    /// The concentration of the gradient at the input.
    fn concentration_backward(&self, _x: &Signal, gradient: &Gradient, _: &dyn Fn(&Signal) -> f64) -> Concentration {
        gradient.concentration
    }
    /// What E Σ_ab g_a·g_b, per token and in units of E g² at the input `x`, has because pairs of tokens that happen to be more alike
    /// have gradients more alike (`coupling` and `along` of the `gradient` at the output).
    fn coupled(&self, _domain: &Domain, _x: &Signal, _gradient: &Gradient) -> f64 {
        0.0
    }

    /// How cosines of the gradient at the input `x` answer to those there, from the `gradient` at the output `y`.
    fn nearness(&self, _domain: &Domain, [_x, _y]: [&Signal; 2], gradient: &Gradient) -> Nearness {
        gradient.nearness
    }
    /// How gradients along their signals go together (see [`Gradient`]) at the input `x`.
    fn along(&self, _domain: &Domain, _x: &Signal, gradient: &Gradient) -> f64 {
        gradient.along
    }
    /// What an activation right behind the input `x` adds to what the gradient has along its signal.
    fn entrywise(&self, _domain: &Domain, _x: &Signal, gradient: &Gradient) -> Along {
        gradient.entrywise
    }
    /// What of that is not met entry by entry (see [`Gradient`]) at the input.
    fn unmet(&self, gradient: &Gradient) -> Along {
        gradient.unmet
    }
    /// How far the output strays (see [`Fluctuation`]).
    fn fluctuation(&self, _domain: &Domain, x: &Signal, _y: &Signal) -> Fluctuation {
        x.fluctuation.passed()
    }
    /// What the rule adds to the response of the gradient (see [`Fluctuation`]).
    fn response(&self, _domain: &Domain, _x: &Signal, _gradient: &Gradient) -> Vector2<f64> {
        Vector2::zeros()
    }
    /// Twice the covariance of what it draws of ln Σ |g|² with what the `gradient` at its output answers to of what it draws there.
    fn drawn_again(&self, _domain: &Domain, _x: &Signal, _gradient: &Gradient) -> f64 {
        0.0
    }
    /// What of the draws of signals those of the gradient repeat (see [`Gradient`]), from the `gradient` at the output.
    fn redrawn(&self, gradient: &Gradient) -> f64 {
        gradient.redrawn
    }
    /// How far the gradient at the input `x` strays, from the `gradient` at the output and what the rule adds to its
    /// response.
    fn fluctuation_backward(&self, _: &Domain, _x: &Signal, gradient: &Gradient, _: Vector2<f64>) -> Fluctuation {
        gradient.fluctuation
    }
    /// What it does to a token like those of `x` of the length s, and to two of that length with this `cosine` (see [`Lengths`]), if
    /// that is followed.
    fn step(&self, _x: &Signal, _s: f64, _cosine: f64) -> Option<Step> {
        None
    }
    /// How long single tokens of the output are.
    fn lengths(&self, x: &Signal, lengths: &Lengths) -> Option<Lengths> {
        lengths.behind(|s, cosine| self.step(x, s, cosine))
    }
    /// What the gradient at the input `x` is at given `lengths` there, from the `gradient` at the output and its answers.
    fn lengths_backward(
        &self,
        _domain: &Domain,
        x: &Signal,
        _gradient: &Gradient,
        (lengths, answers): (&Arc<Lengths>, &Answers),
    ) -> Option<Answers> {
        answers.before(lengths, |s, cosine| self.step(x, s, cosine))
    }
    /// Why the rule is not exact for `x` (what it assumes, what it meets), if it is not.
    fn caveat(&self, _x: &[Token]) -> Option<(&'static str, String)> {
        None
    }
}
