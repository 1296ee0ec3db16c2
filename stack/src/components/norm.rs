//! Normalisation over the features of a token or over a batch, and the functions that replace it.

use super::{Activation, Component, Scale};
use crate::Init;
use serde::{Deserialize, Serialize};

/// The kind of normalisation, or the function in its place.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum NormKind {
    /// y = gain (x − mean x) / √(var x + eps).
    LayerNorm,
    /// y = gain x / √(mean x² + eps).
    RmsNorm,
    /// y = gain (x − m)/√(v + eps), m and v the mean and variance of one feature over all tokens, which are a batch.
    BatchNorm {
        /// True if gradients go through m and v; in evaluation m and v are constants.
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
    /// Returns true if norms of this kind have biases besides gains.
    pub fn has_biases(self) -> bool {
        match self {
            Self::LayerNorm | Self::BatchNorm { .. } | Self::Dyt { .. } | Self::Derf { .. } => true,
            Self::RmsNorm => false,
        }
    }

    /// Returns the function of every entry and the factor on its argument; `None` for kinds that divide by a statistic.
    pub fn pointwise(self) -> Option<(Activation, f64)> {
        match self {
            Self::LayerNorm | Self::RmsNorm | Self::BatchNorm { .. } => None,
            Self::Dyt { alpha } => Some((Activation::Tanh, alpha)),
            Self::Derf { alpha } => Some((Activation::Erf, alpha)),
        }
    }
}

/// LayerNorm, RMSNorm, BatchNorm or a function in their place. All gains have one common value. Biases are sampled like
/// the biases of a linear map, and are zero unless a checkpoint has others.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Norm {
    /// The kind of norm.
    pub kind: NormKind,
    /// The ε that is added under the root.
    pub eps: f64,
    /// Value of every gain.
    pub gain: f64,
    /// Distribution of the biases, one per feature and common to all tokens: y + b.
    #[serde(default = "Init::zero", skip_serializing_if = "Init::is_zero")]
    pub bias: Init,
    /// Features are cut into this many equal groups, each normalised by itself: 1, or one per head.
    #[serde(default = "one")]
    pub groups: usize,
}

impl Norm {
    /// A norm over all features with gains of 1 and no biases.
    pub fn plain(kind: NormKind, eps: f64) -> Self {
        Self { kind, eps, gain: 1.0, bias: Init::Zero, groups: 1 }
    }

    /// Returns the norm without its biases, and their distribution; `None` if all biases are zero.
    pub fn biased(&self) -> Option<(Self, Init)> {
        (!self.bias.is_zero()).then_some((Self { bias: Init::Zero, ..*self }, self.bias))
    }

    /// Returns the steps of a norm by a function, without its biases: alpha, the function and the gains; else `None`.
    pub fn steps(&self) -> Option<[Component; 3]> {
        let scale = |factor| Component::Scale(Scale { factor });
        let (function, alpha) = self.kind.pointwise()?;
        Some([scale(alpha), Component::Activation(function), scale(self.gain)])
    }

    /// Returns true if every feature has a gain of its own, not one that groups share.
    pub fn has_own_gains(&self) -> bool {
        self.groups == 1
    }
}

fn one() -> usize {
    1
}
