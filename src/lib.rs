//! What theory *predicts* about a network at initialisation.

pub mod architecture;
pub mod assemble;
pub mod cost;
mod domain;
mod moments;
mod nearest;
pub mod predict;
pub mod presets;
mod quadrature;
mod root;
mod rules;
pub mod schemes;

pub use predict::{Caveat, ForwardWalk, PredictError, Prediction, Sites, predict};
