//! Normalisation over the features of a token.

use serde::{Deserialize, Serialize};

/// What is subtracted and divided by.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum NormKind {
    /// y = gain (x − mean x) / √(var x + eps).
    LayerNorm,
    /// y = gain x / √(mean x² + eps).
    RmsNorm,
}

/// LayerNorm or RMSNorm. Gains start at one common value, biases at zero.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Norm {
    /// LayerNorm or RMSNorm.
    pub kind: NormKind,
    /// Added under the root.
    pub eps: f64,
    /// Value of every gain.
    pub gain: f64,
    /// Features are cut into this many equal groups, each normalised by itself: 1, or one per head.
    #[serde(default = "one")]
    pub groups: usize,
}

impl Norm {
    /// Whether every feature has a gain of its own, not one that groups share.
    pub fn has_own_gains(&self) -> bool {
        self.groups == 1
    }
}

fn one() -> usize {
    1
}
