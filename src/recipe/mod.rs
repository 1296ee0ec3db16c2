//! What a scheme must say.

mod blocks;
mod error;
mod slot;
mod trained;

use sigprop_stack::{Init, LearningRates, ScaleParameter};

pub(crate) use blocks::Blocks;
pub use error::SchemeError;
pub(crate) use slot::{BlockNorm, Fans, Outer, Role, Slot, Table, normal, uniform};
pub(crate) use trained::{Growth, Place, Trained};

use crate::ForwardWalk;
use crate::architecture::Resolved;
use crate::predict::PredictError;

/// A scheme: the distribution of every tensor, the scales of the residual connections, factors on learning rates.
pub(crate) trait Recipe: std::fmt::Debug + Send + Sync {
    /// Refuses a network that the scheme is not defined for.
    fn fits(&self, _architecture: &Resolved) -> Result<(), SchemeError> {
        Ok(())
    }

    /// An embedding table; untouched, it has std `d_model`^(−1/2).
    fn embedding(&self, architecture: &Resolved, _table: Table) -> Init {
        Init::Normal { std: (architecture.d_model as f64).powf(-0.5) }
    }

    /// A linear map outside the blocks; untouched, it keeps the second moment.
    fn outer(&self, _architecture: &Resolved, _place: Outer, fans: Fans) -> Projection {
        normal(fans.lecun_std()).into()
    }

    /// Amplitude of sinusoidal positions.
    fn sinusoid(&self, _architecture: &Resolved) -> f64 {
        1.0
    }

    /// The scales of all residual connections.
    fn residuals<'a>(
        &'a self,
        _architecture: &'a Resolved,
        _entrance: &Entrance<'_>,
    ) -> Result<Residuals<'a>, SchemeError> {
        Ok(Residual::constant(1.0, 1.0).everywhere())
    }

    /// Factor on the gains of a norm of block `block`.
    fn norm_gain(&self, _norm: BlockNorm, _block: usize) -> f64 {
        1.0
    }

    /// The linear maps of all blocks.
    fn projections<'a>(
        &'a self,
        architecture: &'a Resolved,
        entrance: &Entrance<'_>,
    ) -> Result<Projections<'a>, SchemeError>;

    /// Factors on the learning rates of all parameters; none where they learn at one rate. What the forward pass would
    /// multiply a parameter by is in its entries, so that its steps are those of what is written into the stack.
    fn learning_rates<'a>(&'a self, _architecture: &'a Resolved) -> Option<Rates<'a>> {
        None
    }

    /// Why the scheme is not meant for this architecture, if it is not.
    fn caveat(&self, _architecture: &Resolved) -> Option<String> {
        None
    }
}

/// The distributions of any linear map of a network.
pub(crate) type Projections<'a> = Box<dyn Fn(&Slot) -> Projection + 'a>;

/// The scales of any residual connection of a network. They are counted along the stream from 0, as
/// [`Resolved::residual_sublayers`] does; where branches are side by side, the first of them tells.
pub(crate) type Residuals<'a> = Box<dyn Fn(usize) -> Residual + 'a>;

/// Factors on the learning rates of any parameter of a network.
pub(crate) type Rates<'a> = Box<dyn Fn(&Trained) -> LearningRates + 'a>;

/// What enters the first block in training, for schemes that follow the signal.
pub(crate) type Entrance<'a> = dyn Fn() -> Result<ForwardWalk, PredictError> + 'a;

/// Weight and bias of a linear map.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Projection {
    pub(crate) weight: Init,
    pub(crate) bias: Init,
    /// Length of the rows that the weight is standardised to, if it is; of linear maps in blocks alone.
    pub(crate) standardised: Option<f64>,
}

/// A weight, and biases of zero.
impl From<Init> for Projection {
    fn from(weight: Init) -> Self {
        Self { weight, bias: Init::Zero, standardised: None }
    }
}

/// x ↦ `skip`·x + `branch`·f(x).
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Residual {
    pub(crate) skip: f64,
    pub(crate) branch: f64,
    /// The kind of parameter that `branch` is, if it is one.
    pub(crate) parameter: ScaleParameter,
}

impl Residual {
    /// Scales that training leaves as they are.
    pub(crate) fn constant(skip: f64, branch: f64) -> Self {
        Self { skip, branch, parameter: ScaleParameter::Constant }
    }

    /// The same scales at every residual connection.
    pub(crate) fn everywhere(self) -> Residuals<'static> {
        Box::new(move |_| self)
    }
}
