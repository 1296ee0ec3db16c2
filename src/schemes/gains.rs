//! Gains: LeCun weights with a factor per part of the network, and normalised residual connections.
//!
//! # Formula
//!
//! ```text
//! Q, K qk/√fan_in     V, O value/√fan_in     feed-forward ffn/√fan_in     sum of embeddings: std embedding
//! skip_scale 1/√(1 + ratio²)                 branch_scale ratio/√(1 + ratio²)
//! ```
//!
//! # Source
//!
//! Ours: the family that `sigprop recommend` searches.

use sigprop_stack::Init;

use super::embeddings::Summed;
use super::{About, Outer, Parameter, Role, SchemeError, Table};
use crate::architecture::Resolved;
use crate::recipe::{Entrance, Fans, Projection, Projections, Recipe, Residual, Residuals, normal};

pub(super) const ABOUT: About = About {
    name: "gains",
    parameters: &[
        Parameter::scale("qk", None),
        Parameter::scale("value", None),
        Parameter::scale("ffn", None),
        Parameter::scale("embedding", None),
        Parameter::scale("ratio", None),
    ],
    rule: "queries and keys qk/√fan_in; values and attention output value/√fan_in; feed-forward ffn/√fan_in; the sum \
           of m embeddings std embedding, each embedding/√m; skip_scale 1/√(1 + ratio²), branch_scale ratio times it",
    source: "none: the family that `sigprop recommend` searches",
    touches: "embeddings, all linear weights, scales of the residual connections",
    build: |values| {
        let &[qk, value, ffn, embedding, ratio] = values else { unreachable!("as many values as parameters") };
        Box::new(Gains { qk, value, ffn, embedding, ratio })
    },
};

#[derive(Debug)]
struct Gains {
    qk: f64,
    value: f64,
    ffn: f64,
    embedding: f64,
    ratio: f64,
}

impl Recipe for Gains {
    fn embedding(&self, architecture: &Resolved, table: Table) -> Init {
        Summed(self.embedding).embedding(architecture, table)
    }

    fn outer(&self, architecture: &Resolved, place: Outer, fans: Fans) -> Projection {
        Summed(self.embedding).outer(architecture, place, fans)
    }

    fn sinusoid(&self, architecture: &Resolved) -> f64 {
        Summed(self.embedding).sinusoid(architecture)
    }

    fn residuals<'a>(&'a self, _: &'a Resolved, _: &Entrance) -> Result<Residuals<'a>, SchemeError> {
        let skip = self.ratio.hypot(1.0).recip();
        Ok(Residual::constant(skip, skip * self.ratio).everywhere())
    }

    fn projections<'a>(&'a self, _: &'a Resolved, _: &Entrance) -> Result<Projections<'a>, SchemeError> {
        Ok(Box::new(|slot| {
            let gain = match slot.role {
                Role::Query | Role::Key => self.qk,
                Role::QueryDown | Role::KvDown | Role::Taps | Role::Step | Role::Router => 1.0,
                Role::Value | Role::AttentionOutput => self.value,
                Role::FfnIn | Role::FfnGate | Role::FfnUp | Role::FfnOut | Role::ExpertOut | Role::Hidden => self.ffn,
            };
            normal(gain * slot.fans.lecun_std()).into()
        }))
    }
}
