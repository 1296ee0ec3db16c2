//! The columns of a comparison.

use std::cmp::Ordering;

use sigprop_stack::Number;

use super::{Candidate, Summary};
use crate::caveat::Caveat;
use crate::verdict::Severity;

/// A column of a comparison.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(missing_docs, reason = "documented at the fields of Summary")]
pub enum Column {
    Scheme,
    ForwardPerBlock,
    Forward,
    /// Standard deviation, over initialisations, of ln of the variance after the last block.
    ForwardStd,
    BackwardPerBlock,
    Backward,
    /// Standard deviation, over initialisations, of ln of the gradient variance at the input.
    BackwardStd,
    TokenCorrelation,
    ScoreStd,
    AttendedTokens,
    GradientRatio,
    WorstTensor,
    WorstTensorRatio,
    Fp16Margin,
    Bf16Margin,
    E4m3Margin,
    E5m2Margin,
    /// The grade: how well the network can be trained.
    Grade,
    /// The grade and its reasons in words; sorting by this column goes from healthy to failing.
    Verdict,
    /// The rule of the most serious finding.
    Rule,
    /// The reason why the scheme is not meant for the network.
    Caveat,
}

/// The value of a candidate in a column.
#[derive(Clone, Debug, PartialEq)]
pub enum Value {
    /// Text.
    Text(String),
    /// A number; `None` leaves the column blank.
    Number(Option<Number>),
}

impl Column {
    /// All columns, in their order.
    pub const ALL: [Self; 21] = [
        Self::Scheme,
        Self::ForwardPerBlock,
        Self::Forward,
        Self::ForwardStd,
        Self::BackwardPerBlock,
        Self::Backward,
        Self::BackwardStd,
        Self::TokenCorrelation,
        Self::ScoreStd,
        Self::AttendedTokens,
        Self::GradientRatio,
        Self::WorstTensor,
        Self::WorstTensorRatio,
        Self::Fp16Margin,
        Self::Bf16Margin,
        Self::E4m3Margin,
        Self::E5m2Margin,
        Self::Grade,
        Self::Verdict,
        Self::Rule,
        Self::Caveat,
    ];

    /// Name in CSV, JSON and flags.
    pub fn name(self) -> &'static str {
        match self {
            Self::Scheme => "scheme",
            Self::ForwardPerBlock => "forward_per_block",
            Self::Forward => "forward",
            Self::ForwardStd => "forward_std",
            Self::BackwardPerBlock => "backward_per_block",
            Self::Backward => "backward",
            Self::BackwardStd => "backward_std",
            Self::TokenCorrelation => "token_correlation",
            Self::ScoreStd => "score_std",
            Self::AttendedTokens => "attended_tokens",
            Self::GradientRatio => "gradient_ratio",
            Self::WorstTensor => "worst_tensor",
            Self::WorstTensorRatio => "worst_tensor_ratio",
            Self::Fp16Margin => "fp16_margin",
            Self::Bf16Margin => "bf16_margin",
            Self::E4m3Margin => "e4m3_margin",
            Self::E5m2Margin => "e5m2_margin",
            Self::Grade => "grade",
            Self::Verdict => "verdict",
            Self::Rule => "rule",
            Self::Caveat => "caveat",
        }
    }

    /// The value for a candidate. Numbers are blank if its scheme is not defined for the network.
    pub fn of(self, candidate: &Candidate) -> Value {
        let number =
            |of: &dyn Fn(&Summary) -> Option<Number>| Value::Number(candidate.outcome.as_ref().ok().and_then(of));
        let text = |of: &dyn Fn(&Summary) -> String| match &candidate.outcome {
            Ok(summary) => Value::Text(of(summary)),
            Err(_) => Value::Text(String::new()),
        };
        let margin = |format: usize| number(&|summary| summary.margins[format].map(Number::from));
        match self {
            Self::Scheme => Value::Text(candidate.scheme.to_string()),
            Self::ForwardPerBlock => number(&|summary| Some(summary.forward.per_block())),
            Self::Forward => number(&|summary| Some(summary.forward.total())),
            Self::ForwardStd => number(&|summary| summary.stds[0].map(Number::from)),
            Self::BackwardPerBlock => number(&|summary| Some(summary.backward.per_block())),
            Self::Backward => number(&|summary| Some(summary.backward.total())),
            Self::BackwardStd => number(&|summary| summary.stds[1].map(Number::from)),
            Self::TokenCorrelation => number(&|summary| summary.token_correlation.map(Number::from)),
            Self::ScoreStd => number(&|summary| Some(Number::from_ln(0.5 * summary.score_variance?.ln_abs()))),
            Self::AttendedTokens => number(&|summary| summary.attended.map(Number::from)),
            Self::GradientRatio => number(&|summary| summary.ln_gradient_ratio.map(Number::from_ln)),
            Self::WorstTensor => {
                text(&|summary| summary.worst_tensor.as_ref().map_or(String::new(), |worst| worst.tensor.clone()))
            }
            Self::WorstTensorRatio => {
                number(&|summary| summary.worst_tensor.as_ref().map(|worst| Number::from_ln(worst.ln_ratio)))
            }
            Self::Fp16Margin => margin(0),
            Self::Bf16Margin => margin(1),
            Self::E4m3Margin => margin(2),
            Self::E5m2Margin => margin(3),
            Self::Grade => text(&|summary| summary.verdict.grade.name().to_owned()),
            Self::Verdict => match &candidate.outcome {
                Ok(summary) => Value::Text(summary.verdict.headline.clone()),
                Err(error) => Value::Text(format!("not defined: {error}")),
            },
            Self::Rule => {
                text(&|summary| summary.verdict.worst().map_or(String::new(), |finding| finding.rule.clone()))
            }
            Self::Caveat => {
                let texts: Vec<String> = candidate.caveats.iter().map(Caveat::text).collect();
                Value::Text(texts.join("; "))
            }
        }
    }
}

/// Sorts candidates by a column: in ascending order with blanks last, or by the verdict from healthy to failing.
pub fn sort(candidates: &mut [Candidate], column: Column) {
    candidates.sort_by(|one, other| match column {
        Column::Verdict => badness(one).cmp(&badness(other)),
        column => order(&column.of(one), &column.of(other)),
    });
}

/// The numbers of failures, warnings and notices of a candidate, by which verdicts are sorted. If the scheme is not
/// defined, they are the largest possible.
fn badness(candidate: &Candidate) -> [usize; 3] {
    let Ok(summary) = &candidate.outcome else { return [usize::MAX, 0, 0] };
    let count = |severity| summary.verdict.findings.iter().filter(|finding| finding.severity == severity).count();
    [Severity::Failure, Severity::Warning, Severity::Notice].map(count)
}

fn order(one: &Value, other: &Value) -> Ordering {
    match (one, other) {
        (Value::Number(Some(one)), Value::Number(Some(other))) => {
            one.value().total_cmp(&other.value()).then(one.ln_abs().total_cmp(&other.ln_abs()))
        }
        (Value::Number(one), Value::Number(other)) => other.is_some().cmp(&one.is_some()),
        (Value::Text(one), Value::Text(other)) => one.is_empty().cmp(&other.is_empty()).then_with(|| one.cmp(other)),
        (Value::Text(_), Value::Number(_)) | (Value::Number(_), Value::Text(_)) => Ordering::Equal,
    }
}
