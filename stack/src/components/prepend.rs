//! A learned token before all others, like the class token of vision Transformers.

use serde::{Deserialize, Serialize};

use crate::Tensor;

/// Puts one learned token, the same for every sequence, before the others.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Prepend {
    /// Shape 1 × width.
    pub token: Tensor,
}
