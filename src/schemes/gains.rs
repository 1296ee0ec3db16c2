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

use super::{About, Outer, Parameter, Role, SchemeError, Table};
use crate::architecture::Resolved;
use crate::recipe::{Entrance, Fans, Projection, Projections, Recipe, Residual, normal};

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

impl Gains {
    /// Std of each of the summed embeddings.
    fn embedding_std(&self, architecture: &Resolved) -> f64 {
        self.embedding / ((1 + architecture.added_embeddings()) as f64).sqrt()
    }
}

impl Recipe for Gains {
    fn embedding(&self, architecture: &Resolved, table: Table) -> Init {
        let std = self.embedding_std(architecture);
        match table {
            Table::Token => normal(std / architecture.embedding_scale.abs()),
            Table::Position | Table::Segment | Table::TokenType | Table::ClassToken => normal(std),
            Table::RelativeBias => normal((architecture.d_model as f64).powf(-0.5)),
        }
    }

    fn outer(&self, architecture: &Resolved, place: Outer, fans: Fans) -> Projection {
        let std = match place {
            Outer::EmbeddingIn | Outer::EmbeddingOut | Outer::Head => 1.0,
            Outer::Stem => self.embedding_std(architecture),
        };
        normal(std * fans.lecun_std()).into()
    }

    fn sinusoid(&self, architecture: &Resolved) -> f64 {
        std::f64::consts::SQRT_2 * self.embedding_std(architecture)
    }

    fn residual(&self, _: &Resolved) -> Residual {
        let skip = self.ratio.hypot(1.0).recip();
        Residual { skip, branch: skip * self.ratio }
    }

    fn projections<'a>(&'a self, _: &'a Resolved, _: &Entrance) -> Result<Projections<'a>, SchemeError> {
        Ok(Box::new(|slot| {
            let gain = match slot.role {
                Role::Query | Role::Key => self.qk,
                Role::QueryDown | Role::KvDown | Role::Router => 1.0,
                Role::Value | Role::AttentionOutput => self.value,
                Role::FfnIn | Role::FfnGate | Role::FfnUp | Role::FfnOut | Role::ExpertOut | Role::Hidden => self.ffn,
            };
            normal(gain * slot.fans.lecun_std()).into()
        }))
    }
}
