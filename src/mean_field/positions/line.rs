//! A few positions that represent all between them, by cubics in a coordinate that is fine where structure is.
//!
//! Sums over long stretches between two positions go by runs of neighbours: the cubic in the middle of a run, times the
//! weight of the run. A run is at most a sixteenth of a stretch. This is short compared with the distance between the
//! ends of the stretch and the origins of the coordinate.

use std::collections::BTreeSet;

use super::cubic::{Stencil, cell, stencil};

/// The coordinate of positions: the logarithm of a ratio of two distances.
#[derive(Clone, Copy, Debug)]
pub(super) enum Measure {
    /// Distances from both ends of a sequence.
    Ends { length: usize },
    /// Distances from a node and from the beginning, for positions below the node.
    Below { node: usize },
    /// Distances from a node and from the end, for positions above the node.
    Above { node: usize, length: usize },
}

impl Measure {
    fn coordinate(self, position: usize) -> f64 {
        let ratio = |a: usize, b: usize| (a as f64 / b as f64).ln();
        match self {
            Self::Ends { length } => ratio(position + 1, length - position),
            Self::Below { node } => ratio(position + 1, node - position + 1),
            Self::Above { node, length } => ratio(position - node + 1, length - position),
        }
    }
}

/// Ascending positions, with cubics between them.
#[derive(Debug)]
pub(super) struct Line {
    pub(super) positions: Vec<usize>,
    /// The place of the first position in the list that joins all lines, one after the other.
    pub(super) start: usize,
    measure: Measure,
    coordinates: Vec<f64>,
    /// The indices of the positions that cubics do not reach across.
    breaks: Vec<usize>,
}

impl Line {
    pub(super) fn new(
        positions: BTreeSet<usize>,
        start: usize,
        measure: Measure,
        is_break: impl Fn(usize) -> bool,
    ) -> Self {
        let positions = spaced(positions.into_iter().collect(), &is_break);
        let coordinates = positions.iter().map(|&at| measure.coordinate(at)).collect();
        let breaks = (0..positions.len()).filter(|&index| is_break(positions[index])).collect();
        Self { positions, start, measure, coordinates, breaks }
    }

    /// Returns the weights of the cubic at `position`; the indices are places in the list that joins all lines.
    pub(super) fn stencil(&self, position: usize) -> Stencil {
        if self.positions.len() == 1 {
            return Stencil { start: self.start, weights: [1.0, 0.0, 0.0, 0.0] };
        }
        let (cell, x) = (cell(&self.positions, position), self.measure.coordinate(position));
        let found = stencil(&self.coordinates, &self.breaks, cell, x);
        Stencil { start: found.start + self.start, ..found }
    }
}

/// Drops positions that are far closer to a neighbour than both are to the next ones, which happens where lists from
/// two ends meet. Cubics through them would multiply errors by the ratio.
fn spaced(positions: Vec<usize>, is_break: &dyn Fn(usize) -> bool) -> Vec<usize> {
    const CLOSE: usize = 3;
    let is_close = |around: &[usize]| {
        let [before, between, after] = [0, 1, 2].map(|index| around[index + 1] - around[index]);
        CLOSE * between < before.min(after)
    };
    let close = positions.windows(4).filter(|around| is_close(around));
    let dropped: BTreeSet<usize> =
        close.filter_map(|around| [around[1], around[2]].into_iter().find(|&at| !is_break(at))).collect();
    positions.into_iter().filter(|at| !dropped.contains(at)).collect()
}

/// An odd number of neighbouring positions: the one in the middle, and the number on each side.
#[derive(Clone, Copy, Debug)]
pub(super) struct Run {
    pub(super) middle: usize,
    pub(super) half: usize,
}

impl Run {
    pub(super) fn tokens(self) -> f64 {
        (2 * self.half + 1) as f64
    }
}

/// Returns the runs into which `first`..`end` is split. Functions on a line have no break in this range except at its
/// last position, which is a run of its own.
pub(super) fn runs(first: usize, end: usize, longest: usize) -> impl Iterator<Item = Run> {
    const PARTS: usize = 16;
    let longest = (end.saturating_sub(first) / PARTS).min(longest);
    let mut at = first;
    std::iter::from_fn(move || {
        let left = end.checked_sub(at + 1)?;
        let half = longest.min(left).saturating_sub(1) / 2;
        at += 2 * half + 1;
        Some(Run { middle: at - half - 1, half })
    })
}
