//! Judges if attention still attends to many tokens.
//!
//! # Rule
//!
//! A row of attention weights A attends to 1/Σ A² tokens. Scores that are Gaussian with variance w between n keys are a
//! random energy model: from w = ½ ln n on, where 1/Σ A² = √n, ΣA² belongs to the few largest scores instead of to
//! all (the partition function of 2s freezes); from w = 2 ln n on so do the weights themselves, and 1/Σ A² falls to
//! one.
//!
//! # Source
//!
//! Zhai et al. 2023 (arXiv 2303.06296), entropy collapse; Derrida 1981 and Giorlandino & Goldt (arXiv 2505.24333),
//! the random energy model.

use super::{Finding, Kind, Severity};
use crate::AttentionRow;
use crate::numerals::short;

/// The effective number of attended tokens below which an attention has collapsed to one token. A network fails only if
/// most attentions have collapsed; otherwise the collapsed ones can learn to mix tokens.
const COLLAPSED: f64 = 2.0;

/// Attentions whose queries have fewer tokens in view are not judged.
const FEWEST_KEYS: f64 = 8.0;

/// Returns the attention that attends to the smallest share of the tokens in view; `None` if no attention is judged.
pub(crate) fn sharpest(attentions: &[AttentionRow]) -> Option<&AttentionRow> {
    let share = |row: &AttentionRow| row.attended / row.in_view;
    judged(attentions).min_by(|one, other| share(one).total_cmp(&share(other)))
}

fn judged(attentions: &[AttentionRow]) -> impl Iterator<Item = &AttentionRow> {
    attentions.iter().filter(|row| row.in_view >= FEWEST_KEYS)
}

/// Judges the sharpest attention; it is a failure if most attentions attend to one token. `None` if no attention is
/// judged.
pub(super) fn judge(attentions: &[AttentionRow]) -> Option<Finding> {
    let AttentionRow { layer, site, attended, in_view, .. } = sharpest(attentions)?;
    let (tokens, seen) = (short(*attended), short(*in_view));
    let what = format!("a query attends to {tokens} tokens ({seen} if all scores were equal) at {site}");
    let collapsed = judged(attentions).filter(|row| row.attended < COLLAPSED).count();
    let (kind, severity, text, rule) = if 2 * collapsed > judged(attentions).count() {
        let rule = format!("effective number of attended tokens, 1/ΣA², below {COLLAPSED} in most attentions");
        (Kind::EntropyCollapse, Severity::Failure, format!("attention entropy collapses: {what}"), rule)
    } else if *attended < in_view.sqrt() {
        let rule = "effective number of attended tokens, 1/ΣA², below √(tokens in view)".to_owned();
        (Kind::EntropyCollapse, Severity::Warning, format!("attention is sharp: {what}"), rule)
    } else {
        let rule = "effective number of attended tokens, 1/ΣA², at least √(tokens in view)".to_owned();
        (Kind::Attends, Severity::Fine, format!("attention is spread: {what}"), rule)
    };
    let block = (severity > Severity::Fine).then_some(*layer);
    Some(Finding { kind, severity, text, rule, block, value: *attended })
}
