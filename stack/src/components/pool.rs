//! Pooling over the pixels of images.

use serde::{Deserialize, Serialize};

use super::activation::Activation;
use super::image::{Image, Sliding};

/// y_a is the mean, or the largest value, of the pixels of window a, for every feature separately.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Pool {
    /// The value of a window.
    pub kind: PoolKind,
    /// Number of pixels of a window along each axis.
    pub kernel: usize,
    /// Number of pixels between two windows along each axis.
    pub stride: usize,
    /// Number of pixels by which windows reach over the edges on each side; these do not count.
    pub padding: usize,
    /// The size of the images whose pixels are the tokens.
    pub image: Image,
}

/// The value of a window of pixels.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum PoolKind {
    /// The mean of x. Windows do not overlap.
    Average,
    /// The largest φ(x).
    Max {
        /// The function φ, which increases.
        activation: Activation,
    },
}

impl Pool {
    /// Returns the windows.
    pub fn sliding(&self) -> Sliding {
        Sliding::over(self.image, self.kernel, self.stride, self.padding)
    }
}
