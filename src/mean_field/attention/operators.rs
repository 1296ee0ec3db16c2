//! Sums over keys and queries through one mask on a chart: W_ab = 1/Z_a for the Z_a keys in view, or less for more
//! distant keys.

use std::sync::Arc;

use super::pattern::{FlatWeights, Pattern, Powers};
use super::rotated::Rotated;
use crate::mean_field::few::Few;
use crate::mean_field::kernel::Kernel;
use crate::mean_field::positions::{Chart, Positions, Sum};

/// Sums over positions b with the flat attention weights W of one mask, on one chart. Results are at points (t, c): t
/// is a node and c the second position. Functions of two positions are given at all points, functions of one position
/// at the nodes.
#[derive(Debug)]
pub(crate) struct Sums {
    pub(super) chart: Arc<Chart>,
    /// W_tt at every node t: the weight of a query on the key at the same position.
    pub(super) own_weights: Vec<f64>,
    /// W_bb at the second position b of all points: the weight of a query on the key at the same position.
    pub(super) own_weights_at_second: Vec<f64>,
    /// 1/Σ_b W_tb² at every node: the number of keys in view if all have the same weight and there is no sink.
    pub(super) most: Vec<f64>,
    /// Σ_b W_tb at every node: 1 without a sink.
    pub(super) totals: Vec<f64>,
    /// ω = e^ς, the weight of the sink relative to a key; 0 without a sink.
    pub(super) sink: f64,
    /// Σ_b W_cb f(t, b) over keys b, at all points (t, c).
    pub(super) forward: Sum,
    /// Σ_b W_bc f(t, b) over queries b, at all points (t, c).
    pub(super) backward: Sum,
    /// Σ_b W_tb W_cb f(t, b) over keys b, at all points (t, c).
    pub(super) both: Sum,
    /// Σ_b W_bt W_bc f(t, b) over queries b, at all points (t, c).
    pub(super) both_backward: Sum,
    /// Σ_b W_cb² f(t, b) over keys b, at all points (t, c).
    pub(super) squares: Sum,
    /// Σ_b W_tb W_cb f(b) over keys b, at the lower points (t, c).
    pub(super) own: Sum,
    /// Σ_b W_bt W_bc f(b) over queries b, at the lower points (t, c).
    pub(super) own_backward: Sum,
    /// Σ_b W_tb² W_cb f(b) over keys b, at all points (t, c).
    pub(super) cubes: Sum,
    /// Σ_b W_bt² W_bc f(b) over queries b, at all points (t, c).
    pub(super) cubes_backward: Sum,
    /// Σ_b W_tb f(b) over keys b, at every node t.
    pub(super) average: Sum,
    /// W_tb, the weight of query t on key b, at all points (t, b); the limits from both sides where b is t.
    pub(super) query_weights: Vec<f64>,
    /// W_bt, the weight of query b on key t, at all points (t, b). The limit from below at b = t is 0 if the positions
    /// before t do not see t.
    pub(super) key_weights: Vec<f64>,
    /// Σ_d W_td W_bd/Σ_d W_bd² at the lower points (t, b): the overlap of the weights of queries t and b, relative to
    /// that of b with itself.
    pub(super) alike: Vec<f64>,
}

impl Sums {
    /// Builds the sums with these weights on the chart.
    pub(crate) fn new(chart: &Arc<Chart>, of_keys: FlatWeights) -> Self {
        let pattern = Pattern::new(chart.length, of_keys);
        let sum = |[of_t, of_c]: [i32; 2], over_keys| pattern.weighted(Powers { of_t, of_c, over_keys }, None);
        let rows = |powers, over_keys| Sum::along_rows(chart, &sum(powers, over_keys).spec());
        let lower =
            |powers, over_keys| Sum::over_nodes(chart, chart.lower.iter().copied(), &sum(powers, over_keys).spec());
        let all = |powers, over_keys| Sum::over_nodes(chart, 0..chart.points.len(), &sum(powers, over_keys).spec());
        let weight = |t: usize, b: usize| pattern.decay(t.abs_diff(b));
        let Pattern { z, .. } = &pattern;
        Self {
            own_weights: chart.nodes().iter().map(|&node| z[node].recip()).collect(),
            own_weights_at_second: chart.points.iter().map(|&(_, b)| z[b].recip()).collect(),
            most: chart.nodes().iter().map(|&node| pattern.most(node)).collect(),
            totals: chart.nodes().iter().map(|&node| pattern.total(node)).collect(),
            sink: of_keys.sink,
            forward: rows([0, 1], true),
            backward: rows([0, 1], false),
            both: rows([1, 1], true),
            both_backward: rows([1, 1], false),
            squares: rows([0, 2], true),
            own: lower([1, 1], true),
            own_backward: lower([1, 1], false),
            cubes: all([2, 1], true),
            cubes_backward: all([2, 1], false),
            average: Sum::over_nodes(chart, chart.diagonals(), &sum([0, 1], true).spec()),
            query_weights: weights(chart, &|t, b| pattern.sees(t, b), &|t, b| weight(t, b) / z[t]),
            key_weights: weights(chart, &|t, b| pattern.sees(b, t), &|t, b| weight(t, b) / z[b]),
            alike: {
                let at = |&place: &usize| pattern.alike(chart.nodes()[chart.points[place].0], chart.points[place].1);
                chart.lower.iter().map(at).collect()
            },
            chart: Arc::clone(chart),
        }
    }
}

/// The sums through one mask that an attention needs; `rotated` is `None` if queries and keys are not rotated.
#[derive(Clone, Debug)]
pub(crate) struct Operators {
    pub(crate) sums: Arc<Sums>,
    pub(crate) rotated: Option<Rotated>,
}

impl Operators {
    /// Returns Σ_b W_cb f(t, b) over values b, or over keys b, with the factor κ(t − b) if keys are rotated.
    pub(super) fn over_keys(&self, f: &[f64], is_key: bool) -> Vec<f64> {
        match &self.rotated {
            Some(rotated) if is_key => rotated.over_keys(f, &self.sums.forward),
            Some(_) | None => self.sums.forward.of(f),
        }
    }

    /// Returns Σ_b W_bc f(t, b) over queries b, with the factor κ(t − b) if queries are rotated.
    pub(super) fn over_queries(&self, f: &[f64]) -> Vec<f64> {
        match &self.rotated {
            Some(rotated) => rotated.over_queries(f, &self.sums.backward),
            None => self.sums.backward.of(f),
        }
    }

    /// Returns the mean of the kernel over pairs of tokens in view of a query, averaged over queries.
    pub(super) fn common(&self, kernel: &Kernel) -> f64 {
        let positions = &kernel.positions;
        let sums = &self.sums;
        let rows = sums.forward.of(&sums.chart.all(&positions.class_mean(|point| kernel.pairs[point])));
        let averages = self.diagonal(&self.lower(&sums.forward.of(&sums.chart.transposed(&rows))));
        positions.sum(|node| averages[node] / sums.totals[node].powi(2)) / positions.length
    }

    /// Returns the mean of κ over pairs of keys in view of a query, averaged over queries.
    pub(super) fn rotation_in_view(&self, positions: &Arc<Positions>) -> f64 {
        self.rotated.as_ref().map_or(1.0, |rotated| {
            let turns = &rotated.at_lower_points;
            self.common(&Kernel::new(positions, |_| 1.0, |point| turns[point % turns.len()]))
        })
    }

    /// Returns κ, the factor of the rotation on the product of the two queries at a point of any class; 1 without a
    /// rotation.
    pub(super) fn rotation(&self, point: usize) -> f64 {
        self.rotated.as_ref().map_or(1.0, |rotated| rotated.at_lower_points[point % rotated.at_lower_points.len()])
    }

    /// Subtracts the term of the node itself from the sums `all` along rows. The term is `limit`, the value at the
    /// node, times the weight of the node to this `power`.
    pub(super) fn without_own(&self, all: &[f64], limit: &[f64], power: i32) -> Vec<f64> {
        let own = |(place, &sum): (usize, &f64)| {
            sum - limit[self.sums.chart.points[place].0] * self.sums.key_weights[place].powi(power)
        };
        all.iter().enumerate().map(own).collect()
    }

    /// Returns a sum along rows of a function `f` that jumps at the node. At the node itself `f` has the limit from
    /// below.
    pub(super) fn with_jump(&self, jump: Jump, f: &[f64]) -> Vec<f64> {
        let sum = match jump {
            Jump::Forward => &self.sums.forward,
            Jump::Squares => &self.sums.squares,
            Jump::Both => &self.sums.both,
        };
        let jumps: Vec<f64> = self.sums.chart.diagonals().map(|diagonal| f[diagonal] - f[diagonal + 1]).collect();
        let diagonals: Vec<usize> = self.sums.chart.diagonals().collect();
        let at = |(place, sum): (usize, f64)| {
            let node = self.sums.chart.points[place].0;
            let own = self.sums.own_weights[node];
            let weight = if place == diagonals[node] { own } else { self.sums.key_weights[place] };
            let weight = match jump {
                Jump::Forward => weight,
                Jump::Squares => weight * weight,
                Jump::Both => weight * own,
            };
            sum + jumps[node] * weight
        };
        sum.of(f).into_iter().enumerate().map(at).collect()
    }

    /// Returns Wᵀ M W at lower points, from M at lower points (`pairs`) and at single tokens (`own`).
    pub(super) fn gathered(&self, pairs: &[f64], own: &[f64]) -> Vec<f64> {
        let own: Vec<f64> = own.iter().zip(self.diagonal(pairs)).map(|(&own, limit)| own - limit).collect();
        let rows = self.sums.chart.transposed(&self.sums.backward.of(&self.sums.chart.all(pairs)));
        added(&self.lower(&self.sums.backward.of(&rows)), &self.sums.own_backward.of(&own))
    }

    /// Returns a number e_a per query such that Σ_a e_a W_ab² = Σ_ac M_ac W_ab W_cb, where M is the kernel `of`. Each
    /// pair of queries is counted at the query that sees fewer keys.
    pub(super) fn of_rows(&self, of: &Kernel) -> Vec<f64> {
        let pairs = of.positions.class_mean(|point| of.pairs[point]);
        let sums = self.sums.backward.of(&self.sums.chart.all(&pairs));
        let nodes = self.sums.chart.diagonals().zip(&self.sums.own_weights).zip(self.diagonal(&pairs));
        let others = nodes.map(|((diagonal, &own), limit)| {
            // If earlier positions see the token too, both queries of a pair have it in view.
            let share = if self.sums.key_weights[diagonal] > 0.0 { 1.0 } else { 2.0 };
            (sums[diagonal] * own.recip() - limit) * share
        });
        of.own.iter().zip(others).map(|(&own, others)| own + others).collect()
    }

    /// Returns 1/Z at both positions of a point: the weight of a query on the key at the same position.
    pub(super) fn own_weights(&self, place: usize) -> [f64; 2] {
        [self.sums.own_weights[self.sums.chart.points[place].0], self.sums.own_weights_at_second[place]]
    }

    /// Interpolates a function f of one position: turns its values `own` at the nodes into f(s) for every point, where
    /// s is the second position of the point.
    pub(super) fn at_second(&self, own: &[f64]) -> Vec<f64> {
        self.sums.chart.at_second(own)
    }

    /// Interpolates a function f of one position: turns its values `own` at the nodes into f(s) for every lower point,
    /// where s is the second position of the point.
    pub(super) fn at_lower_ends(&self, own: &[f64]) -> Vec<f64> {
        self.lower(&self.at_second(own))
    }

    /// Selects the values at the lower points from the values at all points.
    pub(super) fn lower(&self, all: &[f64]) -> Vec<f64> {
        self.sums.chart.lower.iter().map(|&place| all[place]).collect()
    }

    /// Selects the values at the points (t, t) for every node t, as limits from below, from the values at the lower
    /// points.
    pub(super) fn diagonal(&self, lower: &[f64]) -> Few<f64> {
        self.sums.chart.lower_diagonals().map(|index| lower[index]).collect()
    }

    /// Returns `of` for every point of every class of pairs. The arguments of `of` are the index of the point among the
    /// points of all classes, and its index among the lower points.
    pub(super) fn of_all_classes(&self, like: &Kernel, of: impl Fn(usize, usize) -> f64) -> Few<f64> {
        let count = self.sums.chart.lower.len();
        (0..like.pairs.len()).map(|point| of(point, point % count)).collect()
    }
}

/// Returns `weight` at all points, and 0 at points whose second position is not in view of the first by `sees`. Where
/// both positions are the same node, the two points have the limits from below and above.
fn weights(chart: &Chart, sees: &dyn Fn(usize, usize) -> bool, weight: &dyn Fn(usize, usize) -> f64) -> Vec<f64> {
    let diagonals: Vec<usize> = chart.diagonals().collect();
    let last = chart.length - 1;
    let at = |(place, &(k, b)): (usize, &(usize, usize))| {
        let t = chart.nodes()[k];
        let (first, second) = match place.checked_sub(diagonals[k]) {
            // Nothing is before the first position: it has the visibility between the first and the second.
            Some(0) if t == 0 => (last.min(1), 0),
            Some(0) => (t, t - 1),
            Some(1) => (t, last.min(t + 1)),
            Some(_) | None => (t, b),
        };
        if sees(first, second) { weight(t, b) } else { 0.0 }
    };
    chart.points.iter().enumerate().map(at).collect()
}

/// The sum of [`Sums`] that [`Operators::with_jump`] takes of a function with a jump at the node.
#[derive(Clone, Copy)]
pub(super) enum Jump {
    Forward,
    Squares,
    Both,
}

pub(super) fn added(a: &[f64], b: &[f64]) -> Vec<f64> {
    a.iter().zip(b).map(|(&a, &b)| a + b).collect()
}

pub(super) fn multiplied(a: &[f64], b: &[f64]) -> Vec<f64> {
    a.iter().zip(b).map(|(&a, &b)| a * b).collect()
}

pub(super) fn scaled(of: &[f64], factors: &[f64]) -> Vec<f64> {
    of.iter().zip(factors).map(|(&of, &factor)| of * factor).collect()
}
