//! One statement about a network: its subject, its severity, and its rule.

use std::fmt;

use serde::{Deserialize, Deserializer, Serialize, Serializer, de::Error};

use super::{Failure, Trend};

/// The severity of a finding.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Severity {
    /// No problem.
    Fine,
    /// Worth knowing, but a usual optimiser copes with it.
    Notice,
    /// Training needs care.
    Warning,
    /// The network cannot be trained like this.
    Failure,
}

/// The subject of a finding.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Size of the activations from block to block.
    Forward(Trend),
    /// Size of the gradients from block to block, on their way back.
    Backward(Trend),
    /// Tokens have become copies of each other, or nearly.
    Collapse,
    /// Tokens stay distinct.
    Distinct,
    /// Attention attends to few tokens, or to one.
    EntropyCollapse,
    /// Attention attends to many tokens.
    Attends,
    /// Weight gradients differ much between blocks.
    Uneven,
    /// Weight gradients are of one size in all blocks.
    Even,
    /// Some weights have a gradient of exactly zero.
    NoGradient,
    /// Activations exceed the range of a float format, or would do so in further blocks.
    Overflow,
    /// Activations are too small for a float format.
    Underflow,
    /// f32 sums of squares over the features of a token leave the range.
    SquaresOverflow,
    /// Activations fit the ranges of the float formats.
    InRange,
    /// Positions have nearly all of the variance of the sum of embeddings.
    PositionsDrownTokens,
    /// The variance map of a chain of equal layers has a fixed point that repels, and none that attracts.
    Repels,
    /// The loss of the first step, compared with the loss of equal logits.
    Start,
}

/// One statement about the network.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Finding {
    /// The subject.
    pub kind: Kind,
    /// The severity of the finding.
    pub severity: Severity,
    /// The statement as a sentence.
    pub text: String,
    /// The rule from which the finding follows, in words.
    pub rule: String,
    /// Index of the block where the problem occurs, which may be extrapolated beyond the last block. −1 is the input;
    /// `None` if the finding is about no single block.
    pub block: Option<i64>,
    /// The number from which the finding follows, by kind: for trends ln of the total factor (−∞ for exact zeros); for
    /// collapse the token correlation; for attention the effective number of attended tokens; for weight gradients ln
    /// of the ratio of norms, or the number of tensors without a gradient; for ranges ln of the largest entry or sum of
    /// squares at `block`; for embeddings the share of the token table; for a fixed
    /// point ln of its variance; for the loss its ratio to the loss of equal
    /// logits.
    pub value: f64,
}

impl Finding {
    /// Returns true if the finding is no problem.
    pub fn is_fine(&self) -> bool {
        self.severity == Severity::Fine
    }
}

/// Writes the name of the kind in JSON, such as `forward_explodes` or `collapse`.
impl fmt::Display for Kind {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(match self {
            Self::Forward(trend) => return write!(out, "forward_{}", trend.name()),
            Self::Backward(trend) => return write!(out, "backward_{}", trend.name()),
            Self::Collapse => "collapse",
            Self::Distinct => "distinct",
            Self::EntropyCollapse => "entropy_collapse",
            Self::Attends => "attends",
            Self::Uneven => "uneven",
            Self::Even => "even",
            Self::NoGradient => "no_gradient",
            Self::Overflow => "overflow",
            Self::Underflow => "underflow",
            Self::SquaresOverflow => "squares_overflow",
            Self::InRange => "in_range",
            Self::PositionsDrownTokens => "positions_drown_tokens",
            Self::Repels => "repels",
            Self::Start => "start",
        })
    }
}

/// By name.
impl Serialize for Kind {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

/// By name.
impl<'de> Deserialize<'de> for Kind {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let name = String::deserialize(deserializer)?;
        let found = Self::all().find(|kind| kind.to_string() == name);
        found.ok_or_else(|| D::Error::custom(format!("expected a kind of finding, got {name}")))
    }
}

impl Kind {
    /// Returns all kinds.
    fn all() -> impl Iterator<Item = Self> {
        let others = [
            Self::Collapse,
            Self::Distinct,
            Self::EntropyCollapse,
            Self::Attends,
            Self::Uneven,
            Self::Even,
            Self::NoGradient,
            Self::Overflow,
            Self::Underflow,
            Self::SquaresOverflow,
            Self::InRange,
            Self::PositionsDrownTokens,
            Self::Repels,
            Self::Start,
        ];
        let trends = Trend::ALL.into_iter().flat_map(|trend| [Self::Forward(trend), Self::Backward(trend)]);
        trends.chain(others)
    }

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
            | Self::InRange
            | Self::PositionsDrownTokens
            | Self::Repels
            | Self::Start => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn kinds_are_read_as_they_are_written() {
        for kind in Kind::all() {
            let text = serde_json::to_string(&kind).expect("a name");
            assert_eq!(serde_json::from_str::<Kind>(&text).expect("its name"), kind);
        }
        let names: BTreeSet<String> = Kind::all().map(|kind| kind.to_string()).collect();
        assert_eq!(names.len(), Kind::all().count());
        assert!(serde_json::from_str::<Kind>("\"other\"").is_err());
    }
}
