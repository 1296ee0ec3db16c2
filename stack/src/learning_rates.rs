//! Optimisers, and the learning rates of parameters relative to each other.

use serde::{Deserialize, Serialize};

/// Which way a first step goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Optimizer {
    /// Stochastic gradient descent: along the gradient.
    Sgd,
    /// Adam: along its sign.
    Adam,
}

/// Factors on the learning rate of a parameter, one per optimiser.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LearningRates {
    /// That of [`Optimizer::Sgd`].
    pub sgd: f64,
    /// That of [`Optimizer::Adam`].
    pub adam: f64,
}

impl Default for LearningRates {
    fn default() -> Self {
        Self { sgd: 1.0, adam: 1.0 }
    }
}

impl LearningRates {
    /// The factor of one optimiser.
    pub fn of(self, optimizer: Optimizer) -> f64 {
        match optimizer {
            Optimizer::Sgd => self.sgd,
            Optimizer::Adam => self.adam,
        }
    }

    /// All of them multiplied by `factor`.
    #[must_use]
    pub fn scaled(self, factor: f64) -> Self {
        Self { sgd: factor * self.sgd, adam: factor * self.adam }
    }
}
