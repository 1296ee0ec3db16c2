//! Weighted sum of chains on a common input: the residual connection.

use serde::{Deserialize, Serialize};

use crate::Node;

/// Σ `scale`_i · mask_i/(1 − `drop_rate`_i) · body_i(x). A residual connection is
/// `[skip (empty body), branch]`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Sum {
    /// The terms; all of one width.
    pub branches: Vec<Branch>,
}

/// One term of a [`Sum`].
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Branch {
    /// Factor on the branch's output.
    pub scale: f64,
    /// Stochastic depth: probability that the branch is dropped for a whole sequence.
    pub drop_rate: f64,
    /// Empty for a skip connection.
    pub body: Vec<Node>,
}
