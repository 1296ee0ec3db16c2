//! A convolution over positions.

use serde::{Deserialize, Serialize};

use crate::Tensor;

/// y_a = Σ_k W_k x_(a·stride + k − padding) + b over k < `kernel`; tokens outside the sequence are zero.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Convolution {
    /// Number of features of x.
    pub fan_in: usize,
    /// Number of features of y.
    pub fan_out: usize,
    /// Number of positions of x that a token of y reads.
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
    /// Shape `fan_out` × (`kernel` · `fan_in` / `groups`).
    pub weight: Tensor,
    /// Shape `fan_out`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bias: Option<Tensor>,
}

impl Convolution {
    /// Returns the number of tokens of y for `seq_len` tokens of x; 0 if the kernel does not fit.
    pub fn output_len(&self, seq_len: usize) -> usize {
        let sides = if self.causal { 1 } else { 2 };
        (seq_len + sides * self.padding).checked_sub(self.kernel).map_or(0, |room| room / self.stride + 1)
    }

    /// Returns the number of entries of x that a feature of y reads: `kernel` · `fan_in` / `groups`.
    pub fn window(&self) -> usize {
        self.kernel * (self.fan_in / self.groups)
    }
}

fn one() -> usize {
    1
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde's signature")]
fn is_one(groups: &usize) -> bool {
    *groups == 1
}
