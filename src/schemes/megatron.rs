//! Megatron: std σ, and σ/√n in the maps that write to the stream, for n residual connections.
//!
//! # Source
//!
//! Shoeybi et al. 2019, Megatron-LM's `core/utils.py` (`scaled_init_method_normal`), n = 2 · blocks. An MLP with
//! residual connections has n = layers; an MLP without them is not scaled.

use sigprop_stack::Init;

use super::{About, Outer, Parameter, SchemeError, Table};
use crate::architecture::Resolved;
use crate::recipe::{Entrance, Fans, Projection, Projections, Recipe, normal};

pub(super) const ABOUT: About = About {
    name: "megatron",
    parameters: &[Parameter::scale("sigma", Some(0.02))],
    rule: "all weights N(0, sigma²); attention output and feed-forward output N(0, sigma²/(2 · blocks))",
    source: "Shoeybi et al. 2019; Megatron-LM core/utils.py",
    touches: "embeddings, all linear weights",
    build: |values| Box::new(Megatron { sigma: values[0] }),
};

#[derive(Debug)]
pub(super) struct Megatron {
    pub(super) sigma: f64,
}

impl Recipe for Megatron {
    fn embedding(&self, _: &Resolved, _: Table) -> Init {
        normal(self.sigma)
    }

    fn outer(&self, _: &Resolved, _: Outer, _: Fans) -> Projection {
        normal(self.sigma).into()
    }

    fn projections<'a>(&'a self, architecture: &'a Resolved, _: &Entrance) -> Result<Projections<'a>, SchemeError> {
        Ok(self.scaled(architecture))
    }
}

impl Megatron {
    /// The distributions of linear maps: std σ, or σ/√n if the map writes to the stream.
    pub(super) fn scaled(&self, architecture: &Resolved) -> Projections<'static> {
        let Self { sigma } = *self;
        let depth = (architecture.residual_sublayers() as f64).sqrt();
        Box::new(move |slot| normal(if slot.writes_residual() { sigma / depth } else { sigma }).into())
    }
}
