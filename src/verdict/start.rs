//! Whether the loss starts near that of guessing.
//!
//! # Rule
//!
//! Logits of variance w cost more than equal ones: w/2 while w ≪ ln V, of the order of √w beyond (`src/head/`). What is far above
//! ln V has to be unlearned before anything is learned, and steps that suit the body are small beside such logits.

use super::{Finding, Kind, Severity};
use crate::head::Loss;
use crate::numerals::short;

/// Times the loss of equal logits: read off networks that were trained (docs/training.md).
const FAR: f64 = 5.0;

/// Judges the loss of the first step.
pub(super) fn judge(loss: &Loss) -> Finding {
    let ratio = loss.cross_entropy.ratio(&loss.uniform.into());
    let severity = if ratio > FAR { Severity::Warning } else { Severity::Fine };
    let verb = if severity == Severity::Warning { "far above" } else { "near" };
    Finding {
        kind: Kind::Start,
        severity,
        text: format!(
            "the loss starts {verb} that of guessing: {} nats, {} of equal logits",
            short(loss.cross_entropy),
            short(loss.uniform)
        ),
        rule: format!("loss of the first step against {FAR} times that of equal logits"),
        block: None,
        value: ratio,
    }
}
