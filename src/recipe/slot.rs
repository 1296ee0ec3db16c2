//! What a scheme is told about a tensor.

use sigprop_stack::Init;

use crate::architecture::Resolved;

/// An embedding table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Table {
    Token,
    Position,
    Segment,
}

/// What a linear map is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Role {
    Query,
    Key,
    Value,
    AttentionOutput,
    FfnIn,
    FfnGate,
    FfnUp,
    FfnOut,
    /// The linear map of an MLP's layer.
    Hidden,
}

/// The place of a linear map in a network.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Slot<'a> {
    pub(crate) architecture: &'a Resolved,
    pub(crate) role: Role,
    pub(crate) block: usize,
    pub(crate) fan_in: usize,
    pub(crate) fan_out: usize,
}

impl<'a> Slot<'a> {
    /// The map with this role in this block; its fans follow from the architecture.
    pub(crate) fn new(architecture: &'a Resolved, role: Role, block: usize) -> Self {
        let d_model = architecture.d_model;
        let (fan_in, fan_out) = match role {
            Role::Query | Role::AttentionOutput | Role::Hidden => (d_model, d_model),
            Role::Key | Role::Value => (d_model, architecture.n_kv_heads * architecture.d_head()),
            Role::FfnIn | Role::FfnGate | Role::FfnUp => (d_model, architecture.d_ff),
            Role::FfnOut => (architecture.d_ff, d_model),
        };
        Self { architecture, role, block, fan_in, fan_out }
    }

    /// √(2/(fan_in + fan_out)).
    pub(crate) fn xavier_std(&self) -> f64 {
        (2.0 / (self.fan_in + self.fan_out) as f64).sqrt()
    }

    /// 1/√fan_in.
    pub(crate) fn lecun_std(&self) -> f64 {
        (self.fan_in as f64).powf(-0.5)
    }

    /// Whether its output is added to the stream.
    pub(crate) fn writes_residual(&self) -> bool {
        match self.role {
            Role::AttentionOutput | Role::FfnOut => true,
            Role::Hidden => self.architecture.residual,
            Role::Query | Role::Key | Role::Value | Role::FfnIn | Role::FfnGate | Role::FfnUp => false,
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
