//! What theory *predicts* about a network at initialisation.

pub mod agreement;
mod domain;
mod moments;
pub mod numerals;
pub mod predict;
mod quadrature;
pub mod report;
mod rules;
pub mod stack_file;
pub mod verdict;

pub use predict::{Caveat, ForwardWalk, PredictError, Prediction, Sites, predict};
