//! Sums over one position of products of two functions that both have it as their second.
//!
//! ```text
//! Σ_u f(t, u) g(s, u)        t, s at nodes, u at *columns*: the second positions that points of any row have
//! ```
//!
//! Between two columns products are taken as linear; of a sequence all of whose positions are followed, and of groups, sums are exact.

use nalgebra::DMatrix;

use super::chart::Chart;
use super::cubic::{Sparse, Stencil};
use super::row::Row;

/// Nodes, and columns that stand for all positions.
#[derive(Clone, Debug)]
pub(crate) struct Grid {
    /// How many tokens every column stands for.
    tokens: Vec<f64>,
    /// The column of every node.
    nodes: Vec<usize>,
    /// What a function of two positions is at a node and a column, from its values at points: row by row.
    values: Sparse,
    /// What a function of one position is at a column, from its values at nodes.
    interpolation: Sparse,
}

impl Grid {
    /// Of the rows of a chart.
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
        let value = |row: &Row, position| {
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

    /// Of groups of so many tokens.
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

    /// A symmetric function, from its values at the points of a class, at all nodes and columns.
    pub(crate) fn rows(&self, pairs: &[f64]) -> DMatrix<f64> {
        DMatrix::from_row_iterator(self.nodes.len(), self.tokens.len(), self.values.times(pairs))
    }

    /// The same at all pairs of nodes, the diagonal being the limit from neighbouring tokens.
    pub(crate) fn at_nodes(&self, rows: &DMatrix<f64>) -> DMatrix<f64> {
        rows.select_columns(&self.nodes)
    }

    /// With every column times the tokens that it stands for.
    pub(crate) fn times_tokens(&self, mut rows: DMatrix<f64>) -> DMatrix<f64> {
        rows.column_iter_mut().zip(&self.tokens).for_each(|(mut column, &tokens)| column *= tokens);
        rows
    }

    /// Σ_u f(t, u) h(u) for h at nodes, as a matrix.
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

/// The point of two groups.
pub(super) fn point(a: usize, b: usize) -> u32 {
    (a.max(b) * (a.max(b) + 1) / 2 + a.min(b)) as u32
}
