//! Covariances of scores with rotated queries and keys, which depend on the distance alone: Cov(s_ab, s_cd) = v Q_ac
//! K_bd κ((a − c) − (b − d)).
//!
//! Let K = K_o [b = d] + K_s with smooth K_s, and V likewise:
//!
//! ```text
//! P', F       their own parts times κ(a − c); the others are sums of κ(b − d), as if a were c
//! F₁(a, c)    own parts of keys times κ(a − c), those of values, Σ_b W_ab W_cb V_o R'(b, c), times ψ(a, c)
//! ψ(a, c)     Σ κ((a − c) − (b − d))/Σ κ(b − d) over b in view of both and d in view of c
//! C(V, N)     before the rotation of keys b, b': own parts of N times κ(b − b'), those of V times ψ, of queries
//!             in place of keys
//! ```
//!
//! where a, c are positions of queries; b, b', d are positions of keys; P', F, F₁, C are the sums of [`super::masked`];
//! κ is the factor of rotary positions on products of two tokens, as a function of their distance; W is the matrix of
//! flat weights; V is the kernel of values; V_o is the own part of V; R'(b, c) is the sum Σ_d W_cd κ(b − d) K_s over
//! smooth parts; ψ(a, c) is the factor of the rotation on the own parts of values; N is a kernel of queries.
//!
//! These are exact where K_s, V_s and N_s are constant and weights are 1/Z, because both ranges of distances to the
//! query run from 0, as positions do.
//!
//! Assumption: gradients at values take products of cosines, κ(a − c) κ(b − d), for pairs of queries. Source: ours.

use std::ops::RangeInclusive;
use std::sync::Arc;

use super::pattern::{FlatWeights, Pattern, Powers};
use crate::mean_field::positions::{Averages, Chart, Sum};
use crate::mean_field::rotation::{Rotation, Turn};

/// Sums over keys and queries that are rotated by one rule, through one mask.
#[derive(Debug)]
pub(crate) struct RotatedSums {
    /// Σ_b W_cb κ(t − b) f(t, b) over keys b, at all points (t, c).
    forward: Sum,
    /// Σ_b W_bc κ(t − b) f(t, b) over queries b, at all points (t, c).
    backward: Sum,
    /// ψ for pairs of queries and for pairs of keys, at all points: Σ κ between the tokens in view of both and the
    /// tokens in view of the first, over its value at a distance of 0.
    shared: [Vec<f64>; 2],
}

impl RotatedSums {
    pub(crate) fn new(chart: &Chart, weights: FlatWeights, turn: &Turn) -> Self {
        let pattern = Pattern::new(chart.length, weights);
        let sum = |over_keys| {
            let sum = pattern.weighted(Powers { of_t: 0, of_c: 1, over_keys }, Some(&turn.of_distance));
            Sum::along_rows(chart, &sum.spec())
        };
        let double = DoubleSums::new(&turn.of_distance);
        let shared = [true, false].map(|over_keys| shared(chart, &pattern, &double, over_keys));
        Self { forward: sum(true), backward: sum(false), shared }
    }
}

/// The rotation of the keys and queries of an attention, and the sums over positions that contain its kernel κ.
#[derive(Clone, Debug)]
pub(crate) struct Rotated {
    rotation: Rotation,
    /// The sums of every rule of the rotation.
    sums: Vec<Arc<RotatedSums>>,
    /// κ at all points, averaged over the distances that a point represents.
    pub(super) at_points: Vec<f64>,
    /// κ at the lower points, averaged in the same way.
    pub(super) at_lower_points: Vec<f64>,
    /// ψ, the factor of the rotation on own parts, for pairs of queries and for pairs of keys, at all points.
    pub(super) shared: [Vec<f64>; 2],
}

impl Rotated {
    /// Combines the sums of every rule of the rotation.
    pub(crate) fn new(chart: &Chart, rotation: Rotation, sums: Vec<Arc<RotatedSums>>) -> Self {
        let lower: Vec<f64> = (0..chart.lower.len()).map(|point| rotation.at(point)).collect();
        let shared = [0, 1].map(|side| {
            let of = |place: usize| {
                let rules = rotation.rules().zip(&sums);
                rotation.still() + rules.map(|((share, _), sums)| share * sums.shared[side][place]).sum::<f64>()
            };
            (0..chart.points.len()).map(of).collect()
        });
        Self { at_points: chart.all(&lower), at_lower_points: lower, shared, rotation, sums }
    }

    /// Returns Σ_b W_cb κ(t − b) f(t, b); `still` is the sum without κ.
    pub(super) fn over_keys(&self, f: &[f64], still: &Sum) -> Vec<f64> {
        self.mixed(f, still, |sums| &sums.forward)
    }

    /// Returns Σ_b W_bc κ(t − b) f(t, b); `still` is the sum without κ.
    pub(super) fn over_queries(&self, f: &[f64], still: &Sum) -> Vec<f64> {
        self.mixed(f, still, |sums| &sums.backward)
    }

    fn mixed(&self, f: &[f64], still: &Sum, turned: impl Fn(&RotatedSums) -> &Sum) -> Vec<f64> {
        /// Largest share of features that is treated as a rounding error.
        const NOTHING: f64 = 1e-12;
        let rest = self.rotation.still();
        let parts = self.rotation.rules().zip(&self.sums).map(|((share, _), sums)| (*share, turned(sums)));
        let mut parts = parts.chain((rest.abs() > NOTHING).then_some((rest, still)));
        let (share, sum) = parts.next().expect("a rotation has rules");
        let first: Vec<f64> = sum.of(f).into_iter().map(|value| value * share).collect();
        parts.fold(first, |all, (share, sum)| {
            all.into_iter().zip(sum.of(f)).map(|(all, value)| all + value * share).collect()
        })
    }
}

/// Running sums of running sums of κ over distances from −length to length. Differences of them are sums of κ over two
/// ranges of positions.
struct DoubleSums(Vec<f64>);

impl DoubleSums {
    fn new(kernel: &Averages) -> Self {
        let last = kernel.len() as isize - 1;
        let (mut once, mut twice) = (0.0, 0.0);
        let sums = (-last..=last).map(|distance| {
            once += kernel.around(distance.unsigned_abs(), 0);
            twice += once;
            twice
        });
        Self(sums.collect())
    }

    /// Returns Σ κ(distance + d − b) over d in the range `first` and b in the range `second`.
    fn over(&self, distance: isize, first: &RangeInclusive<usize>, second: &RangeInclusive<usize>) -> f64 {
        let middle = (self.0.len() / 2) as isize;
        let up_to = |distance: isize| self.0.get((middle + distance) as usize).copied().unwrap_or(0.0);
        let [d0, d1, b0, b1] = [*first.start(), *first.end(), *second.start(), *second.end()].map(|at| at as isize);
        let at = |d: isize, b: isize| up_to(distance + d - b);
        at(d1, b0) - at(d0 - 1, b0) - at(d1, b1 + 1) + at(d0 - 1, b1 + 1)
    }
}

/// Returns ψ at all points of the chart (node c, second position a).
fn shared(chart: &Chart, pattern: &Pattern, sums: &DoubleSums, over_keys: bool) -> Vec<f64> {
    let at = |&(node, a): &(usize, usize)| {
        let c = chart.nodes()[node];
        let [both, view] = pattern.shared([a, c], over_keys);
        let distance = a as isize - c as isize;
        let at_rest = sums.over(0, &both, &view);
        if both.is_empty() || at_rest <= 0.0 {
            1.0
        } else {
            (sums.over(distance, &view, &both) / at_rest).clamp(-1.0, 1.0)
        }
    };
    chart.points.iter().map(at).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn double_sums_are_sums_over_both_ranges() {
        let kernel: Vec<f64> = (0..20).map(|distance| (0.7 * f64::from(distance)).cos()).collect();
        let sums = DoubleSums::new(&Averages::new(kernel.iter().copied()));
        for (distance, first, second) in [(0, 0..=9, 0..=9), (5, 2..=4, 0..=6), (-7, 0..=0, 0..=2), (9, 3..=5, 4..=4)] {
            let at = |d: usize, b: usize| kernel[(distance + d as isize - b as isize).unsigned_abs()];
            let expected: f64 =
                first.clone().flat_map(|d| second.clone().map(move |b| (d, b))).map(|(d, b)| at(d, b)).sum();
            approx::assert_relative_eq!(sums.over(distance, &first, &second), expected, epsilon = 1e-12);
        }
    }
}
