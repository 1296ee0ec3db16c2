//! Judges if every parameter has a gradient.
//!
//! # Rule
//!
//! A parameter whose gradient is exactly zero keeps its value in the first step. Where zeros that are parameters
//! themselves stop the gradient (a factor α of ReZero, a last map, a gain, a head), they move in the first step, and
//! the parameter learns from then on: a notice. Where nothing opens the way it stays as it is: the router of a
//! renormalised top-1 mixture, whose weight is 1 whatever the scores are, and maps between two zeros. Biases of keys
//! are left out, for softmax is invariant to them.

use super::gradients::over_blocks;
use super::{Finding, Kind, Severity};
use crate::predict::Blocked;

/// The largest number of tensor names in a list.
const SHOWN: usize = 3;

/// Judges the parameters without a gradient, of `n_tensors` in all.
pub(super) fn judge(blocked: &[Blocked], n_tensors: usize) -> Vec<Finding> {
    let (closed, opening): (Vec<&Blocked>, Vec<&Blocked>) = blocked.iter().partition(|of| of.gates.is_empty());
    let finding = |severity, of: &[&Blocked], text: String| Finding {
        kind: Kind::NoGradient,
        severity,
        text,
        rule: "second moment of the gradient exactly 0, biases of keys left out".to_owned(),
        block: None,
        value: of.len() as f64,
    };
    let mut findings = Vec::new();
    if !closed.is_empty() {
        let names = listed(closed.iter().map(|of| of.tensor.as_str()));
        let text = format!("no gradient reaches {} of {n_tensors} tensors: {names}", closed.len());
        findings.push(finding(Severity::Warning, &closed, text));
    }
    if !opening.is_empty() {
        let names = listed(opening.iter().map(|of| of.tensor.as_str()));
        let mut gates: Vec<&str> = opening.iter().flat_map(|of| of.gates.iter().map(String::as_str)).collect();
        gates.sort_unstable();
        gates.dedup();
        let text = format!(
            "no gradient in the first step for {} of {n_tensors} tensors: {names}; opens when {} moved",
            opening.len(),
            have(&listed(gates.iter().copied()), gates.len())
        );
        findings.push(finding(Severity::Notice, &opening, text));
    }
    findings
}

fn have(names: &str, count: usize) -> String {
    format!("{names} {}", if count == 1 { "has" } else { "have" })
}

/// Lists names, with the number of blocks that have each: `blocks.*.attention.heads.query.weight (6), final_norm.gain
/// and 3 more names`.
fn listed<'n>(names: impl Iterator<Item = &'n str>) -> String {
    let mut patterns: Vec<(String, usize)> = Vec::new();
    for name in names {
        let pattern = over_blocks(name);
        let (name, count) = (pattern.clone().unwrap_or_else(|| name.to_owned()), usize::from(pattern.is_some()));
        match patterns.iter_mut().find(|(known, _)| *known == name) {
            Some((_, known)) => *known += count,
            None => patterns.push((name, count)),
        }
    }
    let one = |(name, count): &(String, usize)| if *count > 0 { format!("{name} ({count})") } else { name.clone() };
    let shown: Vec<String> = patterns.iter().take(SHOWN).map(one).collect();
    let more =
        if patterns.len() > SHOWN { format!(" and {} more names", patterns.len() - SHOWN) } else { String::new() };
    format!("{}{more}", shown.join(", "))
}
