//! Judges if more depth still buys more expressiveness than more width.
//!
//! # Rule
//!
//! Self-attention of L < log₃ d blocks separates its input doubly exponentially better with depth than with width; beyond,
//! both have a similar effect.
//!
//! # Assumptions
//!
//! Attention without softmax, norms or feed-forward network. The bound is on the expressiveness with the best possible weights;
//! it says nothing about training or initialisation.
//!
//! # Source
//!
//! Levine et al. 2020 (arXiv 2006.12467), theorems 1 and 2.

use super::{Finding, Kind, Severity};
use crate::numerals::short;

/// Compares blocks with width; `None` for networks without attention.
pub(super) fn judge(n_blocks: usize, width: usize, attends: bool) -> Option<Finding> {
    let bound = (width as f64).ln() / 3_f64.ln();
    let (is, means) = if n_blocks as f64 > bound {
        ("beyond", "width buys expressiveness as depth does")
    } else {
        ("within", "depth buys expressiveness faster than width")
    };
    (attends && n_blocks > 0).then(|| Finding {
        kind: Kind::Depth,
        severity: Severity::Fine,
        text: format!(
            "depth is {is} log₃ width = {}: {means} (Levine et al. 2020), which says nothing of training",
            short(bound)
        ),
        rule: "number of blocks against log₃ width".to_owned(),
        block: None,
        value: n_blocks as f64 - bound,
    })
}
