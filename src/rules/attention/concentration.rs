//! The concentration of the output, and how unequal its differences are.
//!
//! # Directions
//!
//! A difference of two outputs is, per head, Σ_b ΔA_b v_b. A `part` s of it is linear in the difference of the queries,
//! C W_Kᵀ W_Q δ with C = Σ_b j_b δ_b δ_bᵀ of the keys' differences δ_b; s is the slope of a row's overlap with others,
//! (w (1 − ρ) T11(ρ) and the pull)/(S2 − S11). The rest is of masks and of higher orders. Of two such differences from
//! four queries the square of the cosine is
//!
//! ```text
//! γ' = s² (γ + (1/d_head + tr C⁴/(tr C²)²)/n_heads)     linear: heads see the same queries through weights of their own
//!    + (1 − s)² (γ + Σ d²/(Σ d)²)/n_heads               rest: two keys by themselves, or one key that both attend
//!    + 2 s (1 − s) (γ + Σ j² d/(Σ j² Σ d))/n_heads
//!    + 1/(n_heads d_value)                              the value weights draw
//! ```
//!
//! with j_b = E A_b (1 − A_b) and d_b = Var A_b over rows of scores that they share at correlation ρ, the queries' cosine
//! (`rules/softmax/shared.rs`: where rows share much, few keys decide). C's directions are those of the tokens, γ = a + 1/width
//! as of a matrix of 1/a inputs (a Marchenko and Pastur law with t_k = tr Λ^k), by the noncrossing pairings of keys
//! with weights of overlaps S_k = Σ j^k/(Σ j)^k:
//!
//! ```text
//! tr C² = γ + S_2     tr C⁴ = t_4 + S_2 (4 t_3 + 2 γ²) + γ (4 S_3 + 2 S_2²) + S_4
//! ```
//!
//! Of ids that repeat, S3 and S4 are those of n_e keys times tr M³/(tr M)³ (n_e − 1)² and tr M⁴/(tr M)⁴ (n_e − 1)³, M the
//! centred matrix of cosines (`rules/softmax/repeats.rs`); Σ j² d, of three weights, is as S3.
//!
//! Where every position is followed, weights differ without scores too: what masks and slopes make of the square, m of it, is
//! linear in the values and keeps their γ, and strays from what scores make, of γ' above, as one key strays from the rest:
//!
//! ```text
//! γ'' = m² γ + 2 m (1 − m) (γ + Σ j² d/(Σ j² Σ d))/n_heads + (1 − m)² γ'
//! ```
//!
//! for an average row. What of it falls as 1/n_e, the rows' own part (`rows`), is larger for queries that see few keys, by how
//! many fewer they are than those of the query that sees the most: behind causal attention with four heads of width 256 (v = 1, 96
//! uncorrelated tokens, streams that are all attention) products stray by 0.34/n + 0.0105 where n tokens are seen (measured: 0.209 at
//! 2, 0.046 at 9, 0.0144 at 96); the rule, when it left out the pull, said 0.43/n + 0.0103. Gradients averaged over queries were 5.6 % too small without
//! it (5.1 % rotated; two heads of 256: 8.5 %), and are within 0.7 % (2.3 %). Shares of branches in a stream are those of
//! all positions; early tokens, whose averages are longer, have larger ones, and theirs stray more than is said.
//!
//! γ'' is not sampled by itself; token correlations of six causal blocks of width 256, four heads, score variance
//! ½, were 0.012 too small without it and are 0.005.
//!
//! Sampled with one layer (`exchangeable/tests.rs`; width 128 and 256, heads of 64 and 32, 64 and 256 tokens): γ' 4 to 5 %
//! too small at score variance 1, 4 % too small to 8 % too large at 5, 14 % too large of tokens whose differences have 40
//! directions. (With weights of the shared scores alone and Σ Ā⁴/(Σ Ā²)² for the rest it was 60 % too large at 5, and
//! weights of queries and keys behind it up to 20 %.)
//!
//! # Unequal differences
//!
//! Rows are not equally sharp, so that some outputs differ more from the others than Gaussian tokens would: but for what is
//! linear, of which s² is made, and for what is sharp in common, |ΔA|² strays by (1 − ρ²) (S22 − S2²)/(S2 − S11)², averaged
//! over heads (`unequal`, u; S2 has no part that is linear in the scores). It stays with the stream: norms leave of two
//! independent variances with a fixed sum what is said under *Lengths*, sums the squares of shares, where branches follow
//! their input the square of the sum. Keys that differ more are attended more: per |δ|² what T has of E A² grows by λ =
//! (T/S2) E ΣA² (1 − A) s/S2, so that
//!
//! ```text
//! scores have a kurtosis of 3 u     T meets |δ|⁴ at queries, 1 + u (1 + 2 λ), and |δ|² at keys, 1 + u λ
//! Σ_{b ≠ c} J_bb J_cc (δ_b·δ_c)² grows by 1 + u w (1 − S2)
//! ```
//!
//! to first order in u. Sampled: differences of log-normal lengths, u = 0.04, w = 0.9, cosine 0.9: E |g_q|² 11.7 % above
//! that of u = 0, by the formula 12 %; u of the output at score variance 5 and 1: 0.137 and 0.062, by the rule 0.149 and
//! 0.039; after one and three blocks of the former 0.037 and 0.054, of the latter (sandwich norms) 0.041, by these rules
//! 0.036, 0.055 and 0.023.
//!
//! # Lengths
//!
//! Where the gradients of queries meet one key twice they meet E |δ|⁴/(E |δ|²)² of its difference δ: 1 + 2γ of Gaussian
//! tokens (which `exchangeable/backward.rs` counts among the directions). Of tokens of fixed norm m² + 2 m·δ + δ² is
//! fixed, and |δ|² strays by what m·δ lets it: of two independent variances A = 2γ (1 − c)² and B = 4γ c (1 − c) with a
//! fixed sum AB/(A + B) is left, 2γ · 2c/(1 + c). Given one query, scores have a kurtosis of three times what that is less
//! than of Gaussian tokens (`rules/softmax.rs`).
//!
//! Norms of keys take more: with γ of a head's keys, that of the inputs and 1/d_head, scores lack 6 times what the variance of their
//! ln |k|² is below 2γ, halved (`fixed`). It is of keys alone: a gradient's products with values know of inputs only. Norms of
//! queries leave rows that are all as sharp but for γ of the keys' weights; one norm for all heads leaves 1/d_head (1 − 1/heads)
//! (`attention.rs`). One block of width 128, heads of 32, gradients of correlation 0.6 (tests/sigprop/narrow.rs): key weights 13 % too
//! small without, 3 % too large with it.
//!
//! # What all share
//!
//! Outputs share what values do, and what their averages happen to have of the differences: (δ·m)² strays as `common` of the input
//! for the former, as γ for the latter.
//!
//! Assumptions: Gaussian keys. Source: ours.

use sigprop_stack::Attention;

use crate::domain::{Concentration, Signal};
use crate::moments::ratio;
use crate::rules::softmax::{Row, Shared};

/// Why weights of queries and keys are told too large, where the first attention sees tokens that differ in few directions.
pub(super) fn few_directions(input: &Signal) -> Option<(&'static str, String)> {
    /// γ beyond 1/width, up to which the neglected order is small: embeddings of 100 features.
    const LARGEST: f64 = 0.01;
    let Concentration { total, rows, .. } = input.concentration;
    (rows == 0.0 && total - input.token().width.recip() > LARGEST).then(|| {
        (
            "token differences lie in few directions: weights of queries and keys are told too large (sampled, four Xavier \
             blocks of width 256: 14 % with embeddings of 32 features, 9 % of 64, 4 % of 128)",
            format!("{:.0} directions", total.recip()),
        )
    })
}

/// Why gradients of the weights of queries and keys are underestimated where a part of the keys and the values are made of one
/// latent: their products have a covariance of 1/(its features), which is compared with 1/keys.
pub(super) fn narrow_latent([input, key, value]: [&Signal; 3], n_keys: f64) -> Option<(&'static str, String)> {
    /// Keys per feature of the latent.
    const MOST: f64 = 0.125;
    let latent = value.concentration.total - value.token().width.recip() - input.concentration.total;
    (key.parts.is_some() && latent * n_keys > MOST).then(|| {
        (
            "keys and values are made of one latent with few features beside the number of tokens: gradients of the weights that make \
             queries and keys of it are underestimated (sampled, a latent of 64 features: by 10 % at 16 tokens, 15 % at 32, 37 % at \
             128); activations and the gradient in the stream are not affected",
            format!("{n_keys} tokens, {:.0} features", latent.recip()),
        )
    })
}

/// Why gradients are overestimated where keys of sharp rows, of score variance `contrast`, are averages of sharp rows of few heads:
/// their cosines fluctuate by 1/n_heads and are close to 0 or 1, where S2 and T take them to be Gaussian.
pub(super) fn few_heads(input: &Signal, n_keys: f64, contrast: f64) -> Option<(&'static str, String)> {
    /// Score variance up to which gradients were within 7 % in four blocks.
    const SHARPEST: f64 = 6.0;
    /// Variance of the keys' cosines that attention draws, times n_keys: n_keys equal keys have the mean square 1/n_keys.
    const LARGEST: f64 = 0.15;
    let is_noisy = input.concentration.rows * n_keys > LARGEST;
    (is_noisy && contrast > SHARPEST).then(|| {
        (
            "gradients at and before this attention are overestimated, since its inputs are outputs of sharp attention of few heads \
             (sampled, four blocks of 128 tokens, heads of 64: at the embeddings by up to 25 % with four heads and \
             12 % with eight or sixteen at score variance 14, 17 % with four at 8; token correlations by up to 0.03). Use smaller query \
             and key weights, or measure gradients with `sigprop validate`",
            format!("score variance {contrast:.1}"),
        )
    })
}

/// What the differences of outputs come of.
#[derive(Clone, Copy, Debug)]
pub(super) struct Parts {
    /// Of all, that of weights which differ without scores: masks, slopes.
    pub(super) flat: f64,
    /// Of the rest, what is linear in the queries.
    pub(super) linear: f64,
    /// Of all, what is linear in what the inputs of queries differ in.
    pub(super) inherited: f64,
    /// Of what outputs share, what values share: the rest is of their differences.
    pub(super) alike: f64,
}

/// The concentration of the heads' output, from that of the input of `keys` and values; `uneven` is what its differences stray by if nothing of them is linear.
pub(super) fn of_output(
    keys: Concentration,
    [query, value]: [&Signal; 2],
    attention: &Attention,
    shared: &Shared,
    parts: Parts,
    uneven: f64,
) -> Concentration {
    let Parts { flat, linear, inherited, alike } = parts;
    let n_heads = attention.n_heads as f64;
    let query = query.concentration;
    let differences = directions(keys, query, n_heads, shared, parts);
    let total = differences + (value.concentration.total - keys.total).max(0.0);
    let rows = differences - directions(keys.of_many_keys(), query.of_many_keys(), n_heads, &Shared::NONE, parts);
    let drawn = value.concentration.drawn;
    let unequal = (1.0 - linear * linear) * uneven + flat * flat * value.concentration.unequal;
    let inherited = inherited * query.inherited;
    let common = alike * keys.common + (1.0 - alike) * keys.total + (value.concentration.common - keys.common).max(0.0);
    Concentration { total, drawn, rows: rows.max(0.0), inherited, unequal, common }.bounded()
}

/// γ'' but for what the value weights draw.
fn directions(keys: Concentration, query: Concentration, n_heads: f64, shared: &Shared, parts: Parts) -> f64 {
    let Parts { flat, linear, .. } = parts;
    let own = keys.total;
    let followed = query.total + directions_of_keys(keys, shared.followed) / n_heads;
    let few = (own + shared.own) / n_heads;
    let both = (own + shared.between) / n_heads;
    let rest = 1.0 - linear;
    let scored = linear * linear * followed.min(1.0) + rest * rest * few.min(1.0) + 2.0 * linear * rest * both.min(1.0);
    let moved = 1.0 - flat;
    flat * flat * own + 2.0 * flat * moved * both.min(1.0) + moved * moved * scored
}

/// tr C⁴/(tr C²)².
fn directions_of_keys(keys: Concentration, [s2, s3, s4]: [f64; 3]) -> f64 {
    let drawn = keys.drawn;
    let from = keys.drawn_from();
    let second = from + drawn;
    let third = from * from + 3.0 * from * drawn + drawn * drawn;
    let fourth = from.powi(3) + 6.0 * from * drawn * second + drawn.powi(3);
    let pairs = s2 * (4.0 * third + 2.0 * second * second);
    (fourth + pairs + second * (4.0 * s3 + 2.0 * s2 * s2) + s4) / (second + s2).powi(2)
}

/// Scores of few directions are not believed to lack more.
const MOST_UNEQUAL: f64 = 0.1;

/// How unequal the lengths of token differences are (see *Lengths*).
#[derive(Clone, Copy, Debug)]
pub(super) struct Unequal {
    concentration: f64,
    /// 1 of Gaussian tokens, 0 of tokens of fixed norm.
    gaussian: f64,
    /// Half of what norms of keys take off the variance of their ln |k|² within a head.
    fixed: f64,
}

impl Unequal {
    pub(super) fn of(input: &Signal) -> Self {
        let token = input.token();
        // Outside the range of 0 … 1 the tokens are neither.
        let gaussian = (0.5 * token.norm_variance() * token.width).clamp(0.0, 1.0);
        Self { concentration: input.concentration.total, gaussian, fixed: 0.0 }
    }

    /// With keys whose lengths within heads of `d_head` features stray by this (`head_lengths`).
    pub(super) fn with_keys(self, lengths: f64, d_head: usize) -> Self {
        let taken = (d_head as f64).recip() - lengths;
        // Less is rounding, or what strays in common.
        let is_normed = taken * d_head as f64 > 1e-9;
        // A norm takes what inputs have of it, too.
        Self { fixed: if is_normed { taken + self.gaussian * self.concentration } else { 0.0 }, ..self }
    }

    /// E |δ|⁴/(E |δ|²)² of tokens with this cosine, less what it is beyond 1 for Gaussian ones.
    pub(super) fn squares(self, cosine: f64) -> f64 {
        let common = cosine.max(0.0);
        1.0 + 2.0 * self.concentration * (self.between(1.0, 2.0 * common / (1.0 + common)) - 1.0)
    }

    /// Of scores, the products of such differences of keys with one query, in excess of that of Gaussian ones.
    pub(super) fn kurtosis(self, cosine: f64) -> f64 {
        let common = cosine.max(0.0);
        let fixed = 2.0 * self.fixed * (1.0 - common) / (1.0 + common);
        3.0 * (self.squares(cosine) - 1.0 - fixed).max(-MOST_UNEQUAL)
    }

    /// What E ΣA² g² loses, g along a direction the scores do not know, because of tokens of fixed norm less is left beside a score
    /// that is far from its average: g a product with values, and one with keys.
    pub(super) fn outlying(self, cosine: f64, row: &Row) -> [f64; 2] {
        [Self { fixed: 0.0, ..self }, self].map(|tokens| tokens.kurtosis(cosine) / 6.0 * ratio(row.outlying, row.t()))
    }

    /// E |q|² T/E |q|²: what a row's own score variance strays by, `drawn`, is that of its query but for γ of the keys' weights,
    /// which Gaussian tokens have in their norm.
    pub(super) fn weighted(self, row: &Row, drawn: f64) -> f64 {
        let queries = self.between(1.0, 1.0 - ratio(self.concentration, drawn));
        row.t() + (row.t_weighted - row.t()) * queries
    }

    /// What is known of Gaussian and of normalised tokens, bridged.
    pub(super) fn between(self, gaussian: f64, normalised: f64) -> f64 {
        self.gaussian * gaussian + (1.0 - self.gaussian) * normalised
    }
}
