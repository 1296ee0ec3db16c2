//! Attention in which all queries see all keys: W_ab = 1/L.
//!
//! ```text
//! R(b) = Σ_d W V_bd      P = Σ_b W R(b)      R'(b) and P' likewise of keys
//! F = Σ_bd W² V_bd K_bd      F₁ = Σ_b W R(b) R'(b)
//! D = F − 2 F₁ + P P'      X = ½ Σ_b W (K_bb − Σ_d W K_dd) R(b) − F₁ + P P'
//! ```
//!
//! where W is the flat weight 1/L of each of L keys; b, d are positions of keys; V, K are the kernels of values and of
//! keys; R(b) is the mean product of the value b and the average of all values; P is the kernel of the averages of
//! values with flat weights; R', P' are R and P of the keys; D is the first order in the scores, per v Q_ac; F, F₁ are
//! the terms of D in which keys and values have both tokens in common and one token in common; X is the effect of the
//! shift of the mean weights towards keys with a large E k² and away from keys that are correlated with the others, per
//! v Q_aa.
//!
//! In the code P is `flat`, D is `spread` and X is `shift`. For equivalent tokens they have the values that the header
//! of [`super`] gives; it also defines Γ and the function C of two kernels.
//!
//! Repeated ids change F₁ and P P': [`super::same_ids`]. The common part of all pairs cancels in all but P. It is
//! subtracted first, because tokens may be almost copies of each other. Source: ours.

use super::groups::{GroupCorrection, KeyGroups};
use super::row::Keys;
use super::same_ids::{self, Difference};
use super::seen::{Mean, Seen, Turned};
use super::smooth::TraceMoments;
use crate::mean_field::few::Few;
use crate::mean_field::kernel::Kernel;

/// The averages over keys and values that the backward pass needs.
pub(super) struct Everywhere {
    key: CentredKernel,
    value: CentredKernel,
    /// Σ_b W V_bb, the mean second moment of a value.
    square: f64,
}

/// The kernel of keys, or of values, with its averages over tokens.
struct CentredKernel {
    /// The kernel minus its mean over all pairs.
    kernel: Kernel,
    /// R of this kernel at every node: its mean over the second token.
    rows: Few<f64>,
    /// P of this kernel: its mean over both tokens.
    mean: f64,
    /// Σ_b W K_bb − P, the variance of a token about the average.
    trace: f64,
    difference: Option<Difference>,
}

impl CentredKernel {
    fn new(kernel: &Kernel, common: f64) -> Self {
        let positions = &kernel.positions;
        let length = positions.length;
        let kernel = kernel.less(common);
        let sums = positions.row_sums(&positions.class_mean(|point| kernel.pairs[point]));
        let rows: Few<f64> = sums.iter().zip(&kernel.own).map(|(&sum, &own)| (sum + own) / length).collect();
        let mean = positions.sum(|node| rows[node]) / length;
        let trace = positions.sum(|node| kernel.own[node]) / length - mean;
        Self { difference: Difference::new(&kernel), kernel, rows, mean, trace }
    }

    /// Returns C(M, N), where M is this kernel, of keys or of values, and N is `weights`. `other` is the kernel of the
    /// other two: values if this one is of keys, keys if it is of values.
    fn contracted(&self, weights: &Kernel, groups: Option<&GroupCorrection>, other: &Self) -> Kernel {
        let positions = &self.kernel.positions;
        let length = positions.length;
        let all = weights.total() / (length * length);
        let apart = |own: f64, [a, b]: [f64; 2]| own - a - b + self.mean;
        let own = self.kernel.own.iter().zip(&self.rows).map(|(&own, &row)| all * apart(own, [row, row])).collect();
        let pairs = self.kernel.map_pairs(&self.rows, |_, ends, product| all * apart(product, ends));
        let kernel = self.kernel.with(self.kernel.ln_unit + weights.ln_unit, own, pairs);
        let Some(groups) = groups else { return kernel };
        let excess = groups.excess.total() / (length * length);
        let shared = weights.positions.sum(|node| weights.own[node]) / (length * length);
        let own: Few<f64> = kernel.own.iter().map(|_| excess * (1.0 - length.recip())).collect();
        let each = |of: f64| -> Few<f64> { positions.first.iter().map(|_| of).collect() };
        groups.apply(kernel, [&each(shared), &each(excess * -length.recip())], &own, [&self.kernel, &other.kernel])
    }
}

impl Everywhere {
    /// Returns P and X, the statistics of the keys in view, and the state for the backward pass.
    pub(super) fn see(queries: &Kernel, key: &Kernel, value: &Kernel) -> (Mean, Seen, Self) {
        let positions = &key.positions;
        let length = positions.length;
        let average = |of: &dyn Fn(usize) -> f64| positions.sum(of) / length;
        let all_pairs = length * (length - 1.0);
        let common = |kernel: &Kernel| {
            if all_pairs > 0.0 { positions.sum_pairs(|point| kernel.pairs[point]) / all_pairs } else { 0.0 }
        };
        let (square, common_value) = (average(&|node| value.own[node]), common(value));
        let [key, value] = [CentredKernel::new(key, common(key)), CentredKernel::new(value, common_value)];
        let pairs = positions.sum_pairs(|point| key.kernel.pairs[point] * value.kernel.pairs[point]);
        let squares = positions.sum(|node| key.kernel.own[node] * value.kernel.own[node]);
        let both = key.kernel.ln_unit + value.kernel.ln_unit;
        let everywhere = |ln_unit: f64, of: f64| Kernel { ln_unit, ..Kernel::new(&queries.positions, |_| of, |_| of) };
        let each = |of: f64| -> Few<f64> { queries.own.iter().map(|_| of).collect() };
        let differences = key.difference.as_ref().zip(value.difference.as_ref());
        let (groups, [ids_of_rows, ids_of_means]) = match differences {
            Some((of_key, of_value)) => {
                let (groups, added) = same_ids::groups([of_key, of_value], queries, (both, value.trace));
                (Some(groups), added)
            }
            None => (KeyGroups::given([&key.kernel, &value.kernel], &each(value.trace)), [0.0; 2]),
        };
        // These are F, F₁ and P P' of the header, then D and X.
        let of_both = (squares + pairs) / (length * length);
        let of_rows = average(&|node| key.rows[node] * value.rows[node]) + ids_of_rows;
        let of_means = key.mean * value.mean + ids_of_means;
        let spread = of_both - of_rows * 2.0 + of_means;
        let long = average(&|node| (key.kernel.own[node] - key.trace - key.mean) * value.rows[node]) * 0.5;
        let shift = everywhere(both, long - of_rows + of_means);
        let mean = Mean {
            flat: same_ids::with_ids(
                everywhere(value.kernel.ln_unit, value.mean + common_value),
                value.difference.as_ref(),
            ),
            shift: [shift.clone(), shift],
        };
        let moments = TraceMoments { traces: each(key.trace * value.trace), spread: each(spread) };
        let seen = Seen {
            spread: Turned { behind: everywhere(both, spread), before: None },
            keys: Keys::new(&moments, None, &vec![length; queries.own.len()]),
            trace: each(key.trace),
            square: each(square),
            totals: each(1.0),
            single: queries.own.iter().map(|_| length.recip()).collect(),
            shared: queries.positions.first.iter().map(|_| length.recip()).collect(),
            groups,
        };
        (mean, seen, Self { key, value, square })
    }

    /// tr of the keys and tr' of the values: their variances about their averages.
    pub(super) fn traces(&self) -> [f64; 2] {
        [&self.key, &self.value].map(|of| of.trace)
    }

    /// Returns Wᵀ Γ W, the gradient at values through flat weights, plus the contribution of dropout masks. `gamma` is
    /// Γ. `masked` has Γ_aa of every query, times p/(1 − p) for dropout of rate p and times the factor of sharp rows on
    /// Σ_b A_ab².
    pub(super) fn gathered(&self, gamma: &Kernel, masked: &[f64]) -> Kernel {
        let positions = &self.value.kernel.positions;
        let length = positions.length;
        let all = gamma.total() / (length * length);
        let own = gamma.positions.sum(|node| masked[node]) / (length * length);
        let everywhere = Kernel { ln_unit: gamma.ln_unit, ..Kernel::new(positions, |_| all + own, |_| all) };
        same_ids::with_ids(everywhere, Difference::new(gamma).as_ref())
    }

    /// Returns C(K, Γ∘Q∘σ), the gradient at values through scores, from `weights` = Γ∘Q∘σ.
    pub(super) fn at_values(&self, weights: &Kernel, groups: Option<&GroupCorrection>) -> Kernel {
        self.key.contracted(weights, groups, &self.value)
    }

    /// Returns C(V, Γ∘Q∘τ), the gradient at keys, from `weights` = Γ∘Q∘τ. `masked` has the value of `weights` at every
    /// query times p/(1 − p), for dropout of rate p.
    pub(super) fn at_keys(&self, weights: &Kernel, masked: &[f64], groups: Option<&GroupCorrection>) -> Turned {
        let mut kernel = self.value.contracted(weights, groups, &self.key);
        let length = kernel.positions.length;
        let masked = weights.positions.sum(|node| masked[node]) * self.square / (length * length);
        // Gradients of all keys add up to zero.
        kernel.own.iter_mut().for_each(|own| *own += masked * (1.0 - 1.0 / length));
        kernel.pairs.iter_mut().for_each(|pair| *pair += masked * (-1.0 / length));
        Turned { behind: kernel, before: None }
    }
}
