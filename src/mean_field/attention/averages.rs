//! What a query averages where all see all keys: W_ab = 1/L.
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
//! What all pairs have in common cancels in all but P; it is taken off first, for tokens may be almost copies.
//!
//! Source: ours.

use std::sync::Arc;

use crate::mean_field::moments::{Few, Kernel};
use crate::mean_field::positions::Positions;
use crate::mean_field::scalar::Scalar;
use crate::mean_field::softmax::{Row, Rows};

/// Averages over all keys, the same for every query.
pub(super) struct Averages<S> {
    keys: Arc<Positions>,
    /// Of D.
    ln_unit: f64,
    /// Keys and values less what all pairs have in common.
    pub(super) key: Side<S>,
    pub(super) value: Side<S>,
    /// P.
    pub(super) flat: S,
    /// D.
    pub(super) spread: S,
    /// X.
    pub(super) shift: S,
    /// Σ_b W V_bb.
    pub(super) square: S,
}

/// Keys, or values.
pub(super) struct Side<S> {
    /// Less what all pairs have in common.
    kernel: Kernel<S>,
    /// R of it, and P.
    rows: Few<S>,
    mean: S,
    /// Σ_b W K_bb − P.
    pub(super) trace: S,
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
    pub(super) fn contracted(&self, weights: &Kernel<S>) -> Kernel<S> {
        let length = self.kernel.positions.length;
        let all = total(weights) / (length * length);
        let own = self.kernel.own.iter().zip(&self.rows).map(|(&own, &row)| all * (own - row * 2.0 + self.mean));
        let pairs = self.kernel.map_pairs(&self.rows, |_, [a, b], product| all * (product - a - b + self.mean));
        self.kernel.with(self.kernel.ln_unit + weights.ln_unit, own.collect(), pairs)
    }
}

impl<S: Scalar> Averages<S> {
    pub(super) fn new(key: &Kernel<S>, value: &Kernel<S>) -> Self {
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
        Self {
            keys: Arc::clone(positions),
            ln_unit: key.kernel.ln_unit + value.kernel.ln_unit,
            flat: value.mean + common_value,
            spread: (squares + pairs) / (length * length) - crossed * 2.0 + means,
            shift: long - crossed + means,
            square,
            key,
            value,
        }
    }

    /// How many keys there are.
    pub(super) fn length(&self) -> f64 {
        self.keys.length
    }

    /// The row of a query whose scores have this variance per E k².
    pub(super) fn row(&self, score: S) -> Row<S> {
        let length = self.keys.length;
        let traces = self.key.trace * self.value.trace;
        if length < 2.0 || self.spread.value() <= 0.0 || traces.value() <= 0.0 {
            return Row::flat(S::from(length));
        }
        let keys = traces / self.spread + 1.0;
        let keys = if keys.value() > length { S::from(length) } else { keys };
        Rows::row(keys, score * self.key.trace * keys / (keys - 1.0))
    }

    /// Σ_b E A_b² V_bb.
    pub(super) fn squares(&self, row: &Row<S>) -> S {
        self.square * self.single(row)
    }

    /// Σ_b E A_b².
    pub(super) fn single(&self, row: &Row<S>) -> S {
        row.excess() * row.keys / self.keys.length + self.keys.length.recip()
    }

    /// Wᵀ Γ W of the gradient Γ, masks included.
    pub(super) fn gathered(&self, gamma: &Kernel<S>, rows: &[Row<S>], masked: f64) -> Kernel<S> {
        let length = self.keys.length;
        let queries = &gamma.positions;
        let all = total(gamma) / (length * length);
        let own = queries.sum(|node| gamma.own[node] * self.single(&rows[node])) * (masked / length);
        let kernel = Kernel::new(&self.keys, |_| all + own, |_| all);
        Kernel { ln_unit: gamma.ln_unit, ..kernel }
    }

    /// What masks add to gradients of keys: `weights` is Γ Q.
    pub(super) fn add_masked(
        &self,
        mut at_keys: Kernel<S>,
        weights: &Kernel<S>,
        rows: &[Row<S>],
        masked: f64,
    ) -> Kernel<S> {
        if masked > 0.0 {
            let length = self.keys.length;
            let sum =
                weights.positions.sum(|node| weights.own[node] * rows[node].passed * (-rows[node].keys.recip() + 1.0));
            let more = sum * self.square * masked / (length * length);
            at_keys.own.iter_mut().for_each(|own| *own += more);
        }
        at_keys
    }

    /// Γ D τ, masks included.
    pub(super) fn passed(&self, gamma: &Kernel<S>, rows: &[Row<S>], factors: &[S], masked: f64) -> Kernel<S> {
        let of_masks = self.square * self.key.trace * masked / self.keys.length;
        let own = gamma.own.iter().zip(rows).map(|(&own, row)| own * row.passed * (self.spread + of_masks)).collect();
        let pairs = gamma.pairs.iter().zip(factors).map(|(&pair, &factor)| pair * self.spread * factor).collect();
        gamma.with(gamma.ln_unit + self.ln_unit, own, pairs)
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
    let [differences, squares] = {
        let difference = |kernel: &Kernel<S>| -> Few<S> {
            let of = |point: usize| kernel.pairs[positions.class(1).start + point] - kernel.pairs[point];
            positions.class(0).map(of).collect()
        };
        let [of_key, of_value] = [key, value].map(difference);
        let products: Few<S> = of_key.iter().zip(&of_value).map(|(&a, &b)| a * b).collect();
        let [keys, values] = [of_key, of_value].map(|of| positions.row_sums(&of));
        let rows: Few<S> = keys.iter().zip(&values).map(|(&a, &b)| a * b / (length * length)).collect();
        [rows, positions.row_sums(&products)]
    };
    let rows = positions.sum(|node| differences[node]) / length;
    let pairs = positions.sum(|node| squares[node]) / length.powi(3);
    let of_rows = rows * together + pairs * (pair - triple);
    let of_means = (rows * (4.0 * together) + pairs * (2.0 * (pair - pair * pair - 2.0 * together))) / length;
    (of_rows, of_means)
}
