//! Normalisation over the features of a token or over a batch, and what stands in its place.

use super::{Activation, Component, Scale};
use crate::Init;
use serde::{Deserialize, Serialize};

/// What is subtracted and divided by.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum NormKind {
    /// y = gain (x − mean x) / √(var x + eps).
    LayerNorm,
    /// y = gain x / √(mean x² + eps).
    RmsNorm,
    /// y = gain (x − m)/√(v + eps), m and v the mean and the variance of one feature over all tokens, which are a batch.
    BatchNorm {
        /// Whether gradients go through m and v; they are constants in evaluation.
        training: bool,
    },
    /// y = gain tanh(alpha x): dynamic tanh, entry by entry; eps is 0.
    Dyt {
        /// Factor on every entry.
        alpha: f64,
    },
    /// y = gain erf(alpha x): dynamic erf, entry by entry; eps is 0.
    Derf {
        /// Factor on every entry.
        alpha: f64,
    },
}

impl NormKind {
    /// Whether biases go with the gains.
    pub fn has_biases(self) -> bool {
        match self {
            Self::LayerNorm | Self::BatchNorm { .. } | Self::Dyt { .. } | Self::Derf { .. } => true,
            Self::RmsNorm => false,
        }
    }

    /// The function of every entry where nothing is divided by, and the factor on its argument.
    pub fn pointwise(self) -> Option<(Activation, f64)> {
        match self {
            Self::LayerNorm | Self::RmsNorm | Self::BatchNorm { .. } => None,
            Self::Dyt { alpha } => Some((Activation::Tanh, alpha)),
            Self::Derf { alpha } => Some((Activation::Erf, alpha)),
        }
    }
}

/// LayerNorm, RMSNorm, BatchNorm or what stands in their place. Gains have one common size, biases are drawn like those of a linear map
/// and zero unless a checkpoint has others.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Norm {
    /// Which one.
    pub kind: NormKind,
    /// Added under the root.
    pub eps: f64,
    /// Size of every gain.
    pub gain: f64,
    /// Distribution of the biases, one per feature and common to all tokens: y + b.
    #[serde(default = "Init::zero", skip_serializing_if = "Init::is_zero")]
    pub bias: Init,
    /// Features are cut into this many equal groups, each normalised by itself: 1, or one per head.
    #[serde(default = "one")]
    pub groups: usize,
}

impl Norm {
    /// With gains of 1 and no biases, over all features.
    pub fn plain(kind: NormKind, eps: f64) -> Self {
        Self { kind, eps, gain: 1.0, bias: Init::Zero, groups: 1 }
    }

    /// The norm and its biases apart, if it has any but zeros.
    pub fn biased(&self) -> Option<(Self, Init)> {
        (!self.bias.is_zero()).then_some((Self { bias: Init::Zero, ..*self }, self.bias))
    }

    /// What the norm without its biases is made of where nothing is divided by: alpha, a function, the gains.
    pub fn steps(&self) -> Option<[Component; 3]> {
        let scale = |factor| Component::Scale(Scale { factor });
        let (function, alpha) = self.kind.pointwise()?;
        Some([scale(alpha), Component::Activation(function), scale(self.gain)])
    }

    /// Whether every feature has a gain of its own, not one that groups share.
    pub fn has_own_gains(&self) -> bool {
        self.groups == 1
    }
}

fn one() -> usize {
    1
}
