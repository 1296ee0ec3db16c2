//! What a query sees where all see all keys: W_ab = 1/L.
//!
//! ```text
//! R(b) = Σ_d W V_bd     P = Σ_b W R(b)     of keys R', P'     F = Σ_bd W² V_bd K_bd     N = Σ_b W R(b) R'(b)     M = P P'
//! D = F − 2 N + M       X = ½ Σ_b W (K_bb − Σ W K) R(b) − N + M       (how the mean row leans to long keys, from keys like others)
//! ```
//!
//! Averages over ids: of V_bd = V° + δ [b, d have the same id], π_k the probability that k tokens have, ε = π₃ − π₂²,
//!
//! ```text
//! E R R' − E R E R' = ε ρ ρ' + (π₂ − π₃) Σ_d W² δδ'        ρ(b) = Σ_d W δ_bd
//! E P P' − E P E P' = 2 (π₂ − π₂² − 2ε) Σ_bd W⁴ δδ' + 4 ε Σ_b W² ρ ρ'
//! ```
//!
//! What all pairs have in common cancels in all but P; it is taken off first, for tokens may be almost copies. Source: ours.

use super::view::{Back, Seen, Turned, effective};
use crate::mean_field::moments::{Few, Kernel};
use crate::mean_field::scalar::Scalar;

/// Keys and values.
pub(super) struct Everywhere<S> {
    key: Side<S>,
    value: Side<S>,
    /// Σ_b W V_bb.
    square: S,
}

/// Keys, or values.
struct Side<S> {
    /// Less what all pairs have in common.
    kernel: Kernel<S>,
    /// R of it, and P.
    rows: Few<S>,
    mean: S,
    /// Σ_b W K_bb − P.
    trace: S,
}

impl<S: Scalar> Side<S> {
    fn new(kernel: &Kernel<S>, common: S) -> Self {
        let positions = &kernel.positions;
        let length = positions.length;
        let kernel = kernel.less(common);
        let sums = positions.row_sums(&positions.class_mean(|point| kernel.pairs[point]));
        let rows: Few<S> = sums.iter().zip(&kernel.own).map(|(&sum, &own)| (sum + own) / length).collect();
        let mean = positions.sum(|node| rows[node]) / length;
        let trace = positions.sum(|node| kernel.own[node]) / length - mean;
        Self { kernel, rows, mean, trace }
    }

    /// C(M, N) of this kernel M.
    fn contracted(&self, weights: &Kernel<S>) -> Kernel<S> {
        let length = self.kernel.positions.length;
        let all = total(weights) / (length * length);
        let own = self.kernel.own.iter().zip(&self.rows).map(|(&own, &row)| all * (own - row * 2.0 + self.mean));
        let pairs = self.kernel.map_pairs(&self.rows, |_, [a, b], product| all * (product - a - b + self.mean));
        self.kernel.with(self.kernel.ln_unit + weights.ln_unit, own.collect(), pairs)
    }
}

impl<S: Scalar> Everywhere<S> {
    pub(super) fn see(queries: &Kernel<S>, key: &Kernel<S>, value: &Kernel<S>) -> Seen<S> {
        let positions = &key.positions;
        let length = positions.length;
        let average = |of: &dyn Fn(usize) -> S| positions.sum(of) / length;
        let all_pairs = length * (length - 1.0);
        let common = |kernel: &Kernel<S>| {
            if all_pairs > 0.0 { positions.sum_pairs(|point| kernel.pairs[point]) / all_pairs } else { S::from(0.0) }
        };
        let (square, common_value) = (average(&|node| value.own[node]), common(value));
        let [key, value] = [Side::new(key, common(key)), Side::new(value, common_value)];
        let pairs = positions.sum_pairs(|point| key.kernel.pairs[point] * value.kernel.pairs[point]);
        let squares = positions.sum(|node| key.kernel.own[node] * value.kernel.own[node]);
        let (of_rows, of_means) = repeats(&key.kernel, &value.kernel);
        let crossed = average(&|node| key.rows[node] * value.rows[node]) + of_rows;
        let means = key.mean * value.mean + of_means;
        let long = average(&|node| (key.kernel.own[node] - key.trace - key.mean) * value.rows[node]) * 0.5;
        let spread = (squares + pairs) / (length * length) - crossed * 2.0 + means;
        let everywhere = |ln_unit: f64, of: S| Kernel { ln_unit, ..Kernel::new(&queries.positions, |_| of, |_| of) };
        let both = key.kernel.ln_unit + value.kernel.ln_unit;
        let shift = everywhere(both, long - crossed + means);
        let each = |of: S| -> Few<S> { queries.own.iter().map(|_| of).collect() };
        Seen {
            flat: everywhere(value.kernel.ln_unit, value.mean + common_value),
            spread: Turned { behind: everywhere(both, spread), before: None },
            shift: [shift.clone(), shift],
            keys: each(effective(key.trace * value.trace, spread, length)),
            trace: each(key.trace),
            square: each(square),
            single: queries.own.iter().map(|_| length.recip()).collect(),
            back: Back::Everywhere(Self { key, value, square }),
        }
    }

    /// Wᵀ Γ W of the gradient Γ, and what masks add of its own moments, `masked`.
    pub(super) fn gathered(&self, gamma: &Kernel<S>, masked: &[S]) -> Kernel<S> {
        let positions = &self.value.kernel.positions;
        let length = positions.length;
        let all = total(gamma) / (length * length);
        let own = gamma.positions.sum(|node| masked[node]) / (length * length);
        Kernel { ln_unit: gamma.ln_unit, ..Kernel::new(positions, |_| all + own, |_| all) }
    }

    /// C(K, N), from N.
    pub(super) fn at_values(&self, weights: &Kernel<S>) -> Kernel<S> {
        self.key.contracted(weights)
    }

    /// C(V, N), from N and its own moments under masks.
    pub(super) fn at_keys(&self, weights: &Kernel<S>, masked: &[S]) -> Turned<S> {
        let mut kernel = self.value.contracted(weights);
        let length = kernel.positions.length;
        let masked = weights.positions.sum(|node| masked[node]) * self.square / (length * length);
        // Gradients of all keys add up to nothing.
        kernel.own.iter_mut().for_each(|own| *own += masked * (1.0 - 1.0 / length));
        kernel.pairs.iter_mut().for_each(|pair| *pair += masked * (-1.0 / length));
        Turned { behind: kernel, before: None }
    }
}

/// Σ_ac of a kernel, without its unit.
fn total<S: Scalar>(kernel: &Kernel<S>) -> S {
    kernel.positions.sum(|node| kernel.own[node]) + kernel.positions.sum_pairs(|point| kernel.pairs[point])
}

/// What ids add to N and M.
fn repeats<S: Scalar>(key: &Kernel<S>, value: &Kernel<S>) -> (S, S) {
    let positions = &key.positions;
    let [_, pair] = positions.classes.as_slice() else { return (S::from(0.0), S::from(0.0)) };
    let (pair, triple, length) = (*pair, positions.triple, positions.length);
    let together = triple - pair * pair;
    let [of_key, of_value] = [key, value].map(|kernel| -> Few<S> {
        let difference = |point: usize| kernel.pairs[positions.class(1).start + point] - kernel.pairs[point];
        positions.class(0).map(difference).collect()
    });
    let products: Few<S> = of_key.iter().zip(&of_value).map(|(&a, &b)| a * b).collect();
    let [keys, values, squares] = [of_key, of_value, products].map(|of| positions.row_sums(&of));
    let rows = positions.sum(|node| keys[node] * values[node]) / length.powi(3);
    let pairs = positions.sum(|node| squares[node]) / length.powi(3);
    let of_rows = rows * together + pairs * (pair - triple);
    let of_means = (rows * (4.0 * together) + pairs * (2.0 * (pair - pair * pair - 2.0 * together))) / length;
    (of_rows, of_means)
}
