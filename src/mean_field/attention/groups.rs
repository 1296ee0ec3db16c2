//! Attention rows whose keys form groups of unequal size; a group has the tokens of one id.
//!
//! Gradients of two keys (or values) with the same id are less correlated than gradients of other pairs. The kernel
//! C(M, N) therefore has the correction
//!
//! ```text
//! λ ([same id] − π₂) δ_bd S_bd          S_bd = Σ_a N_aa W_ab W_ad
//! Σ_bd M'_bd of all corrections = Σ_ac N_ac D°_ac, for values also + Σ_ac Γ_ac (Q_aa χ_a X°_ac + Q_cc χ_c X°_ca)
//! ```
//!
//! where λ is the factor for which the second line holds; [same id] is 1 if b and d have the same id and 0 otherwise;
//! π₂ is the probability that two tokens have the same id; M is the kernel of keys for gradients at values, and of
//! values for gradients at keys; M' is the kernel of values for gradients at values, and of keys for gradients at keys;
//! δ is the excess of M for two tokens with the same id over M of other pairs; S is the sum over queries of N_aa times
//! the weights of both keys; W is the matrix of flat weights; a, c are positions of queries; b, d are positions of
//! keys; N is Γ∘Q∘σ for values and Γ∘Q∘τ for keys, as in [`super`]; D°, X° are the parts of D and X from the
//! fluctuation of the number of repeats of an id; Γ is the kernel E g_a g_b of the gradients at the output; Q is the
//! kernel of queries; χ is the factor of sharp rows on the shift of the mean weights.
//!
//! The second line holds because weight gradients are the same from queries, outputs and keys. In sharp rows the factor
//! of a single key exceeds the factor of the common part of keys. This excess adds Σ_ac e_ac W_ab W_cb to the variance
//! of a key, at the expense of the other keys; e_ac/N_ac is linear in the correlation of a and c.
//!
//! Assumption: the correction is proportional to S. Source: ours.

use std::sync::Arc;

use crate::mean_field::few::Few;
use crate::mean_field::kernel::Kernel;
use crate::mean_field::positions::Repetition;
use crate::mean_field::softmax::SoftmaxRow;

/// Statistics of groups of keys; a group has the keys of one id.
pub(super) struct KeyGroups {
    pub(super) repetition: Arc<Repetition>,
    /// The mean of δ over pairs of tokens in view, per query: first of the keys, then of the values. δ is the excess of
    /// the kernel for two tokens with the same id.
    pub(super) differences: [Few<f64>; 2],
    /// tr of the values, per query: the variance of the values in view about their average.
    pub(super) trace: Few<f64>,
    /// The parts D° and X° of D and X; `None` if ids are given, because kernels then contain the repeats themselves.
    pub(super) drawn: Option<Drawn>,
}

/// The parts of D and X from the random number of repeats: D° is `spread`, and X°_ac and X°_ca are `shift`.
pub(super) struct Drawn {
    pub(super) spread: Kernel,
    pub(super) shift: [Kernel; 2],
}

impl KeyGroups {
    /// Returns the row of a query with factors for repeated ids, from the `row` without them. `score` is v Q_aa,
    /// `trace` is tr of the keys, and `seen` is the number of keys in view.
    pub(super) fn row(&self, row: SoftmaxRow, node: usize, [score, trace]: [f64; 2], seen: f64) -> SoftmaxRow {
        let [of_keys, of_values] = self.differences.each_ref().map(|of| of[node]);
        // The variance minus the covariance of tokens with different ids.
        let apart = |trace: f64, difference: f64| trace * (seen / (seen - 1.0)) + difference * self.repetition.same();
        let [key, value] = [apart(trace, of_keys), apart(self.trace[node], of_values)];
        let likeness = of_keys * of_values / (key * value);
        if of_keys > 0.0 && likeness > 0.0 {
            row.with_ids(&self.repetition, seen, score * key, likeness.sqrt())
        } else {
            row
        }
    }

    /// Returns the statistics of keys with given ids. `trace` is tr of the values, per query. `None` if ids are not
    /// given or do not repeat.
    pub(super) fn given([key, value]: [&Kernel; 2], trace: &Few<f64>) -> Option<Self> {
        let repetition = &key.positions.given.as_ref()?.repetition;
        let each = |of: &Kernel| -> Few<f64> {
            let difference = difference(of);
            trace.iter().map(|_| difference).collect()
        };
        let differences = [each(key), each(value)];
        (repetition.same() > 0.0).then(|| Self {
            repetition: Arc::clone(repetition),
            differences,
            trace: trace.clone(),
            drawn: None,
        })
    }

    /// Returns the correction of C(M, N), where `weights` is N, `excess` is e, and `shift_total` is the sum with X° in
    /// the second formula of the header.
    pub(super) fn correction(
        &self,
        weights: &Kernel,
        drawn: &Drawn,
        excess: Kernel,
        shift_total: f64,
    ) -> GroupCorrection<'_> {
        let target = weights.contracted(&drawn.spread) + shift_total;
        GroupCorrection { repetition: &self.repetition, excess, target }
    }
}

/// Returns the mean product of two tokens with the same given id, minus the mean product of other pairs.
fn difference(kernel: &Kernel) -> f64 {
    let positions = &kernel.positions;
    let same = |point: usize| f64::from(u8::from(positions.has_same_ids(point)));
    let mean = |of: &dyn Fn(usize) -> f64| {
        let count = positions.sum_pairs(of);
        positions.sum_pairs(|point| kernel.pairs[point] * of(point)) / count.max(1.0)
    };
    mean(&same) - mean(&|point| 1.0 - same(point))
}

/// Returns the kernel without the excess covariance of tokens with the same given id.
pub(super) fn without_same_ids(kernel: &Kernel) -> Kernel {
    let (positions, difference) = (&kernel.positions, difference(kernel));
    let pair = |(point, &pair): (usize, &f64)| if positions.has_same_ids(point) { pair - difference } else { pair };
    kernel.with(kernel.ln_unit, kernel.own.clone(), kernel.pairs.iter().enumerate().map(pair).collect())
}

/// The correction for repeated ids of the kernel of gradients at keys, or at values.
pub(super) struct GroupCorrection<'r> {
    repetition: &'r Repetition,
    /// e_ac of the queries a and c: the excess of the factor of a single key over the factor of the common part of
    /// keys.
    pub(super) excess: Kernel,
    /// The value that Σ_bd M'_bd times all corrections must have: the right side of the second formula in the header.
    target: f64,
}

impl GroupCorrection<'_> {
    /// Returns C(M, N) plus its correction; `gradient` is C(M, N). `weight` is S and `pairs` is the part of e in pairs,
    /// both at the points of one class; `own` is the part of e in single keys. The last argument has the kernels M and
    /// M'.
    pub(super) fn apply(
        &self,
        mut gradient: Kernel,
        [weight, pairs]: [&[f64]; 2],
        own: &[f64],
        [kernel, other]: [&Kernel; 2],
    ) -> Kernel {
        let positions = Arc::clone(&gradient.positions);
        let count = weight.len();
        let shape: Few<f64> = kernel.of_same_ids().iter().zip(weight).map(|(&delta, &weight)| delta * weight).collect();
        let delta = other.of_same_ids();
        let variance = self.repetition.same() * (1.0 - self.repetition.same());
        let norm = positions.sum_pairs(|point| shape[point % count] * delta[point % count]) * variance;
        let excess = positions.sum(|node| own[node] * other.own[node])
            + positions.sum_pairs(|point| pairs[point % count] * other.pairs[point]);
        let lambda = if norm > 0.0 { (self.target - excess) / norm } else { 0.0 };
        gradient.own.iter_mut().zip(own).for_each(|(sum, &own)| *sum += own);
        for (point, sum) in gradient.pairs.iter_mut().enumerate() {
            let (class, index) = (point / count, point % count);
            *sum += pairs[index] + lambda * shape[index] * self.repetition.of_pair(class);
        }
        gradient
    }
}
