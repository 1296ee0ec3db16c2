//! What a scheme is told about a parameter that learns.

use super::Fans;

/// By which of its axes grow with the width (Tensor Programs V, table 3).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Growth {
    /// A bias or gains.
    Vector,
    /// A table of embeddings, or a map from patches or frames.
    Input,
    Hidden,
    /// The head.
    Output,
}

/// Where a parameter is along its stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Place {
    /// Before block 0.
    Embeddings,
    Block(usize),
    /// Behind the last block, or shared by all.
    End,
}

/// A parameter that learns.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Trained {
    pub(crate) growth: Growth,
    pub(crate) place: Place,
    /// Of a vector and of a table the width is `fan_out`.
    pub(crate) fans: Fans,
    /// Of its entries at the start.
    pub(crate) std: f64,
}
