//! OLMo: `normal`, `mitchell` and `full_megatron`.
//!
//! # Formula
//!
//! σ is the argument, l the index of the block from 0; mitchell and full_megatron are truncated at ±3 std:
//!
//! ```text
//! normal         σ everywhere
//! mitchell       1/√d          attention output 1/√(2 d (l + 1))   feed-forward output 1/√(2 fan_in (l + 1))
//! full_megatron  σ             both outputs σ/√(2 · blocks)        head 1/√d
//! ```
//!
//! # Source
//!
//! Groeneveld et al. 2024; `InitFnType` in OLMo's `model.py`, without its optional cutoff of `normal` and its
//! optional √d on embeddings.

use sigprop_stack::Init;

use super::everywhere::Everywhere;
use super::{About, Outer, Parameter, Role, SchemeError, Table};
use crate::architecture::{Kind, Resolved};
use crate::recipe::{Entrance, Fans, Projection, Projections, Recipe, normal};

pub(super) const NORMAL: About = About {
    name: "olmo-normal",
    parameters: &[Parameter::scale("std", Some(0.02))],
    rule: "all weights N(0, std²)",
    source: SOURCE,
    touches: TOUCHES,
    build: |values| Box::new(Everywhere(normal(values[0]))),
};

pub(super) const MITCHELL: About = About {
    name: "olmo-mitchell",
    parameters: &[],
    rule: "all weights std 1/√d_model; attention output 1/√(2 d_model (l + 1)), feed-forward output 1/√(2 fan_in \
           (l + 1)) in block l from 0; all truncated at ±3 std",
    source: SOURCE,
    touches: TOUCHES,
    build: |_| Box::new(Mitchell),
};

pub(super) const FULL_MEGATRON: About = About {
    name: "olmo-megatron",
    parameters: &[Parameter::scale("std", Some(0.02))],
    rule: "all weights std; attention output and feed-forward output std/√(2 · blocks); head 1/√d_model; all truncated \
           at ±3 std",
    source: SOURCE,
    touches: TOUCHES,
    build: |values| Box::new(FullMegatron { std: values[0] }),
};

const SOURCE: &str = "Groeneveld et al. 2024; InitFnType in OLMo's model.py";
const TOUCHES: &str = "embeddings, all linear weights";

/// The distribution N(0, `std`²) truncated at ±3 `std`.
pub(super) fn truncated(std: f64) -> Init {
    Init::TruncatedNormal { std, cutoff: 3.0 }
}

#[derive(Debug)]
struct Mitchell;

impl Recipe for Mitchell {
    fn embedding(&self, architecture: &Resolved, _: Table) -> Init {
        truncated((architecture.d_model as f64).powf(-0.5))
    }

    fn outer(&self, architecture: &Resolved, _: Outer, _: Fans) -> Projection {
        truncated((architecture.d_model as f64).powf(-0.5)).into()
    }

    fn projections<'a>(&'a self, architecture: &'a Resolved, _: &Entrance) -> Result<Projections<'a>, SchemeError> {
        let width = architecture.d_model as f64;
        Ok(Box::new(move |slot| {
            let depth = 2.0 * (slot.block + 1) as f64;
            let variance = match slot.role {
                Role::AttentionOutput => 1.0 / (depth * width),
                Role::Taps => 1.0 / slot.fans.fan_in as f64,
                Role::FfnOut | Role::ExpertOut | Role::Hidden => 1.0 / (depth * slot.fans.fan_in as f64),
                Role::Query
                | Role::QueryDown
                | Role::Key
                | Role::Value
                | Role::KvDown
                | Role::Step
                | Role::FfnIn
                | Role::FfnGate
                | Role::FfnUp
                | Role::Router => 1.0 / width,
            };
            truncated(variance.sqrt()).into()
        }))
    }

    fn caveat(&self, architecture: &Resolved) -> Option<String> {
        decoder_only(architecture)
    }
}

#[derive(Debug)]
struct FullMegatron {
    std: f64,
}

impl Recipe for FullMegatron {
    fn embedding(&self, _: &Resolved, _: Table) -> Init {
        truncated(self.std)
    }

    fn outer(&self, architecture: &Resolved, place: Outer, _: Fans) -> Projection {
        let std = match place {
            Outer::Head => (architecture.d_model as f64).powf(-0.5),
            Outer::EmbeddingIn | Outer::EmbeddingOut | Outer::Stem => self.std,
        };
        truncated(std).into()
    }

    fn projections<'a>(&'a self, architecture: &'a Resolved, _: &Entrance) -> Result<Projections<'a>, SchemeError> {
        let depth = (2.0 * architecture.n_layers as f64).sqrt();
        Ok(Box::new(move |slot| truncated(if slot.writes_residual() { self.std / depth } else { self.std }).into()))
    }

    fn caveat(&self, architecture: &Resolved) -> Option<String> {
        decoder_only(architecture)
    }
}

/// Returns a caveat unless the network is one stack of Transformer blocks without experts.
fn decoder_only(architecture: &Resolved) -> Option<String> {
    let single = architecture.kind == Kind::Encoder && architecture.decoder.is_none();
    (!single || architecture.experts.is_some())
        .then(|| "OLMo's rules are those of a single stack of Transformer blocks without experts".to_owned())
}
