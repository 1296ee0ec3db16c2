//! Judges whether the loss is a number, and starts near that of guessing.
//!
//! # Rule
//!
//! Logits of variance w cost more than equal ones: w/2 while w ≪ ln V, of the order of √w beyond (`src/head/`). A loss
//! far above ln V has to be unlearned before anything is learned, and steps that suit the body are small compared with
//! such logits. Logits beyond the format that the network is trained in, the largest of V being √(2 w ln V), make the
//! loss infinite or no number.

use super::{Finding, Format, Kind, Severity};
use crate::head::Loss;
use crate::numerals::short;

/// The ratio of the loss to the loss of equal logits above which it is far too high. The value is read off networks
/// that were trained (docs/training.md).
const FAR: f64 = 5.0;

/// Large rows of the head decide the loss if rows differ in size by more than the factor `UNEVEN`, and the loss is
/// above `ABOVE` times the loss of equal logits. Both values are chosen, not read off networks that were trained.
const UNEVEN: f64 = 4.0;
const ABOVE: f64 = 1.25;

/// Judges the loss of the first step of a network that is trained in `format`. `uneven` is the factor by which the
/// sizes of the rows of a table differ; `None` if they are equal.
pub(super) fn judge(loss: &Loss, format: &Format, uneven: Option<f64>) -> Finding {
    let ratio = loss.cross_entropy.ratio(&loss.uniform.into());
    let finding = |severity, text: String, rule: String| Finding {
        kind: Kind::Start,
        severity,
        text,
        rule,
        block: None,
        value: ratio,
    };
    let is_far = ratio > FAR;
    // A soft cap keeps the loss near that of guessing.
    let largest = 0.5 * (loss.logit_variance.ln_abs() + (2.0 * loss.uniform).ln());
    if is_far && largest > format.max.ln() || ratio.is_nan() {
        let text = format!("logits overflow {}: the loss is not finite", format.name);
        return finding(
            Severity::Failure,
            text,
            "largest logit to expect, std √(2 ln V), above the format's largest".to_owned(),
        );
    }
    if let Some(factor) = uneven.filter(|factor| !is_far && ratio > ABOVE && *factor > UNEVEN) {
        let text = format!(
            "the loss starts above that of guessing, {} nats for {} of equal logits: rows of the head differ ×{}, and a few have \
             most of the softmax",
            short(loss.cross_entropy),
            short(loss.uniform),
            short(factor)
        );
        let rule = format!("loss above {ABOVE} times that of equal logits where rows differ by more than ×{UNEVEN}");
        return finding(Severity::Warning, text, rule);
    }
    let (severity, verb) = match ratio {
        _ if is_far => (Severity::Warning, "far above"),
        above if above > ABOVE => (Severity::Fine, "above"),
        _ => (Severity::Fine, "near"),
    };
    let text = format!(
        "the loss starts {verb} that of guessing: {} nats, {} of equal logits",
        short(loss.cross_entropy),
        short(loss.uniform)
    );
    finding(severity, text, format!("loss of the first step against {FAR} times that of equal logits"))
}
