//! The initialisation of a Hugging Face model: the distribution that its class gives every tensor.
//!
//! # Source
//!
//! The table `hf_init` of the architecture, which the importer of configs fills in.

use sigprop_stack::Init;

use super::{About, Outer, Role, SchemeError, Table};
use crate::architecture::{InitTable, Kind, Mixer, Resolved};
use crate::recipe::{Entrance, Fans, Projection, Projections, Recipe};

pub(super) const ABOUT: About = About {
    name: "hf",
    parameters: &[],
    rule: "every tensor as the library draws it for the model type, its initializer_range and depth; biases 0",
    source: "the modelling code of Hugging Face transformers 5.23.0, by way of the config",
    touches: "embeddings, all linear weights, routers, convolutions",
    build: |_| Box::new(Hf),
};

#[derive(Debug)]
struct Hf;

impl Recipe for Hf {
    fn fits(&self, architecture: &Resolved) -> Result<(), SchemeError> {
        let needs = |expected: &str, got: &str| {
            Err(SchemeError::Undefined { scheme: ABOUT.name, expected: expected.to_owned(), got: got.to_owned() })
        };
        match (architecture.kind, architecture.hf_init) {
            (Kind::Encoder, Some(_)) => Ok(()),
            (Kind::Encoder, None) => needs("the table `hf_init`, which a Hugging Face config brings", "no table"),
            (Kind::Mlp, _) => needs("a Transformer", "an MLP"),
        }
    }

    fn embedding(&self, architecture: &Resolved, table: Table) -> Init {
        let init = distributions(architecture);
        match table {
            Table::Token => init.token,
            Table::Position => init.position,
            Table::Segment | Table::TokenType => init.segment,
            Table::ClassToken => init.class_token,
            Table::RelativeBias | Table::RelativeEmbedding => init.relative,
        }
    }

    fn sink(&self, architecture: &Resolved) -> Init {
        distributions(architecture).sink
    }

    fn outer(&self, architecture: &Resolved, place: Outer, _: Fans) -> Projection {
        let init = distributions(architecture);
        match place {
            Outer::EmbeddingIn | Outer::EmbeddingOut => init.projection,
            Outer::Head => init.head.unwrap_or(init.projection),
            Outer::Stem => init.stem,
        }
        .into()
    }

    fn projections<'a>(&'a self, architecture: &'a Resolved, _: &Entrance) -> Result<Projections<'a>, SchemeError> {
        let init = distributions(architecture);
        Ok(Box::new(move |slot| {
            let weight = match slot.role {
                Role::Query | Role::QueryDown => init.query,
                Role::Key | Role::KvDown => init.key,
                Role::Value => init.value,
                Role::Taps => init.taps.unwrap_or(init.value),
                Role::Step => init.step.unwrap_or(init.value),
                Role::AttentionOutput if architecture.mixer_of(slot.block) == Mixer::Recurrence => {
                    init.recurrence_output.unwrap_or(init.attention_output)
                }
                Role::AttentionOutput => init.attention_output,
                Role::FfnIn | Role::FfnGate | Role::FfnUp | Role::Hidden => init.ffn_in,
                Role::FfnOut => init.ffn_out,
                Role::Router => init.router,
                Role::ExpertOut => init.expert_out,
            };
            let in_ffn = matches!(slot.role, Role::FfnIn | Role::FfnGate | Role::FfnUp | Role::FfnOut);
            Projection { bias: if in_ffn { init.ffn_bias } else { Init::Zero }, ..weight.into() }
        }))
    }
}

fn distributions(architecture: &Resolved) -> InitTable {
    architecture.hf_init.expect("a network without a table does not fit the scheme")
}
