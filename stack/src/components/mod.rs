//! The description of each component. One file per component; the same word names its rule, its sampled layer and their
//! twin test.

mod activation;
mod attention;
mod concat;
mod convolution;
mod disentangled;
mod dropout;
mod embedding;
mod expression;
mod image;
mod linear;
mod mixture;
mod norm;
mod pool;
mod prepend;
mod product;
mod recurrence;
mod rotary;
mod scale;
mod select;
mod sum;

pub use activation::Activation;
pub use attention::{Attention, Mask, PositionBias};
pub use concat::{Concat, ConcatPart};
pub use convolution::Convolution;
pub use disentangled::Disentangled;
pub use dropout::Dropout;
pub use embedding::{Embedding, EmbeddingTerm, Gaussian, GivenIds, Ids, PowerLaw, Source};
pub use expression::{Binary, Expression, ExpressionError, Step, Unary};
pub use image::{Axis, Image, Sliding, Tap};
pub use linear::Linear;
pub use mixture::{Mixture, Multiplied, Weighting};
pub use norm::{Norm, NormKind};
pub use pool::{Pool, PoolKind};
pub use prepend::Prepend;
pub use product::Product;
pub use recurrence::{Decay, Rates, Recurrence, StepBias, Stepped, Write};
pub use rotary::Rotary;
pub use scale::Scale;
pub use select::Select;
pub use sum::{Branch, ScaleParameter, Sum};

use serde::{Deserialize, Serialize};

/// A component with one input. All but [`Convolution`], [`Prepend`], [`Pool`] and BatchNorm act on single tokens. All but
/// [`Rotary`] and embeddings of positions act on every token in the same way.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Component {
    /// y = W x + b.
    Linear(Linear),
    /// LayerNorm or RMSNorm over the features of a token, BatchNorm over all tokens, or a function in their place.
    Norm(Norm),
    /// An elementwise function.
    Activation(Activation),
    /// Independent zeroing of entries, survivors scaled up.
    Dropout(Dropout),
    /// Multiplication by a number.
    Scale(Scale),
    /// Rotation of pairs of features by an angle that grows with the position.
    Rotary(Rotary),
    /// An embedding that is added after the source, such as embeddings of positions after a projection.
    Embedding(EmbeddingTerm),
    /// A convolution over positions.
    Convolution(Convolution),
    /// A learned token before all others.
    Prepend(Prepend),
    /// The mean or the largest value of windows of pixels.
    Pool(Pool),
    /// Some of the features.
    Select(Select),
}
