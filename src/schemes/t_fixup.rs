//! T-Fixup: an encoder–decoder without norms and without warm-up.
//!
//! # Formula
//!
//! For N blocks in the encoder and M in the decoder; the base is Xavier, embeddings have std 1/√d:
//!
//! ```text
//! encoder  values, output, feed-forward × 0.67 N^(−1/4)      token embedding × (9N)^(−1/4)
//! decoder  the same, cross-attention too, × (9M)^(−1/4)      token embedding × (9M)^(−1/4)
//! queries and keys × 1/√2, as packed
//! ```
//!
//! # Source
//!
//! Huang et al. 2020, *Improving Transformer Optimization Through Better Initialization*; the authors'
//! `transformer.py` and `transformer_layer.py`, where values undo the gain 1/√2 of packed matrices.

use std::f64::consts::FRAC_1_SQRT_2;

use sigprop_stack::Init;

use super::{About, Outer, SchemeError, Table};
use crate::architecture::Resolved;
use crate::recipe::{Entrance, Fans, Projection, Projections, Recipe, normal};

pub(super) const ABOUT: About = About {
    name: "t-fixup",
    parameters: &[],
    rule: "Xavier normal, with gain 1/√2 for queries and keys, and for values, attention output and feed-forward network \
           0.67 N^(−1/4) in an encoder of N blocks, (9M)^(−1/4) in a decoder of M blocks; token embeddings std \
           (9 · blocks)^(−1/4)/√d_model",
    source: "Huang et al. 2020 (T-Fixup) and the authors' code; for encoder–decoders without norms",
    touches: "embeddings, all linear weights",
    build: |_| Box::new(TFixup),
};

#[derive(Debug)]
struct TFixup;

fn ninth(architecture: &Resolved) -> f64 {
    (9.0 * architecture.n_layers as f64).powf(-0.25)
}

impl Recipe for TFixup {
    fn embedding(&self, architecture: &Resolved, table: Table) -> Init {
        let base = (architecture.d_model as f64).powf(-0.5);
        match table {
            Table::Token => normal(ninth(architecture) * base),
            Table::Position
            | Table::Segment
            | Table::TokenType
            | Table::ClassToken
            | Table::RelativeBias
            | Table::RelativeEmbedding => normal(base),
        }
    }

    fn outer(&self, _: &Resolved, _: Outer, fans: Fans) -> Projection {
        normal(fans.xavier_std()).into()
    }

    fn projections<'a>(&'a self, architecture: &'a Resolved, _: &Entrance) -> Result<Projections<'a>, SchemeError> {
        let decoder = architecture.memory_width.is_some();
        let encoder = || 0.67 * (architecture.n_layers as f64).powf(-0.25);
        let values = if decoder { ninth(architecture) } else { encoder() };
        Ok(Box::new(move |slot| {
            let gain = if slot.carries_values() { values } else { FRAC_1_SQRT_2 };
            normal(gain * slot.fans.xavier_std()).into()
        }))
    }

    fn caveat(&self, architecture: &Resolved) -> Option<String> {
        (architecture.decoder.is_none() || architecture.norm.is_some())
            .then(|| "T-Fixup is defined for encoders with decoders, both without norms".to_owned())
    }
}
