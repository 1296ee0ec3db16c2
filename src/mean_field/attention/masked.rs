//! What queries see through a mask, on a chart: W_ab = 1/Z_a for the Z_a keys in view, or less for those further away.
//!
//! ```text
//! R(b, c) = Σ_d W_cd V_bd     P = Σ_b W_ab R(b, c)     of keys R', P'     F = Σ_bd W_ab W_cd V_bd K_bd     N(a, c) = Σ_b W_ab R(b, c) R'(b, c)
//! D = F − N − Nᵀ + P∘P'       X(a, c) = Σ_b W_ab μ_ab R(b, c)       μ_ab = ½ (K_bb − 2 R'(b, a) + P'_aa − tr_a)
//! C(M, N)(b, b') = M∘WᵀNW − T − Tᵀ + Wᵀ(N∘P)W       T(b, b') = Σ_a W_ab (N W)(a, b') R(b', a)
//! ```
//!
//! V is a smooth function of two positions, and at b = d larger by the own part V_bb − lim V_bd of a token, which is summed apart. What all
//! pairs have in common cancels in all but P; but of rotated keys it is taken off first, for tokens may be almost copies. The one
//! product of three factors, Σ_b W_ab R'(b, a) R(b, c), takes the geometric mean of variances as the covariance.
//!
//! Assumption: ids repeat as on average. Source: ours.

use super::operators::Operators;
use super::repeats::Repeats;
use super::view::{Back, Seen, effective};
use crate::mean_field::kernel::Kernel;
use crate::mean_field::scalar::{Few, Scalar};

/// Keys or values: kernel, own part, R and P, less what pairs have in common.
pub(super) struct Side<S> {
    pub(super) kernel: Kernel<S>,
    common: S,
    own: Few<S>,
    own_at_second: Vec<S>,
    /// R at all points, (row b, position c), and turned round.
    rows: Vec<S>,
    turned: Vec<S>,
    /// P at lower points and of every query, and its share from pairs of different tokens.
    averages: Vec<S>,
    own_averages: Few<S>,
    smooth: Vec<S>,
    pub(super) is_key: bool,
    trace: Few<S>,
}

impl<S: Scalar> Side<S> {
    /// Of keys, which may be rotated, or of values.
    fn new(operators: &Operators, kernel: &Kernel<S>, is_key: bool) -> Self {
        let positions = &kernel.positions;
        let common = if is_key && operators.turned.is_some() { S::from(0.0) } else { operators.common(kernel) };
        let kernel = kernel.less(common);
        let pairs = positions.class_mean(|point| kernel.pairs[point]);
        let diagonal = operators.diagonal(&pairs);
        let own: Few<S> = kernel.own.iter().zip(&diagonal).map(|(&own, &limit)| own - limit).collect();
        let rows = operators.over_keys(&operators.sums.chart.all(&pairs), is_key);
        let turned = operators.sums.chart.turn(&rows);
        let smooth = operators.lower(&operators.sums.forward.of(&turned));
        let (averages, own_averages) = if is_key {
            operators.averages(&turned, &diagonal, &kernel.own)
        } else {
            let averages = added(&smooth, &operators.sums.own.of(&own));
            let own_averages = operators.diagonal(&averages);
            (averages, own_averages)
        };
        let square = operators.sums.average.of(&kernel.own);
        let trace = square.iter().zip(&own_averages).map(|(&square, &own)| square - own).collect();
        let own_at_second = operators.at_second(&own);
        Self { kernel, common, own, own_at_second, rows, turned, averages, own_averages, smooth, is_key, trace }
    }
}

pub(super) fn added<S: Scalar>(a: &[S], b: &[S]) -> Vec<S> {
    a.iter().zip(b).map(|(&a, &b)| a + b).collect()
}

pub(super) fn multiplied<S: Scalar>(a: &[S], b: &[S]) -> Vec<S> {
    a.iter().zip(b).map(|(&a, &b)| a * b).collect()
}

/// Keys and values as queries see them.
pub(super) struct Masked<S> {
    operators: Operators,
    key: Side<S>,
    value: Side<S>,
}

impl<S: Scalar> Masked<S> {
    pub(super) fn see(operators: &Operators, key: &Kernel<S>, value: &Kernel<S>) -> Seen<S> {
        let positions = &key.positions;
        let square: Few<S> = operators.sums.average.of(&value.own).into();
        let (key, value) = (Side::new(operators, key, true), Side::new(operators, value, false));
        let repeats = Repeats::new(operators, &key, &value);
        let mut spread = spread(operators, &key, &value);
        let mut shift = shift(operators, &key, &value);
        if let Some(repeats) = &repeats {
            spread.0 = added(&spread.0, &repeats.spread);
            spread.1 = added(&spread.1, &operators.diagonal(&repeats.spread)).into();
            shift = added(&shift, &repeats.shift);
        }
        let both = key.kernel.ln_unit + value.kernel.ln_unit;
        let kernel = |ln_unit: f64, lower: &[S]| {
            let own = operators.diagonal(lower);
            let pairs = (0..positions.classes.len()).flat_map(|_| lower.iter().copied()).collect();
            key.kernel.with(ln_unit, own, pairs)
        };
        // Of one key all is known.
        let own = spread.1.iter().zip(&operators.sums.most);
        let own = own.map(|(&own, &most)| if most < 1.5 { S::from(0.0) } else { own }).collect();
        let spread = Kernel { own, ..kernel(both, &spread.0) };
        let averages: Vec<S> = value.averages.iter().map(|&average| average + value.common).collect();
        let mut flat = kernel(value.kernel.ln_unit, &averages);
        if let Some(repeats) = &repeats {
            flat.pairs.iter_mut().zip(repeats.flat.iter().flatten()).for_each(|(flat, &gain)| *flat += gain);
        }
        let turned = operators.sums.chart.turn(&shift);
        let traces = key.trace.iter().zip(&value.trace).zip(&spread.own).zip(&operators.sums.most);
        Seen {
            flat,
            shift: [shift, turned].map(|all| kernel(both, &operators.lower(&all))),
            keys: traces
                .map(|(((&of_key, &of_value), &spread), &most)| effective(of_key * of_value, spread, most))
                .collect(),
            trace: key.trace.clone(),
            square,
            single: operators.sums.most.iter().map(|most| most.recip()).collect(),
            spread,
            back: Back::Masked(Box::new(Self { operators: operators.clone(), key, value })),
        }
    }
}

/// D at lower points, and of every query with itself.
fn spread<S: Scalar>(operators: &Operators, key: &Side<S>, value: &Side<S>) -> (Vec<S>, Few<S>) {
    let positions = &key.kernel.positions;
    let products = positions.class_mean(|point| key.kernel.pairs[point] * value.kernel.pairs[point]);
    let own = multiplied(&key.kernel.own, &value.kernel.own);
    let rows = operators.sums.chart.turn(&operators.over_keys(&operators.sums.chart.all(&products), true));
    let (together, of_queries) = operators.averages(&rows, &operators.diagonal(&products), &own);
    let crossed = crossed(operators, key, value);
    let turned = operators.lower(&operators.sums.chart.turn(&crossed));
    let crossed = operators.lower(&crossed);
    let own_crossed = operators.diagonal(&crossed);
    let spread =
        |index: usize| together[index] - crossed[index] - turned[index] + key.averages[index] * value.averages[index];
    let own =
        |node: usize| of_queries[node] - own_crossed[node] * 2.0 + key.own_averages[node] * value.own_averages[node];
    ((0..crossed.len()).map(spread).collect(), (0..of_queries.len()).map(own).collect())
}

/// N at all points, (row c, position a).
fn crossed<S: Scalar>(operators: &Operators, key: &Side<S>, value: &Side<S>) -> Vec<S> {
    let smooth = operators.sums.forward.of(&multiplied(&key.turned, &value.turned));
    let mixed = added(&multiplied(&value.own_at_second, &key.turned), &multiplied(&key.own_at_second, &value.turned));
    let mixed = operators.sums.both.of(&mixed);
    let own = operators.sums.cubes.of(&multiplied(&key.own, &value.own));
    added(&added(&smooth, &mixed), &own)
}

/// X at all points, (row a, position c).
fn shift<S: Scalar>(operators: &Operators, key: &Side<S>, value: &Side<S>) -> Vec<S> {
    let chart = &operators.sums.chart;
    let half = S::from(0.5);
    let long = multiplied(&operators.at_second(&key.kernel.own), &value.turned);
    let long = operators.sums.forward.of(&long).into_iter().map(|long| long * half);
    let squares = operators.sums.squares.of(&multiplied(&key.own_at_second, &value.turned));
    let by_values: Vec<S> = long.zip(squares).map(|(long, square)| long - square).collect();
    let by_values = chart.turn(&by_values);
    let own = chart.all(&operators.sums.own.of(&multiplied(&key.kernel.own, &value.own)));
    let averages = chart.all(&value.averages);
    let leaning = |node: usize, own: S| (own - key.trace[node]) * half;
    let both = operators.sums.both.of(&multiplied(&value.own_at_second, &key.turned));
    let cubes = operators.sums.cubes.of(&multiplied(&key.own, &value.own));
    let triple = triple(operators, key, value);
    let at = |place: usize| {
        let node = chart.points[place].0;
        let mean = leaning(node, key.own_averages[node]) * averages[place];
        by_values[place] + own[place] * half + mean - triple[place] - both[place] - cubes[place]
    };
    (0..chart.points.len()).map(at).collect()
}

/// Σ_b W_ab R'(b, a) R(b, c) without own parts, at all points (row a, position c).
fn triple<S: Scalar>(operators: &Operators, key: &Side<S>, value: &Side<S>) -> Vec<S> {
    let chart = &operators.sums.chart;
    let variance = |side: &Side<S>| -> Vec<S> {
        let squares = chart.turn(&operators.sums.forward.of(&multiplied(&side.turned, &side.turned)));
        let means = chart.all(&side.smooth);
        let variance = |(square, &mean): (S, &S)| {
            let variance = square - mean * mean;
            if variance.value() > 0.0 { variance } else { S::from(0.0) }
        };
        squares.into_iter().zip(&means).map(variance).collect()
    };
    let [of_key, of_value] = [key, value].map(variance);
    let means = chart.all(&value.smooth);
    let key_means = operators.diagonal(&key.smooth);
    let diagonals: Vec<usize> = chart.diagonals().collect();
    let at = |(place, &mean): (usize, &S)| {
        let node = chart.points[place].0;
        let covariance = of_key[diagonals[node]] * of_value[place];
        let covariance = if covariance.value() > 0.0 { covariance.sqrt() } else { S::from(0.0) };
        key_means[node] * mean + covariance
    };
    means.iter().enumerate().map(at).collect()
}

impl<S: Scalar> Masked<S> {
    /// Wᵀ Γ W of the gradient Γ, and what masks add of its own moments, `masked`.
    pub(super) fn gathered(&self, gamma: &Kernel<S>, masked: &[S]) -> Kernel<S> {
        let operators = &self.operators;
        let pairs = gamma.positions.class_mean(|point| gamma.pairs[point]);
        let lower = operators.gathered(&pairs, &gamma.own);
        let more = operators.diagonal(&operators.sums.own_backward.of(masked));
        let own = operators.diagonal(&lower).iter().zip(&more).map(|(&own, &more)| own + more).collect();
        // Two keys with the same id have the gradients of queries with that id in common.
        let shared = |index: usize| {
            let place = operators.sums.chart.lower[index];
            let [a, b] = operators.own_weights(place);
            a * b + operators.sums.query_weights[place] * operators.sums.key_weights[place]
        };
        let of_class = |point: usize, index: usize| lower[index] + (gamma.pairs[point] - pairs[index]) * shared(index);
        gamma.with(gamma.ln_unit, own, operators.of_all_classes(gamma, of_class))
    }

    /// C(K, N), from N.
    pub(super) fn at_values(&self, weights: &Kernel<S>) -> Kernel<S> {
        self.contracted(&self.key, weights)
    }

    /// C(V, N), from N and its own moments under masks.
    pub(super) fn at_keys(&self, weights: &Kernel<S>, masked: &[S]) -> Kernel<S> {
        let mut kernel = self.contracted(&self.value, weights);
        let operators = &self.operators;
        let own = operators.diagonal(&operators.sums.own_backward.of(masked));
        // Gradients of all keys of a query add up to nothing.
        let pairs = operators.lower(&operators.sums.cubes_backward.of(masked));
        let own_pairs = operators.diagonal(&pairs);
        let values: Few<S> = self.value.kernel.own.iter().map(|&own| own + self.value.common).collect();
        for (node, sum) in kernel.own.iter_mut().enumerate() {
            *sum += values[node] * (own[node] - own_pairs[node]);
        }
        let points = pairs.len();
        for (point, sum) in kernel.pairs.iter_mut().enumerate() {
            let [value, _] = self.value.kernel.positions.ends(point, &values);
            *sum += -(value * pairs[point % points]);
        }
        kernel
    }

    fn contracted(&self, of: &Side<S>, weights: &Kernel<S>) -> Kernel<S> {
        let operators = &self.operators;
        let chart = &operators.sums.chart;
        let pairs = weights.positions.class_mean(|point| weights.pairs[point]);
        let own: Few<S> = weights.own.iter().zip(operators.diagonal(&pairs)).map(|(&own, limit)| own - limit).collect();
        // (N W)(a, b') at (row b', position a).
        let rows = chart.turn(&operators.over_queries(&chart.all(&pairs)));
        let all = added(&operators.lower(&operators.sums.backward.of(&rows)), &operators.sums.own_backward.of(&own));
        let own_at_second = operators.at_second(&own);
        let mixed: Vec<S> = (0..rows.len())
            .map(|place| own_at_second[place] * of.rows[place] + of.own[chart.points[place].0] * rows[place])
            .collect();
        let cubes = operators.sums.cubes_backward.of(&own);
        let smooth = operators.sums.backward.of(&multiplied(&rows, &of.rows));
        let mixed = operators.sums.both_backward.of(&mixed);
        let crossed: Vec<S> = (0..rows.len())
            .map(|place| smooth[place] + mixed[place] + of.own[chart.points[place].0] * cubes[place])
            .collect();
        let turned = operators.lower(&chart.turn(&crossed));
        let crossed = operators.lower(&crossed);
        let own_averages: Vec<S> = multiplied(&own, &of.own_averages);
        let averages = operators.over_queries(&chart.all(&multiplied(&pairs, &of.averages)));
        let averages = operators.lower(&operators.sums.backward.of(&chart.turn(&averages)));
        let averages = added(&averages, &operators.sums.own_backward.of(&own_averages));
        let rest: Vec<S> = (0..all.len()).map(|index| averages[index] - crossed[index] - turned[index]).collect();
        let (own_all, own_rest) = (operators.diagonal(&all), operators.diagonal(&rest));
        let own = (0..own_all.len()).map(|node| of.kernel.own[node] * own_all[node] + own_rest[node]).collect();
        let rotation = |index: usize| if of.is_key { operators.rotation(index) } else { 1.0 };
        let pairs = operators.of_all_classes(&of.kernel, |point, index| {
            of.kernel.pairs[point] * all[index] * rotation(index) + rest[index]
        });
        of.kernel.with(of.kernel.ln_unit + weights.ln_unit, own, pairs)
    }
}
