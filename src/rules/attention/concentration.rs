//! The concentration of the output: its token differences are Σ_h W_V C W_Kᵀ W_Q times those of the input to first
//! order in the scores' differences, C = Σ_b Ā_b δ_b δ_bᵀ of the keys' differences with the weights Ā that all queries
//! share: those of scores w ρ, ρ the queries' cosine.
//!
//! A random matrix adds one over its number of outputs, which are `n_heads` · d_head for queries and values and the
//! width, averaged over heads, for keys. C adds tr C⁴/(tr C²)² − γ, averaged over heads; with `shared` the overlaps S
//! of Ā, by the noncrossing pairings of four keys (Marchenko and Pastur, for unequal weights),
//!
//! ```text
//! tr C² = γ + S2     tr C⁴ = γ³ + 6 γ² S2 + γ (4 S3 + 2 S22) + S4
//! ```
//!
//! Of ids that repeat, S3 and S4 are those of n_e keys times tr M³/(tr M)³ (n_e − 1)² and tr M⁴/(tr M)⁴ (n_e − 1)³, M the
//! centred matrix of cosines (`rules/softmax/repeats.rs`).
//!
//! The rest of the differences, all but a `part` s, is of masks and of higher orders: differences of values that know
//! nothing of the input's, each of few keys, S4/S22 averaged over heads. The two have the directions of values in
//! common, γ' = s² γ_followed + (1 − s)² γ_rest + 2 s (1 − s) γ_v. What is linear in a query's own part is the slope of
//! its overlap with others, s = (w (1 − ρ) T11(ρ) and the pull)/(S2 − S11). Sampled: score variance 1, width 128 and
//! 256, γ' 7 to 10 % too small (30 % with s of flat attention and no direction in common); 4: up to half.
//!
//! # Lengths
//!
//! Where the gradients of queries meet one key twice they meet E |δ|⁴/(E |δ|²)² of its difference δ: 1 + 2γ of Gaussian
//! tokens (which `exchangeable/backward.rs` counts among the directions). Of tokens of fixed norm m² + 2 m·δ + δ² is
//! fixed, and |δ|² strays by what m·δ lets it: of two independent variances A = 2γ (1 − c)² and B = 4γ c (1 − c) with a
//! fixed sum AB/(A + B) is left, 2γ · 2c/(1 + c). Given one query, scores have a kurtosis of three times what that is less
//! than of Gaussian tokens (`rules/softmax.rs`).
//!
//! Assumptions: Gaussian keys. Source: ours.

use sigprop_stack::Attention;

use crate::domain::{Concentration, Signal};
use crate::moments::ratio;
use crate::rules::softmax::Row;

/// The concentration of the heads' output.
pub(super) fn of_output(
    input: &Signal,
    query: &Signal,
    value: &Signal,
    attention: &Attention,
    shared: &Row,
    part: f64,
) -> Concentration {
    let own = input.concentration.total;
    let second = own * own + 2.0 * own * shared.s2 + shared.s22;
    let fourth = own.powi(3) + 6.0 * own * own * shared.s2 + own * (4.0 * shared.s3 + 2.0 * shared.s22) + shared.s4;
    let keys = input.token().width.recip() + fourth / second - own;
    let followed =
        query.concentration.total + (value.concentration.total - own).max(0.0) + keys / attention.n_heads as f64;
    let few = value.concentration.total + ratio(shared.s4, shared.s22) / attention.n_heads as f64;
    let rest = 1.0 - part;
    let total =
        part * part * followed.min(1.0) + rest * rest * few.min(1.0) + 2.0 * part * rest * value.concentration.total;
    let drawn = value.concentration.drawn;
    Concentration { total, drawn, inherited: part * query.concentration.inherited }.bounded()
}

/// Scores of few directions are not believed to lack more.
const MOST_UNEQUAL: f64 = 0.1;

/// How unequal the lengths of token differences are (see *Lengths*).
#[derive(Clone, Copy, Debug)]
pub(super) struct Unequal {
    concentration: f64,
    /// 1 of Gaussian tokens, 0 of tokens of fixed norm.
    gaussian: f64,
}

impl Unequal {
    pub(super) fn of(input: &Signal) -> Self {
        let token = input.token();
        // Outside the range of 0 … 1 the tokens are neither.
        let gaussian = (0.5 * token.norm_variance() * token.width).clamp(0.0, 1.0);
        Self { concentration: input.concentration.total, gaussian }
    }

    /// E |δ|⁴/(E |δ|²)² of tokens with this cosine, less what it is beyond 1 for Gaussian ones.
    pub(super) fn squares(self, cosine: f64) -> f64 {
        let common = cosine.max(0.0);
        1.0 + 2.0 * self.concentration * (self.between(1.0, 2.0 * common / (1.0 + common)) - 1.0)
    }

    /// Of scores, the products of such differences with one query, in excess of that of Gaussian ones.
    pub(super) fn kurtosis(self, cosine: f64) -> f64 {
        3.0 * (self.squares(cosine) - 1.0).max(-MOST_UNEQUAL)
    }

    /// What is known of Gaussian and of normalised tokens, bridged.
    pub(super) fn between(self, gaussian: f64, normalised: f64) -> f64 {
        self.gaussian * gaussian + (1.0 - self.gaussian) * normalised
    }
}
