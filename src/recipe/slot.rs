//! The place of a tensor in a network, from which a scheme decides its distribution.

use sigprop_stack::Init;

use crate::architecture::Resolved;

/// An embedding table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Table {
    Token,
    Position,
    Segment,
    /// A table of token types. Its first row is added to every token.
    TokenType,
    ClassToken,
    RelativeBias,
    /// Embeddings of relative positions that contents have scores with.
    RelativeEmbedding,
}

/// The role of a linear map in a block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Role {
    /// Map from the input, or its latent, to queries.
    Query,
    /// Map from the input to the latent of queries.
    QueryDown,
    /// Map from the input, or its latent, to keys.
    Key,
    /// Map to values, or to another factor of a mixer that carries values.
    Value,
    /// Map from the input to the latent of keys and values, or to the rotated part of keys.
    KvDown,
    /// Convolution of every feature over a few tokens, whose fans are its number of taps.
    Taps,
    /// Map to the steps of a recurrence, or to the strengths of its writes.
    Step,
    /// Map at the end of attention or of another mixer.
    AttentionOutput,
    FfnIn,
    FfnGate,
    FfnUp,
    FfnOut,
    /// Map to the scores of experts.
    Router,
    /// Map to the output of an expert of a mixture.
    ExpertOut,
    /// The only linear map of a layer of an MLP.
    Hidden,
}

/// The role of a linear map outside the blocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Outer {
    /// Map from the width of the token embedding to the width of the stream.
    EmbeddingIn,
    /// Map from the width of the stream back to the width of the embedding, after the last block.
    EmbeddingOut,
    /// Map to the vocabulary.
    Head,
    /// Projection of patches, or convolution over frames.
    Stem,
}

/// The place of a norm in a block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum BlockNorm {
    /// The norm at the start of a branch.
    Input,
    /// The norm before the last linear map of a branch.
    Inner,
    /// The norm at the end of a branch.
    Output,
    /// The norm after a residual sum.
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

    /// Xavier's standard deviation √(2/(fan_in + fan_out)).
    pub(crate) fn xavier_std(self) -> f64 {
        (2.0 / (self.fan_in + self.fan_out) as f64).sqrt()
    }

    /// LeCun's standard deviation 1/√fan_in.
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
    /// True if the map is part of cross-attention.
    pub(crate) cross: bool,
}

impl Slot<'_> {
    /// Returns true if the map carries values to the stream, and false if it decides which tokens or experts are used.
    pub(crate) fn carries_values(&self) -> bool {
        match self.role {
            Role::Value
            | Role::Taps
            | Role::AttentionOutput
            | Role::FfnIn
            | Role::FfnGate
            | Role::FfnUp
            | Role::FfnOut
            | Role::ExpertOut
            | Role::Hidden => true,
            Role::Query | Role::QueryDown | Role::Key | Role::KvDown | Role::Step | Role::Router => false,
        }
    }

    /// Returns true if the output of the map is added to the stream.
    pub(crate) fn writes_residual(&self) -> bool {
        match self.role {
            Role::AttentionOutput | Role::FfnOut | Role::ExpertOut => true,
            Role::Hidden => self.architecture.residual,
            Role::Query
            | Role::QueryDown
            | Role::Key
            | Role::Value
            | Role::KvDown
            | Role::Taps
            | Role::Step
            | Role::FfnIn
            | Role::FfnGate
            | Role::FfnUp
            | Role::Router => false,
        }
    }
}

/// The distribution N(0, `std`²).
pub(crate) fn normal(std: f64) -> Init {
    Init::Normal { std }
}

/// The uniform distribution on [−√3 `std`, √3 `std`], whose standard deviation is `std`.
pub(crate) fn uniform(std: f64) -> Init {
    Init::Uniform { bound: 3f64.sqrt() * std }
}
