//! Sums over one position of products of two functions that both have it as their second position.
//!
//! ```text
//! Σ_u f(t, u) g(s, u)
//! ```
//!
//! where f, g are functions of two positions; t, s are nodes; u is a *column*, which is one of the second positions
//! that the points of any row have.
//!
//! Products are taken as linear between two columns. Sums are exact for groups, and for a sequence all of whose
//! positions are followed.

use nalgebra::DMatrix;

use super::chart::Chart;
use super::cubic::{Sparse, Stencil};
use super::row::NodeRow;

/// Nodes, and columns that represent all positions.
#[derive(Clone, Debug)]
pub(crate) struct Grid {
    /// The number of tokens that every column represents.
    tokens: Vec<f64>,
    /// The index of the column at the position of each node.
    nodes: Vec<usize>,
    /// Interpolation weights, one row per pair of a node and a column, node by node: they turn the values of a
    /// symmetric function at the points into its value at this pair.
    values: Sparse,
    /// Interpolation weights, one row per column: they turn the values of a function of one position at the nodes into
    /// its value at this column.
    interpolation: Sparse,
}

impl Grid {
    /// Builds the grid of the rows of a chart.
    pub(super) fn of(chart: &Chart) -> Self {
        let mut columns: Vec<usize> = chart.points.iter().map(|&(_, position)| position).collect();
        columns.sort_unstable();
        columns.dedup();
        let mut tokens = vec![1.0; columns.len()];
        for (place, ends) in columns.windows(2).enumerate() {
            let skipped = 0.5 * (ends[1] - ends[0] - 1) as f64;
            tokens[place] += skipped;
            tokens[place + 1] += skipped;
        }
        let of_points = |Stencil { start, weights }: Stencil| (start as u32..).zip(weights);
        let value = |row: &NodeRow, position| {
            let of_lower = of_points(row.stencil(position)).filter(|(_, weight)| weight.abs() > 0.0);
            of_lower
                .flat_map(|(place, weight)| {
                    chart.full.row(place as usize).iter().map(move |&(at, own)| (at, own * weight))
                })
                .collect()
        };
        let values = chart.rows.iter().flat_map(|row| columns.iter().map(move |&position| value(row, position)));
        Self {
            nodes: chart.nodes().iter().filter_map(|node| columns.binary_search(node).ok()).collect(),
            values: Sparse::new(values),
            interpolation: Sparse::new(columns.iter().map(|&position| of_points(chart.at[position]).collect())),
            tokens,
        }
    }

    /// Builds the grid of groups with these numbers of tokens.
    pub(super) fn of_groups(tokens: &[f64]) -> Self {
        let count = tokens.len();
        let pairs = (0..count * count).map(|place| (place / count, place % count));
        Self {
            tokens: tokens.to_vec(),
            nodes: (0..count).collect(),
            values: Sparse::new(pairs.map(|(a, b)| [(point(a, b), 1.0)].into_iter().collect())),
            interpolation: Sparse::new((0..count as u32).map(|node| [(node, 1.0)].into_iter().collect())),
        }
    }

    /// Returns a symmetric function at all nodes and columns, from its values at the points of a class.
    pub(crate) fn rows(&self, pairs: &[f64]) -> DMatrix<f64> {
        DMatrix::from_row_iterator(self.nodes.len(), self.tokens.len(), self.values.times(pairs))
    }

    /// Returns a function at all pairs of nodes, from its `rows` at nodes and columns; the diagonal is the limit from
    /// neighbouring tokens.
    pub(crate) fn at_nodes(&self, rows: &DMatrix<f64>) -> DMatrix<f64> {
        rows.select_columns(&self.nodes)
    }

    /// Multiplies every column by the number of tokens that it represents.
    pub(crate) fn times_tokens(&self, mut rows: DMatrix<f64>) -> DMatrix<f64> {
        rows.column_iter_mut().zip(&self.tokens).for_each(|(mut column, &tokens)| column *= tokens);
        rows
    }

    /// Returns Σ_u f(t, u) h(u) as a matrix that acts on h at nodes, where `rows` is f at nodes and columns.
    pub(crate) fn operator(&self, rows: DMatrix<f64>) -> DMatrix<f64> {
        let weighted = self.times_tokens(rows);
        let mut operator = DMatrix::zeros(self.nodes.len(), self.nodes.len());
        for (column, values) in weighted.column_iter().enumerate() {
            for &(node, weight) in self.interpolation.row(column) {
                operator.column_mut(node as usize).axpy(weight, &values, 1.0);
            }
        }
        operator
    }
}

/// Returns the index of the point that is the pair of the groups `a` and `b`.
pub(super) fn point(a: usize, b: usize) -> u32 {
    (a.max(b) * (a.max(b) + 1) / 2 + a.min(b)) as u32
}
