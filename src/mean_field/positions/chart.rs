//! A sequence of any length, represented by rows of few points.
//!
//! A pair of positions is on the row of its first position, a *node*. The points of a row are second positions on both
//! sides of the node. Nodes are graded from both ends of the sequence, and points of a row by their distance from the
//! node and from both ends, so that neighbours differ by a constant in ln: structure is where a sequence begins, where
//! it ends, and at small distances. Windows add the positions where they begin and end. Values between points of a row
//! are cubics in
//!
//! ```text
//! ln (s + 1)/(t − s + 1)   below t         ln (s − t + 1)/(L − s)   above         never across t, which is there twice
//! ```
//!
//! where s is the second position of a point; t is the node of the row; L is the number of tokens of a sequence.
//!
//! Values between rows are cubics in ln (t + 1)/(L − t), at fixed distance where that is small compared with t and
//! L − t, otherwise at fixed s. A symmetric function is stored by its values at the points below t. The other values
//! follow by exchange of the two positions.
//!
//! Source: ours.

use std::collections::BTreeSet;

use smallvec::smallvec;

use super::averages::Averages;
use super::cubic::{Entries, Sparse, Stencil};
use super::grading::Grading;
use super::line::{Line, Measure, runs};
use super::row::NodeRow;

/// A chart of a sequence: a few of its positions, the nodes, and for every node a row of points, which are pairs of the
/// node with a second position.
#[derive(Debug)]
pub(crate) struct Chart {
    /// The number of positions of the sequence.
    pub(crate) length: usize,
    grading: Grading,
    windows: Vec<usize>,
    pub(super) nodes: Line,
    pub(super) rows: Vec<NodeRow>,
    /// All points, row after row: the index of the row and the second position of each.
    pub(crate) points: Vec<(usize, usize)>,
    /// The lower points, as indices in `points`: the points whose second position is below their node or is the node
    /// itself.
    pub(crate) lower: Vec<usize>,
    /// Interpolation weights for each position: they turn the values of a function at the nodes into its value at this
    /// position.
    pub(super) at: Vec<Stencil>,
    /// Interpolation weights, one row per point: they turn the values of a symmetric function at the lower points into
    /// its value at this point.
    pub(super) full: Sparse,
    /// Interpolation weights, one row per point (t, s): they turn the values of f at all points into f(s, t).
    pub(super) transposition: Sparse,
}

impl Chart {
    /// Builds the chart of `length` positions for attentions with these `windows`, which are numbers of positions.
    pub(crate) fn new(length: usize, grading: Grading, windows: &[usize]) -> Self {
        let windows: Vec<usize> = windows.iter().copied().filter(|&window| window < length).collect();
        // These are the first and the last position at which a window is full.
        let fixed: BTreeSet<usize> = windows.iter().flat_map(|&window| [window - 1, length - window]).collect();
        let half = grading.up_to(length / 2 + 1);
        let mirrored = half.iter().map(|&position| length - 1 - position);
        let nodes: BTreeSet<usize> = half.iter().copied().chain(mirrored).chain(fixed.iter().copied()).collect();
        let nodes = Line::new(nodes, 0, Measure::Ends { length }, |at| fixed.contains(&at));
        let distances = grading.distances(length, &windows);
        let mut rows: Vec<NodeRow> = Vec::with_capacity(nodes.positions.len());
        for &node in &nodes.positions {
            let start = rows.last().map_or(0, |row| row.places().end);
            rows.push(NodeRow::new(node, start, length, &distances, (&windows, &fixed)));
        }
        let points = rows.iter().enumerate().flat_map(|(k, row)| row.positions().map(move |at| (k, at))).collect();
        let lower = rows.iter().flat_map(|row| row.below.start..row.above.start).collect();
        let at = (0..length).map(|position| nodes.stencil(position)).collect();
        let mut chart = Self {
            length,
            grading,
            windows,
            nodes,
            rows,
            points,
            lower,
            at,
            full: Sparse::default(),
            transposition: Sparse::default(),
        };
        chart.transposition = chart.transposition();
        chart.full = chart.completed();
        chart
    }

    /// Returns true if the chart has few points.
    pub(crate) fn is_small(&self) -> bool {
        const SMALL: usize = 1 << 14;
        self.points.len() <= SMALL
    }

    /// The positions of the nodes.
    pub(crate) fn nodes(&self) -> &[usize] {
        &self.nodes.positions
    }

    /// Returns the chart of a sequence of another length, with the same grading and windows.
    pub(super) fn resampled(&self, length: usize) -> Self {
        let has_all = self.nodes().len() == self.length;
        Self::new(length, if has_all { Grading::all(length) } else { self.grading }, &self.windows)
    }

    /// The first and second positions of the lower points.
    pub(super) fn lower_positions(&self) -> impl Iterator<Item = (usize, usize)> + '_ {
        self.lower.iter().map(|&place| (self.nodes()[self.points[place].0], self.points[place].1))
    }

    /// Returns the interpolation weights that turn the values of f at all points into f(a, b).
    pub(super) fn found(&self, a: usize, b: usize) -> Entries {
        let (below, distance) = (b <= a, a.abs_diff(b));
        let is_near = distance == 0 || 2 * distance < (a + 1).min(self.length - a);
        let Stencil { start, weights } = self.at[a];
        let mut entries = Entries::new();
        for (k, weight) in (start..).zip(weights).filter(|(_, weight)| weight.abs() > 0.0) {
            let node = self.nodes()[k];
            let second = match (is_near, below) {
                (true, true) => node.saturating_sub(distance),
                (true, false) => (node + distance).min(self.length - 1),
                (false, true) => b.min(node),
                (false, false) => b.max(node),
            };
            let side = if below { &self.rows[k].below } else { &self.rows[k].above };
            let Stencil { start, weights } = side.stencil(second);
            // In a stencil with fewer than four points, the other places need not exist.
            let places = (start..).zip(weights).filter(|(_, own)| own.abs() > 0.0);
            entries.extend(places.map(|(place, own)| (place as u32, weight * own)));
        }
        entries
    }

    fn transposition(&self) -> Sparse {
        Sparse::new(self.points.iter().enumerate().map(|(place, &(k, position))| {
            let node = self.nodes()[k];
            if position == node {
                // The limits from below and above change places.
                let diagonal = self.rows[k].diagonal();
                return smallvec![((2 * diagonal + 1 - place) as u32, 1.0)];
            }
            self.found(position, node)
        }))
    }

    /// Builds `full`, the interpolation weights for all points from the lower points.
    fn completed(&self) -> Sparse {
        let mut place_among_lower = vec![u32::MAX; self.points.len()];
        self.lower.iter().enumerate().for_each(|(index, &place)| place_among_lower[place] = index as u32);
        Sparse::new((0..self.points.len()).map(|place| {
            if place_among_lower[place] != u32::MAX {
                return smallvec![(place_among_lower[place], 1.0)];
            }
            self.transposition
                .row(place)
                .iter()
                .map(|&(column, weight)| (place_among_lower[column as usize], weight))
                .collect()
        }))
    }

    /// For every node t, the index in `points` of the point (t, t) as the limit from below; the limit from above has
    /// the next index.
    pub(crate) fn diagonals(&self) -> impl Iterator<Item = usize> {
        self.rows.iter().map(NodeRow::diagonal)
    }

    /// For every node t, the index among the lower points of the point (t, t), which is the limit from below.
    pub(crate) fn lower_diagonals(&self) -> impl Iterator<Item = usize> {
        self.rows.iter().scan(0, |before, row| {
            *before += row.below.positions.len();
            Some(*before - 1)
        })
    }

    /// Interpolates a function f of one position: turns its values `own` at the nodes into f(s) for every point, where
    /// s is the second position of the point.
    pub(crate) fn at_second(&self, own: &[f64]) -> Vec<f64> {
        let at = |&(_, position): &(usize, usize)| {
            let Stencil { start, weights } = self.at[position];
            let used = (start..).zip(weights).filter(|(_, weight)| weight.abs() > 0.0);
            used.map(|(node, weight)| own[node] * weight).sum()
        };
        self.points.iter().map(at).collect()
    }

    /// Interpolates a function f of one position: turns its values `own` at the nodes into f(t − 1) for every node t; 0
    /// for the first position.
    pub(crate) fn one_before(&self, own: &[f64]) -> Vec<f64> {
        let at = |&node: &usize| {
            let Some(before) = node.checked_sub(1) else { return 0.0 };
            let Stencil { start, weights } = self.at[before];
            let used = (start..).zip(weights).filter(|(_, weight)| weight.abs() > 0.0);
            used.map(|(node, weight)| own[node] * weight).sum()
        };
        self.nodes().iter().map(at).collect()
    }

    /// Returns a function of the distance at the lower points, averaged over the distances that a point represents in
    /// its row.
    pub(crate) fn averaged(&self, of_distance: &Averages) -> Vec<f64> {
        let of_row = |row: &NodeRow| -> Vec<f64> {
            let distances: Vec<usize> = row.below.positions.iter().map(|at| row.node - at).collect();
            let half = |a: usize, b: usize| (distances[a] - distances[b] - 1) / 2;
            let mean = |index: usize| {
                let nearer = if index + 1 < distances.len() { half(index, index + 1) } else { 0 };
                let further = if index > 0 { half(index - 1, index) } else { 0 };
                of_distance.mean(distances[index] - nearer, distances[index] + further)
            };
            (0..distances.len()).map(mean).collect()
        };
        self.rows.iter().flat_map(of_row).collect()
    }

    /// Returns a function of one position at the nodes, averaged over the neighbours that a node represents, equally
    /// many on both sides.
    pub(crate) fn averaged_at_nodes(&self, of_position: &Averages) -> Vec<f64> {
        let nodes = self.nodes();
        let half = |k: usize| match (k.checked_sub(1).map(|before| nodes[before]), nodes.get(k + 1)) {
            (Some(before), Some(after)) => (nodes[k] - before - 1).min(after - nodes[k] - 1) / 2,
            _ => 0,
        };
        (0..nodes.len()).map(|k| of_position.around(nodes[k], half(k))).collect()
    }

    /// The number of positions that every node represents in averages.
    pub(super) fn tokens(&self) -> Vec<f64> {
        let mut tokens = vec![0.0; self.nodes.positions.len()];
        for Stencil { start, weights } in &self.at {
            let used = (*start..).zip(weights).filter(|(_, weight)| weight.abs() > 0.0);
            used.for_each(|(node, weight)| tokens[node] += weight);
        }
        tokens
    }

    /// Builds a matrix with one row per node t: it turns the values of a symmetric function f at the lower points into
    /// Σ_b f(t, b) over the positions b other than t.
    pub(super) fn row_sums(&self) -> Sparse {
        Sparse::new(self.rows.iter().map(|row| {
            let start = row.places().start;
            let mut weights = vec![0.0; row.places().len()];
            let mut next = 0;
            for position in row.positions() {
                for run in runs(next, position + 1, usize::MAX) {
                    let Stencil { start: first, weights: own } = row.stencil(run.middle);
                    let used = (first - start..).zip(own).filter(|(_, weight)| weight.abs() > 0.0);
                    used.for_each(|(place, weight)| weights[place] += weight * run.tokens());
                }
                next = position + 1;
            }
            // The node itself belongs to the upper side.
            weights[row.above.start - start] -= 1.0;
            let places = row.places().zip(weights);
            places
                .flat_map(|(place, weight)| self.full.row(place).iter().map(move |&(at, own)| (at, own * weight)))
                .collect()
        }))
    }

    /// The number of ordered pairs of different positions that every lower point represents, from the weights that
    /// `row_sums` returns.
    pub(super) fn pairs(&self, row_sums: &Sparse) -> Vec<f64> {
        let mut pairs = vec![0.0; self.lower.len()];
        for (k, tokens) in self.tokens().into_iter().enumerate() {
            row_sums.row(k).iter().for_each(|&(at, weight)| pairs[at as usize] += tokens * weight);
        }
        pairs
    }

    /// Interpolation weights, one row per lower point: they turn the values of a function f of one position at the
    /// nodes into f(s), where s is the second position of the point.
    pub(super) fn seconds(&self) -> Sparse {
        Sparse::new(self.lower.iter().map(|&place| {
            let Stencil { start, weights } = self.at[self.points[place].1];
            (start as u32..).zip(weights).collect()
        }))
    }

    /// Returns the values at all points of a symmetric function, from its values at the lower ones.
    pub(crate) fn all(&self, lower: &[f64]) -> Vec<f64> {
        self.full.times(lower).collect()
    }

    /// Returns f(s, t) at all points (t, s), from the values `all` of f(t, s) there.
    pub(crate) fn transposed(&self, all: &[f64]) -> Vec<f64> {
        self.transposition.times(all).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::super::list::{Decay, Spec};
    use super::super::sum::Sum;
    use super::*;

    /// A function that is smooth except across the diagonal.
    fn bent(a: usize, b: usize) -> f64 {
        let (a, b) = (a as f64 + 1.0, b as f64 + 1.0);
        0.3 + (a.min(b) / a.max(b)).sqrt() / (1.0 + 0.1 * (a * b).sqrt().ln()) + 0.01 * a.max(b).ln()
    }

    #[test]
    fn a_chart_with_all_positions_is_exact() {
        let chart = Chart::new(40, Grading::all(40), &[]);
        let lower: Vec<f64> = chart
            .lower
            .iter()
            .map(|&place| (chart.nodes()[chart.points[place].0], chart.points[place].1))
            .map(|(a, b)| bent(a, b))
            .collect();
        let all = chart.all(&lower);
        for (&(k, b), &value) in chart.points.iter().zip(&all) {
            assert!((value - bent(chart.nodes()[k], b)).abs() < 1e-13);
        }
        let spec = Spec {
            range: &|_, c| 0..=c,
            weight: &|t, b, _| 1.0 + (t + b) as f64,
            scale: &|_, c| 1.0 / (c + 1) as f64,
            decay: Decay::None,
        };
        let sum = Sum::along_rows(&chart, &spec);
        for (&(k, c), got) in chart.points.iter().zip(sum.of(&all)) {
            let t = chart.nodes()[k];
            let exact = (0..=c).map(|b| (1.0 + (t + b) as f64) * bent(t, b)).sum::<f64>() / (c + 1) as f64;
            approx::assert_relative_eq!(got, exact, max_relative = 1e-12);
        }
    }

    #[test]
    fn few_points_tell_a_bent_function() {
        for (length, windows) in [(300, vec![]), (300, vec![32]), (2000, vec![])] {
            let chart = Chart::new(length, Grading::FINE, &windows);
            assert!(chart.lower.len() < 8000, "{}", chart.lower.len());
            let value = |place: usize| bent(chart.nodes()[chart.points[place].0], chart.points[place].1);
            let lower: Vec<f64> = chart.lower.iter().map(|&place| value(place)).collect();
            let all = chart.all(&lower);
            for (place, &got) in all.iter().enumerate() {
                approx::assert_relative_eq!(got, value(place), max_relative = 5e-4);
            }
            let window = windows.first().copied().unwrap_or(length);
            let first = |c: usize| (c + 1).saturating_sub(window);
            let spec =
                Spec { range: &|_, c| first(c)..=c, weight: &|_, _, _| 1.0, scale: &|_, _| 1.0, decay: Decay::None };
            let sum = Sum::along_rows(&chart, &spec);
            for (&(k, c), got) in chart.points.iter().zip(sum.of(&all)) {
                let exact: f64 = (first(c)..=c).map(|b| bent(chart.nodes()[k], b)).sum();
                approx::assert_relative_eq!(got, exact, max_relative = 1e-4);
            }
        }
    }

    #[test]
    fn sums_over_nodes_are_those_over_positions() {
        let chart = Chart::new(300, Grading::FINE, &[]);
        let one = |b: usize| 1.0 / (b as f64 + 2.0).sqrt();
        let at_nodes: Vec<f64> = chart.nodes().iter().map(|&node| one(node)).collect();
        let spec = Spec {
            range: &|t, c| 0..=t.min(c),
            weight: &|_, b, _| 1.0 / (b + 1) as f64,
            scale: &|_, _| 1.0,
            decay: Decay::None,
        };
        for (&place, got) in
            chart.lower.iter().zip(Sum::over_nodes(&chart, chart.lower.iter().copied(), &spec).of(&at_nodes))
        {
            let exact: f64 = (0..=chart.points[place].1).map(|b| one(b) / (b + 1) as f64).sum();
            approx::assert_relative_eq!(got, exact, max_relative = 1e-4);
        }
    }

    #[test]
    fn sums_decay() {
        let chart = Chart::new(300, Grading::FINE, &[]);
        let lower: Vec<f64> =
            chart.lower.iter().map(|&p| bent(chart.nodes()[chart.points[p].0], chart.points[p].1)).collect();
        let all = chart.all(&lower);
        let rate = 0.9f64;
        for is_before in [true, false] {
            let decay = Decay::OneSided { rate, anchor: &|_, c| c, is_before };
            let spec =
                Spec { range: &|_, _| 0..=0, weight: &|_, b, _| 1.0 / (b + 1) as f64, scale: &|_, _| 2.0, decay };
            let sum = Sum::along_rows(&chart, &spec);
            for (&(k, c), got) in chart.points.iter().zip(sum.of(&all)) {
                let range = if is_before { 0..=c } else { c..=299 };
                let term =
                    |b: usize| 2.0 * rate.powf(c.abs_diff(b) as f64) / (b + 1) as f64 * bent(chart.nodes()[k], b);
                approx::assert_relative_eq!(got, range.map(term).sum::<f64>(), max_relative = 5e-4);
            }
        }
    }

    /// Sums go over a window of 150 positions before and 20 after, or over all positions.
    #[test]
    fn sums_decay_on_both_sides() {
        let chart = Chart::new(300, Grading::FINE, &[]);
        let lower: Vec<f64> =
            chart.lower.iter().map(|&p| bent(chart.nodes()[chart.points[p].0], chart.points[p].1)).collect();
        let all = chart.all(&lower);
        let (rate, powers) = (0.9f64, [2, 1]);
        for range in [|_: usize| 0..=299, |c: usize| c.saturating_sub(150)..=(c + 20).min(299)] {
            let decay = Decay::TwoSided { rate, powers };
            let spec =
                Spec { range: &|_, c| range(c), weight: &|_, b, _| 1.0 / (b + 1) as f64, scale: &|_, _| 2.0, decay };
            let sum = Sum::along_rows(&chart, &spec);
            for (&(k, c), got) in chart.points.iter().zip(sum.of(&all)) {
                let t = chart.nodes()[k];
                let distance = |b: usize| 2 * t.abs_diff(b) + c.abs_diff(b);
                let term = |b: usize| 2.0 * rate.powf(distance(b) as f64) / (b + 1) as f64 * bent(t, b);
                approx::assert_relative_eq!(got, range(c).map(term).sum::<f64>(), max_relative = 5e-4);
            }
        }
    }
}
