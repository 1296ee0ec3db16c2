//! The description of a network: plain data with every number resolved ([`Stack`]), its check ([`check()`],
//! [`parameters`]), the only traversal ([`run`], [`Interpreter`]) and the common result of all interpreters
//! ([`SiteTable`]).
//!
//! A stack says nothing about theory or sampling. Two interpreters traverse it: the predictor, which carries moments,
//! and the engine, which carries sampled arrays. Neither depends on the other.

mod check;
mod components;
mod error;
mod head;
mod learning_rates;
mod number;
mod parameter;
mod read;
mod role;
mod site;
mod stack;
mod table;
mod tensor;
mod traverse;

pub use check::{check, parameters};
pub use components::{
    Activation, Attention, Axis, Binary, Branch, Component, Concat, ConcatPart, Convolution, Decay, Disentangled,
    Dropout, Embedding, EmbeddingTerm, Expression, ExpressionError, Gaussian, GivenIds, Ids, Image, Linear, Mask,
    Mixture, Multiplied, Norm, NormKind, Pool, PoolKind, PositionBias, PowerLaw, Prepend, Product, Rates, Recurrence,
    Rotary, Scale, ScaleParameter, Select, Sliding, Source, Step, StepBias, Stepped, Sum, Tap, Unary, Weighting, Write,
};
pub use error::StackError;
pub use head::Head;
pub use learning_rates::{LearningRates, Optimizer};
pub use number::Number;
pub use parameter::{Named, Parameter, Values};
pub use read::Read;
pub use role::{MapRole, RoleKind};
pub use site::{BlockName, Site};
pub use stack::{GradientSeed, Node, Op, RowGroup, Stack, Stream};
pub use table::{Cell, Quantity, SiteRow, SiteTable, WeightRow};
pub use tensor::{Init, Tensor};
pub use traverse::{Fan, Input, Interpreter, advance, forward, run};

/// Number of bytes in a GiB.
pub const GIBIBYTE: f64 = 1024.0 * 1024.0 * 1024.0;
