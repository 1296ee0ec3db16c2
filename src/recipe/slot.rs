//! What a scheme is told about a tensor.

use sigprop_stack::Init;

use crate::architecture::Resolved;

/// An embedding table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Table {
    Token,
    Position,
    Segment,
    /// The first row of a table of token types, added to every token.
    TokenType,
    ClassToken,
    RelativeBias,
}

/// What a linear map of a block is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Role {
    /// Input, or its latent, to queries.
    Query,
    /// Input to the latent of queries.
    QueryDown,
    /// Input, or latent, to keys.
    Key,
    Value,
    /// Input to the latent of keys and values, and to the rotated part of keys beside it.
    KvDown,
    AttentionOutput,
    FfnIn,
    FfnGate,
    FfnUp,
    FfnOut,
    /// Scores of experts.
    Router,
    /// Output of an expert of a mixture.
    ExpertOut,
    /// The linear map of an MLP's layer.
    Hidden,
}

/// What a linear map outside the blocks is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Outer {
    /// Width of the token embedding to that of the stream.
    EmbeddingIn,
    /// Back, behind the last block.
    EmbeddingOut,
    /// To the vocabulary.
    Head,
    /// Projection of patches, convolutions over frames.
    Stem,
}

/// Where a norm of a block stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum BlockNorm {
    /// At the start of a branch.
    Input,
    /// Before the last linear map of a branch.
    Inner,
    /// At the end of a branch.
    Output,
    /// Behind a residual sum.
    Sum,
}

/// The shape of a linear map.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Fans {
    pub(crate) fan_in: usize,
    pub(crate) fan_out: usize,
}

impl Fans {
    pub(crate) fn new(fan_in: usize, fan_out: usize) -> Self {
        Self { fan_in, fan_out }
    }

    /// √(2/(fan_in + fan_out)).
    pub(crate) fn xavier_std(self) -> f64 {
        (2.0 / (self.fan_in + self.fan_out) as f64).sqrt()
    }

    /// 1/√fan_in.
    pub(crate) fn lecun_std(self) -> f64 {
        (self.fan_in as f64).powf(-0.5)
    }
}

/// The place of a linear map in a block.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Slot<'a> {
    pub(crate) architecture: &'a Resolved,
    pub(crate) role: Role,
    pub(crate) block: usize,
    pub(crate) fans: Fans,
    /// Whether it is part of cross-attention.
    pub(crate) cross: bool,
}

impl Slot<'_> {
    /// Whether what it hands on reaches the stream, rather than deciding where tokens look or go.
    pub(crate) fn carries_values(&self) -> bool {
        match self.role {
            Role::Value
            | Role::AttentionOutput
            | Role::FfnIn
            | Role::FfnGate
            | Role::FfnUp
            | Role::FfnOut
            | Role::ExpertOut
            | Role::Hidden => true,
            Role::Query | Role::QueryDown | Role::Key | Role::KvDown | Role::Router => false,
        }
    }

    /// Whether its output is added to the stream.
    pub(crate) fn writes_residual(&self) -> bool {
        match self.role {
            Role::AttentionOutput | Role::FfnOut | Role::ExpertOut => true,
            Role::Hidden => self.architecture.residual,
            Role::Query
            | Role::QueryDown
            | Role::Key
            | Role::Value
            | Role::KvDown
            | Role::FfnIn
            | Role::FfnGate
            | Role::FfnUp
            | Role::Router => false,
        }
    }
}

/// N(0, `std`²).
pub(crate) fn normal(std: f64) -> Init {
    Init::Normal { std }
}

/// Uniform on [−√3 `std`, √3 `std`].
pub(crate) fn uniform(std: f64) -> Init {
    Init::Uniform { bound: 3f64.sqrt() * std }
}
