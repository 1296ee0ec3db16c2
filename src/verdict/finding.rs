//! One statement about a network: what it is about, how bad it is, and the rule that says so.

use serde::{Serialize, Serializer};

use super::{Failure, Trend};

/// How bad a finding is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Severity {
    /// As it should be.
    Fine,
    /// Worth knowing: a usual optimiser absorbs it.
    Notice,
    /// Training needs care.
    Warning,
    /// The network cannot be trained like this.
    Failure,
}

/// What a finding is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Size of the activations from block to block.
    Forward(Trend),
    /// Size of the gradients from block to block, on their way back.
    Backward(Trend),
    /// Tokens have become copies, or nearly.
    Collapse,
    /// Tokens stay distinct.
    Distinct,
    /// Attention looks at few tokens, or at one.
    EntropyCollapse,
    /// Attention looks at many tokens.
    Attends,
    /// Weight gradients differ much between blocks.
    Uneven,
    /// Weight gradients are of one size in all blocks.
    Even,
    /// Some weights have a gradient of exactly zero.
    NoGradient,
    /// Activations leave a float format's range, or would beyond the last block.
    Overflow,
    /// Activations are too small for a float format.
    Underflow,
    /// f32 sums of squares over the features of a token leave the range.
    SquaresOverflow,
    /// Activations fit.
    InRange,
}

/// One statement about the network.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Finding {
    /// What it is about.
    pub kind: Kind,
    /// How bad it is.
    pub severity: Severity,
    /// The statement as a sentence.
    pub text: String,
    /// The rule behind it.
    pub rule: String,
    /// Index of the block where it happens, extrapolated beyond the last one; −1 is the input.
    pub block: Option<i64>,
    /// The number behind it: ln of the total factor for trends (−∞ for exact zeros), the token
    /// correlation for collapse, the effective number of attended tokens, ln of the ratio of gradient norms, the number of
    /// tensors without a gradient, ln of the
    /// largest entry or sum of squares at `block` for ranges.
    pub value: f64,
}

impl Finding {
    /// Whether all is as it should be.
    pub fn is_fine(&self) -> bool {
        self.severity == Severity::Fine
    }
}

/// Its name in JSON: `forward_explodes`, `collapse` …
impl Serialize for Kind {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Self::Forward(trend) => serializer.collect_str(&format_args!("forward_{}", trend.name())),
            Self::Backward(trend) => serializer.collect_str(&format_args!("backward_{}", trend.name())),
            Self::Collapse => serializer.serialize_str("collapse"),
            Self::Distinct => serializer.serialize_str("distinct"),
            Self::EntropyCollapse => serializer.serialize_str("entropy_collapse"),
            Self::Attends => serializer.serialize_str("attends"),
            Self::Uneven => serializer.serialize_str("uneven"),
            Self::Even => serializer.serialize_str("even"),
            Self::NoGradient => serializer.serialize_str("no_gradient"),
            Self::Overflow => serializer.serialize_str("overflow"),
            Self::Underflow => serializer.serialize_str("underflow"),
            Self::SquaresOverflow => serializer.serialize_str("squares_overflow"),
            Self::InRange => serializer.serialize_str("in_range"),
        }
    }
}

impl Kind {
    pub(super) fn failure(self) -> Option<Failure> {
        match self {
            Self::Forward(Trend::Explodes) | Self::Backward(Trend::Explodes) => Some(Failure::Explosion),
            Self::Forward(Trend::Vanishes) | Self::Backward(Trend::Vanishes) => Some(Failure::Vanishing),
            Self::Collapse => Some(Failure::Collapse),
            Self::EntropyCollapse => Some(Failure::EntropyCollapse),
            Self::Forward(Trend::Grows | Trend::Decays | Trend::Healthy)
            | Self::Backward(Trend::Grows | Trend::Decays | Trend::Healthy)
            | Self::Distinct
            | Self::Attends
            | Self::Uneven
            | Self::Even
            | Self::NoGradient
            | Self::Overflow
            | Self::Underflow
            | Self::SquaresOverflow
            | Self::InRange => None,
        }
    }
}
