//! Sums over positions of functions that are given at the points of a row.
//!
//! ```text
//! y(t, c) = scale(t, c) Σ_{b in range(t, c)} weight(t, b) f(t, b)
//! ```
//!
//! where y(t, c) is the sum at a point of the row; t is the node of the row; c is the second position of a point; b is
//! the position that the sum is over; scale, range, weight are the functions of the [`Spec`] of a sum; f is a function
//! of two positions, which is the cubic of the row between its points.

use super::chart::Chart;
use super::dense::{Dense, TwoSided};
use super::list::{Decay, List, Spec};
use super::running::Running;

/// Sums along lists of points, one list after the other.
#[derive(Clone, Debug)]
pub(crate) enum Sum {
    /// Sums with weights that decay on one side or not at all.
    Running(Running),
    /// Sums with weights that decay on both sides.
    Dense(TwoSided, Vec<Dense>),
}

impl Sum {
    /// Builds sums along the rows of a chart, with outputs at all points.
    pub(crate) fn along_rows(chart: &Chart, spec: &Spec) -> Self {
        let mut sum = Self::new(spec);
        for row in &chart.rows {
            let mut positions: Vec<usize> = row.positions().collect();
            positions.dedup();
            let list = List { positions: &positions, stencil: &|at| row.stencil(at) };
            let weight = |b, half| (spec.weight)(row.node, b, half);
            let outputs = row.positions().map(|c| (row.node, c));
            match &mut sum {
                Self::Running(running) => running.add(&list, outputs, spec, &weight),
                Self::Dense(decay, lists) => {
                    lists.push(Dense::new((&list, row.places()), outputs, (spec, decay), &weight));
                }
            }
        }
        sum
    }

    /// Builds sums over the nodes of a chart, with outputs at these places among all points; weights depend on b alone.
    pub(crate) fn over_nodes(chart: &Chart, places: impl Iterator<Item = usize>, spec: &Spec) -> Self {
        let mut sum = Self::new(spec);
        let list = List { positions: chart.nodes(), stencil: &|at| chart.nodes.stencil(at) };
        let weight = |b, half| (spec.weight)(b, b, half);
        let outputs = places.map(|place| {
            let (k, position) = chart.points[place];
            (chart.nodes()[k], position)
        });
        match &mut sum {
            Self::Running(running) => running.add(&list, outputs, spec, &weight),
            Self::Dense(decay, lists) => {
                let nodes = 0..chart.nodes().len();
                lists.push(Dense::new((&list, nodes), outputs, (spec, decay), &weight));
            }
        }
        sum
    }

    fn new(spec: &Spec) -> Self {
        match spec.decay {
            Decay::None | Decay::OneSided { .. } => Self::Running(Running::default()),
            Decay::TwoSided { rate, powers } => Self::Dense(TwoSided::new(rate, powers), Vec::new()),
        }
    }

    /// Returns the sums of a function given at all points, or at all nodes.
    pub(crate) fn of(&self, f: &[f64]) -> Vec<f64> {
        match self {
            Self::Running(running) => running.of(f),
            Self::Dense(_, lists) => lists.iter().flat_map(|list| list.of(f)).collect(),
        }
    }
}
