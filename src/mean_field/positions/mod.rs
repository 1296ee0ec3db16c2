//! Which positions, and which pairs of positions, are followed.
//!
//! A function of one position is kept at *nodes*, one of two positions at *points*: the first position of a point is
//! a node, the second lies on the list of that node. Different tokens of a pair have the same id or not: two *classes* of pairs,
//! with a kernel each.

mod averages;
mod chart;
mod cubic;
mod dense;
mod grading;
mod grid;
mod groups;
pub(crate) mod layout;
mod line;
mod list;
mod repetition;
mod row;
mod running;
mod shifted;
mod sum;
mod taps;

use std::ops::Range;
use std::sync::{Arc, OnceLock};

use smallvec::smallvec;

pub(crate) use self::averages::Averages;
pub(crate) use self::chart::Chart;
use self::cubic::Sparse;
pub(crate) use self::grading::Grading;
pub(crate) use self::grid::Grid;
pub(crate) use self::list::{Decay, Spec};
pub(crate) use self::repetition::{Counts, Repetition, Shares};
pub(crate) use self::sum::Sum;
pub(crate) use self::taps::Taps;
use super::few::Few;

/// Nodes, points and classes.
#[derive(Clone, Debug)]
pub(crate) struct Positions {
    /// Where every position counts.
    pub(crate) chart: Option<Arc<Chart>>,
    /// Tokens of a sequence.
    pub(crate) length: f64,
    /// How many tokens each node stands for.
    pub(crate) tokens: Few<f64>,
    /// The node that a point has as its first position.
    pub(crate) first: Few<u32>,
    /// What a function of one position is at the second position of a point: the sum of its values at these nodes, weighted.
    second: Sparse,
    /// How many ordered pairs of tokens each point stands for.
    pub(crate) pairs: Few<f64>,
    /// Σ over all tokens other than that of a node, from the numbers of one class at all points.
    row_sums: Sparse,
    /// The share of all pairs that each class has: different ids, and the same.
    pub(crate) classes: Few<f64>,
    /// How ids repeat, where they are drawn.
    pub(crate) repetition: Option<Arc<Repetition>>,
    /// The ids of all positions, where they are given; then there is one class.
    pub(crate) given: Option<Given>,
    /// How many tokens are in the first of two segments, on average, where every position is followed.
    pub(crate) boundary: Option<f64>,
    /// For sums over triples of tokens, if they were asked for.
    grid: OnceLock<Grid>,
}

/// Given ids, and how they repeat.
#[derive(Clone, Debug)]
pub(crate) struct Given {
    ids: Arc<[u32]>,
    pub(crate) repetition: Arc<Repetition>,
}

impl Positions {
    /// Every position of a chart, of tokens whose ids repeat like this if they have some.
    pub(crate) fn on(chart: impl Into<Arc<Chart>>, repetition: Option<Arc<Repetition>>) -> Self {
        let chart = chart.into();
        let row_sums = chart.row_sums();
        Self {
            length: chart.length as f64,
            tokens: chart.tokens().into(),
            first: chart.lower.iter().map(|&place| chart.points[place].0 as u32).collect(),
            second: chart.seconds(),
            pairs: chart.pairs(&row_sums).into(),
            row_sums,
            classes: classes(repetition.as_deref()),
            repetition,
            given: None,
            boundary: None,
            grid: OnceLock::new(),
            chart: Some(chart),
        }
    }

    /// Every position of a sequence of these ids, on the chart of as many.
    fn given(ids: &[u32], chart: Arc<Chart>) -> Self {
        let given = Given { ids: ids.into(), repetition: Arc::new(Repetition::given(ids)) };
        Self { given: Some(given), ..Self::on(chart, None) }
    }

    /// Nodes and columns.
    pub(crate) fn grid(&self) -> &Grid {
        self.grid.get_or_init(|| match &self.chart {
            Some(chart) => Grid::of(chart),
            None => Grid::of_groups(&self.tokens),
        })
    }

    /// How many nodes there are.
    pub(crate) fn nodes(&self) -> usize {
        self.tokens.len()
    }

    /// How many points there are, of all classes.
    pub(crate) fn points(&self) -> usize {
        self.first.len() * self.classes.len()
    }

    /// Whether a point is of two tokens with the same id.
    pub(crate) fn has_same_ids(&self, point: usize) -> bool {
        match &self.given {
            Some(Given { ids, .. }) => {
                let (first, nodes) = self.nodes_of(point);
                ids[first] == ids[nodes[0].0 as usize]
            }
            None => point >= self.first.len(),
        }
    }

    /// Whether both ends of a point are in one segment, on average.
    pub(crate) fn in_one_segment(&self, point: usize) -> f64 {
        let (first, nodes) = self.nodes_of(point);
        let second = nodes[0].0 as usize;
        let Some(boundary) = self.boundary else { return f64::from(u8::from(first == second)) };
        let [a, b] = [first, second].map(|position| (boundary - position as f64).clamp(0.0, 1.0));
        a * b + (1.0 - a) * (1.0 - b)
    }

    /// The points of a class of pairs in the list of all.
    pub(crate) fn class(&self, class: usize) -> Range<usize> {
        let points = self.first.len();
        class * points..(class + 1) * points
    }

    /// A function of one position at both ends of a point of any class.
    pub(crate) fn ends(&self, point: usize, at_nodes: &[f64]) -> [f64; 2] {
        let point = point % self.first.len();
        let first = at_nodes[self.first[point] as usize];
        let second = match self.second.row(point) {
            [(node, _)] => at_nodes[*node as usize],
            several => several.iter().map(|&(node, weight)| at_nodes[node as usize] * weight).sum(),
        };
        [first, second]
    }

    /// The nodes that a point of any class stands between: one, and several with their weights.
    pub(crate) fn nodes_of(&self, point: usize) -> (usize, &[(u32, f64)]) {
        let point = point % self.first.len();
        (self.first[point] as usize, self.second.row(point))
    }

    /// What belongs to a position, at both ends of a point: that of the nearest node.
    pub(crate) fn at_ends<'t, T>(&self, point: usize, at_nodes: &'t [T]) -> [&'t T; 2] {
        let (first, nodes) = self.nodes_of(point);
        let nearest = nodes.iter().max_by(|a, b| a.1.total_cmp(&b.1)).expect("a point has nodes");
        [&at_nodes[first], &at_nodes[nearest.0 as usize]]
    }

    /// Σ_b f(a, b) over the tokens b other than a, for a at every node, from the average of f over classes.
    pub(crate) fn row_sums(&self, pairs: &[f64]) -> Few<f64> {
        self.row_sums.times(pairs).collect()
    }

    /// The average over classes at every point.
    pub(crate) fn class_mean(&self, pair: impl Fn(usize) -> f64) -> Few<f64> {
        let share = |class: usize, point: usize| pair(self.class(class).start + point) * self.classes[class];
        (0..self.first.len()).map(|point| (0..self.classes.len()).map(|class| share(class, point)).sum()).collect()
    }

    /// Σ over all tokens.
    pub(crate) fn sum(&self, own: impl Fn(usize) -> f64) -> f64 {
        self.tokens.iter().enumerate().map(|(node, &tokens)| own(node) * tokens).sum()
    }

    /// The probabilities that two and three tokens have the same id, where that is a class of pairs, and those of two sequences that stand
    /// for all, with their weights.
    pub(crate) fn shares(&self) -> (Shares, Vec<(f64, Shares)>) {
        match &self.repetition {
            Some(repetition) => (repetition.shares(), repetition.draws(self.length)),
            None => (Shares::NONE, vec![(1.0, Shares::NONE)]),
        }
    }

    /// Σ over all ordered pairs of different tokens as if all were of one class, from the values at the points of one.
    pub(crate) fn sum_points(&self, pair: impl Fn(usize) -> f64) -> f64 {
        self.pairs.iter().enumerate().map(|(point, &pairs)| pair(point) * pairs).sum()
    }

    /// Σ over all ordered pairs of different tokens.
    pub(crate) fn sum_pairs(&self, pair: impl Fn(usize) -> f64) -> f64 {
        let mut sum = 0.0;
        for (class, &share) in self.classes.iter().enumerate() {
            for (point, &pairs) in self.class(class).zip(&self.pairs) {
                sum += pair(point) * (share * pairs);
            }
        }
        sum
    }
}

/// The shares of pairs of different ids and of the same, if there are ids.
fn classes(repetition: Option<&Repetition>) -> Few<f64> {
    repetition.map_or_else(|| smallvec![1.0], |repetition| smallvec![1.0 - repetition.same(), repetition.same()])
}
