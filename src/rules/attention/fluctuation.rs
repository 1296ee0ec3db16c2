//! How far the levels of attention stray in one network, in either token domain.
//!
//! # Formula
//!
//! Levels m of what tokens have in common, t of what they differ in, s of all (see [`Fluctuation`]). Averages keep what
//! is common; of the values' differences they pass what the rows differ by, S2 − S11(ρ): more with the score variance
//! w, which is |q|² times the keys' differences, and with the distance of the queries, 1 − ρ:
//!
//! ```text
//! m' = m    t' = t + α (s + t) + β (t − s)     α = d ln (S2 − S11)/d ln w    β = d ln (S2 − S11)/d ln (1 − ρ)
//! ```
//!
//! both 1 of flat attention; with dS2/dw = S2 − 4 S3 + 3 S22 (Price), dS11/dρ = w T11 and, what a row's own sharpness
//! does to S11 aside, dS11/dw = ρ T11.
//!
//! # Backward
//!
//! Value gradients are averages of the gradients at the output: m' = m, t' = s. Queries and keys take the scale s of
//! that gradient, and their own draws 2/width. Gradients are made of second moments of tokens that stray with levels: of
//! differences, with t; of products of two, with m; of tokens alone, with s. The scores' variance, on which rows depend by
//! the exponents g of S2 or T, is of a query and of differences of keys, with s + t:
//!
//! ```text
//! values (squares)  g (s + t)            queries  2t + g (s + t)              two of them       2t + g c (s + t)
//! keys              s + t + g (s + t)    of two queries  m + t + g c (s + t)  their weights     t more
//! ```
//!
//! What goes with a·(m, t) beside the Σ g² at the output is larger than the product of the expectations by
//!
//! ```text
//! 1 + ½ (aᵀ B a − Σ of the variances of its factors) + a·C     C = −(B Mᵀ R + K D)
//! ```
//!
//! B and K of the input, M what the output has of its levels, R what the gradient answers to there and D what it has with the
//! fork by way of other branches; it answers to the input by −a. Behind a norm s = 0, and a is a power of 1 − ĉ, whose ln is t.
//! Sampled with reordered norms, six blocks of width 64, where attention sees the stream itself (4000 networks), in the last
//! three blocks: as powers of 1 − ĉ gradients at queries were 9 to 11, at keys 12 to 16 ± 1.6 % too large, weights of both 17 to 22
//! ± 1.9 %; now −0.8 to −0.1, 3.4 to 4.8 and 1.4 to 3.6 %.
//!
//! Keys and values of a memory differ by what its tokens do, whatever the input of the queries strays by: of a·(m, t) what goes with
//! differences is of the memory's t and by itself (what the gradient answers to it by way of the output is left out), the rest of the
//! input. As if all were of the input query and key weights of cross-attention were up to 12 % too large in six blocks under `bert`
//! (width 128), and are within 3 %.
//!
//! With R and Q the answers of squares and of cosines at the output, a part f of what squares gather is of squares, 1 − f of
//! products of two queries: (R', Q') = (R, Q) G,
//!
//! ```text
//! values  G = (1, 0; 1 − f, (f − f_0)/(1 − w))    keys  G = (1, 0; 1 − f, 0)    queries  G = 1
//! f_0 = 1/(1 + (L − 1) r_g)    w = 1/(1 + (L − 1) r_v)
//! ```
//!
//! for rows sum to 1, so that Σ_bb' g_b·g_b' of values, of which squares are w, is Σ_aa' g_a·g_a' whatever they attend to,
//! and that of keys is 0. By the same token what squares of values answer to differences, Q' has −1/(1 − w) times. Sampled
//! where told in `src/domain/fluctuation.rs`: taken as what cosines at the output answer to, Cov (m, ln of the cosine) at the
//! feed-forward input of block 8 was 0.073, sampled 0.004 ± 0.003, with G 0.008.
//!
//! # Assumptions
//!
//! What the weights of queries and keys draw averages out over heads. Where every position is followed α and β are those of an average
//! row, times the part of the outputs' differences that scores make: what masks make goes with the values' alone (t' = t).
//! Rotated keys differ in what their inputs share, too: their power of t is a part, the rest is of m. Sampled (eight causal blocks of
//! width 256, 64 tokens, score variance 1, 500 networks): Var t before the second to the eighth 0.0001, 0.0017, 0.0096, 0.024, 0.037,
//! 0.054 and 0.074, told 0.0001, 0.0020, 0.011, 0.027, 0.043, 0.064 and 0.089 (with α = β = 1: 1.37 before the last).
//!
//! # Source
//!
//! Ours.

use nalgebra::{Matrix2, Vector2};
use sigprop_stack::Attention;

use crate::domain::{Concentration, Domain, Fluctuation, Gradient, Signal, bounded, of_all, variance_of_all};
use crate::moments::{TokenGradient, ln_correction};
use crate::rules::softmax::Row;

/// α and β.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Elasticity {
    pub(crate) sharpness: f64,
    pub(crate) distance: f64,
}

impl Elasticity {
    /// Of flat attention.
    pub(crate) const FLAT: Self = Self { sharpness: 1.0, distance: 1.0 };

    /// Of rows of score variance `w` that differ `apart`, from what they have in common of T11: ρ and 1 − ρ times.
    pub(super) fn new(row: &Row, w: f64, apart: f64, [alike, different]: [f64; 2]) -> Self {
        if w <= 0.0 || apart <= 0.0 {
            return Self::FLAT;
        }
        let own = row.s2 - 4.0 * row.s3 + 3.0 * row.s22;
        let [sharpness, distance] = [own - alike, different].map(|slope| (w * slope / apart).clamp(0.0, 1.0));
        Self { sharpness, distance }
    }

    /// Where scores make a `part` of the differences.
    pub(super) fn times(self, part: f64) -> Self {
        Self { sharpness: part * self.sharpness, distance: part * self.distance }
    }

    /// What scores add to t', from the levels of an input that shares this much.
    fn map(self, shared: f64) -> Matrix2<f64> {
        let Self { sharpness, distance } = self;
        let row = (sharpness - distance) * of_all(shared) + Vector2::new(0.0, sharpness + distance);
        Matrix2::new(0.0, 0.0, row[0], row[1])
    }
}

/// What the backward pass needs.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Strayed {
    /// From the levels of the input to those of the output, through the scores.
    scores: Matrix2<f64>,
    /// p of the input.
    shared: f64,
    /// How the input strays.
    input: Fluctuation,
    /// From the levels of the input to those of the output.
    map: Matrix2<f64>,
    /// How much of the scale at the fork a token of the input has kept.
    sensitivity: f64,
    /// Var t of a memory, where keys and values are of one.
    memory: Option<f64>,
}

/// Powers of what strays that a gradient goes with: of second moments of all, of what tokens have in common, and of what they
/// differ in.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Powers {
    pub(crate) all: f64,
    pub(crate) common: f64,
    pub(crate) differences: f64,
}

impl Powers {
    /// This `growth` with the scores, which are products of queries and of differences of keys.
    pub(crate) fn scores(growth: f64) -> Self {
        Self { all: growth, common: 0.0, differences: growth }
    }

    pub(crate) fn and(self, all: f64, common: f64, differences: f64) -> Self {
        Self { all: self.all + all, common: self.common + common, differences: self.differences + differences }
    }

    /// Of the levels, where this much is shared.
    fn of_levels(self, shared: f64) -> Vector2<f64> {
        self.all * of_all(shared) + Vector2::new(self.common, self.differences)
    }
}

/// How what a gradient meets strays together, and with the gradient at the output.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Straying {
    /// B of the input.
    levels: Matrix2<f64>,
    /// Cov of ln Σ g² with them.
    together: Vector2<f64>,
    /// p of the input.
    shared: f64,
    /// How much of the scale at the fork a token of the input has kept.
    pub(crate) sensitivity: f64,
    /// Var t of a memory, whose tokens' differences are those that are met.
    memory: Option<f64>,
}

impl Straying {
    /// E of what is `met` times Σ g² over the product of all expectations.
    pub(crate) fn of(self, met: Powers) -> f64 {
        let of_memory = 0.5 * met.differences * (met.differences - 1.0) * self.memory.unwrap_or(0.0);
        let met = self.of_input(met);
        let powers = met.of_levels(self.shared);
        let alone = met.all * variance_of_all(self.levels, self.shared)
            + met.common * self.levels[(0, 0)]
            + met.differences * self.levels[(1, 1)];
        let strayed = 0.5 * (powers.dot(&(self.levels * powers)) - alone) + powers.dot(&self.together) + of_memory;
        ln_correction(bounded(strayed)).exp()
    }

    /// What goes with what is `met` answers to the levels of the input by.
    pub(crate) fn answers(self, met: Powers) -> Vector2<f64> {
        -self.of_input(met).of_levels(self.shared)
    }

    /// What goes with what is `met` answers to the levels of what keys and values are made of.
    pub(crate) fn keys_answer(self, met: Powers) -> Vector2<f64> {
        if self.memory.is_some() { Vector2::new(0.0, -met.differences) } else { self.answers(met) }
    }

    /// What of `met` is of the input of the queries.
    fn of_input(self, met: Powers) -> Powers {
        if self.memory.is_some() { Powers { differences: 0.0, ..met } } else { met }
    }
}

/// What a gradient is made of that collects the part `pairs` of its squares from products of two queries' gradients, and whose
/// cosines go with theirs by `alike`.
pub(crate) fn gathered(pairs: f64, alike: f64) -> Matrix2<f64> {
    Matrix2::new(1.0, 0.0, pairs, alike)
}

impl Strayed {
    /// For the gradient at the `output`.
    pub(crate) fn straying(&self, output: &Gradient) -> Straying {
        let Self { shared, input, map, sensitivity, memory, .. } = *self;
        let together = -output.with_levels(input, map).column(0);
        Straying { levels: input.total(), together, shared, sensitivity, memory }
    }
}

/// Of the heads' output, from the `input` of the queries and the `value`s; and what the backward pass needs.
pub(crate) fn forward(
    domain: &Domain,
    attention: &Attention,
    input: &Signal,
    value: &Signal,
    elasticity: Elasticity,
) -> (Fluctuation, Strayed) {
    let (shared, levels) = (domain.shared(input), input.fluctuation.total());
    let sensitivity = input.token().sensitivity;
    let input = input.fluctuation;
    let values = value.fluctuation;
    let averaged = values.mapped(Matrix2::identity());
    if attention.memory.is_some() {
        // Values that come from elsewhere keep nothing of the fork.
        let nothing = Matrix2::zeros();
        let memory = Some(values.scale[(1, 1)]);
        return (
            Fluctuation { kept: nothing, ..averaged },
            Strayed { scores: nothing, shared, input, map: nothing, sensitivity, memory },
        );
    }
    let scores = elasticity.map(shared);
    let kept = values.kept + scores;
    let scale = values.own(levels) + kept * levels * kept.transpose();
    let strayed = Strayed { scores, shared, input, map: kept, sensitivity, memory: None };
    (Fluctuation { scale, kept, ..averaged }, strayed)
}

/// The gradients at queries, keys and values, with what they answer to the input's levels, completed from that at the output.
pub(crate) fn backward(
    domain: &Domain,
    attention: &Attention,
    output: &Gradient,
    forward: &Strayed,
    [query, key, value]: [Gradient; 3],
) -> [Gradient; 3] {
    // Keys and values of another stream know nothing of the fork.
    let of_memory = attention.memory.is_some();
    let response = output.response + forward.scores.transpose() * output.response;
    let beside = |(token, output): (&TokenGradient, &TokenGradient)| TokenGradient {
        beside: output.beside * forward.sensitivity,
        ..*token
    };
    let told = |part: Gradient, of_memory: bool| {
        let response = response * part.made + part.response;
        if of_memory {
            return Gradient { response, ..part };
        }
        let tokens = part.tokens.iter().zip(output.tokens.iter());
        Gradient {
            tokens: tokens.map(beside).collect(),
            beside: forward.input.kept * output.beside * part.made,
            together: output.together,
            response,
            ..part
        }
    };
    let strayed = output.fluctuation.forked();
    let kv_width = (attention.n_kv_heads * attention.d_value) as f64;
    let all = of_all(domain.shared(output)).transpose();
    let averaged = strayed.mapped(Matrix2::from_rows(&[Vector2::new(1.0, 0.0).transpose(), all]));
    let value = Gradient { concentration: fresh(kv_width), fluctuation: averaged, ..told(value, of_memory) };
    let scored = |part: Gradient, heads: usize, of_memory: bool| {
        let width = (heads * attention.d_head) as f64;
        let concentration = fresh(width);
        let drawn = domain.alike(&part, concentration.total).drawn(2.0 / width);
        let fluctuation = strayed.redrawn(Matrix2::from_rows(&[all, all]), drawn);
        Gradient { concentration, fluctuation, ..told(part, of_memory) }
    };
    [scored(query, attention.n_heads, false), scored(key, attention.n_kv_heads, of_memory), value]
}

fn fresh(width: f64) -> Concentration {
    Concentration { inherited: 0.0, ..Concentration::fresh(width) }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Of a memory t² has 1 + Var t, whatever the input strays by, and products with its squares what these have alone.
    #[test]
    fn differences_of_a_memory_stray_by_themselves() {
        let levels = Matrix2::new(0.3, 0.1, 0.1, 0.2);
        let input = Straying { levels, together: Vector2::zeros(), shared: 0.5, sensitivity: 1.0, memory: None };
        let memory = Straying { memory: Some(0.05), ..input };
        let twice = Powers::default().and(0.0, 0.0, 2.0);
        approx::assert_relative_eq!(input.of(twice), 1.2, max_relative = 1e-12);
        approx::assert_relative_eq!(memory.of(twice), 1.05, max_relative = 1e-12);
        let squares = Powers::default().and(2.0, 0.0, 0.0);
        approx::assert_relative_eq!(
            memory.of(twice.and(2.0, 0.0, 0.0)),
            memory.of(squares) + 0.05,
            max_relative = 1e-12
        );
        assert_eq!(memory.answers(twice), Vector2::zeros());
        assert_eq!(memory.keys_answer(twice), Vector2::new(0.0, -2.0));
        assert_eq!(input.keys_answer(twice), input.answers(twice));
    }
}
