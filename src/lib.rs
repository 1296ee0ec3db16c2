//! What theory *predicts* about a network at initialisation.

pub mod agreement;
mod domain;
mod moments;
pub mod numerals;
pub mod predict;
mod quadrature;
mod rules;
pub mod verdict;

pub use predict::{Caveat, ForwardWalk, PredictError, Prediction, Sites, predict};
