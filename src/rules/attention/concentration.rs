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
//! The rest of the differences, all but a `part` s, is of masks and of higher orders: differences of values that know
//! nothing of the input's, each of few keys, S4/S22 averaged over heads. The two are independent,
//! γ' = s² γ_followed + (1 − s)² γ_rest + 2 s (1 − s)/width; of sharp rows (score variance 4) this is up to half too
//! small.
//!
//! Assumptions: Gaussian keys; s is what of the output's differences is linear in those of the queries.
//! Source: ours.

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
    let fresh = input.token().width.recip();
    let total = part * part * followed.min(1.0) + rest * rest * few.min(1.0) + 2.0 * part * rest * fresh;
    Concentration { total, inherited: part * query.concentration.inherited }.bounded()
}
