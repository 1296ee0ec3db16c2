//! The verdict in one word, and the care that a network needs.
//!
//! # Rule
//!
//! A network with a failure cannot be trained as it is, one with a warning can, with the care that the warning names.
//! A notice changes nothing: an adaptive optimiser with a warm-up, as Transformers are trained with, absorbs it.

use serde::{Deserialize, Serialize};

use super::{Finding, Kind, Severity, Trend, factor};
use crate::numerals::short;

/// The trainability of a network.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Grade {
    /// The network can be trained as it is.
    Healthy,
    /// The network can be trained with the care that the headline names.
    TrainableWithCare,
    /// The network cannot be trained as it is.
    NotTrainable,
}

impl Grade {
    /// Returns the grade of a network from its most severe finding.
    pub(super) fn of(findings: &[Finding]) -> Self {
        match findings.iter().map(|finding| finding.severity).max() {
            Some(Severity::Failure) => Self::NotTrainable,
            Some(Severity::Warning) => Self::TrainableWithCare,
            Some(Severity::Notice | Severity::Fine) | None => Self::Healthy,
        }
    }

    /// Returns the grade in words.
    pub fn words(self) -> &'static str {
        match self {
            Self::Healthy => "healthy",
            Self::TrainableWithCare => "trainable with care",
            Self::NotTrainable => "not trainable",
        }
    }

    /// Name in CSV and JSON.
    pub fn name(self) -> &'static str {
        match self {
            Self::Healthy => "healthy",
            Self::TrainableWithCare => "trainable_with_care",
            Self::NotTrainable => "not_trainable",
        }
    }
}

/// The grade and its reasons.
pub(super) fn headline(findings: &[Finding]) -> String {
    let grade = Grade::of(findings);
    // An exploding signal also leaves the float formats: one of the two reasons is enough.
    let explodes = findings.iter().any(|finding| finding.kind == Kind::Forward(Trend::Explodes));
    let is_told = |finding: &&Finding| !(explodes && matches!(finding.kind, Kind::Overflow | Kind::SquaresOverflow));
    let of = |severity, reason: &dyn Fn(&Finding) -> String| {
        let mut reasons: Vec<String> = Vec::new();
        for finding in findings.iter().filter(|finding| finding.severity == severity).filter(is_told) {
            let reason = reason(finding);
            if !reasons.contains(&reason) {
                reasons.push(reason);
            }
        }
        reasons
    };
    let reasons = match grade {
        Grade::Healthy => "nothing explodes, vanishes or collapses".to_owned(),
        Grade::TrainableWithCare => of(Severity::Warning, &care).join("; "),
        Grade::NotTrainable => of(Severity::Failure, &failure).join(", "),
    };
    format!("{}: {reasons}", grade.words())
}

fn failure(finding: &Finding) -> String {
    match finding.kind {
        Kind::Forward(trend) => format!("forward {}", trend.verb()),
        Kind::Backward(trend) => format!("backward {}", trend.verb()),
        Kind::Collapse => "tokens collapse".to_owned(),
        Kind::EntropyCollapse => "attention entropy collapses".to_owned(),
        Kind::Distinct
        | Kind::Attends
        | Kind::Uneven
        | Kind::Even
        | Kind::NoGradient
        | Kind::Overflow
        | Kind::Underflow
        | Kind::SquaresOverflow
        | Kind::InRange
        | Kind::PositionsDrownTokens
        | Kind::Repels
        | Kind::Start => finding.text.clone(),
    }
}

/// The problem of a warning and its remedy, in a few words.
fn care(finding: &Finding) -> String {
    let size = factor(finding.value.abs());
    match finding.kind {
        Kind::Forward(Trend::Decays | Trend::Vanishes) => {
            format!("activations shrink ×{size}, larger weights or a norm help")
        }
        Kind::Forward(_) => format!("activations grow ×{size}, smaller branches or a warm-up help"),
        Kind::Backward(Trend::Decays | Trend::Vanishes) => {
            format!("gradients shrink ×{size} towards the input, an adaptive optimiser helps")
        }
        Kind::Backward(_) => format!("gradients grow ×{size} towards the input, a warm-up and clipping help"),
        Kind::Collapse => {
            format!(
                "tokens nearly identical (correlation {}), their differences are learned slowly",
                short(finding.value)
            )
        }
        Kind::EntropyCollapse => "sharp attention, smaller query and key weights help".to_owned(),
        Kind::Uneven if finding.value == f64::INFINITY => {
            "weight gradients that are zero to rounding in some blocks".to_owned()
        }
        Kind::Uneven => format!("weight gradients differ ×{size} between blocks, a smaller ε of Adam helps"),
        Kind::NoGradient => "parameters that get no gradient and never change".to_owned(),
        Kind::Overflow | Kind::Underflow => "too narrow a float format, bf16 or f32 rather than fp16".to_owned(),
        Kind::PositionsDrownTokens => format!(
            "positions drown tokens ({} % of the embeddings), a larger token table or smaller positions help",
            short(100.0 * finding.value)
        ),
        Kind::Start => format!(
            "the loss starts ×{} above guessing, a smaller head or a norm before it helps",
            short(finding.value)
        ),
        Kind::SquaresOverflow => "sums of squares leave f32".to_owned(),
        Kind::Distinct | Kind::Attends | Kind::Even | Kind::InRange | Kind::Repels => finding.text.clone(),
    }
}
