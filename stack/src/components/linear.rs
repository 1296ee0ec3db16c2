//! A linear map of features.

use serde::{Deserialize, Serialize};

use crate::Tensor;

/// y = W x + b, the same for every token.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Linear {
    /// Features of x.
    pub fan_in: usize,
    /// Features of y.
    pub fan_out: usize,
    /// Shape `fan_out` × `fan_in`.
    pub weight: Tensor,
    /// Shape `fan_out`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bias: Option<Tensor>,
}
