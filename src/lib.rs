//! What theory *predicts* about a network at initialisation.

pub mod predict;

pub use predict::{Caveat, ForwardWalk, PredictError, Prediction, Sites, predict};
