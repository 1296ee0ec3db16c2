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
    /// Number of zero tokens added on either side.
    pub padding: usize,
    /// Shape `fan_out` × (`kernel` · `fan_in`).
    pub weight: Tensor,
    /// Shape `fan_out`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bias: Option<Tensor>,
}

impl Convolution {
    /// Returns the number of tokens of y for `seq_len` tokens of x; 0 if the kernel does not fit.
    pub fn output_len(&self, seq_len: usize) -> usize {
        (seq_len + 2 * self.padding).checked_sub(self.kernel).map_or(0, |room| room / self.stride + 1)
    }
}
