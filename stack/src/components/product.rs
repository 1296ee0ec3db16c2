//! Elementwise product of chains on a common input: gated feed-forward networks.

use serde::{Deserialize, Serialize};

use crate::Node;

/// Elementwise product of factors with independent weights.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Product {
    /// The factors, all of the same width.
    pub factors: Vec<Vec<Node>>,
}
