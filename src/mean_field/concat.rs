//! Concatenation of several chains in every head, as for the queries and keys of latent attention.
//!
//! ```text
//! E y_a y_b = Σ_i share_i E f_ia f_ib         share_i = width_i/Σ_j width_j
//! ```
//!
//! where a, b are positions of tokens; E is the average over random weights and over features; i, j are parts; f_ia is
//! the output of part i at token a; share_i is the share of part i in the features of y; width_i is the number of
//! features of part i over all heads, where a part that heads share counts once per head.
//!
//! Every part receives the gradient of its features; a part that heads share receives the sum over heads. A query has
//! the gradient Σ_b δs_ab k_b, so that each of its parts is as large as that part of the keys. For a key, the parts of
//! the queries count (`Signal::parts`).
//!
//! Example: 2 heads, a part of 8 features of variance 1 and a part of 4 features of variance 3 that both heads share:
//! both parts have the share 8/16, and y has variance 2. A gradient of variance 1 at y becomes 1 at the first part and
//! 2 at the shared part.
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

#[cfg(test)]
mod tests {
    use sigprop_stack::ConcatPart;

    use super::*;

    #[test]
    fn example_of_the_header() {
        let part = |shared: bool| ConcatPart { shared, body: Vec::new() };
        let concat = Concat { n_heads: 2, parts: vec![part(false), part(true)] };
        let parts = [(8.0, 1.0), (4.0, 3.0)]
            .map(|(width, variance)| Arc::new(Signal::centred(width, Kernel::of_tokens(2.0, [variance, 0.5]))));
        let y = concat.merge(&parts[0], &parts);
        y.kernel.assert_is([2.0, 0.5]);
        let gradient = Gradient::independent(Kernel::of_tokens(2.0, [1.0, 0.0]));
        let gradients = concat.split(&parts[0], &parts, &gradient);
        gradients[0].kernel.assert_is([1.0, 0.0]);
        gradients[1].kernel.assert_is([2.0, 0.0]);
    }
}
