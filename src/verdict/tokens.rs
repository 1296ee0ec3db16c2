//! Judges if the sum of embeddings still distinguishes tokens.
//!
//! # Rule
//!
//! If rows of the token table have a small share of the variance of the sum of embeddings, positions (and token types)
//! have nearly all of it. After the first norm, the output then hardly depends on the ids, and differences between
//! tokens are learned slowly.

use super::{Finding, Kind, Severity};

/// The share of the token table in the variance of the sum of embeddings below which positions drown the ids.
const LEAST: f64 = 0.01;

/// Judges the share of the token table in the variance of the sum of embeddings; `None` if it is large enough.
pub(super) fn judge(share: f64) -> Option<Finding> {
    (share < LEAST).then(|| Finding {
        kind: Kind::PositionsDrownTokens,
        severity: Severity::Warning,
        text: format!(
            "positions drown tokens: the token table has {:.2} % of the variance of the sum of embeddings, so the output hardly \
             depends on the ids",
            100.0 * share
        ),
        rule: format!("token table below {LEAST} of the variance of the sum of embeddings"),
        block: None,
        value: share,
    })
}
