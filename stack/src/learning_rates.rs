//! Optimisers, and the learning rates of parameters relative to each other.

use serde::{Deserialize, Serialize};

/// An optimiser, which decides the direction of the first step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Optimizer {
    /// Stochastic gradient descent: the step is along the negative gradient.
    Sgd,
    /// Adam: the first step is along the negative sign of the gradient.
    Adam,
}

/// Factors on the learning rate of a parameter, one per optimiser.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LearningRates {
    /// The factor for [`Optimizer::Sgd`].
    pub sgd: f64,
    /// The factor for [`Optimizer::Adam`].
    pub adam: f64,
}

impl Default for LearningRates {
    fn default() -> Self {
        Self { sgd: 1.0, adam: 1.0 }
    }
}

impl LearningRates {
    /// Returns the factor for one optimiser.
    pub fn of(self, optimizer: Optimizer) -> f64 {
        match optimizer {
            Optimizer::Sgd => self.sgd,
            Optimizer::Adam => self.adam,
        }
    }

    /// Returns the factors multiplied by `factor`.
    #[must_use]
    pub fn scaled(self, factor: f64) -> Self {
        Self { sgd: factor * self.sgd, adam: factor * self.adam }
    }
}
