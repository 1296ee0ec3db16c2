//! nGPT's base: std 1/√d, and 1/√(2 · blocks · d) in the maps that write to the stream.
//!
//! # Source
//!
//! Loshchilov et al. 2024; OLMo-core's `InitMethod.normalized`. Only the initial distributions are taken from it: the
//! model then normalises its matrices along the width and moves on a sphere instead of adding.

use sigprop_stack::Init;

use super::megatron::Megatron;
use super::{About, Outer, SchemeError, Table};
use crate::architecture::Resolved;
use crate::recipe::{Entrance, Fans, Projection, Projections, Recipe};

pub(super) const ABOUT: About = About {
    name: "ngpt",
    parameters: &[],
    rule: "all weights N(0, 1/d_model); attention output and feed-forward output N(0, 1/(2 · blocks · d_model))",
    source: "Loshchilov et al. 2024 (nGPT); OLMo-core nn/transformer/init.py (InitMethod.normalized)",
    touches: "embeddings, all linear weights",
    build: |_| Box::new(Ngpt),
};

#[derive(Debug)]
struct Ngpt;

fn base(architecture: &Resolved) -> Megatron {
    Megatron { sigma: (architecture.d_model as f64).powf(-0.5) }
}

impl Recipe for Ngpt {
    fn embedding(&self, architecture: &Resolved, table: Table) -> Init {
        base(architecture).embedding(architecture, table)
    }

    fn outer(&self, architecture: &Resolved, place: Outer, fans: Fans) -> Projection {
        base(architecture).outer(architecture, place, fans)
    }

    fn projections<'a>(&'a self, architecture: &'a Resolved, _: &Entrance) -> Result<Projections<'a>, SchemeError> {
        Ok(base(architecture).scaled(architecture))
    }

    fn caveat(&self, _: &Resolved) -> Option<String> {
        let text = "nGPT's matrices are normalised after they are drawn and its stream moves on a sphere; only what is \
                    drawn is taken from it";
        Some(text.to_owned())
    }
}
