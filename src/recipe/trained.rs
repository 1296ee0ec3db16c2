//! A parameter that learns, as schemes see it.

use super::Fans;

/// The kind of a parameter, by how many of its axes grow with the width, and which (Tensor Programs V, table 3).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Growth {
    /// A bias, or the gains of a norm.
    Vector,
    /// A table of embeddings, or a map from patches or frames.
    Input,
    Hidden,
    /// The head.
    Output,
}

/// The place of a parameter along its stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum StreamPosition {
    /// Parameters before block 0.
    Embeddings,
    Block(usize),
    /// Parameters after the last block, or parameters that all blocks share.
    End,
}

/// A parameter that learns.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Trained {
    pub(crate) growth: Growth,
    pub(crate) place: StreamPosition,
    /// Fan-in and fan-out; for a vector or a table `fan_out` is the width.
    pub(crate) fans: Fans,
    /// Standard deviation of the entries at initialisation.
    pub(crate) std: f64,
}
