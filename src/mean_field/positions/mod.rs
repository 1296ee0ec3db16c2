//! The positions, and the pairs of positions, that are followed.
//!
//! A function of one position is stored at *nodes* and a function of two positions at *points*. The first position of a
//! point is a node, and the second is on the list of that node. Two different tokens have the same id or not: these are
//! two *classes* of pairs, with a kernel each.

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
pub(crate) mod pixels;
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

/// The positions of a sequence that are followed (nodes), the pairs of positions that are followed (points), and the
/// classes of pairs.
#[derive(Clone, Debug)]
pub(crate) struct Positions {
    /// The chart of the positions if these differ; `None` for groups of exchangeable tokens.
    pub(crate) chart: Option<Arc<Chart>>,
    /// The number of tokens of a sequence.
    pub(crate) length: f64,
    /// The number of tokens that each node represents.
    pub(crate) tokens: Few<f64>,
    /// The node at the first position of each point.
    pub(crate) first: Few<u32>,
    /// Interpolation weights, one row per point: they turn the values of a function f of one position at the nodes into
    /// f(s), where s is the second position of the point.
    second: Sparse,
    /// The number of ordered pairs of tokens that each point represents.
    pub(crate) pairs: Few<f64>,
    /// A matrix with one row per node a: it turns the values of f at all points of one class into Σ_b f(a, b) over the
    /// tokens b other than a.
    row_sums: Sparse,
    /// The share of each class among all pairs: different ids, and the same id.
    pub(crate) classes: Few<f64>,
    /// The distribution of repeated ids; `None` if ids are not random.
    pub(crate) repetition: Option<Arc<Repetition>>,
    /// The ids of all positions, if they are given; then there is one class.
    pub(crate) given: Option<Given>,
    /// The mean number of tokens in the first of two segments, if there are two and every position is followed.
    pub(crate) boundary: Option<f64>,
    /// True if tokens are the pixels of images, in classes.
    pub(crate) is_of_pixels: bool,
    /// The grid for sums over triples of tokens, built when it is first needed.
    grid: OnceLock<Grid>,
}

/// Given ids, and how they repeat.
#[derive(Clone, Debug)]
pub(crate) struct Given {
    ids: Arc<[u32]>,
    pub(crate) repetition: Arc<Repetition>,
}

impl Positions {
    /// All positions of a chart; `repetition` is the distribution of the ids, if they are random.
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
            is_of_pixels: false,
            grid: OnceLock::new(),
            chart: Some(chart),
        }
    }

    /// All positions of a sequence with these ids, on a chart of the same length.
    fn given(ids: &[u32], chart: Arc<Chart>) -> Self {
        let given = Given { ids: ids.into(), repetition: Arc::new(Repetition::given(ids)) };
        Self { given: Some(given), ..Self::on(chart, None) }
    }

    /// Returns the grid of nodes and columns.
    pub(crate) fn grid(&self) -> &Grid {
        self.grid.get_or_init(|| match &self.chart {
            Some(chart) => Grid::of(chart),
            None => Grid::of_groups(&self.tokens),
        })
    }

    /// The number of nodes.
    pub(crate) fn nodes(&self) -> usize {
        self.tokens.len()
    }

    /// The number of points in all classes.
    pub(crate) fn points(&self) -> usize {
        self.first.len() * self.classes.len()
    }

    /// Returns true if both tokens of a point have the same id.
    pub(crate) fn has_same_ids(&self, point: usize) -> bool {
        match &self.given {
            Some(Given { ids, .. }) => {
                let (first, nodes) = self.nodes_of(point);
                ids[first] == ids[nodes[0].0 as usize]
            }
            None => point >= self.first.len(),
        }
    }

    /// Returns 1 if both ends of a point are in one segment and 0 if not, averaged over where the first segment ends.
    pub(crate) fn in_one_segment(&self, point: usize) -> f64 {
        let (first, nodes) = self.nodes_of(point);
        let second = nodes[0].0 as usize;
        let Some(boundary) = self.boundary else { return f64::from(u8::from(first == second)) };
        let [a, b] = [first, second].map(|position| (boundary - position as f64).clamp(0.0, 1.0));
        a * b + (1.0 - a) * (1.0 - b)
    }

    /// The range of the points of a class among the points of all classes.
    pub(crate) fn class(&self, class: usize) -> Range<usize> {
        let points = self.first.len();
        class * points..(class + 1) * points
    }

    /// Returns the values of a function of one position at both ends of a point of any class.
    pub(crate) fn ends(&self, point: usize, at_nodes: &[f64]) -> [f64; 2] {
        let point = point % self.first.len();
        let first = at_nodes[self.first[point] as usize];
        let second = match self.second.row(point) {
            [(node, _)] => at_nodes[*node as usize],
            several => several.iter().map(|&(node, weight)| at_nodes[node as usize] * weight).sum(),
        };
        [first, second]
    }

    /// Returns the node at the first position of a point of any class, and the nodes with weights for its second
    /// position.
    pub(crate) fn nodes_of(&self, point: usize) -> (usize, &[(u32, f64)]) {
        let point = point % self.first.len();
        (self.first[point] as usize, self.second.row(point))
    }

    /// Returns the items of both ends of a point, from one item per node: the second is the item of the nearest node.
    pub(crate) fn at_ends<'t, T>(&self, point: usize, at_nodes: &'t [T]) -> [&'t T; 2] {
        let (first, nodes) = self.nodes_of(point);
        let nearest = nodes.iter().max_by(|a, b| a.1.total_cmp(&b.1)).expect("a point has nodes");
        [&at_nodes[first], &at_nodes[nearest.0 as usize]]
    }

    /// Returns Σ_b f(a, b) over the tokens b other than a, for every node a, from the average of f over classes.
    pub(crate) fn row_sums(&self, pairs: &[f64]) -> Few<f64> {
        self.row_sums.times(pairs).collect()
    }

    /// Returns the average of `pair` over the classes, at every point.
    pub(crate) fn class_mean(&self, pair: impl Fn(usize) -> f64) -> Few<f64> {
        let share = |class: usize, point: usize| pair(self.class(class).start + point) * self.classes[class];
        (0..self.first.len()).map(|point| (0..self.classes.len()).map(|class| share(class, point)).sum()).collect()
    }

    /// Returns the sum over all tokens, from the values at nodes.
    pub(crate) fn sum(&self, own: impl Fn(usize) -> f64) -> f64 {
        self.tokens.iter().enumerate().map(|(node, &tokens)| own(node) * tokens).sum()
    }

    /// Returns the probabilities that two and that three tokens have the same id: first on average, then in a few
    /// representative sequences, each with its weight. All are 0 if pairs with the same id are not a class.
    pub(crate) fn shares(&self) -> (Shares, Vec<(f64, Shares)>) {
        match &self.repetition {
            Some(repetition) => (repetition.shares(), repetition.draws(self.length)),
            None => (Shares::NONE, vec![(1.0, Shares::NONE)]),
        }
    }

    /// Returns the sum over all ordered pairs of different tokens as if all pairs were in one class; `pair` has the
    /// values at the points of this class.
    pub(crate) fn sum_points(&self, pair: impl Fn(usize) -> f64) -> f64 {
        self.pairs.iter().enumerate().map(|(point, &pairs)| pair(point) * pairs).sum()
    }

    /// Returns the sum over all ordered pairs of different tokens.
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

/// Returns the shares of pairs with different ids and with the same id, or one share if there are no ids.
fn classes(repetition: Option<&Repetition>) -> Few<f64> {
    repetition.map_or_else(|| smallvec![1.0], |repetition| smallvec![1.0 - repetition.same(), repetition.same()])
}
