//! PyTorch's defaults: `nn.Embedding`, `nn.Linear`, `nn.MultiheadAttention`.
//!
//! `nn.Linear` draws weights and biases from U(±1/√fan_in) (`kaiming_uniform_` with a = √5). In `nn.MultiheadAttention`
//! queries, keys and values are one packed matrix under `xavier_uniform_`, whose fan_out is the sum over all three; the
//! biases of both its projections are zero.
//!
//! # Source
//!
//! PyTorch's `torch/nn/modules/{linear,sparse,activation}.py`. With grouped key/value heads, which
//! `nn.MultiheadAttention` does not have, the packed fan_out is the sum of the three.

use sigprop_stack::Init;

use super::{About, Outer, Role, SchemeError, Table};
use crate::architecture::Resolved;
use crate::recipe::{Entrance, Fans, Projection, Projections, Recipe, normal};

pub(super) const ABOUT: About = About {
    name: "pytorch",
    parameters: &[],
    rule: "embeddings N(0, 1); linear weights and biases U(±1/√fan_in); queries, keys, values packed, \
           U(±√(6/(fan_in + fan_out of all three))), with zero bias; attention output zero bias",
    source: "PyTorch's defaults of nn.Embedding, nn.Linear, nn.MultiheadAttention (torch/nn/modules)",
    touches: "embeddings, all linear weights, biases of the feed-forward network",
    build: |_| Box::new(Pytorch),
};

#[derive(Debug)]
pub(super) struct Pytorch;

impl Recipe for Pytorch {
    fn embedding(&self, _: &Resolved, _: Table) -> Init {
        normal(1.0)
    }

    fn outer(&self, _: &Resolved, _: Outer, fans: Fans) -> Projection {
        linear(fans)
    }

    fn projections<'a>(&'a self, architecture: &'a Resolved, _: &Entrance) -> Result<Projections<'a>, SchemeError> {
        let keys_and_values = architecture.n_kv_heads * (architecture.d_head + architecture.d_value);
        let packed_fan_out = architecture.n_heads * architecture.d_head + keys_and_values;
        Ok(Box::new(move |slot| match slot.role {
            Role::Query | Role::Key | Role::Value => {
                let fans = (slot.fans.fan_in + packed_fan_out) as f64;
                Init::Uniform { bound: (6.0 / fans).sqrt() }.into()
            }
            Role::AttentionOutput => linear(slot.fans).weight.into(),
            Role::QueryDown
            | Role::KvDown
            | Role::Taps
            | Role::Step
            | Role::FfnIn
            | Role::FfnGate
            | Role::FfnUp
            | Role::FfnOut
            | Role::Router
            | Role::ExpertOut
            | Role::Hidden => linear(slot.fans),
        }))
    }
}

/// Weight and bias of `nn.Linear`.
fn linear(fans: Fans) -> Projection {
    let weight = Init::Uniform { bound: fans.lecun_std() };
    Projection { weight, bias: weight, standardised: None }
}
