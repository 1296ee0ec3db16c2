//! Whether every parameter has a gradient.
//!
//! # Rule
//!
//! A parameter whose gradient is exactly zero keeps its value in the first step: the router of a renormalised top-1
//! mixture, whose weight is 1 whatever the scores are; maps behind which a gain, a scale or a map is zero. Biases of keys
//! are left out, for softmax is invariant to them. Where a matrix that starts at zero has a gradient (last maps of branches, heads),
//! it opens in the first step, and what is in front of it learns from the second on.

use sigprop_stack::WeightRow;

use super::gradients::over_blocks;
use super::{Finding, Kind, Severity};

/// Names of tensors that are listed.
const SHOWN: usize = 3;

/// Judges the weights; `None` where all of them have a gradient.
pub(super) fn judge(weights: &[WeightRow]) -> Option<Finding> {
    let is_zero = |row: &&WeightRow| row.grad_second_moment.value.ln_abs() == f64::NEG_INFINITY;
    let frozen = weights.iter().filter(is_zero).filter(|row| !row.tensor.ends_with("key.bias"));
    let mut patterns: Vec<(String, usize)> = Vec::new();
    for row in frozen {
        let name = over_blocks(&row.tensor).unwrap_or_else(|| row.tensor.clone());
        match patterns.iter_mut().find(|(pattern, _)| *pattern == name) {
            Some((_, count)) => *count += 1,
            None => patterns.push((name, 1)),
        }
    }
    let count: usize = patterns.iter().map(|(_, count)| count).sum();
    let mut names: Vec<String> = patterns.iter().take(SHOWN).map(|(name, count)| format!("{name} ({count})")).collect();
    if patterns.len() > SHOWN {
        names.push(format!("{} more names", patterns.len() - SHOWN));
    }
    let opens = weights.iter().any(|row| row.tensor.ends_with("weight") && row.variance == 0.0 && !is_zero(&row));
    let (severity, when) = if opens { (Severity::Notice, " in the first step") } else { (Severity::Warning, "") };
    (count > 0).then(|| Finding {
        kind: Kind::NoGradient,
        severity,
        text: format!("no gradient reaches {count} of {} tensors{when}: {}", weights.len(), names.join(", ")),
        rule: "second moment of the gradient exactly 0, biases of keys left out".to_owned(),
        block: None,
        value: count as f64,
    })
}
