//! Embeddings of schemes that say what the std of their sum is.

use sigprop_stack::Init;

use super::{Outer, Table};
use crate::architecture::Resolved;
use crate::recipe::{Fans, Projection, normal};

/// Everything that enters the first block has this std, in equal parts: m summed embeddings have 1/√m of it each, the
/// token's behind its scale.
#[derive(Debug)]
pub(super) struct Summed(pub(super) f64);

impl Summed {
    /// Std of each of the summed embeddings.
    fn each(&self, architecture: &Resolved) -> f64 {
        self.0 / ((1 + architecture.added_embeddings()) as f64).sqrt()
    }

    pub(super) fn embedding(&self, architecture: &Resolved, table: Table) -> Init {
        let std = self.each(architecture);
        match table {
            Table::Token => normal(std / architecture.embedding_scale.abs()),
            Table::Position | Table::Segment | Table::TokenType | Table::ClassToken => normal(std),
            // Scores, like those of queries and keys, are of order one at most.
            Table::RelativeBias => normal((architecture.d_model as f64).powf(-0.5)),
        }
    }

    /// Maps outside the blocks keep the second moment; that of a stem is one of the summed embeddings.
    pub(super) fn outer(&self, architecture: &Resolved, place: Outer, fans: Fans) -> Projection {
        let std = match place {
            Outer::EmbeddingIn | Outer::EmbeddingOut | Outer::Head => 1.0,
            Outer::Stem => self.each(architecture),
        };
        normal(std * fans.lecun_std()).into()
    }

    /// Sinusoids of amplitude a have second moment a²/2.
    pub(super) fn sinusoid(&self, architecture: &Resolved) -> f64 {
        std::f64::consts::SQRT_2 * self.each(architecture)
    }
}
