//! What theory *predicts* about a network at initialisation.

mod domain;
mod moments;
pub mod predict;
mod quadrature;
mod rules;

pub use predict::{Caveat, ForwardWalk, PredictError, Prediction, Sites, predict};
