//! A node with its points: second positions below and above it, with the node itself on both sides.

use std::collections::BTreeSet;
use std::ops::Range;

use super::cubic::Stencil;
use super::line::{Line, Measure};

/// A node with its points, whose second positions are below and above the node. The node itself is on both sides.
#[derive(Debug)]
pub(super) struct NodeRow {
    pub(super) node: usize,
    pub(super) below: Line,
    pub(super) above: Line,
}

impl NodeRow {
    /// Builds the row of `node`; `start` is the index of its first point among all points. The points are at these
    /// `distances` from the node and from both ends of the sequence, and where windows begin and end.
    pub(super) fn new(
        node: usize,
        start: usize,
        length: usize,
        distances: &[usize],
        (windows, fixed): (&[usize], &BTreeSet<usize>),
    ) -> Self {
        let (low, high) = (node / 2, (length - 1 - node) / 2);
        let mut below: BTreeSet<usize> = distances.iter().copied().filter(|&d| d <= low).collect();
        below.extend(distances.iter().filter(|&&d| d <= node - low).map(|d| node - d));
        let mut above: BTreeSet<usize> = distances.iter().filter(|&&d| d <= high).map(|d| length - 1 - d).collect();
        above.extend(distances.iter().filter(|&&d| d <= length - 1 - node - high).map(|d| node + d));
        for &window in windows {
            below.extend(node.checked_sub(window));
            above.extend(Some(node + window).filter(|&at| at < length));
        }
        below.extend(fixed.iter().filter(|&&at| at <= node));
        above.extend(fixed.iter().filter(|&&at| at >= node));
        let is_break = |at: usize| windows.contains(&at.abs_diff(node)) || fixed.contains(&at);
        let below = Line::new(below, start, Measure::Below { node }, is_break);
        let middle = start + below.positions.len();
        Self { node, below, above: Line::new(above, middle, Measure::Above { node, length }, is_break) }
    }

    /// The second positions: first the lower ones, then the upper ones.
    pub(super) fn positions(&self) -> impl Iterator<Item = usize> + '_ {
        self.below.positions.iter().chain(&self.above.positions).copied()
    }

    /// The places of the points of this row among all points of the chart.
    pub(super) fn places(&self) -> Range<usize> {
        self.below.start..self.above.start + self.above.positions.len()
    }

    /// The index, among all points, of the node itself as the limit from below; the limit from above has the next
    /// index.
    pub(super) fn diagonal(&self) -> usize {
        self.above.start - 1
    }

    /// Returns the weights of the cubic at `position`. The indices count all points of the chart. The node itself
    /// belongs to the upper side.
    pub(super) fn stencil(&self, position: usize) -> Stencil {
        if position < self.node { self.below.stencil(position) } else { self.above.stencil(position) }
    }
}
