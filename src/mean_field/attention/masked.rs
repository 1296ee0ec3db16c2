//! What queries see through a mask, on a chart: W_ab = 1/Z_a for the Z_a keys in view, or less for those further away.
//!
//! ```text
//! R(b, c) = Σ_d W_cd V_bd     P = Σ_b W_ab R(b, c)     of keys R', P'     F = Σ_bd W_ab W_cd V_bd K_bd     N(a, c) = Σ_b W_ab R(b, c) R'(b, c)
//! D = F − N − Nᵀ + P∘P'       X(a, c) = Σ_b W_ab μ_ab R(b, c)       μ_ab = ½ (K_bb − 2 R'(b, a) + P'_aa − tr_a)
//! C(M, N)(b, b') = M∘WᵀNW − T − Tᵀ + Wᵀ(N∘P)W       T(b, b') = Σ_a W_ab (N W)(a, b') R(b', a)
//! ```
//!
//! V is a smooth function of two positions, and at b = d larger by the own part V_bb − lim V_bd of a token, which is summed apart. The one
//! product of three factors, Σ_b W_ab R'(b, a) R(b, c), takes the geometric mean of variances as the covariance.
//!
//! Assumption: ids repeat as on average. Source: ours.

use std::sync::Arc;

use sigprop_stack::Mask;

use super::pattern::{Pattern, Powers};
use super::repeats::{Jump, Repeats};
use super::rotated::Rotated;
use super::view::{Back, Seen, Turned, effective};
use crate::mean_field::moments::{Few, Kernel};
use crate::mean_field::positions::{Chart, Sum};
use crate::mean_field::rotary::Rotation;
use crate::mean_field::scalar::Scalar;

/// The sums of one mask on one chart.
#[derive(Debug)]
pub(crate) struct Operators {
    pub(super) chart: Arc<Chart>,
    /// W_tt at every node, the same at the second position of all points, and 1/Σ_b W_tb².
    own_weights: Vec<f64>,
    own_weights_at_second: Vec<f64>,
    most: Vec<f64>,
    /// Σ_b W_cb f(t, b), and Σ_b W_bc f(t, b).
    pub(super) forward: Sum,
    backward: Sum,
    /// Σ_b W_tb W_cb f(t, b), and Σ_b W_bt W_bc f(t, b).
    both: Sum,
    both_backward: Sum,
    /// Σ_b W_cb² f(t, b).
    pub(super) squares: Sum,
    /// Of functions of one position: Σ_b W_tb W_cb f(b), Σ_b W_bt W_bc f(b), Σ_b W_tb² W_cb f(b), Σ_b W_bt² W_bc f(b); and Σ_b W_tb f(b).
    own: Sum,
    own_backward: Sum,
    cubes: Sum,
    cubes_backward: Sum,
    average: Sum,
    rotated: Option<Rotated>,
    /// W_tb, the limits from both sides where b is t, and W_bt, 0 at the limit from below where those before t do not see it; at all
    /// points.
    pub(super) query_weights: Vec<f64>,
    pub(super) key_weights: Vec<f64>,
    /// Σ_d W_td W_bd/Σ_d W_bd², at the lower points.
    pub(super) alike: Vec<f64>,
}

impl Operators {
    /// Of `mask` on the chart, of weights that fall like e^(−slope · distance) where all before are seen, and of keys and queries that
    /// are rotated, if they are.
    pub(crate) fn new(chart: &Arc<Chart>, mask: Mask, slope: f64, rotation: Option<&Rotation>) -> Self {
        let pattern = Pattern::new(chart.length, mask, slope);
        let sum = |[of_t, of_c]: [i32; 2], over_keys| pattern.weighted(Powers { of_t, of_c, over_keys }, None);
        let rows = [sum([0, 1], true), sum([0, 1], false), sum([1, 1], true), sum([1, 1], false), sum([0, 2], true)];
        let rows = Sum::along_rows(chart, &rows.each_ref().map(|sum| sum.spec()));
        let [forward, backward, both, both_backward, squares] = rows.try_into().expect("as many as specs");
        let lower =
            |powers, over_keys| Sum::over_nodes(chart, chart.lower.iter().copied(), &sum(powers, over_keys).spec());
        let all = |powers, over_keys| Sum::over_nodes(chart, 0..chart.points.len(), &sum(powers, over_keys).spec());
        let weight = |t: usize, b: usize| pattern.decay(t.abs_diff(b));
        let Pattern { z, .. } = &pattern;
        Self {
            own_weights: chart.nodes.iter().map(|&node| z[node].recip()).collect(),
            own_weights_at_second: chart.points.iter().map(|&(_, b)| z[b].recip()).collect(),
            most: chart.nodes.iter().map(|&node| pattern.most(node)).collect(),
            forward,
            backward,
            both,
            both_backward,
            squares,
            own: lower([1, 1], true),
            own_backward: lower([1, 1], false),
            cubes: all([2, 1], true),
            cubes_backward: all([2, 1], false),
            average: Sum::over_nodes(chart, chart.diagonals(), &sum([0, 1], true).spec()),
            rotated: rotation.map(|rotation| Rotated::new(chart, &pattern, rotation)),
            query_weights: weights(chart, &|t, b| pattern.sees(t, b), &|t, b| weight(t, b) / z[t]),
            key_weights: weights(chart, &|t, b| pattern.sees(b, t), &|t, b| weight(t, b) / z[b]),
            alike: {
                let at = |&place: &usize| pattern.alike(chart.nodes[chart.points[place].0], chart.points[place].1);
                chart.lower.iter().map(at).collect()
            },
            chart: Arc::clone(chart),
        }
    }

    /// A sum along rows from which tokens themselves, with this value at the limit, are taken off: they meet their queries with W to
    /// this power.
    pub(super) fn without_own<S: Scalar>(&self, all: &[S], limit: &[S], power: i32) -> Vec<S> {
        let own =
            |(place, &sum): (usize, &S)| sum - limit[self.chart.points[place].0] * self.key_weights[place].powi(power);
        all.iter().enumerate().map(own).collect()
    }

    /// A sum along rows of a function that jumps at the node, where it is what it is from below.
    pub(super) fn with_jump<S: Scalar>(&self, jump: Jump, f: &[S]) -> Vec<S> {
        let sum = match jump {
            Jump::Forward => &self.forward,
            Jump::Squares => &self.squares,
            Jump::Both => &self.both,
        };
        let jumps: Vec<S> = self.chart.diagonals().map(|diagonal| f[diagonal] - f[diagonal + 1]).collect();
        let diagonals: Vec<usize> = self.chart.diagonals().collect();
        let at = |(place, sum): (usize, S)| {
            let node = self.chart.points[place].0;
            let own = self.own_weights[node];
            let weight = if place == diagonals[node] { own } else { self.key_weights[place] };
            let weight = match jump {
                Jump::Forward => weight,
                Jump::Squares => weight * weight,
                Jump::Both => weight * own,
            };
            sum + jumps[node] * weight
        };
        sum.of(f).into_iter().enumerate().map(at).collect()
    }

    /// 1/Z at both positions of a point.
    pub(super) fn own_weights(&self, place: usize) -> [f64; 2] {
        [self.own_weights[self.chart.points[place].0], self.own_weights_at_second[place]]
    }

    /// A function of one position at the second position of the lower points.
    pub(super) fn at_lower_ends<S: Scalar>(&self, own: &[S]) -> Vec<S> {
        self.lower(&self.at_second(own))
    }

    /// What stands at the lower points.
    pub(super) fn lower<S: Scalar>(&self, all: &[S]) -> Vec<S> {
        self.chart.lower.iter().map(|&place| all[place]).collect()
    }

    /// What stands at the limit from below of every node.
    pub(super) fn diagonal<S: Scalar>(&self, lower: &[S]) -> Few<S> {
        self.chart.lower_diagonals().map(|index| lower[index]).collect()
    }

    /// κ of two queries at a lower point.
    pub(super) fn rotation(&self, point: usize) -> f64 {
        self.rotated.as_ref().map_or(1.0, |rotated| rotated.at_points[self.chart.lower[point % self.chart.lower.len()]])
    }

    /// The sum over keys, and that over queries; of those that are rotated.
    pub(super) fn of_keys(&self) -> [&Sum; 2] {
        match &self.rotated {
            Some(Rotated { forward, backward, .. }) => [forward, backward],
            None => [&self.forward, &self.backward],
        }
    }

    /// W M Wᵀ at lower points, from what keys `rows` have been summed to and what keys themselves have beyond M at the limit of two
    /// at one position: they meet at the distance of the queries.
    fn averages<S: Scalar>(&self, rows: &[S], own: &[S], rotated: Option<&Rotated>) -> Vec<S> {
        let own = self.own.of(own);
        let own = rotated.map_or_else(|| own.clone(), |rotated| scaled(&own, &self.lower(&rotated.at_points)));
        added(&self.lower(&self.forward.of(rows)), &own)
    }

    /// A function of one position at the second position of all points.
    fn at_second<S: Scalar>(&self, own: &[S]) -> Vec<S> {
        self.chart.at_second(own)
    }
}

/// Weights where one sees the other, at all points; at a node the limits from below and above.
fn weights(chart: &Chart, sees: &dyn Fn(usize, usize) -> bool, weight: &dyn Fn(usize, usize) -> f64) -> Vec<f64> {
    let diagonals: Vec<usize> = chart.diagonals().collect();
    let last = chart.length - 1;
    let at = |(place, &(k, b)): (usize, &(usize, usize))| {
        let t = chart.nodes[k];
        let (first, second) = match place.checked_sub(diagonals[k]) {
            // Nothing is before the first: as the first is to the second.
            Some(0) if t == 0 => (last.min(1), 0),
            Some(0) => (t, t - 1),
            Some(1) => (t, last.min(t + 1)),
            Some(_) | None => (t, b),
        };
        if sees(first, second) { weight(t, b) } else { 0.0 }
    };
    chart.points.iter().enumerate().map(at).collect()
}

/// Keys or values: kernel, own part, R and P.
pub(super) struct Side<S> {
    pub(super) kernel: Kernel<S>,
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
        let pairs = positions.class_mean(|point| kernel.pairs[point]);
        let diagonal = operators.diagonal(&pairs);
        let own: Few<S> = kernel.own.iter().zip(&diagonal).map(|(&own, &limit)| own - limit).collect();
        let sum = if is_key { operators.of_keys()[0] } else { &operators.forward };
        let rows = sum.of(&operators.chart.all(&pairs));
        let turned = operators.chart.turn(&rows);
        let smooth = operators.lower(&operators.forward.of(&turned));
        let rotated = operators.rotated.as_ref().filter(|_| is_key);
        let at_rest = operators.averages(&turned, &own, None);
        let own_averages = operators.diagonal(&at_rest);
        let averages = rotated.map_or(at_rest, |_| operators.averages(&turned, &own, rotated));
        let square = operators.average.of(&kernel.own);
        let trace = square.iter().zip(&own_averages).map(|(&square, &own)| square - own).collect();
        let own_at_second = operators.at_second(&own);
        Self { kernel: kernel.clone(), own, own_at_second, rows, turned, averages, own_averages, smooth, is_key, trace }
    }
}

pub(super) fn added<S: Scalar>(a: &[S], b: &[S]) -> Vec<S> {
    a.iter().zip(b).map(|(&a, &b)| a + b).collect()
}

pub(super) fn multiplied<S: Scalar>(a: &[S], b: &[S]) -> Vec<S> {
    a.iter().zip(b).map(|(&a, &b)| a * b).collect()
}

fn scaled<S: Scalar>(of: &[S], factors: &[f64]) -> Vec<S> {
    of.iter().zip(factors).map(|(&of, &factor)| of * factor).collect()
}

/// Keys and values as queries see them.
pub(super) struct Masked<S> {
    operators: Arc<Operators>,
    key: Side<S>,
    value: Side<S>,
}

impl<S: Scalar> Masked<S> {
    pub(super) fn see(operators: &Arc<Operators>, key: &Kernel<S>, value: &Kernel<S>) -> Seen<S> {
        let positions = &key.positions;
        let square: Few<S> = operators.average.of(&value.own).into();
        let (key, value) = (Side::new(operators, key, true), Side::new(operators, value, false));
        let repeats = Repeats::new(operators, &key, &value);
        let with_ids = |spread: Vec<S>| match &repeats {
            Some(repeats) => added(&spread, &repeats.spread),
            None => spread,
        };
        let at_rest = with_ids(spread(operators, &key, &value, None));
        let rotated = operators.rotated.as_ref();
        let turned = rotated.map(|_| with_ids(spread(operators, &key, &value, rotated)));
        let mut shift = shift(operators, &key, &value);
        if let Some(repeats) = &repeats {
            shift = added(&shift, &repeats.shift);
        }
        let both = key.kernel.ln_unit + value.kernel.ln_unit;
        let kernel = |ln_unit: f64, lower: &[S]| {
            let own = operators.diagonal(lower);
            let pairs = (0..positions.classes.len()).flat_map(|_| lower.iter().copied()).collect();
            key.kernel.with(ln_unit, own, pairs)
        };
        // Of one key all is known.
        let own = operators.diagonal(&at_rest).into_iter().zip(&operators.most);
        let own: Few<S> = own.map(|(own, &most)| if most < 1.5 { S::from(0.0) } else { own }).collect();
        let with_own = |lower: &Vec<S>| Kernel { own: own.clone(), ..kernel(both, lower) };
        let spread = Turned { behind: with_own(&at_rest), before: turned.as_ref().map(with_own) };
        let mut flat = kernel(value.kernel.ln_unit, &value.averages);
        if let Some(repeats) = &repeats {
            flat.pairs.iter_mut().zip(repeats.flat.iter().flatten()).for_each(|(flat, &gain)| *flat += gain);
        }
        let turned = operators.chart.turn(&shift);
        let traces = key.trace.iter().zip(&value.trace).zip(&own).zip(&operators.most);
        Seen {
            flat,
            shift: [shift, turned].map(|all| kernel(both, &operators.lower(&all))),
            keys: traces
                .map(|(((&of_key, &of_value), &spread), &most)| effective(of_key * of_value, spread, most))
                .collect(),
            trace: key.trace.clone(),
            square,
            single: operators.most.iter().map(|most| most.recip()).collect(),
            spread,
            back: Back::Masked(Box::new(Self { operators: Arc::clone(operators), key, value })),
        }
    }
}

/// D at lower points, of queries at one place or of rotated ones.
fn spread<S: Scalar>(operators: &Operators, key: &Side<S>, value: &Side<S>, rotated: Option<&Rotated>) -> Vec<S> {
    let positions = &key.kernel.positions;
    let products = positions.class_mean(|point| key.kernel.pairs[point] * value.kernel.pairs[point]);
    let limit = operators.diagonal(&products);
    let own = key.kernel.own.iter().zip(&value.kernel.own).zip(&limit);
    let own: Vec<S> = own.map(|((&key, &value), &limit)| key * value - limit).collect();
    let rows = operators.chart.turn(&operators.of_keys()[0].of(&operators.chart.all(&products)));
    let together = operators.averages(&rows, &own, rotated);
    let crossed = crossed(operators, key, value, rotated);
    let turned = operators.lower(&operators.chart.turn(&crossed));
    let crossed = operators.lower(&crossed);
    let averages = rotated.map_or_else(|| operators.averages(&key.turned, &key.own, None), |_| key.averages.clone());
    (0..crossed.len())
        .map(|index| together[index] - crossed[index] - turned[index] + averages[index] * value.averages[index])
        .collect()
}

/// N at all points, (row c, position a).
fn crossed<S: Scalar>(operators: &Operators, key: &Side<S>, value: &Side<S>, rotated: Option<&Rotated>) -> Vec<S> {
    let smooth = operators.forward.of(&multiplied(&key.turned, &value.turned));
    let mut of_values = operators.both.of(&multiplied(&value.own_at_second, &key.turned));
    let of_keys = operators.both.of(&multiplied(&key.own_at_second, &value.turned));
    let mut of_keys = added(&of_keys, &operators.cubes.of(&multiplied(&key.own, &value.own)));
    if let Some(Rotated { at_points, shared: [shared, _], .. }) = rotated {
        (of_values, of_keys) = (scaled(&of_values, shared), scaled(&of_keys, at_points));
    }
    added(&added(&smooth, &of_values), &of_keys)
}

/// X at all points, (row a, position c).
fn shift<S: Scalar>(operators: &Operators, key: &Side<S>, value: &Side<S>) -> Vec<S> {
    let chart = &operators.chart;
    let half = S::from(0.5);
    let long = multiplied(&operators.at_second(&key.kernel.own), &value.turned);
    let long = operators.forward.of(&long).into_iter().map(|long| long * half);
    let squares = operators.squares.of(&multiplied(&key.own_at_second, &value.turned));
    let by_values: Vec<S> = long.zip(squares).map(|(long, square)| long - square).collect();
    let by_values = chart.turn(&by_values);
    let own = chart.all(&operators.own.of(&multiplied(&key.kernel.own, &value.own)));
    let averages = chart.all(&value.averages);
    let leaning = |node: usize, own: S| (own - key.trace[node]) * half;
    let both = operators.both.of(&multiplied(&value.own_at_second, &key.turned));
    let cubes = operators.cubes.of(&multiplied(&key.own, &value.own));
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
    let chart = &operators.chart;
    let variance = |side: &Side<S>| -> Vec<S> {
        let squares = chart.turn(&operators.forward.of(&multiplied(&side.turned, &side.turned)));
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
        let more = operators.diagonal(&operators.own_backward.of(masked));
        let own = operators.diagonal(&lower).iter().zip(&more).map(|(&own, &more)| own + more).collect();
        // Two keys with the same id have the gradients of queries with that id in common.
        let shared = |index: usize| {
            let place = operators.chart.lower[index];
            let [a, b] = operators.own_weights(place);
            a * b + operators.query_weights[place] * operators.key_weights[place]
        };
        let of_class = |point: usize, index: usize| lower[index] + (gamma.pairs[point] - pairs[index]) * shared(index);
        gamma.with(gamma.ln_unit, own, operators.of_all_classes(gamma, of_class))
    }

    /// C(K, N), from N.
    pub(super) fn at_values(&self, weights: &Kernel<S>) -> Kernel<S> {
        self.contracted(&self.key, weights, None)
    }

    /// C(V, N), from N and its own moments under masks; and before the rotation, if there is one.
    pub(super) fn at_keys(&self, weights: &Kernel<S>, masked: &[S]) -> Turned<S> {
        let behind = self.at_turned_keys(weights, masked, None);
        let before = self.operators.rotated.as_ref().map(|rotated| {
            let own = behind.own.clone();
            Kernel { own, ..self.at_turned_keys(weights, masked, Some(rotated)) }
        });
        Turned { behind, before }
    }

    fn at_turned_keys(&self, weights: &Kernel<S>, masked: &[S], before: Option<&Rotated>) -> Kernel<S> {
        let mut kernel = self.contracted(&self.value, weights, before);
        let operators = &self.operators;
        let own = operators.diagonal(&operators.own_backward.of(masked));
        // Gradients of all keys of a query add up to nothing.
        let pairs = operators.lower(&operators.cubes_backward.of(masked));
        let own_pairs = operators.diagonal(&pairs);
        let values = &self.value.kernel.own;
        for (node, sum) in kernel.own.iter_mut().enumerate() {
            *sum += values[node] * (own[node] - own_pairs[node]);
        }
        let points = pairs.len();
        for (point, sum) in kernel.pairs.iter_mut().enumerate() {
            let [value, _] = self.value.kernel.positions.ends(point, values);
            let rotation = before.map_or(1.0, |_| operators.rotation(point));
            *sum += -(value * pairs[point % points] * rotation);
        }
        kernel
    }

    /// C(M, N) of this M, of rotated keys or before their rotation.
    fn contracted(&self, of: &Side<S>, weights: &Kernel<S>, before: Option<&Rotated>) -> Kernel<S> {
        let operators = &self.operators;
        let chart = &operators.chart;
        let turned = |sums: Vec<S>, factors: &dyn Fn(&Rotated) -> Vec<f64>| match before {
            Some(rotated) => scaled(&sums, &factors(rotated)),
            None => sums,
        };
        let at_distance = |sums: Vec<S>| turned(sums, &|rotated| rotated.at_points.clone());
        let at_lower_distance = |sums: Vec<S>| turned(sums, &|rotated| operators.lower(&rotated.at_points));
        let pairs = weights.positions.class_mean(|point| weights.pairs[point]);
        let own: Few<S> = weights.own.iter().zip(operators.diagonal(&pairs)).map(|(&own, limit)| own - limit).collect();
        // (N W)(a, b') at (row b', position a).
        let rows = chart.turn(&operators.of_keys()[1].of(&chart.all(&pairs)));
        let alone = at_lower_distance(operators.own_backward.of(&own));
        let all = added(&operators.lower(&operators.backward.of(&rows)), &alone);
        let crossed = {
            let of_keys = chart.points.iter().zip(&rows).map(|(&(node, _), &row)| of.own[node] * row);
            let of_keys = operators.both_backward.of(&of_keys.collect::<Vec<S>>());
            let of_keys = turned(of_keys, &|rotated| rotated.shared[1].clone());
            let of_queries = operators.both_backward.of(&multiplied(&operators.at_second(&own), &of.rows));
            let cubes = operators.cubes_backward.of(&own);
            let both = chart.points.iter().zip(&cubes).map(|(&(node, _), &cube)| of.own[node] * cube);
            let of_queries = at_distance(added(&of_queries, &both.collect::<Vec<S>>()));
            added(&added(&operators.backward.of(&multiplied(&rows, &of.rows)), &of_keys), &of_queries)
        };
        let both = operators.lower(&chart.turn(&crossed));
        let crossed = added(&operators.lower(&crossed), &both);
        let alone = at_lower_distance(operators.own_backward.of(&multiplied(&own, &of.own_averages)));
        let averages = operators.of_keys()[1].of(&chart.all(&multiplied(&pairs, &of.averages)));
        let averages = added(&operators.lower(&operators.backward.of(&chart.turn(&averages))), &alone);
        let rest: Vec<S> = averages.iter().zip(&crossed).map(|(&average, &crossed)| average - crossed).collect();
        let (own_all, own_rest) = (operators.diagonal(&all), operators.diagonal(&rest));
        let own = (0..own_all.len()).map(|node| of.kernel.own[node] * own_all[node] + own_rest[node]).collect();
        let rotation = |index: usize| if of.is_key { operators.rotation(index) } else { 1.0 };
        let pairs = operators.of_all_classes(&of.kernel, |point, index| {
            of.kernel.pairs[point] * all[index] * rotation(index) + rest[index]
        });
        of.kernel.with(of.kernel.ln_unit + weights.ln_unit, own, pairs)
    }
}

impl Operators {
    /// Wᵀ M W at lower points, from M at lower points and its own values.
    fn gathered<S: Scalar>(&self, pairs: &[S], own: &[S]) -> Vec<S> {
        let own: Vec<S> = own.iter().zip(self.diagonal(pairs)).map(|(&own, limit)| own - limit).collect();
        let rows = self.chart.turn(&self.backward.of(&self.chart.all(pairs)));
        added(&self.lower(&self.backward.of(&rows)), &self.own_backward.of(&own))
    }

    /// Numbers of all classes of pairs, from the point of the class and its index among the lower points.
    fn of_all_classes<S: Scalar>(&self, like: &Kernel<S>, of: impl Fn(usize, usize) -> S) -> Few<S> {
        let count = self.chart.lower.len();
        (0..like.pairs.len()).map(|point| of(point, point % count)).collect()
    }
}
