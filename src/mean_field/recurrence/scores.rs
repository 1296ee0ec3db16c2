//! Fluctuations of the heads of a recurrence with their scores.
//!
//! ```text
//! v = 2 ρ² (s₁² + (n − 1) s₂²)/(s₁ + (n − 1) s₂)²        n = (1 + a)(1 − a^T)/((1 − a)(1 + a^T))
//! s₁ = (1 + (n − 1) c^σ)(1 + (n − 1) c^V)                s₂ = (1 − c^σ)(1 − c^V)
//! ```
//!
//! where v is the variance of the mean square of a head, relative to its square; ρ is the share of centred scores in the
//! second moment of the output; n is the number of keys in memory; a is the mean decay; T is the number of positions so
//! far; c^σ is the correlation of the centred scores of two keys; c^V is the correlation of two values; s₁, s₂ are the
//! eigenvalues of the products of both for n equal keys, the first of which all keys share.
//!
//! A score of a head fluctuates by its own size at any width, and a norm divides by it ([`super::super::heads`]).
//!
//! Example: one score of mean 0: the mean square of the head is m χ²₁, whose relative variance v is 2. Source: ours.

use sigprop_stack::Recurrence;

use super::ladder::rate;
use super::laws::Law;
use super::{States, means_product};
use crate::mean_field::few::Few;
use crate::mean_field::kernel::Kernel;
use crate::mean_field::signal::Signal;

/// Returns v at every node, for a recurrence with these states and with the kernel `output` of its output.
pub(super) fn variances(recurrence: &Recurrence, states: &States, output: &Kernel) -> Vec<f64> {
    let factor = recurrence.d_key as f64 * recurrence.scale * recurrence.scale;
    let scores = correlation_of_scores(&states.query, &states.key);
    let means = means_product(&states.query);
    let mut sums = vec![[0.0; 2]; output.own.len()];
    for of in &states.laws {
        let all = states.query.kernel.times(&of.held.kernel);
        let of_means = means.as_ref().zip(of.held_means.as_ref()).map(|(means, held)| means.times(&held.kernel));
        let values = correlation(&of.values);
        for (node, [centred, shared]) in sums.iter_mut().enumerate() {
            let of_means = of_means.as_ref().map_or(0.0, |of| of.own[node] * of.ln_unit.exp());
            let own = of.law.share * (all.own[node] * all.ln_unit.exp() - of_means).max(0.0);
            *centred += own;
            *shared += own * participation(states.keys_at(node, &of.law), [scores, values]);
        }
    }
    let of_node = |([centred, shared], own): ([f64; 2], &f64)| {
        let unit = factor / (own * output.ln_unit.exp());
        2.0 * unit * unit * centred * shared
    };
    sums.into_iter().zip(&output.own).map(of_node).collect()
}

impl States {
    /// Returns n, the number of keys in memory at a node, for one law.
    pub(super) fn keys_at(&self, node: usize, law: &Law) -> f64 {
        keys(rate(law.rung), (self.ladder.chart.nodes()[node] + 1) as f64)
    }
}

/// Returns the mean product of two positions, relative to the mean of own moments.
pub(super) fn correlation(kernel: &Kernel) -> f64 {
    let length = kernel.positions.length;
    let pairs = length * (length - 1.0);
    let mean = if pairs > 0.0 { kernel.positions.sum_pairs(|point| kernel.pairs[point]) / pairs } else { 0.0 };
    (mean * length / kernel.positions.sum(|node| kernel.own[node])).clamp(0.0, 1.0)
}

/// Returns c^σ, of the centred scores of two keys with one query.
fn correlation_of_scores(query: &Signal, key: &Signal) -> f64 {
    let of_mean = |part: &Signal| {
        let squares = |means: &Few<f64>| part.kernel.positions.sum(|node| means[node].powi(2));
        part.means.as_ref().map_or(0.0, squares) / part.kernel.positions.sum(|node| part.kernel.own[node])
    };
    let of_means = of_mean(query) * of_mean(key);
    ((correlation(&key.kernel) - of_means) / (1.0 - of_means)).clamp(0.0, 1.0)
}

/// Returns n for a decay a and this number T of positions.
fn keys(decay: f64, positions: f64) -> f64 {
    let left = decay.powf(positions);
    if left > 1.0 - 1e-9 { positions } else { (1.0 + decay) * (1.0 - left) / ((1.0 - decay) * (1.0 + left)) }
}

/// Returns the inverse of the number of eigenvalues that have a part in the mean square, for `keys` in memory.
fn participation(keys: f64, [scores, values]: [f64; 2]) -> f64 {
    let others = keys - 1.0;
    let shared = (1.0 + others * scores) * (1.0 + others * values);
    let own = (1.0 - scores) * (1.0 - values);
    (shared * shared + others * own * own) / (shared + others * own).powi(2)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// One key, or keys whose scores and values are equal, have one direction; independent keys have one each.
    #[test]
    fn keys_share_directions_if_they_are_alike() {
        approx::assert_relative_eq!(participation(1.0, [0.3, 0.2]), 1.0);
        approx::assert_relative_eq!(participation(5.0, [1.0, 1.0]), 1.0);
        approx::assert_relative_eq!(participation(5.0, [0.0, 0.0]), 0.2);
        approx::assert_relative_eq!(keys(0.5, 1.0), 1.0);
        approx::assert_relative_eq!(keys(1.0, 20.0), 20.0);
        approx::assert_relative_eq!(keys(0.5, 1000.0), 3.0);
    }
}
