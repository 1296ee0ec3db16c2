//! Running sums along a list, in time proportional to the number of points.
//!
//! The contribution of a cell between two neighbouring points is a weighted sum over five points. A running sum over
//! cells gives the sum up to every point. The sum over a range is the difference of two of these sums, each with the
//! remainder between its end and the nearest point. Where weights decay with the distance, the running sum decays from
//! cell to cell.

use super::list::{Decay, FALL, List, NOTHING, Spec, Weights};

/// The contribution of the cell between two neighbouring points, and the factor on the sum over cells before it.
#[derive(Clone, Copy, Debug)]
struct Cell {
    weights: Weights,
    further: f64,
}

/// The sum up to a position: the sum up to a point times a factor, plus the remainder between them.
#[derive(Clone, Copy, Debug)]
struct Prefix {
    /// The cell that ends at the point; `None` before the first point.
    cell: Option<u32>,
    factor: f64,
    /// The index of the remainder in the list of remainders; `None` if it is zero.
    rest: Option<u32>,
}

/// One output: a scale times the difference of two sums.
#[derive(Clone, Copy, Debug)]
struct Output {
    scale: f64,
    last: Prefix,
    /// The sum up to the position before the range; `None` if the range begins with the first of all positions.
    before: Option<Prefix>,
}

/// Running sums along lists of points, one list after the other.
#[derive(Clone, Debug, Default)]
pub(crate) struct Running {
    cells: Vec<Cell>,
    /// The first cell and the first output of each list.
    lists: Vec<[u32; 2]>,
    outputs: Vec<Output>,
    rests: Vec<Weights>,
}

impl Running {
    /// Stores a remainder and returns its index, or `None` if it is zero.
    fn rest(&mut self, weights: Weights) -> Option<u32> {
        let index = self.rests.len() as u32;
        let is_any = weights.weights.iter().any(|weight| weight.abs() > 0.0);
        self.rests.extend(is_any.then_some(weights));
        is_any.then_some(index)
    }

    /// Adds a list whose weights do not decay, or decay on one side.
    pub(super) fn add(
        &mut self,
        list: &List,
        outputs: impl Iterator<Item = (usize, usize)>,
        spec: &Spec,
        weight: &dyn Fn(usize, usize) -> f64,
    ) {
        self.lists.push([self.cells.len() as u32, self.outputs.len() as u32]);
        match spec.decay {
            Decay::OneSided { rate, anchor, is_before } => {
                self.add_decaying(list, outputs, (spec, rate, anchor, is_before), weight);
            }
            Decay::None | Decay::TwoSided { .. } => self.add_even(list, outputs, spec, weight),
        }
    }

    fn add_even(
        &mut self,
        list: &List,
        outputs: impl Iterator<Item = (usize, usize)>,
        spec: &Spec,
        weight: &dyn Fn(usize, usize) -> f64,
    ) {
        let first_cell = self.cells.len();
        let mut next = 0;
        for &end in list.positions {
            self.cells.push(Cell { weights: list.between(next, end + 1, usize::MAX, weight), further: 1.0 });
            next = end + 1;
        }
        let mut prefix = |at: usize| {
            let after = list.positions.partition_point(|&position| position <= at);
            let [from, to] = [
                after.checked_sub(1).map_or(0, |cell| list.positions[cell] + 1),
                list.positions[after.min(list.positions.len() - 1)],
            ];
            let is_nearer_below = to <= at || at + 1 - from <= to - at;
            let (cell, rest) = if is_nearer_below {
                (after.checked_sub(1), list.between(from, at + 1, usize::MAX, weight))
            } else {
                (Some(after), list.between(at + 1, to + 1, usize::MAX, &|b, half| -weight(b, half)))
            };
            Prefix { cell: cell.map(|cell| (first_cell + cell) as u32), factor: 1.0, rest: self.rest(rest) }
        };
        let mut of_outputs = Vec::new();
        for (t, c) in outputs {
            let range = (spec.range)(t, c);
            let is_empty = range.is_empty();
            let scale = if is_empty { 0.0 } else { (spec.scale)(t, c) };
            let before = if is_empty { None } else { range.start().checked_sub(1).map(&mut prefix) };
            of_outputs.push(Output { scale, last: prefix(if is_empty { 0 } else { *range.end() }), before });
        }
        self.outputs.extend(of_outputs);
    }

    fn add_decaying(
        &mut self,
        list: &List,
        outputs: impl Iterator<Item = (usize, usize)>,
        (spec, rate, anchor, is_before): (&Spec, f64, &dyn Fn(usize, usize) -> usize, bool),
        weight: &dyn Fn(usize, usize) -> f64,
    ) {
        let first_cell = self.cells.len();
        let positions = list.positions;
        let slope = -rate.ln();
        let [longest, reach] = [FALL, NOTHING].map(|fall| (fall / slope) as usize);
        let between = |first: usize, end: usize, at: usize| {
            let (first, end) = (first.max(at.saturating_sub(reach)), end.min(at + reach + 1));
            list.between(first, end, longest, &|b, half| weight(b, half) * decayed(rate, at.abs_diff(b), half))
        };
        // Cells are in the order in which the sum runs.
        let cell = |index: usize| {
            let at = positions[index];
            let (weights, before) = if is_before {
                let before = index.checked_sub(1).map(|index| positions[index]);
                (between(before.map_or(0, |before| before + 1), at + 1, at), before)
            } else {
                let before = positions.get(index + 1).copied();
                (between(at, before.unwrap_or(at + 1), at), before)
            };
            Cell { weights, further: before.map_or(0.0, |before| decayed(rate, at.abs_diff(before), 0)) }
        };
        let count = positions.len();
        self.cells.extend((0..count).map(|index| cell(if is_before { index } else { count - 1 - index })));
        for (t, c) in outputs {
            let at = anchor(t, c);
            let (index, rest) = if is_before {
                let index = positions.partition_point(|&position| position <= at).checked_sub(1);
                (index, between(index.map_or(0, |index| positions[index] + 1), at + 1, at))
            } else {
                let after = positions.partition_point(|&position| position < at);
                let index = (after < count).then_some(after);
                (index, between(at, index.map_or(at + 1, |index| positions[index]), at))
            };
            let place = |index: usize| (first_cell + if is_before { index } else { count - 1 - index }) as u32;
            let factor = index.map_or(0.0, |index| decayed(rate, at.abs_diff(positions[index]), 0));
            let last = Prefix { cell: index.map(place), factor, rest: self.rest(rest) };
            self.outputs.push(Output { scale: (spec.scale)(t, c), last, before: None });
        }
    }

    /// Returns the sums of a function given at all points, or at all nodes.
    pub(super) fn of(&self, f: &[f64]) -> Vec<f64> {
        let added = |weights: &Weights| -> f64 {
            let values = f[weights.start as usize..].iter().zip(weights.weights);
            values.map(|(&value, weight)| value * weight).sum()
        };
        let mut up_to = Vec::with_capacity(self.cells.len());
        let mut outputs = Vec::with_capacity(self.outputs.len());
        let ends = self.lists.iter().skip(1).copied().chain([[self.cells.len() as u32, self.outputs.len() as u32]]);
        for (&[cell, output], [last_cell, last_output]) in self.lists.iter().zip(ends) {
            let mut sum = 0.0;
            for Cell { weights, further } in &self.cells[cell as usize..last_cell as usize] {
                sum = sum * *further + added(weights);
                up_to.push(sum);
            }
            let at = |prefix: &Prefix| {
                let whole = prefix.cell.map_or(0.0, |cell| up_to[cell as usize] * prefix.factor);
                prefix.rest.map_or(whole, |rest| whole + added(&self.rests[rest as usize]))
            };
            outputs.extend(self.outputs[output as usize..last_output as usize].iter().map(|output| {
                let sum = at(&output.last);
                output.before.map_or(sum, |before| sum - at(&before)) * output.scale
            }));
        }
        outputs
    }
}

/// Returns rate^distance, averaged over `half` positions on both sides.
fn decayed(rate: f64, distance: usize, half: usize) -> f64 {
    if half == 0 {
        return rate.powf(distance as f64);
    }
    let tokens = (2 * half + 1) as f64;
    rate.powf((distance - half) as f64) * (1.0 - rate.powf(tokens)) / ((1.0 - rate) * tokens)
}
