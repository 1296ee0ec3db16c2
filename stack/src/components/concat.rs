//! Chains on a common input, their outputs side by side in every head.

use serde::{Deserialize, Serialize};

use crate::Node;

/// Head h of the output is head h of every part, one after the other: the keys of latent attention.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Concat {
    /// Heads of the output.
    pub n_heads: usize,
    /// What is put side by side.
    pub parts: Vec<ConcatPart>,
}

/// One part of a [`Concat`].
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ConcatPart {
    /// Whether all heads get the same features; otherwise the output is cut into heads.
    pub shared: bool,
    /// The chain.
    pub body: Vec<Node>,
}
