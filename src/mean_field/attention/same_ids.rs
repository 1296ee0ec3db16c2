//! Repeated ids where all queries see all keys: the averages over ids of sums over keys and values.
//!
//! Averages over ids follow from V_bd = V° + δ [b, d have the same id], where V° is the kernel for different ids:
//!
//! ```text
//! E R R' − E R E R' = e₃ R_δ R_δ' + e₂ Σ_d W² δδ'
//! E P R'(b) − E P E R'(b) = 2 e₁ W² Σ_d W δδ'_bd + 2 e₃ W (R_δ R_δ'(b) + Σ_d W R_δ(d) δ'_bd)
//! E P P' − E P E P' = Σ_b W (E P R'(b) − E P E R'(b))
//! E (P | class of b, c) − E P = 2 W² (δ_bc ([same id] − π₂) + e_class Σ_d (δ_bd + δ_cd))      d others than b and c
//! ```
//!
//! where E is the average over ids; b, c, d are positions of tokens; R, P, R', P' are the sums of
//! [`super::everywhere`]; W is the flat weight of every key; δ, δ' are the excesses of the kernels of values and of
//! keys for two tokens with the same id; R_δ, R_δ' are Σ_d W δ_bd and Σ_d W δ'_bd, without d = b; [same id] is 1 if b
//! and c have the same id and 0 otherwise; π₂ is the probability that two tokens have the same id; e₁, e₂, e₃, e_class
//! are differences of probabilities that the header of [`super::repeats`] defines.
//!
//! Source: ours.

use std::sync::Arc;

use super::groups::{Drawn, KeyGroups};
use crate::mean_field::few::Few;
use crate::mean_field::kernel::Kernel;
use crate::mean_field::positions::{Positions, Repetition};

/// The excess δ of a kernel at pairs of tokens with the same id, and its averages R_δ over the second token.
pub(super) struct Difference {
    positions: Arc<Positions>,
    ids: Arc<Repetition>,
    /// δ at the points of a class.
    pairs: Few<f64>,
    /// R_δ at every node: the mean of δ over the second token.
    rows: Few<f64>,
}

impl Difference {
    /// Returns the excess of a kernel of tokens whose ids are random; `None` if ids are given, or if tokens have no
    /// ids.
    pub(super) fn new(kernel: &Kernel) -> Option<Self> {
        let positions = Arc::clone(&kernel.positions);
        let (ids, pairs) = (positions.repetition.clone()?, kernel.of_same_ids());
        let rows = positions.row_sums(&pairs).into_iter().map(|sum| sum / positions.length).collect();
        Some(Self { positions, ids, pairs, rows })
    }

    /// Returns the mean of δ over pairs of tokens.
    fn mean_of_pairs(&self) -> f64 {
        let Self { positions, rows, .. } = self;
        positions.sum(|node| rows[node]) / (positions.length - 1.0)
    }

    /// Returns the addition to P from repeated ids, at the points of each class of pairs.
    fn of_mean(&self) -> Few<f64> {
        let Self { positions, ids, pairs, rows } = self;
        let share = 2.0 / positions.length;
        let gain = |class: usize, point: usize| {
            let [b, c] = positions.ends(point, rows);
            let others = b + c - pairs[point] * share;
            (pairs[point] * (ids.of_pair(class) / positions.length) + others * ids.of_third(class)) * share
        };
        (0..positions.classes.len())
            .flat_map(|class| (0..pairs.len()).map(move |point| (class, point)))
            .map(|(class, point)| gain(class, point))
            .collect()
    }

    /// Returns the covariance, over random ids, of P of this kernel with P of `other`, a kernel of the same tokens.
    fn of_both_means(&self, other: &Self) -> f64 {
        let Self { positions, ids, rows, .. } = self;
        let length = positions.length;
        let products =
            |f: &dyn Fn(usize) -> f64| positions.row_sums(&(0..self.pairs.len()).map(f).collect::<Few<f64>>());
        let squares = products(&|point| self.pairs[point] * other.pairs[point]);
        let mut means = products(&|point| {
            let [_, second] = positions.ends(point, rows);
            other.pairs[point] * second
        });
        means.iter_mut().zip(rows.iter().zip(&other.rows)).for_each(|(mean, (&a, &b))| *mean = *mean / length + a * b);
        let [first, second] = [2.0 * ids.excess_of_both() / length.powi(3), 2.0 * ids.covariance() / length];
        positions.sum(|node| squares[node] * first + means[node] * second) / length
    }

    /// Returns the covariance, over random ids, of R(b) of this kernel with R(b) of `other`, averaged over b.
    fn of_both_rows(&self, other: &Self) -> f64 {
        let Self { positions, ids, rows, pairs } = self;
        let length = positions.length;
        let squares = positions.row_sums(&pairs.iter().zip(&other.pairs).map(|(&a, &b)| a * b).collect::<Few<f64>>());
        let at = |node: usize| {
            rows[node] * other.rows[node] * ids.covariance() + squares[node] * (ids.excess() / (length * length))
        };
        positions.sum(at) / length
    }
}

/// Returns the groups of keys and values, with the contributions of their ids to F₁ and P P'. Numbers are in units of
/// e^`ln_unit`; `trace` is tr of the values.
pub(super) fn groups(
    [key, value]: [&Difference; 2],
    queries: &Kernel,
    (ln_unit, trace): (f64, f64),
) -> (KeyGroups, [f64; 2]) {
    let (of_rows, of_means) = (key.of_both_rows(value), key.of_both_means(value));
    let everywhere = |of: f64| Kernel { ln_unit, ..Kernel::new(&queries.positions, |_| of, |_| of) };
    let each = |of: f64| -> Few<f64> { queries.own.iter().map(|_| of).collect() };
    let shift = everywhere(of_means - of_rows);
    let groups = KeyGroups {
        repetition: Arc::clone(&key.ids),
        differences: [key, value].map(|of| each(of.mean_of_pairs())),
        trace: each(trace),
        drawn: Some(Drawn { spread: everywhere(of_means - of_rows * 2.0), shift: [shift.clone(), shift] }),
    };
    (groups, [of_rows, of_means])
}

/// Adds the effect of repeated ids on P to a kernel, in each class of pairs, if `difference` belongs to the same tokens
/// as the kernel.
pub(super) fn with_ids(mut kernel: Kernel, difference: Option<&Difference>) -> Kernel {
    if let Some(difference) = difference.filter(|difference| Arc::ptr_eq(&difference.positions, &kernel.positions)) {
        kernel.pairs.iter_mut().zip(difference.of_mean()).for_each(|(pair, gain)| *pair += gain);
    }
    kernel
}
