//! Concatenation of several chains in every head, as for the queries and keys of latent attention.
//!
//! ```text
//! E y_a y_b = Σ_i u_i E f_ia f_ib         u_i = width_i/Σ width, a part that heads share counted once per head
//! ```
//!
//! Every part receives the gradient of its features; a part that heads share receives the sum over heads. A query has
//! the gradient Σ_b δs_ab k_b, so that each of its parts is as large as that part of the keys. For a key, the parts of
//! the queries count (`Signal::parts`).
//!
//! Assumption: the parts of queries and of keys have similar correlations. Source: DeepSeek-AI 2024 for the network.

use std::sync::Arc;

use sigprop_stack::Concat;

use super::component::MeanFieldFan;
use super::gradient::Gradient;
use super::kernel::Kernel;
use super::rotation::Rotation;
use super::signal::{Part, Signal};

/// Returns the number of features of every part in the output.
fn widths(concat: &Concat, parts: &[Arc<Signal>]) -> Vec<f64> {
    let heads = |index: usize| if concat.parts[index].shared { concat.n_heads as f64 } else { 1.0 };
    parts.iter().enumerate().map(|(index, part)| heads(index) * part.width).collect()
}

impl MeanFieldFan for Concat {
    fn merge(&self, _: &Signal, parts: &[Arc<Signal>]) -> Signal {
        let widths = widths(self, parts);
        let total: f64 = widths.iter().sum();
        let kernels = widths.iter().map(|width| width / total).zip(parts.iter().map(|part| &part.kernel));
        let kernel = Kernel::sum(kernels);
        let level = |kernel: &Kernel| kernel.positions.sum(|node| kernel.own[node]).ln() + kernel.ln_unit;
        let all = level(&kernel);
        let part = |(width, part): (&f64, &Arc<Signal>)| {
            let features = width / total;
            let squares = features * (level(&part.kernel) - all).exp();
            Part { features, squares, rotation: part.rotation.clone() }
        };
        let parts: Arc<[Part]> = widths.iter().zip(parts).map(part).collect();
        let rotation = Rotation::mixed(parts.iter().map(|part| (part.squares, part.rotation.as_ref())));
        Signal { parts: Some(parts), rotation, ..Signal::centred(total, kernel) }
    }

    fn split(&self, _: &Signal, parts: &[Arc<Signal>], gradient: &Gradient) -> Vec<Gradient> {
        let widths = widths(self, parts);
        let total: f64 = widths.iter().sum();
        let part = |(index, width): (usize, &f64)| {
            let heads = if self.parts[index].shared { self.n_heads as f64 } else { 1.0 };
            let share = gradient.parts.as_ref().map_or(1.0, |shares| shares[index] * total / width);
            Gradient::independent(gradient.kernel.scaled(heads * share))
        };
        widths.iter().enumerate().map(part).collect()
    }
}
