//! Xavier (Glorot): std √(2/(fan_in + fan_out)), normal or uniform.
//!
//! # Source
//!
//! Glorot & Bengio 2010, eq. 16; gain 1 as in PyTorch's `xavier_normal_` and `xavier_uniform_`. Queries, keys, values
//! and output are separate matrices, each with its own fans. If they are packed, queries, keys and values share a
//! fan_out three times as large, which is gain 1/√2 if the three have the same size. fairseq keeps them separate and
//! sets the gain.

use std::f64::consts::FRAC_1_SQRT_2;

use sigprop_stack::Init;

use super::{About, Outer, Role, SchemeError};
use crate::architecture::Resolved;
use crate::recipe::{Entrance, Fans, Projection, Projections, Recipe, Slot, normal, uniform};

pub(super) const NORMAL: About = About {
    name: "xavier",
    parameters: &[],
    rule: "weights N(0, 2/(fan_in + fan_out)); queries, keys, values separate",
    source: SOURCE,
    touches: TOUCHES,
    build: |_| Box::new(Xavier { draw: normal }),
};

pub(super) const UNIFORM: About = About {
    name: "xavier-uniform",
    parameters: &[],
    rule: "weights U(±√(6/(fan_in + fan_out))); queries, keys, values separate",
    source: SOURCE,
    touches: TOUCHES,
    build: |_| Box::new(Xavier { draw: uniform }),
};

pub(super) const PACKED: About = About {
    name: "xavier-packed",
    parameters: &[],
    rule: "weights U(±√(6/(fan_in + fan_out))), with gain 1/√2 for queries, keys and values, as if they were one \
           matrix of 3 fan_out",
    source: "PyTorch's nn.MultiheadAttention and nn.Transformer; fairseq's and torchscale's multihead_attention.py",
    touches: TOUCHES,
    build: |_| Box::new(Packed),
};

const SOURCE: &str = "Glorot & Bengio 2010, eq. 16; gain 1 as in PyTorch's torch/nn/init.py";
const TOUCHES: &str = "all linear weights";

#[derive(Debug)]
struct Xavier {
    /// The distribution with a given standard deviation.
    draw: fn(f64) -> Init,
}

impl Recipe for Xavier {
    fn outer(&self, _: &Resolved, _: Outer, fans: Fans) -> Projection {
        (self.draw)(fans.xavier_std()).into()
    }

    fn projections<'a>(&'a self, _: &'a Resolved, _: &Entrance) -> Result<Projections<'a>, SchemeError> {
        Ok(Box::new(|slot| (self.draw)(slot.fans.xavier_std()).into()))
    }
}

/// A scheme in which queries, keys and values are parts of one matrix, whose fan_out is that of all three together.
#[derive(Debug)]
pub(super) struct Packed;

impl Recipe for Packed {
    fn outer(&self, _: &Resolved, _: Outer, fans: Fans) -> Projection {
        uniform(fans.xavier_std()).into()
    }

    fn projections<'a>(&'a self, _: &'a Resolved, _: &Entrance) -> Result<Projections<'a>, SchemeError> {
        Ok(Box::new(|slot| {
            let gain = match slot.role {
                Role::Query | Role::Key | Role::Value => FRAC_1_SQRT_2,
                Role::QueryDown
                | Role::KvDown
                | Role::Taps
                | Role::Step
                | Role::AttentionOutput
                | Role::FfnIn
                | Role::FfnGate
                | Role::FfnUp
                | Role::FfnOut
                | Role::Router
                | Role::ExpertOut
                | Role::Hidden => 1.0,
            };
            uniform(gain * slot.fans.xavier_std()).into()
        }))
    }
}

/// Xavier's distribution, with a gain on all maps that carry values.
pub(super) fn with_value_gain(slot: &Slot, gain: f64) -> Projection {
    let gain = if slot.carries_values() { gain } else { 1.0 };
    normal(gain * slot.fans.xavier_std()).into()
}
