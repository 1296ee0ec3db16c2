//! The meaning of a prediction, in plain words.
//!
//! Everything is judged on the stream, from the input of block 0 to the output of the last block; a
//! final norm, which hides the size of the stream, is left out.

mod collapse;
mod entropy;
mod finding;
mod floats;
mod frozen;
mod grade;
mod gradients;
mod profile;
mod repeller;
mod start;
mod tokens;
mod trend;

use serde::{Deserialize, Serialize};
use sigprop_stack::{Component, Node, Number, Op, Quantity, Stack};

use crate::Prediction;
use crate::caveat::Condition;
use crate::head::Loss;
use crate::numerals::short;
pub(crate) use entropy::sharpest;
pub use finding::{Finding, Kind, Severity};
pub(crate) use floats::margin;
#[cfg(feature = "plot")]
pub(crate) use floats::overflow;
pub use floats::{FORMATS, Format, NARROW_FORMATS};
pub use grade::Grade;
pub(crate) use gradients::{Spread, is_matrix, over_blocks};
pub(crate) use profile::Profile;
pub use trend::Trend;
pub(crate) use trend::rate;

/// The name of the node that turns a source into a stream.
const EMBEDDINGS: &str = "embeddings";

/// The numbers besides moments that the float ranges depend on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Shape {
    /// Features of a token.
    pub width: usize,
    /// Tokens of a sequence.
    pub seq_len: usize,
}

impl Shape {
    /// The shape of the stream that the gradient passes, after the embedding of its source.
    pub fn of(stack: &Stack) -> Self {
        let stream = &stack.streams[stack.gradient.stream];
        let source = Self { width: stream.source.width(), seq_len: stream.seq_len };
        let entrance = match stream.body.first() {
            Some(Node { name, op: Op::Chain(steps), .. }) if name == EMBEDDINGS => steps.as_slice(),
            _ => &[],
        };
        entrance.iter().fold(source, |shape, step| match &step.op {
            Op::Apply(Component::Linear(linear)) => Self { width: linear.fan_out, ..shape },
            Op::Apply(Component::Convolution(convolution)) => {
                Self { width: convolution.fan_out, seq_len: convolution.output_len(shape.seq_len) }
            }
            Op::Apply(Component::Pool(pool)) => Self { seq_len: pool.sliding().windows(shape.seq_len), ..shape },
            Op::Apply(Component::Prepend(_)) => Self { seq_len: shape.seq_len + 1, ..shape },
            _ => shape,
        })
    }
}

/// A failure mode, on which `--fail-on` can fail a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Failure {
    /// Activations or gradients explode.
    Explosion,
    /// Activations or gradients vanish.
    Vanishing,
    /// Tokens become copies.
    Collapse,
    /// Attention attends to one token.
    EntropyCollapse,
}

impl Failure {
    /// All failure modes.
    pub const ALL: [Self; 4] = [Self::Explosion, Self::Vanishing, Self::Collapse, Self::EntropyCollapse];

    /// Name in flags, CSV and JSON.
    pub fn name(self) -> &'static str {
        match self {
            Self::Explosion => "explosion",
            Self::Vanishing => "vanishing",
            Self::Collapse => "collapse",
            Self::EntropyCollapse => "entropy-collapse",
        }
    }

    /// The description for help texts.
    pub fn meaning(self) -> &'static str {
        match self {
            Self::Explosion => "signals or gradients explode",
            Self::Vanishing => "signals or gradients vanish",
            Self::Collapse => "tokens become copies of each other",
            Self::EntropyCollapse => "attention attends to one token",
        }
    }
}

/// All findings with the grade.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Verdict {
    /// The trainability of the network.
    pub grade: Grade,
    /// The grade and its reasons in a few words.
    pub headline: String,
    /// All findings.
    pub findings: Vec<Finding>,
}

impl Verdict {
    /// Judges the prediction for a stack, and its first loss if it has a head, for training in the widest of
    /// [`FORMATS`].
    pub fn of(prediction: &Prediction, shape: Shape, loss: Option<&Loss>) -> Self {
        Self::in_format(prediction, shape, loss, &FORMATS[FORMATS.len() - 1])
    }

    /// Judges the prediction for a stack that is trained in `format`; numbers beyond its range overflow.
    pub fn in_format(prediction: &Prediction, shape: Shape, loss: Option<&Loss>, format: &Format) -> Self {
        let profiles = Profile::all(&prediction.table);
        let attends = !prediction.attentions.is_empty();
        let mut findings = Vec::new();
        for profile in &profiles {
            let mut found: Vec<Finding> = Vec::new();
            found.extend(trend::judge(profile, Quantity::Variance));
            found.extend(trend::judge(profile, Quantity::GradVariance));
            found.extend(collapse::judge(profile, attends));
            found.extend(floats::judge(profile, shape, format));
            if let (true, Some(stream)) = (profiles.len() > 1, profile.stream) {
                for finding in &mut found {
                    finding.text = format!("{stream}: {}", finding.text);
                }
            }
            findings.append(&mut found);
        }
        findings.extend(entropy::judge(&prediction.attentions));
        findings.extend(gradients::judge(&prediction.table.weights));
        findings.extend(frozen::judge(&prediction.blocked, prediction.table.weights.len()));
        findings.extend(prediction.token_share.and_then(tokens::judge));
        if let (Some(repeller), Some(profile)) = (&prediction.repeller, profiles.first()) {
            findings.extend(repeller::judge(repeller, profile));
        }
        let uneven = prediction
            .caveats
            .iter()
            .find_map(|caveat| if let Condition::UnevenRows(factor) = caveat.condition { Some(factor) } else { None });
        findings.extend(loss.map(|loss| start::judge(loss, format, uneven)));
        Self { grade: Grade::of(&findings), headline: grade::headline(&findings), findings }
    }

    /// The first of the most severe findings; `None` if there are no findings.
    pub fn worst(&self) -> Option<&Finding> {
        let worst = self.findings.iter().map(|finding| finding.severity).max()?;
        self.findings.iter().find(|finding| finding.severity == worst)
    }

    /// The failure modes that were found, each with its finding.
    pub fn failures(&self) -> Vec<(Failure, &Finding)> {
        let failing = self.findings.iter().filter(|finding| finding.severity == Severity::Failure);
        failing.filter_map(|finding| Some((finding.kind.failure()?, finding))).collect()
    }
}

/// Returns the block from which on something holds, in words.
fn from_block(block: i64) -> String {
    if block < 0 { "from the input on".to_owned() } else { format!("from block {block} on") }
}

/// Returns e^`ln` as text with four significant digits.
fn factor(ln: f64) -> String {
    short(Number::from_ln(ln))
}

#[cfg(test)]
mod tests;
