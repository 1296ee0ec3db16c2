//! The Monte-Carlo engine: measurements of sampled networks.
//!
//! [`measure()`] samples the weights of a [`Stack`](sigprop_stack::Stack), runs it forward on sampled input and
//! backward on a sampled gradient, and reports the moments at every site with their standard errors. It contains no
//! theory, so its results are an independent check of every formula.
//!
//! ```
//! use std::sync::atomic::AtomicBool;
//!
//! use sigprop_stack::{Activation, Component, Gaussian, GradientSeed, Node, Quantity, Source, Stack, Stream};
//! use sigprop_validate::{Settings, measure};
//!
//! let stream = Stream {
//!     name: "main".to_owned(),
//!     seq_len: 4,
//!     source: Source::Gaussian(Gaussian { width: 256, mean: 0.0, variance: 1.0, correlation: 0.0 }),
//!     body: vec![Node::apply("relu", Component::Activation(Activation::Relu))],
//! };
//! let stack = Stack::new("one ReLU", vec![stream], GradientSeed { stream: 0, correlation: 0.0 });
//! let measurement = measure(&stack, &Settings::default(), &|_| {}, &AtomicBool::new(false))?;
//! let cell = measurement.table.site("relu").and_then(|row| row.get(Quantity::Mean)).expect("a measured mean");
//! let exact = 1.0 / (2.0 * std::f64::consts::PI).sqrt();
//! assert!((cell.value.value() - exact).abs() < 5.0 * cell.std_error.value());
//! # Ok::<(), sigprop_validate::MeasureError>(())
//! ```

mod array;
mod components;
mod controls;
mod fill;
mod journal;
mod lanes;
mod matmul;
mod measure;
mod orthogonal;
mod plan;
mod random;
mod replicates;
mod rows;
mod sample;
mod scalar;
mod shard;
mod signal;
mod softmax_alone;
mod statistics;
mod steps;
mod vectorised;
mod weights;

#[cfg(test)]
mod finite_differences;

pub use journal::{Identity, Journal, JournalError};
pub use measure::{
    MeasureError, Measurement, Progress, Sampling, Settings, Target, measure, measure_shard, measure_with,
};
pub use random::Draws;
#[doc(hidden)]
pub use random::draw_normals;
pub use sample::Replicate;
pub use shard::Shard;
pub use softmax_alone::measure_softmax;
pub use steps::{MapRow, StepMeasurement, measure_steps};
