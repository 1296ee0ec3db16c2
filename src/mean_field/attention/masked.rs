//! Attention through a mask, on a chart: W_ab = 1/Z_a for the Z_a keys in view, or less for more distant keys.
//!
//! ```text
//! R(b, c) = Σ_d W_cd V_bd      P = Σ_b W_ab R(b, c)      of keys R', P'
//! F = Σ_bd W_ab W_cd V_bd K_bd      F₁(a, c) = Σ_b W_ab R(b, c) R'(b, c)      D = F − F₁ − F₁ᵀ + P∘P'
//! X(a, c) = Σ_b W_ab μ_ab R(b, c)      μ_ab = ½ (K_bb − 2 R'(b, a) + P'_aa − tr_a)
//! C(M, N)(b, b') = M∘WᵀNW − C₁ − C₁ᵀ + Wᵀ(N∘P)W      C₁(b, b') = Σ_a W_ab (N W)(a, b') R(b', a)
//! ```
//!
//! where a, c are positions of queries; b, b', d are positions of keys; V, K are the kernels of values and of keys;
//! R(b, c) is the mean product of the value b and the average of the values in view of query c; P is the kernel of the
//! averages of values with flat weights; R', P' are R and P of the keys; D is the first order in the scores, per
//! v Q_ac; F, F₁ are the terms of D in which keys and values have both tokens in common and one token in common; ∘ is
//! the elementwise product; X(a, c) is the effect of the shift of the mean weights, per v Q_aa; μ_ab is the relative
//! shift of a mean weight in E A_ab = W_ab (1 + v Q_aa μ_ab); tr_a is the variance of the keys in view of query a about
//! their average; M is the kernel of keys or of values, and in C(M, N) the sums R and P are those of M; N is any kernel
//! of queries; C(M, N) is the kernel at keys that follows from M and from N; C₁ is the term of C(M, N) in which M is
//! averaged once.
//!
//! V is a smooth function of two positions. At b = d it is larger by the own part V_bb − lim V_bd of a token, which is
//! summed separately. In the one product of three factors, Σ_b W_ab R'(b, a) R(b, c), the covariance is taken as the
//! geometric mean of the variances.
//!
//! Assumption: ids repeat as often as on average. Source: ours.

use std::sync::Arc;

use super::groups::{Drawn, GroupCorrection, KeyGroups};
use super::operators::{Operators, added, multiplied, scaled};
use super::repeats::Repeats;
use super::rotated::Rotated;
use super::row::Keys;
use super::seen::{Mean, Seen, Turned};
use super::side::{Ahead, Side};
use super::smooth::{Smooth, TraceMoments};
use crate::mean_field::few::Few;
use crate::mean_field::kernel::Kernel;

/// The sums over keys and values in view of queries that the backward pass needs.
pub(super) struct Masked {
    operators: Operators,
    key: Side,
    value: Side,
}

impl Masked {
    pub(super) fn see(operators: &Operators, key: &Kernel, value: &Kernel) -> (Mean, Seen, Self) {
        let positions = &key.positions;
        let totals: Few<f64> = operators.sums.totals.as_slice().into();
        let square = operators.sums.average.of(&value.own);
        let square: Few<f64> = square.iter().zip(&totals).map(|(square, total)| square / total).collect();
        let (key, value) = (Ahead::new(operators, key, true), Ahead::new(operators, value, false));
        let repeats = Repeats::new(operators, &key, &value);
        let with_ids = |spread: Vec<f64>| match &repeats {
            Some(repeats) => added(&spread, &repeats.spread),
            None => spread,
        };
        let (at_rest, turned) = spread(operators, &key, &value);
        let (at_rest, turned) = (with_ids(at_rest), turned.map(with_ids));
        let mut shift = shift(operators, &key, &value);
        if let Some(repeats) = &repeats {
            shift = added(&shift, &repeats.shift);
        }
        if operators.sums.sink > 0.0 {
            shift = without_shift_of_sum(operators, &key, &value, shift);
        }
        let both = key.side.kernel.ln_unit + value.side.kernel.ln_unit;
        let kernel = |ln_unit: f64, lower: &[f64]| {
            let own = operators.diagonal(lower);
            let pairs = (0..positions.classes.len()).flat_map(|_| lower.iter().copied()).collect();
            key.side.kernel.with(ln_unit, own, pairs)
        };
        // D is 0 if one key is in view.
        let own = operators.diagonal(&at_rest).into_iter().zip(&operators.sums.most);
        let own: Few<f64> = own.map(|(own, &most)| if most < 1.5 { 0.0 } else { own }).collect();
        let with_own = |lower: &Vec<f64>| Kernel { own: own.clone(), ..kernel(both, lower) };
        let spread = Turned { behind: with_own(&at_rest), before: turned.as_ref().map(with_own) };
        let averages: Vec<f64> = value.side.averages.iter().map(|&average| average + value.side.common).collect();
        let mut flat = kernel(value.side.kernel.ln_unit, &averages);
        if let Some(repeats) = &repeats {
            flat.pairs.iter_mut().zip(repeats.flat.iter().flatten()).for_each(|(flat, &gain)| *flat += gain);
        }
        let chart = &operators.sums.chart;
        let transposed = chart.transposed(&shift);
        let traces = key.trace.iter().zip(&value.trace).map(|(&key, &value)| key * value).collect();
        let all = TraceMoments { traces, spread: own.clone() };
        let smooth = Smooth::new(operators, [&key, &value], spread.before());
        let in_view: Few<f64> =
            totals.iter().zip(&operators.sums.most).map(|(total, most)| total * total * most).collect();
        let mut keys = Keys::new(&all, Some(smooth), &operators.sums.most);
        if operators.sums.sink > 0.0 {
            let common =
                operators.diagonal(&key.smooth).into_iter().zip(&totals).map(|(of, total)| of / (total * total));
            keys = keys.with_sink(operators.sums.sink, in_view, common.collect());
        }
        let groups = repeats.zip(positions.repetition.as_ref()).map(|(repeats, repetition)| KeyGroups {
            repetition: Arc::clone(repetition),
            differences: repeats.differences,
            trace: value.trace.clone(),
            drawn: Some(Drawn {
                spread: kernel(both, &repeats.spread),
                shift: [&repeats.shift, &chart.transposed(&repeats.shift)]
                    .map(|all| kernel(both, &operators.lower(all))),
            }),
        });
        let groups = groups.or_else(|| KeyGroups::given([&key.side.kernel, &value.side.kernel], &value.trace));
        let mean = Mean { flat, shift: [shift, transposed].map(|all| kernel(both, &operators.lower(&all))) };
        let seen = Seen {
            keys,
            trace: key.trace.clone(),
            square,
            totals,
            single: operators.sums.most.iter().map(|most| most.recip()).collect(),
            shared: operators.sums.own.of(&vec![1.0; operators.sums.own_weights.len()]).into(),
            spread,
            groups,
        };
        (mean, seen, Self { operators: operators.clone(), key: key.side, value: value.side })
    }
}

/// Returns D at the lower points (pairs of positions of which the second is at most the first): first with κ(a − c) =
/// 1, as for queries at one position, then with the κ of rotated queries if there is a rotation.
fn spread(operators: &Operators, key: &Ahead, value: &Ahead) -> (Vec<f64>, Option<Vec<f64>>) {
    let sums = &operators.sums;
    let positions = &key.side.kernel.positions;
    let products = positions.class_mean(|point| key.side.kernel.pairs[point] * value.side.kernel.pairs[point]);
    let limit = operators.diagonal(&products);
    let own = key.side.kernel.own.iter().zip(&value.side.kernel.own).zip(&limit);
    let own: Vec<f64> = own.map(|((&key, &value), &limit)| key * value - limit).collect();
    let rows = sums.chart.transposed(&operators.over_keys(&sums.chart.all(&products), true));
    let (together, own_together) = (operators.lower(&sums.forward.of(&rows)), sums.own.of(&own));
    let [smooth, of_values, of_keys] = crossed(operators, key, value);
    let at = |rotated: Option<&Rotated>| -> Vec<f64> {
        let turned =
            |own: &[f64]| rotated.map_or_else(|| own.to_vec(), |rotated| scaled(own, &rotated.at_lower_points));
        let crossed = match rotated {
            Some(Rotated { at_points, shared: [shared, _], .. }) => {
                added(&smooth, &added(&scaled(&of_values, shared), &scaled(&of_keys, at_points)))
            }
            None => added(&smooth, &added(&of_values, &of_keys)),
        };
        let both = added(&operators.lower(&crossed), &operators.lower(&sums.chart.transposed(&crossed)));
        let together = added(&together, &turned(&own_together));
        let averages = multiplied(&added(&key.smooth, &turned(&key.own_sums)), &value.side.averages);
        added(&together, &averages).into_iter().zip(both).map(|(sum, both)| sum - both).collect()
    };
    (at(None), operators.rotated.as_ref().map(|rotated| at(Some(rotated))))
}

/// Returns three summands of F₁(a, c) at all points of the chart (node c, second position a): from different tokens,
/// from own parts of values, and from own parts of keys.
fn crossed(operators: &Operators, key: &Ahead, value: &Ahead) -> [Vec<f64>; 3] {
    let sums = &operators.sums;
    let smooth = sums.forward.of(&multiplied(&key.transposed, &value.transposed));
    let of_values = sums.both.of(&multiplied(&value.own_at_second, &key.transposed));
    let of_keys = sums.both.of(&multiplied(&key.own_at_second, &value.transposed));
    let of_keys = added(&of_keys, &sums.cubes.of(&multiplied(&key.side.own, &value.side.own)));
    [smooth, of_values, of_keys]
}

/// Returns X(a, c), the effect of the shift of the mean weights, at all points of the chart (node a, second position
/// c).
fn shift(operators: &Operators, key: &Ahead, value: &Ahead) -> Vec<f64> {
    let chart = &operators.sums.chart;
    let half = 0.5;
    let long = multiplied(&operators.at_second(&key.side.kernel.own), &value.transposed);
    let long = operators.sums.forward.of(&long).into_iter().map(|long| long * half);
    let squares = operators.sums.squares.of(&multiplied(&key.own_at_second, &value.transposed));
    let by_values: Vec<f64> = long.zip(squares).map(|(long, square)| long - square).collect();
    let by_values = chart.transposed(&by_values);
    let own = chart.all(&operators.sums.own.of(&multiplied(&key.side.kernel.own, &value.side.own)));
    let averages = chart.all(&value.side.averages);
    let leaning = |node: usize, own: f64| (own - key.trace[node]) * half;
    let both = operators.sums.both.of(&multiplied(&value.own_at_second, &key.transposed));
    let cubes = operators.sums.cubes.of(&multiplied(&key.side.own, &value.side.own));
    let triple = triple(operators, key, value);
    let at = |place: usize| {
        let node = chart.points[place].0;
        let mean = leaning(node, key.side.own_averages[node]) * averages[place];
        by_values[place] + own[place] * half + mean - triple[place] - both[place] - cubes[place]
    };
    (0..chart.points.len()).map(at).collect()
}

/// Subtracts from X(a, c) the shift of the sum of all weights of a row, which [`Head`](super::head::Head) treats without
/// an expansion in scores: μ_a P(a, c) with μ_a = ½ (1 − R_a)/R_a (tr_a − P'_aa) and R_a = Σ_b W_ab.
fn without_shift_of_sum(operators: &Operators, key: &Ahead, value: &Ahead, shift: Vec<f64>) -> Vec<f64> {
    let chart = &operators.sums.chart;
    let averages = chart.all(&value.side.averages);
    let of_sum = |node: usize| {
        let total = operators.sums.totals[node];
        0.5 * (1.0 - total) / total * (key.trace[node] - key.side.own_averages[node])
    };
    let places = shift.into_iter().zip(averages).enumerate();
    places.map(|(place, (shift, average))| shift - of_sum(chart.points[place].0) * average).collect()
}

/// Returns Σ_b W_ab R'(b, a) R(b, c) without own parts, at all points of the chart (node a, second position c).
fn triple(operators: &Operators, key: &Ahead, value: &Ahead) -> Vec<f64> {
    let chart = &operators.sums.chart;
    let variance = |side: &Ahead| -> Vec<f64> {
        let squares = chart.transposed(&operators.sums.forward.of(&multiplied(&side.transposed, &side.transposed)));
        let means = chart.all(&side.smooth);
        let variance = |(square, &mean): (f64, &f64)| {
            let variance = square - mean * mean;
            if variance > 0.0 { variance } else { 0.0 }
        };
        squares.into_iter().zip(&means).map(variance).collect()
    };
    let [of_key, of_value] = [key, value].map(variance);
    let means = chart.all(&value.smooth);
    let key_means = operators.diagonal(&key.smooth);
    let diagonals: Vec<usize> = chart.diagonals().collect();
    let at = |(place, &mean): (usize, &f64)| {
        let node = chart.points[place].0;
        let covariance = of_key[diagonals[node]] * of_value[place];
        let covariance = if covariance > 0.0 { covariance.sqrt() } else { 0.0 };
        key_means[node] * mean + covariance
    };
    means.iter().enumerate().map(at).collect()
}

impl Masked {
    /// Returns the mean of κ, the factor of rotations on the product of two keys, over pairs of keys in view of a query
    /// and over queries.
    pub(super) fn rotation_in_view(&self) -> f64 {
        self.operators.rotation_in_view(&self.key.kernel.positions)
    }

    /// Returns Wᵀ Γ W, the gradient at values through flat weights, plus the contribution of dropout masks. `gamma` is
    /// Γ. `masked` has Γ_aa of every query, times p/(1 − p) for dropout of rate p and times the factor of sharp rows on
    /// Σ_b A_ab².
    pub(super) fn gathered(&self, gamma: &Kernel, masked: &[f64]) -> Kernel {
        let operators = &self.operators;
        let pairs = gamma.positions.class_mean(|point| gamma.pairs[point]);
        let lower = operators.gathered(&pairs, &gamma.own);
        let more = operators.diagonal(&operators.sums.own_backward.of(masked));
        let own = operators.diagonal(&lower).iter().zip(&more).map(|(&own, &more)| own + more).collect();
        // Two keys with the same id share the gradients of queries with that id.
        let shared = |index: usize| {
            let place = operators.sums.chart.lower[index];
            let [a, b] = operators.own_weights(place);
            a * b + operators.sums.query_weights[place] * operators.sums.key_weights[place]
        };
        let of_class = |point: usize, index: usize| lower[index] + (gamma.pairs[point] - pairs[index]) * shared(index);
        gamma.with(gamma.ln_unit, own, operators.of_all_classes(gamma, of_class))
    }

    /// Returns C(K, N), the gradient at values through scores, where `weights` is N = Γ∘Q∘σ.
    pub(super) fn at_values(&self, weights: &Kernel, groups: Option<&GroupCorrection>) -> Kernel {
        let kernel = self.contracted(&self.key, weights, None).behind;
        match groups {
            Some(groups) => self.group_correction(kernel, (weights, groups), [&self.key, &self.value]),
            None => kernel,
        }
    }

    /// Adds the correction for groups of keys with the same id to the kernel `to` of the gradient at keys or values.
    fn group_correction(
        &self,
        to: Kernel,
        (weights, groups): (&Kernel, &GroupCorrection),
        [of, other]: [&Side; 2],
    ) -> Kernel {
        let operators = &self.operators;
        let excess = operators.of_rows(&groups.excess);
        let own = operators.diagonal(&operators.sums.own_backward.of(&excess));
        // The excess of one key is subtracted from the other keys of its row.
        let pairs = operators.lower(&operators.sums.cubes_backward.of(&excess));
        let own: Few<f64> = own.into_iter().zip(operators.diagonal(&pairs)).map(|(own, pair)| own - pair).collect();
        let pairs: Vec<f64> = pairs.into_iter().map(|pair| -pair).collect();
        let shared = operators.sums.own_backward.of(&weights.own);
        groups.apply(to, [&shared, &pairs], &own, [&of.kernel, &other.kernel])
    }

    /// Returns C(V, N), the gradient at keys, where `weights` is N = Γ∘Q∘τ. `masked` has N_aa of every query times p/(1
    /// − p), for dropout of rate p. If keys are rotated, also returns the kernel before the rotation, for which Σ_bd
    /// K_bd C_bd equals `query_total`.
    pub(super) fn at_keys(
        &self,
        weights: &Kernel,
        masked: &[f64],
        groups: Option<&GroupCorrection>,
        query_total: Option<f64>,
    ) -> Turned {
        let operators = &self.operators;
        let corrected = |kernel: Kernel| match groups {
            Some(groups) => self.group_correction(kernel, (weights, groups), [&self.value, &self.key]),
            None => kernel,
        };
        let Turned { behind, before } = self.contracted(&self.value, weights, operators.rotated.as_ref());
        let mut behind = corrected(behind);
        let before = before.map(|before| Kernel { own: behind.own.clone(), ..corrected(before) });
        let before = before.zip(query_total).map(|(before, total)| self.match_queries(before, weights, total));
        let own = operators.diagonal(&operators.sums.own_backward.of(masked));
        // Gradients of all keys of a query, the sink included, add up to zero.
        let masked: Few<f64> =
            masked.iter().zip(&operators.sums.totals).map(|(of, total)| of * (2.0 - total)).collect();
        let pairs = operators.lower(&operators.sums.cubes_backward.of(&masked));
        let own_pairs = operators.diagonal(&pairs);
        let values: Few<f64> = self.value.kernel.own.iter().map(|&own| own + self.value.common).collect();
        for (node, sum) in behind.own.iter_mut().enumerate() {
            *sum += values[node] * (own[node] - own_pairs[node]);
        }
        let shared = |point: usize| {
            let [value, _] = self.value.kernel.positions.ends(point, &values);
            value * pairs[point % pairs.len()]
        };
        let before = before.map(|mut before| {
            let pairs = before.pairs.iter_mut().enumerate();
            pairs.for_each(|(point, sum)| *sum += -(shared(point) * operators.rotation(point)));
            Kernel { own: behind.own.clone(), ..before }
        });
        behind.pairs.iter_mut().enumerate().for_each(|(point, sum)| *sum += -shared(point));
        Turned { behind, before }
    }

    /// Adds a multiple of Σ_a N_aa W_ab W_ad κ(b − d) to the kernel C, so that Σ_bd K_bd C_bd equals `query_total`,
    /// which is the same sum computed from queries. Otherwise the two would differ, because sums of cosines over
    /// windows converge slowly.
    fn match_queries(&self, mut to: Kernel, weights: &Kernel, query_total: f64) -> Kernel {
        let operators = &self.operators;
        let shared = operators.sums.own_backward.of(&weights.own);
        let along = |point: usize| shared[point % shared.len()] * operators.rotation(point);
        let key = &self.key.kernel;
        let met = key.positions.sum_pairs(|point| key.pairs[point] * along(point));
        let factor = if met > 0.0 { (query_total - to.contracted(key)) / met } else { 0.0 };
        to.pairs.iter_mut().enumerate().for_each(|(point, pair)| *pair += factor * along(point));
        to
    }

    /// Returns C(M, N), where M is the kernel of `of` and N is `weights`. With `rotated`, also returns the kernel
    /// before the rotation of keys.
    fn contracted(&self, of: &Side, weights: &Kernel, rotated: Option<&Rotated>) -> Turned {
        let operators = &self.operators;
        let sums = &operators.sums;
        let chart = &sums.chart;
        let own_times = |row: &[f64]| -> Vec<f64> {
            chart.points.iter().zip(row).map(|(&(node, _), &value)| of.own[node] * value).collect()
        };
        let pairs = weights.positions.class_mean(|point| weights.pairs[point]);
        let own: Few<f64> =
            weights.own.iter().zip(operators.diagonal(&pairs)).map(|(&own, limit)| own - limit).collect();
        // (N W)(a, b') at (row b', position a).
        let rows = chart.transposed(&operators.over_queries(&chart.all(&pairs)));
        let (all, own_all) = (operators.lower(&sums.backward.of(&rows)), sums.own_backward.of(&own));
        let smooth = sums.backward.of(&multiplied(&rows, &of.rows));
        let of_keys = sums.both_backward.of(&own_times(&rows));
        let of_queries = sums.both_backward.of(&multiplied(&operators.at_second(&own), &of.rows));
        let of_queries = added(&of_queries, &own_times(&sums.cubes_backward.of(&own)));
        let averages = operators.over_queries(&chart.all(&multiplied(&pairs, &of.averages)));
        let averages = operators.lower(&sums.backward.of(&chart.transposed(&averages)));
        let own_averages = sums.own_backward.of(&multiplied(&own, &of.own_averages));
        let at = |before: Option<&Rotated>| -> Kernel {
            let turned = |own: &[f64]| before.map_or_else(|| own.to_vec(), |by| scaled(own, &by.at_lower_points));
            let crossed = match before {
                Some(Rotated { at_points, shared: [_, shared], .. }) => {
                    added(&smooth, &added(&scaled(&of_keys, shared), &scaled(&of_queries, at_points)))
                }
                None => added(&smooth, &added(&of_keys, &of_queries)),
            };
            let both = added(&operators.lower(&crossed), &operators.lower(&chart.transposed(&crossed)));
            let all = added(&all, &turned(&own_all));
            let rest = added(&averages, &turned(&own_averages));
            let rest: Vec<f64> = rest.iter().zip(&both).map(|(&average, &both)| average - both).collect();
            let (own_all, own_rest) = (operators.diagonal(&all), operators.diagonal(&rest));
            let own = (0..own_all.len()).map(|node| of.kernel.own[node] * own_all[node] + own_rest[node]).collect();
            let rotation = |index: usize| if of.is_key { operators.rotation(index) } else { 1.0 };
            let pairs = operators.of_all_classes(&of.kernel, |point, index| {
                of.kernel.pairs[point] * all[index] * rotation(index) + rest[index]
            });
            of.kernel.with(of.kernel.ln_unit + weights.ln_unit, own, pairs)
        };
        Turned { behind: at(None), before: rotated.map(|rotated| at(Some(rotated))) }
    }
}
