//! Weighted sum of chains on a common input: the residual connection.

use serde::{Deserialize, Serialize};

use crate::Node;

/// Σ `scale`_i · mask_i/(1 − `drop_rate`_i) · body_i(x). A residual connection is
/// `[skip (empty body), branch]`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Sum {
    /// The terms, all of the same width.
    pub branches: Vec<Branch>,
}

/// One term of a [`Sum`].
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Branch {
    /// Factor on the branch's output.
    pub scale: f64,
    /// The role of this factor in training.
    #[serde(default, skip_serializing_if = "ScaleParameter::is_constant")]
    pub scale_parameter: ScaleParameter,
    /// Stochastic depth: probability that the branch is dropped for a whole sequence.
    pub drop_rate: f64,
    /// The chain of the branch; empty for a skip connection.
    pub body: Vec<Node>,
}

impl Branch {
    /// A branch that is never dropped, whose factor is a constant.
    pub fn constant(scale: f64, body: Vec<Node>) -> Self {
        Self { scale, scale_parameter: ScaleParameter::Constant, drop_rate: 0.0, body }
    }
}

/// The role of the factor on a branch in training.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ScaleParameter {
    /// A constant of the architecture, which training does not change.
    #[default]
    Constant,
    /// One parameter that starts at the factor (ReZero, SkipInit).
    Scalar,
    /// A parameter per feature, all of which start at the factor (LayerScale).
    PerFeature,
}

impl ScaleParameter {
    /// Returns true if training leaves the factor as it is.
    pub fn is_constant(&self) -> bool {
        *self == Self::Constant
    }
}
