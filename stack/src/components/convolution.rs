//! A convolution over positions, or over the pixels of images.

use serde::{Deserialize, Serialize};

use super::image::{Axis, Image, Sliding};
use crate::Tensor;

/// y_a = Σ_k W_k x_(a·stride + k − padding) + b over k < `kernel`; tokens outside the sequence are zero. Over images, a
/// and k are pairs of a row and a column.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Convolution {
    /// Number of features of x.
    pub fan_in: usize,
    /// Number of features of y.
    pub fan_out: usize,
    /// Number of positions of x that a token of y reads; of images, along each axis.
    pub kernel: usize,
    /// Number of positions of x per position of y.
    pub stride: usize,
    /// Number of zero tokens added on either side; before the sequence alone if `causal`.
    pub padding: usize,
    /// Number of groups, which have equal parts of the features of x and of y. A feature of y reads the features of its
    /// group: all of them for 1 group, a single one if there are as many groups as features (depthwise).
    #[serde(default = "one", skip_serializing_if = "is_one")]
    pub groups: usize,
    /// True if a token reads itself and earlier tokens alone: `padding` is `kernel` − 1, and y is as long as x.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub causal: bool,
    /// The size of the images whose pixels are the tokens; `None` if tokens are positions of a sequence.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub image: Option<Image>,
    /// Shape `fan_out` × (taps · `fan_in` / `groups`), where there are `kernel` taps, or `kernel`² over images.
    pub weight: Tensor,
    /// Shape `fan_out`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bias: Option<Tensor>,
}

impl Convolution {
    /// Returns the number of tokens of y for `seq_len` tokens of x; 0 if the kernel does not fit.
    pub fn output_len(&self, seq_len: usize) -> usize {
        self.sliding(seq_len).windows(seq_len)
    }

    /// Returns the windows over `seq_len` tokens of x.
    pub fn sliding(&self, seq_len: usize) -> Sliding {
        let &Self { kernel, stride, padding, causal, .. } = self;
        let along = Axis { length: seq_len, kernel, stride, before: padding, after: if causal { 0 } else { padding } };
        self.image.map_or(Sliding::along(along), |image| Sliding::over(image, kernel, stride, padding))
    }

    /// Returns the number of taps of a window: `kernel`, or `kernel`² over images.
    pub fn taps(&self) -> usize {
        self.image.map_or(self.kernel, |_| self.kernel * self.kernel)
    }

    /// Returns the number of entries of x that a feature of y reads: taps · `fan_in` / `groups`.
    pub fn window(&self) -> usize {
        self.taps() * (self.fan_in / self.groups)
    }
}

fn one() -> usize {
    1
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde's signature")]
fn is_one(groups: &usize) -> bool {
    *groups == 1
}
