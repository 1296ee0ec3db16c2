//! Concatenation of the outputs of chains on a common input, head by head.

use serde::{Deserialize, Serialize};

use crate::Node;

/// Head h of the output consists of head h of every part, one after the other, as in the keys of latent attention.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Concat {
    /// Number of heads of the output.
    pub n_heads: usize,
    /// The parts to concatenate.
    pub parts: Vec<ConcatPart>,
}

/// One part of a [`Concat`].
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ConcatPart {
    /// True if all heads get the same features; otherwise the output of the part is cut into heads.
    pub shared: bool,
    /// The chain.
    pub body: Vec<Node>,
}
