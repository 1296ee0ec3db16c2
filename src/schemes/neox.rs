//! GPT-NeoX: the "small" initialisation, and Wang's in the maps that write to the stream.
//!
//! # Source
//!
//! `small_init_init_method` and `wang_init_method` of gpt-neox' `model/init_functions.py`; Nguyen & Salazar 2019
//! for the first (as if d_ff = 4 d_model everywhere), Mesh Transformer JAX for the second.

use sigprop_stack::Init;

use super::{About, Outer, SchemeError, Table};
use crate::architecture::{Kind, Resolved};
use crate::recipe::{Entrance, Fans, Projection, Projections, Recipe, normal};

pub(super) const ABOUT: About = About {
    name: "neox",
    parameters: &[],
    rule: "all weights N(0, 2/(5 d_model)); attention output and feed-forward output std 2/(blocks · √d_model)",
    source: "gpt-neox model/init_functions.py (small_init, wang_init); Nguyen & Salazar 2019; Mesh Transformer JAX",
    touches: "embeddings, all linear weights",
    build: |_| Box::new(Neox),
};

#[derive(Debug)]
struct Neox;

/// The distribution of the small initialisation, with std √(2/(5 d)).
fn small(architecture: &Resolved) -> Init {
    normal((2.0 / (5.0 * architecture.d_model as f64)).sqrt())
}

impl Recipe for Neox {
    fn embedding(&self, architecture: &Resolved, _: Table) -> Init {
        small(architecture)
    }

    fn outer(&self, architecture: &Resolved, _: Outer, _: Fans) -> Projection {
        small(architecture).into()
    }

    fn projections<'a>(&'a self, architecture: &'a Resolved, _: &Entrance) -> Result<Projections<'a>, SchemeError> {
        let inner = small(architecture);
        let wang = normal(2.0 / (architecture.n_layers as f64 * (architecture.d_model as f64).sqrt()));
        Ok(Box::new(move |slot| if slot.writes_residual() { wang } else { inner }.into()))
    }

    fn caveat(&self, architecture: &Resolved) -> Option<String> {
        let decoder_only = architecture.kind == Kind::Encoder && architecture.decoder.is_none();
        (!decoder_only).then(|| "GPT-NeoX's rules are those of a single stack of Transformer blocks".to_owned())
    }
}
