//! OLMo-core: `llama` and `llama_depth`, which scale the linear branch of a gate in addition to the outputs.
//!
//! # Formula
//!
//! σ is the argument, l the index of the block from 0:
//!
//! ```text
//! Q, K, V, gate σ      attention output, up, down, router, experts σ/√(2 · blocks) or σ/√(2 (l + 1))
//! embeddings 1         head 1/√d
//! ```
//!
//! All but the embeddings are truncated at ±3 std. Both maps of the linear branch are scaled, so that the variance of a
//! gated branch falls as the square of the depth.
//!
//! # Source
//!
//! OLMo-core's `nn/transformer/init.py` (`InitMethod.llama`, `llama_depth`).

use sigprop_stack::Init;

use super::olmo::truncated;
use super::{About, Outer, Parameter, Role, SchemeError, Table};
use crate::architecture::{Kind, Resolved};
use crate::recipe::{Entrance, Fans, Projection, Projections, Recipe, Slot, normal};

pub(super) const LLAMA: About = About {
    name: "olmo-core-llama",
    parameters: &[Parameter::scale("std", Some(0.02))],
    rule: "queries, keys, values and gate std; attention output, up, down, router and experts std/√(2 · blocks); head \
           1/√d_model; all truncated at ±3 std; embeddings N(0, 1)",
    source: SOURCE,
    touches: TOUCHES,
    build: |values| Box::new(Llama { std: values[0], by_depth: false, draw: truncated }),
};

pub(super) const LLAMA_DEPTH: About = About {
    name: "olmo-core-depth",
    parameters: &[Parameter::scale("std", Some(0.02))],
    rule: "as olmo-core-llama, with √(2 (l + 1)) of block l from 0 in place of √(2 · blocks)",
    source: SOURCE,
    touches: TOUCHES,
    build: |values| Box::new(Llama { std: values[0], by_depth: true, draw: truncated }),
};

const SOURCE: &str = "OLMo-core nn/transformer/init.py (InitMethod)";
const TOUCHES: &str = "embeddings, all linear weights";

/// The initialisation of Llama in OLMo-core and torchtitan.
#[derive(Debug)]
pub(super) struct Llama {
    pub(super) std: f64,
    /// True if blocks are scaled by their index rather than by the number of blocks.
    pub(super) by_depth: bool,
    /// The distribution with a given standard deviation.
    pub(super) draw: fn(f64) -> Init,
}

impl Llama {
    fn is_scaled(slot: &Slot) -> bool {
        let expert = slot.architecture.experts_of(slot.block).is_some();
        match slot.role {
            Role::AttentionOutput | Role::FfnUp | Role::FfnOut | Role::Router | Role::ExpertOut => true,
            Role::FfnGate | Role::FfnIn => expert,
            Role::Hidden => slot.architecture.residual,
            Role::Query | Role::QueryDown | Role::Key | Role::Value | Role::KvDown | Role::Taps | Role::Step => false,
        }
    }
}

impl Recipe for Llama {
    fn embedding(&self, _: &Resolved, _: Table) -> Init {
        normal(1.0)
    }

    fn outer(&self, architecture: &Resolved, place: Outer, _: Fans) -> Projection {
        match place {
            Outer::Head => truncated((architecture.d_model as f64).powf(-0.5)),
            Outer::EmbeddingIn | Outer::EmbeddingOut | Outer::Stem => (self.draw)(self.std),
        }
        .into()
    }

    fn projections<'a>(&'a self, architecture: &'a Resolved, _: &Entrance) -> Result<Projections<'a>, SchemeError> {
        Ok(Box::new(|slot| {
            let place = if self.by_depth { slot.block + 1 } else { architecture.n_layers };
            let factor = if Self::is_scaled(slot) { (2.0 * place as f64).powf(-0.5) } else { 1.0 };
            (self.draw)(factor * self.std).into()
        }))
    }

    fn caveat(&self, architecture: &Resolved) -> Option<String> {
        let single = architecture.kind == Kind::Encoder && architecture.decoder.is_none();
        (!single || !architecture.activation.is_gated())
            .then(|| "defined for a single stack of blocks with gated feed-forward networks".to_owned())
    }
}
