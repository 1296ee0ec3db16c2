//! The interface of schemes, and the blocks that are built from it.

mod blocks;
mod error;
mod slot;
mod trained;

use std::collections::HashMap;

use sigprop_stack::{Init, LearningRates, ScaleParameter, Stack};

pub(crate) use blocks::Blocks;
pub use error::SchemeError;
pub(crate) use slot::{BlockNorm, Fans, Outer, Role, Slot, Table, normal, uniform};
pub(crate) use trained::{Growth, StreamPosition, Trained};

use crate::ForwardPass;
use crate::architecture::Resolved;
use crate::predict::PredictError;

/// A scheme: the distribution of every tensor, the scales of the residual connections, and the factors on learning
/// rates.
pub(crate) trait Recipe: std::fmt::Debug + Send + Sync {
    /// Returns an error if the scheme is not defined for a network.
    fn fits(&self, _architecture: &Resolved) -> Result<(), SchemeError> {
        Ok(())
    }

    /// The distribution of an embedding table; by default its std is `d_model`^(−1/2).
    fn embedding(&self, architecture: &Resolved, _table: Table) -> Init {
        Init::Normal { std: (architecture.d_model as f64).powf(-0.5) }
    }

    /// The distributions of weight and bias of a linear map outside the blocks. By default the map keeps the second
    /// moment.
    fn outer(&self, _architecture: &Resolved, _place: Outer, fans: Fans) -> Projection {
        normal(fans.lecun_std()).into()
    }

    /// The distribution of the logits of attention sinks; by default they are zero.
    fn sink(&self, _architecture: &Resolved) -> Init {
        Init::Zero
    }

    /// The amplitude of sinusoidal positions.
    fn sinusoid(&self, _architecture: &Resolved) -> f64 {
        1.0
    }

    /// Returns a function from the number of a residual connection to its scales. By default all scales are 1.
    fn residuals<'a>(
        &'a self,
        _architecture: &'a Resolved,
        _entrance: &Entrance<'_>,
    ) -> Result<Residuals<'a>, SchemeError> {
        Ok(Residual::constant(1.0, 1.0).everywhere())
    }

    /// The factor on the gains of norm `norm` in block `block`.
    fn norm_gain(&self, _norm: BlockNorm, _block: usize) -> f64 {
        1.0
    }

    /// Returns a function from the place of a linear map in the blocks to its distributions.
    fn projections<'a>(
        &'a self,
        architecture: &'a Resolved,
        entrance: &Entrance<'_>,
    ) -> Result<Projections<'a>, SchemeError>;

    /// Returns the distributions of weights, by name, that depend on the signal in the complete network. They replace
    /// those of [`Recipe::projections`]. `in_block` returns true for the names of the tensors of maps in blocks.
    fn solved(&self, _stack: &Stack, _in_block: &dyn Fn(&str) -> bool) -> Result<HashMap<String, Init>, SchemeError> {
        Ok(HashMap::new())
    }

    /// Returns a function from a parameter to its factors on learning rates; `None` if all parameters learn at the same
    /// rate. If a published scheme multiplies a parameter by a factor in the forward pass, the entries in the stack
    /// contain this factor, and learning rates are for these entries.
    fn learning_rates<'a>(&'a self, _architecture: &'a Resolved) -> Option<Rates<'a>> {
        None
    }

    /// The reason why the scheme is not meant for this architecture; `None` if it is.
    fn caveat(&self, _architecture: &Resolved) -> Option<String> {
        None
    }
}

/// A function from the place of a linear map in the blocks to the distributions of its weight and bias.
pub(crate) type Projections<'a> = Box<dyn Fn(&Slot) -> Projection + 'a>;

/// A function from the number of a residual connection to its scales. Connections are counted along the stream from 0,
/// as in [`Resolved::residual_sublayers`]. Parallel branches all have the scales of the first branch.
pub(crate) type Residuals<'a> = Box<dyn Fn(usize) -> Residual + 'a>;

/// A function from a parameter to its factors on learning rates.
pub(crate) type Rates<'a> = Box<dyn Fn(&Trained) -> LearningRates + 'a>;

/// A function that predicts the signal at the input of the first block in training mode, for schemes that depend on the
/// signal.
pub(crate) type Entrance<'a> = dyn Fn() -> Result<ForwardPass, PredictError> + 'a;

/// The distributions of weight and bias of a linear map.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Projection {
    pub(crate) weight: Init,
    pub(crate) bias: Init,
    /// The length to which the rows of the weight are standardised; `None` if they are not. Only linear maps in blocks
    /// can be standardised.
    pub(crate) standardised: Option<f64>,
}

/// A projection with the given distribution of the weight and a bias of zero.
impl From<Init> for Projection {
    fn from(weight: Init) -> Self {
        Self { weight, bias: Init::Zero, standardised: None }
    }
}

/// The scales of a residual connection x ↦ `skip`·x + `branch`·f(x).
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Residual {
    pub(crate) skip: f64,
    pub(crate) branch: f64,
    /// The kind of learned parameter that multiplies the branch, or `Constant` if `branch` is not learned.
    pub(crate) parameter: ScaleParameter,
}

impl Residual {
    /// Constant scales, which training does not change.
    pub(crate) fn constant(skip: f64, branch: f64) -> Self {
        Self { skip, branch, parameter: ScaleParameter::Constant }
    }

    /// Returns these scales for every residual connection.
    pub(crate) fn everywhere(self) -> Residuals<'static> {
        Box::new(move |_| self)
    }
}
