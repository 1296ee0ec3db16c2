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
//! that gradient, and their own draws 2/width. Being of j differences of keys and of values, (1 − c)^j, and where queries
//! meet (i = 1) of their cosine c, they are larger by
//!
//! ```text
//! E (1 − ĉ)^j ĉ^i Σ g²/((1 − c)^j c^i E Σ g²) = 1 + a (j (j − 1)/2 − i j (1 − c)/c) + b (j − i (1 − c)/c)
//! ```
//!
//! a = Var p (m − t), b = Cov(ln Σ g², p (t − m)): both know of the fork. With R the response where the branch is joined, J
//! what the joined levels have of the fork's, B, and K what the input has of them, the covariance of −ln Σ g² with the
//! input's (m, t) is K B Jᵀ R. What they answer to these levels is (j − i (1 − c)/c) p (1, −1).
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
//! What the weights of queries and keys draw averages out over heads; α = β = 1 in the Gram domain.
//!
//! # Source
//!
//! Ours.

use nalgebra::{Matrix2, Vector2};
use sigprop_stack::Attention;

use crate::domain::{
    Concentration, Domain, Fluctuation, Gradient, Signal, bounded, of_all, variance_of_apart, with_apart,
};
use crate::moments::{ln_correction, ratio};

/// α and β.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Elasticity {
    pub(crate) sharpness: f64,
    pub(crate) distance: f64,
}

impl Elasticity {
    /// Of flat attention.
    pub(crate) const FLAT: Self = Self { sharpness: 1.0, distance: 1.0 };

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
    /// B of the input.
    levels: Matrix2<f64>,
    /// From the levels of the fork to those of the input.
    kept: Matrix2<f64>,
}

/// How powers of differences and cosines, of which gradients of queries and keys are made, stray together with them.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Powers {
    /// Var ln (1 − ĉ).
    apart: f64,
    /// Cov (ln Σ g², ln (1 − ĉ)).
    together: f64,
    /// p.
    shared: f64,
    /// (1 − c)/c.
    odds: f64,
}

impl Powers {
    /// E (1 − ĉ)^j ĉ^i Σ g² over the product of the expectations, where `differences` = j of keys and values, and i
    /// `cosines` of queries, are met.
    pub(crate) fn of(self, differences: f64, cosines: f64) -> f64 {
        let (j, i) = (differences, cosines * self.odds);
        let strayed = self.apart * j * (0.5 * (j - 1.0) - i) + self.together * (j - i);
        ln_correction(bounded(strayed)).exp()
    }

    /// j of a gradient that meets `differences`, and `cosines` too: what it goes with as if it met differences alone.
    pub(crate) fn met(self, differences: f64, cosines: f64) -> f64 {
        differences - cosines * self.odds
    }

    /// What squares of a gradient, and its cosines, answer to as they go with these `powers` of the differences.
    pub(crate) fn response(self, powers: [f64; 2]) -> Matrix2<f64> {
        let differences = self.shared * Vector2::new(1.0, -1.0);
        differences * Vector2::from(powers).transpose()
    }
}

/// What a gradient is made of that collects the part `pairs` of its squares from products of two queries' gradients, and whose
/// cosines go with theirs by `alike`.
pub(crate) fn gathered(pairs: f64, alike: f64) -> Matrix2<f64> {
    Matrix2::new(1.0, 0.0, pairs, alike)
}

impl Strayed {
    /// For the gradient at the `output`.
    pub(crate) fn powers(&self, domain: &Domain, output: &Gradient) -> Powers {
        let shared = self.shared;
        let known = Powers { apart: 0.0, together: 0.0, shared, odds: ratio(1.0 - shared, shared) };
        if !domain.follows_levels() {
            return known;
        }
        Powers {
            apart: variance_of_apart(self.levels, shared),
            together: with_apart(self.kept * output.with_fork.column(0), shared),
            ..known
        }
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
    let (shared, levels, from_fork) = (domain.shared(input), input.fluctuation.total(), input.fluctuation.kept);
    let values = value.fluctuation;
    let averaged = values.mapped(Matrix2::identity());
    if attention.memory.is_some() {
        // Values that come from elsewhere keep nothing of the fork.
        let nothing = Matrix2::zeros();
        return (
            Fluctuation { kept: nothing, ..averaged },
            Strayed { scores: nothing, shared, levels, kept: from_fork },
        );
    }
    let scores = elasticity.map(shared);
    let kept = values.kept + scores;
    let scale = values.own(levels) + kept * levels * kept.transpose();
    (Fluctuation { scale, kept, ..averaged }, Strayed { scores, shared, levels, kept: from_fork })
}

/// The gradients at queries, keys and values, with what they answer to the input's levels, completed from that at the output.
pub(crate) fn backward(
    domain: &Domain,
    attention: &Attention,
    output: &Gradient,
    forward: &Strayed,
    [query, key, value]: [Gradient; 3],
) -> [Gradient; 3] {
    let response = output.response + forward.scores.transpose() * output.response;
    let told = |part: Gradient| Gradient {
        with_fork: output.with_fork * part.made,
        beside: output.beside * part.made,
        response: response * part.made + part.response,
        ..part
    };
    let strayed = output.fluctuation.forked();
    let kv_width = (attention.n_kv_heads * attention.d_value) as f64;
    let all = of_all(domain.shared(output)).transpose();
    let averaged = strayed.mapped(Matrix2::from_rows(&[Vector2::new(1.0, 0.0).transpose(), all]));
    let value = Gradient { concentration: fresh(kv_width), fluctuation: averaged, ..told(value) };
    let scored = |part: Gradient, heads: usize| {
        let width = (heads * attention.d_head) as f64;
        let concentration = fresh(width);
        let drawn = domain.alike(&part, concentration.total).drawn(2.0 / width);
        let fluctuation = strayed.redrawn(Matrix2::from_rows(&[all, all]), drawn);
        Gradient { concentration, fluctuation, ..told(part) }
    };
    [scored(query, attention.n_heads), scored(key, attention.n_kv_heads), value]
}

fn fresh(width: f64) -> Concentration {
    Concentration { inherited: 0.0, ..Concentration::fresh(width) }
}
