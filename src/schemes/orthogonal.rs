//! Orthogonal: weights that are a gain times a random matrix with orthonormal rows or columns, whichever are fewer.
//!
//! # Source
//!
//! Saxe et al. 2014, section 3; Haar's measure and the gain of PyTorch's `nn.init.orthogonal_`. Queries, keys and values
//! are separate matrices, each of all heads. Convolutions, and the stem of an image model, which is one, get N(0,
//! 1/fan_in).

use sigprop_stack::Init;

use super::{About, Outer, Parameter, Role, SchemeError};
use crate::architecture::Resolved;
use crate::recipe::{Entrance, Fans, Projection, Projections, Recipe, normal};

pub(super) const ABOUT: About = About {
    name: "orthogonal",
    parameters: &[Parameter::positive("gain", 1.0)],
    rule: "weights gain · Q, where Q has orthonormal rows or columns, whichever are fewer, from Haar's measure: entries \
           have the variance gain²/max(fan_in, fan_out)",
    source: "Saxe et al. 2014, arXiv 1312.6120; PyTorch's torch/nn/init.py (orthogonal_)",
    touches: "all linear weights but those of stems and convolutions, which get N(0, 1/fan_in)",
    build: |values| Box::new(Orthogonal { gain: values[0] }),
};

#[derive(Debug)]
struct Orthogonal {
    gain: f64,
}

impl Orthogonal {
    fn weight(&self, fans: Fans) -> Projection {
        let longer = fans.fan_in.max(fans.fan_out) as f64;
        Init::Orthogonal { std: self.gain / longer.sqrt() }.into()
    }
}

impl Recipe for Orthogonal {
    fn outer(&self, _: &Resolved, place: Outer, fans: Fans) -> Projection {
        match place {
            Outer::Stem => normal(fans.lecun_std()).into(),
            Outer::EmbeddingIn | Outer::EmbeddingOut | Outer::Head => self.weight(fans),
        }
    }

    fn projections<'a>(&'a self, _: &'a Resolved, _: &Entrance) -> Result<Projections<'a>, SchemeError> {
        Ok(Box::new(|slot| match slot.role {
            Role::Taps => normal(slot.fans.lecun_std()).into(),
            Role::Query
            | Role::QueryDown
            | Role::Key
            | Role::Value
            | Role::KvDown
            | Role::Step
            | Role::AttentionOutput
            | Role::FfnIn
            | Role::FfnGate
            | Role::FfnUp
            | Role::FfnOut
            | Role::Router
            | Role::ExpertOut
            | Role::Hidden => self.weight(slot.fans),
        }))
    }
}
