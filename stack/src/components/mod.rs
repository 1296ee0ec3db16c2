//! What each component is. One file per component; the same word names its rule, its sampled layer
//! and their twin test.

mod activation;
mod attention;
mod dropout;
mod embedding;
mod linear;
mod norm;
mod product;
mod sum;

pub use activation::Activation;
pub use attention::Attention;
pub use dropout::Dropout;
pub use embedding::{Embedding, EmbeddingTerm, Gaussian, Ids, Source};
pub use linear::Linear;
pub use norm::{Norm, NormKind};
pub use product::Product;
pub use sum::{Branch, Sum};

use serde::{Deserialize, Serialize};

/// A component that acts on every token alike, and so on every pair of tokens alike.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Component {
    /// y = W x + b.
    Linear(Linear),
    /// LayerNorm or RMSNorm over the features of a token.
    Norm(Norm),
    /// An elementwise function.
    Activation(Activation),
    /// Independent zeroing of entries, survivors scaled up.
    Dropout(Dropout),
}
