//! The roles of linear maps, from which initialisation schemes decide the distributions of their weights.

use serde::{Deserialize, Serialize};

/// The role of a linear map, or of a convolution, in a network.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct MapRole {
    /// The kind of map.
    pub kind: RoleKind,
    /// The index of its block; `None` outside blocks.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub block: Option<usize>,
}

/// A kind of map.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum RoleKind {
    /// The map to queries.
    Query,
    /// The map to keys.
    Key,
    /// The map to values.
    Value,
    /// The map after the averages over values.
    AttentionOutput,
    /// The map before the activation of a branch without a gate.
    FfnIn,
    /// The map before the activation of a gate.
    FfnGate,
    /// The map whose output a gate multiplies.
    FfnUp,
    /// The last map of a branch.
    FfnOut,
    /// The map to the scores of experts.
    Router,
    /// Any other map: a layer of an MLP, or a map outside blocks.
    Other,
    /// The map to the logits.
    Head,
}
