//! The numbers that can be varied, and their effects.

use std::collections::HashSet;

use sigprop_stack::{Init, Named, Stack};

use super::PhaseError;
use crate::assemble::Parts;
use crate::compare::{Setting, Subject};
use crate::nearest::nearest;
use crate::schemes::{Scheme, SchemeError};

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

    /// The knob with this name: one that every network of this kind has, or an argument of `scheme`. The blocks of a
    /// stack are given.
    pub(super) fn named(name: &str, subject: &Subject, scheme: &Scheme) -> Result<Self, PhaseError> {
        let is_given = |knob: &Self| *knob == Self::Layers && matches!(subject, Subject::Stack(_));
        let arguments = scheme.about().parameters.iter().map(|parameter| Self::Argument(parameter.name));
        let knobs: Vec<Self> = Self::COMMON.into_iter().chain(arguments).filter(|knob| !is_given(knob)).collect();
        if name == Self::Layers.name() && !knobs.contains(&Self::Layers) {
            return Err(PhaseError::Given { name: name.to_owned(), known: names(&knobs) });
        }
        knobs.iter().find(|knob| knob.name() == name).copied().ok_or_else(|| PhaseError::Unknown {
            got: name.to_owned(),
            nearest: nearest(name, knobs.iter().map(|knob| knob.name())).map(str::to_owned),
            known: names(&knobs),
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
    /// to the architecture, or if there is none.
    pub(super) fn describe(self, value: f64, setting: &mut Setting) {
        let Subject::Described { architecture, .. } = &mut setting.subject else { return };
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

    /// Applies this knob to the numbers that a scheme has written into a stack: gains, `bias-std`, and the scales of
    /// residual connections that do not come from an architecture. Does nothing if the knob is an argument of the scheme.
    pub(super) fn turn(self, value: f64, stack: &mut Stack) {
        let parts = Parts::of(stack);
        let scaled = |init: Init| init.scaled(value);
        match self {
            Self::WeightGain => write(stack, &parts.weights, scaled),
            Self::EmbeddingGain => write(stack, &parts.tables, scaled),
            Self::BiasStd => {
                let init = if value > 0.0 { Init::Normal { std: value } } else { Init::Zero };
                write(stack, &parts.biases, |_| init);
            }
            Self::ScoreGain => stack.change(|named| match named {
                Named::Attention(attention) => attention.scale *= value,
                Named::Tensor(_) | Named::Norm(..) | Named::Sum(..) => {}
            }),
            Self::SkipScale => write_scale(stack, &parts.residuals, true, value),
            Self::BranchScale => write_scale(stack, &parts.residuals, false, value),
            Self::Layers | Self::Argument(_) => {}
        }
    }
}

fn names(knobs: &[Knob]) -> String {
    knobs.iter().map(|knob| knob.name()).collect::<Vec<_>>().join(", ")
}

/// Changes the distributions of tensors.
fn write(stack: &mut Stack, tensors: &HashSet<String>, changed: impl Fn(Init) -> Init) {
    stack.change(|named| match named {
        Named::Tensor(tensor) if tensors.contains(&tensor.name) => tensor.init = changed(tensor.init),
        Named::Tensor(_) | Named::Norm(..) | Named::Sum(..) | Named::Attention(_) => {}
    });
}

/// Writes the scale of the skips of residual connections, or that of their branches.
fn write_scale(stack: &mut Stack, residuals: &HashSet<String>, of_skips: bool, value: f64) {
    stack.change(|named| match named {
        Named::Sum(site, sum) if residuals.contains(&site) => {
            let parts = sum.branches.iter_mut().filter(|part| part.body.is_empty() == of_skips);
            parts.for_each(|part| part.scale = value);
        }
        Named::Tensor(_) | Named::Norm(..) | Named::Sum(..) | Named::Attention(_) => {}
    });
}
