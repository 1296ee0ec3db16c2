//! The numbers that can be varied, and their effects.

use sigprop_stack::{Attention, Init, Named, Stack, Tensor};

use super::PhaseError;
use crate::architecture::Architecture;
use crate::nearest::nearest;
use crate::schemes::{Scheme, SchemeError};
use crate::verdict::over_blocks;

/// A number of the architecture, of the stack that a scheme has written, or of the scheme itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Knob {
    /// Number of blocks.
    Layers,
    /// Factor on skip connections.
    SkipScale,
    /// Factor on the output of branches.
    BranchScale,
    /// Factor on the weights of all linear maps of the blocks.
    WeightGain,
    /// Factor on the tables of embeddings.
    EmbeddingGain,
    /// Factor on attention scores.
    ScoreGain,
    /// Standard deviation of the biases of all linear maps of the blocks.
    BiasStd,
    /// An argument of the scheme.
    Argument(&'static str),
}

impl Knob {
    /// The knobs that every network has.
    const COMMON: [Self; 7] = [
        Self::Layers,
        Self::SkipScale,
        Self::BranchScale,
        Self::WeightGain,
        Self::EmbeddingGain,
        Self::ScoreGain,
        Self::BiasStd,
    ];

    fn name(self) -> &'static str {
        match self {
            Self::Layers => "layers",
            Self::SkipScale => "skip-scale",
            Self::BranchScale => "branch-scale",
            Self::WeightGain => "weight-gain",
            Self::EmbeddingGain => "embedding-gain",
            Self::ScoreGain => "score-gain",
            Self::BiasStd => "bias-std",
            Self::Argument(name) => name,
        }
    }

    /// The knob with this name: one that every network has, or an argument of `scheme`.
    pub(super) fn named(name: &str, scheme: &Scheme) -> Result<Self, PhaseError> {
        let arguments = scheme.about().parameters.iter().map(|parameter| Self::Argument(parameter.name));
        let knobs: Vec<Self> = Self::COMMON.into_iter().chain(arguments).collect();
        knobs.iter().find(|knob| knob.name() == name).copied().ok_or_else(|| {
            let names = || knobs.iter().map(|knob| knob.name());
            PhaseError::Unknown {
                got: name.to_owned(),
                nearest: nearest(name, names()).map(str::to_owned),
                known: names().collect::<Vec<_>>().join(", "),
            }
        })
    }

    /// The range of valid values in words, and a function that returns true for values in that range.
    pub(super) fn range(self) -> (&'static str, fn(f64) -> bool) {
        match self {
            Self::Layers => ("from 1", |value| value >= 1.0),
            Self::WeightGain | Self::EmbeddingGain | Self::ScoreGain | Self::BiasStd => {
                ("not negative", |value| value >= 0.0)
            }
            // The scheme checks its arguments itself.
            Self::SkipScale | Self::BranchScale | Self::Argument(_) => ("finite", f64::is_finite),
        }
    }

    /// Returns true if the number is a count.
    pub(super) fn is_whole(self) -> bool {
        self == Self::Layers
    }

    /// Sets the number in the architecture, before the network is assembled. Does nothing if the knob does not belong
    /// to the architecture.
    pub(super) fn describe(self, value: f64, architecture: &mut Architecture) {
        match self {
            Self::Layers => architecture.set_layers(value as usize),
            Self::SkipScale => architecture.skip_scale = Some(value),
            Self::BranchScale => architecture.branch_scale = Some(value),
            Self::WeightGain | Self::EmbeddingGain | Self::ScoreGain | Self::BiasStd | Self::Argument(_) => {}
        }
    }

    /// Returns the scheme with `value` as its argument, or unchanged if this knob is no argument.
    pub(super) fn argue(self, value: f64, scheme: Scheme) -> Result<Scheme, SchemeError> {
        match self {
            Self::Argument(name) => scheme.with(name, value),
            Self::Layers
            | Self::SkipScale
            | Self::BranchScale
            | Self::WeightGain
            | Self::EmbeddingGain
            | Self::ScoreGain
            | Self::BiasStd => Ok(scheme),
        }
    }

    /// Applies this knob to the numbers that a scheme has written into a stack (gains and `bias-std`). Does nothing if
    /// the knob belongs to the architecture or is an argument of the scheme.
    pub(super) fn turn(self, value: f64, stack: &mut Stack) {
        let scaled = |is_meant: fn(&str) -> bool| {
            move |tensor: &mut Tensor| {
                if is_meant(&tensor.name) {
                    tensor.init = tensor.init.scaled(value);
                }
            }
        };
        match self {
            Self::WeightGain => tensors(stack, scaled(is_weight)),
            Self::EmbeddingGain => tensors(stack, scaled(is_table)),
            Self::BiasStd => tensors(stack, |tensor| {
                if is_bias(&tensor.name) {
                    tensor.init = if value > 0.0 { Init::Normal { std: value } } else { Init::Zero };
                }
            }),
            Self::ScoreGain => attentions(stack, |attention| attention.scale *= value),
            Self::Layers | Self::SkipScale | Self::BranchScale | Self::Argument(_) => {}
        }
    }
}

fn tensors(stack: &mut Stack, change: impl Fn(&mut Tensor)) {
    stack.change(|named| match named {
        Named::Tensor(tensor) => change(tensor),
        Named::Norm(..) | Named::Sum(..) | Named::Attention(_) => {}
    });
}

fn attentions(stack: &mut Stack, change: impl Fn(&mut Attention)) {
    stack.change(|named| match named {
        Named::Attention(attention) => change(attention),
        Named::Tensor(_) | Named::Norm(..) | Named::Sum(..) => {}
    });
}

fn is_weight(tensor: &str) -> bool {
    over_blocks(tensor).is_some() && last_part(tensor) == "weight"
}

fn is_bias(tensor: &str) -> bool {
    over_blocks(tensor).is_some() && last_part(tensor) == "bias"
}

/// Returns true if the tensor is an embedding table of ids, positions or segments, and false if it is a projection of
/// embeddings.
fn is_table(tensor: &str) -> bool {
    let embeds = tensor.split('.').any(|part| part == "embeddings");
    embeds && !["weight", "bias"].contains(&last_part(tensor))
}

fn last_part(tensor: &str) -> &str {
    tensor.rsplit('.').next().unwrap_or(tensor)
}
