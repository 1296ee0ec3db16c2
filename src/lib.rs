//! What theory *predicts* about a network at initialisation.

pub mod agreement;
pub mod numerals;
pub mod predict;
pub mod verdict;

pub use predict::{Caveat, ForwardWalk, PredictError, Prediction, Sites, predict};
