//! Embeddings of schemes that set the standard deviation of the sum of embeddings.

use sigprop_stack::Init;

use super::{Outer, Table};
use crate::architecture::Resolved;
use crate::recipe::{Fans, Projection, normal};

/// A scheme's standard deviation of the sum of embeddings, the input of the first block. All m summed embeddings
/// contribute equally: each has 1/√m of this standard deviation, the token embedding after its factor.
#[derive(Debug)]
pub(super) struct Summed(pub(super) f64);

impl Summed {
    /// The standard deviation of each of the summed embeddings.
    fn each(&self, architecture: &Resolved) -> f64 {
        self.0 / ((1 + architecture.added_embeddings()) as f64).sqrt()
    }

    pub(super) fn embedding(&self, architecture: &Resolved, table: Table) -> Init {
        let std = self.each(architecture);
        match table {
            Table::Token => normal(std / architecture.embedding_scale.abs()),
            Table::Position | Table::Segment | Table::TokenType | Table::ClassToken => normal(std),
            // Embeddings of relative positions are summed with nothing.
            Table::RelativeEmbedding => normal(self.0),
            // A relative bias is added to scores. Like these, it is of order one at most.
            Table::RelativeBias => normal((architecture.d_model as f64).powf(-0.5)),
        }
    }

    /// The distributions of a linear map outside the blocks. Maps keep the second moment, except a stem: its output is
    /// one of the summed embeddings.
    pub(super) fn outer(&self, architecture: &Resolved, place: Outer, fans: Fans) -> Projection {
        let std = match place {
            Outer::EmbeddingIn | Outer::EmbeddingOut | Outer::Head => 1.0,
            Outer::Stem => self.each(architecture),
        };
        normal(std * fans.lecun_std()).into()
    }

    /// The amplitude of sinusoidal positions: sinusoids of amplitude a have second moment a²/2.
    pub(super) fn sinusoid(&self, architecture: &Resolved) -> f64 {
        std::f64::consts::SQRT_2 * self.each(architecture)
    }
}
