//! The edges of failures: lines between cells that fail and cells that do not (marching squares), and the enclosed
//! areas.
//!
//! # Source
//!
//! Lorensen & Cline 1987, in two dimensions; where two opposite corners of a square fail they are joined.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::atomic::{AtomicBool, Ordering},
};

use rayon::prelude::*;

use super::{Cell, Map, MapPoint, PhaseError};
use crate::verdict::Failure;

/// Number of bisections along a side between two cells.
const HALVINGS: usize = 8;

/// The part of a map where a failure happens.
#[derive(Clone, Debug, PartialEq)]
pub struct Region {
    /// The failure.
    pub failure: Failure,
    /// Lines along which the failure begins. All their vertices are on the failing side; a closed line ends where it
    /// starts.
    pub edges: Vec<Vec<MapPoint>>,
    /// Polygons that together fill the region, one per square between cells.
    pub area: Vec<Vec<MapPoint>>,
}

/// The side from the cell at `column` and `row` to its neighbour to the right (`axis` 0) or above (`axis` 1).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct CellEdge {
    column: usize,
    row: usize,
    axis: usize,
}

/// The regions of all failures that occur.
pub(super) fn regions(map: &Map, cells: &[Cell], cancelled: &AtomicBool) -> Result<Vec<Region>, PhaseError> {
    let regions = Failure::ALL.into_iter().filter_map(|failure| {
        let fails = |cell: &Cell| cell.outcome.as_ref().ok().map(|point| point.fails(failure));
        let fails: Vec<Option<bool>> = cells.iter().map(fails).collect();
        fails.contains(&Some(true)).then(|| region(map, failure, fails, cancelled))
    });
    regions.collect()
}

fn region(map: &Map, failure: Failure, fails: Vec<Option<bool>>, cancelled: &AtomicBool) -> Result<Region, PhaseError> {
    let mut squares = Squares::new(&map.values, fails);
    let crossed = squares.crossed();
    let find = |(side, fails, holds): &(CellEdge, _, _)| bisect(map, failure, side.axis, [*fails, *holds], cancelled);
    let found: Vec<Result<MapPoint, PhaseError>> = crossed.par_iter().map(find).collect();
    for ((side, ..), place) in crossed.into_iter().zip(found) {
        squares.crossings.insert(side, place?);
    }
    let (edges, area) = squares.walk();
    Ok(Region { failure, edges, area })
}

/// Returns the place, between a failing cell and a cell that does not fail, where the failure ends, on its failing
/// side. `cells` are the indices [column, row] of the two cells, in this order. The place is found by bisection; places
/// that cannot be predicted count as not failing.
fn bisect(
    map: &Map,
    failure: Failure,
    axis: usize,
    cells: [[usize; 2]; 2],
    cancelled: &AtomicBool,
) -> Result<MapPoint, PhaseError> {
    let [mut inside, mut outside] = cells.map(|[column, row]| [map.values[0][column], map.values[1][row]]);
    let is_whole = map.knobs[axis].is_whole();
    for _ in 0..HALVINGS {
        let ends = [inside[axis], outside[axis]];
        if is_whole && (ends[1] - ends[0]).abs() < 1.5 {
            break;
        }
        if cancelled.load(Ordering::Relaxed) {
            return Err(PhaseError::Cancelled);
        }
        let mut middle = inside;
        middle[axis] = map.axes[axis].between(ends, 0.5);
        if is_whole {
            middle[axis] = middle[axis].round();
        }
        let still = map.outcome(middle)?.is_ok_and(|point| point.fails(failure));
        *(if still { &mut inside } else { &mut outside }) = middle;
    }
    Ok(inside)
}

/// The squares whose corners are four neighbouring cells, with the edges that cross these squares.
struct Squares<'a> {
    values: &'a [Vec<f64>; 2],
    /// For each cell, row by row: true if it fails; `None` if it could not be predicted.
    fails: Vec<Option<bool>>,
    crossings: BTreeMap<CellEdge, MapPoint>,
    /// Pairs of sides of one square, in counterclockwise order. The key is the side where the failing part of the
    /// square ends, and the value the side where the failing part begins again.
    next: BTreeMap<CellEdge, CellEdge>,
    area: Vec<Vec<MapPoint>>,
}

impl<'a> Squares<'a> {
    fn new(values: &'a [Vec<f64>; 2], fails: Vec<Option<bool>>) -> Self {
        Self { values, fails, crossings: BTreeMap::new(), next: BTreeMap::new(), area: Vec::new() }
    }

    fn fails(&self, [column, row]: [usize; 2]) -> Option<bool> {
        self.fails[row * self.values[0].len() + column]
    }

    /// The sides between a failing cell and a cell that does not fail. Each comes with the indices [column, row] of the
    /// failing cell and of the other cell.
    fn crossed(&self) -> Vec<(CellEdge, [usize; 2], [usize; 2])> {
        let size = self.values.each_ref().map(Vec::len);
        let cells = (0..size[1]).flat_map(|row| (0..size[0]).map(move |column| [column, row]));
        let sides = cells.flat_map(|[column, row]| [0, 1].map(|axis| CellEdge { column, row, axis }));
        let crossed = sides.filter_map(|side| {
            let near = [side.column, side.row];
            let mut far = near;
            far[side.axis] += 1;
            if far[side.axis] == size[side.axis] {
                return None;
            }
            match (self.fails(near)?, self.fails(far)?) {
                (true, false) => Some((side, near, far)),
                (false, true) => Some((side, far, near)),
                (true, true) | (false, false) => None,
            }
        });
        crossed.collect()
    }

    /// Returns the edges, as lines of places, and the polygons of the area that they enclose.
    fn walk(mut self) -> (Vec<Vec<MapPoint>>, Vec<Vec<MapPoint>>) {
        for row in 1..self.values[1].len() {
            for column in 1..self.values[0].len() {
                self.enter(column - 1, row - 1);
            }
        }
        (self.lines(), self.area)
    }

    /// Goes counterclockwise around the square whose lower left corner is the cell at `column` and `row`, and records
    /// its pairs of sides and its polygon.
    fn enter(&mut self, column: usize, row: usize) {
        let corners = [[column, row], [column + 1, row], [column + 1, row + 1], [column, row + 1]];
        let sides = [(column, row, 0), (column + 1, row, 1), (column, row + 1, 0), (column, row, 1)];
        let known = corners.map(|corner| self.fails(corner));
        let [Some(a), Some(b), Some(c), Some(d)] = known else { return };
        let fails = [a, b, c, d];
        let mut polygon = Vec::new();
        // Sides where the failing part ends (exits), and sides where it begins again (entries).
        let (mut exits, mut entries) = (Vec::new(), Vec::new());
        for index in 0..4 {
            if fails[index] {
                let [column, row] = corners[index];
                polygon.push([self.values[0][column], self.values[1][row]]);
            }
            let (column, row, axis) = sides[index];
            let side = CellEdge { column, row, axis };
            if let Some(place) = self.crossings.get(&side) {
                polygon.push(*place);
                if fails[index] { exits.push(side) } else { entries.push(side) }
            }
        }
        // Each exit is paired with the next entry. If the round starts outside the failing part, this is the second
        // entry.
        let entries = entries.into_iter().cycle().skip(usize::from(!fails[0]));
        self.next.extend(exits.into_iter().zip(entries));
        if !polygon.is_empty() {
            self.area.push(polygon);
        }
    }

    /// Returns the lines of places in this order: lines between two borders of the map, closed lines, and single places
    /// that no square joins to others.
    fn lines(&mut self) -> Vec<Vec<MapPoint>> {
        let ends: BTreeSet<CellEdge> = self.next.values().copied().collect();
        let joined: BTreeSet<CellEdge> = self.next.keys().copied().chain(ends.iter().copied()).collect();
        let starts: Vec<CellEdge> = self.next.keys().filter(|side| !ends.contains(side)).copied().collect();
        let mut lines: Vec<Vec<MapPoint>> = starts.into_iter().map(|start| self.line(start)).collect();
        while let Some(&start) = self.next.keys().next() {
            lines.push(self.line(start));
        }
        let alone = self.crossings.iter().filter(|(side, _)| !joined.contains(side));
        lines.extend(alone.map(|(_, place)| vec![*place]));
        lines
    }

    fn line(&mut self, start: CellEdge) -> Vec<MapPoint> {
        let mut line = vec![self.crossings[&start]];
        let mut side = start;
        while let Some(next) = self.next.remove(&side) {
            line.push(self.crossings[&next]);
            side = next;
        }
        line
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the lines of edges half-way between cells, and the size of the area; `cells` are rows from the top down.
    fn walked(cells: [&str; 4]) -> (Vec<Vec<MapPoint>>, f64) {
        let values = [vec![0.0, 1.0, 2.0, 3.0], vec![0.0, 1.0, 2.0, 3.0]];
        let known = |cell: char| (cell != '?').then_some(cell == '#');
        let fails = cells.iter().rev().flat_map(|row| row.chars()).map(known).collect();
        let mut squares = Squares::new(&values, fails);
        for (side, ..) in squares.crossed() {
            let mut place = [side.column as f64, side.row as f64];
            place[side.axis] += 0.5;
            squares.crossings.insert(side, place);
        }
        let (lines, area) = squares.walk();
        // The shoelace formula.
        let size = |polygon: &Vec<MapPoint>| {
            let next = polygon.iter().cycle().skip(1);
            0.5 * polygon.iter().zip(next).map(|([a, b], [c, d])| a * d - c * b).sum::<f64>()
        };
        (lines, area.iter().map(size).sum())
    }

    #[test]
    fn an_edge_goes_from_border_to_border() {
        let (lines, area) = walked(["..##", "..##", "..##", "..##"]);
        assert_eq!(lines, [[[1.5, 3.0], [1.5, 2.0], [1.5, 1.0], [1.5, 0.0]]]);
        assert!((area - 4.5).abs() < 1e-12, "{area}");
    }

    #[test]
    fn an_island_is_closed() {
        let (lines, area) = walked(["....", ".##.", ".##.", "...."]);
        assert_eq!((lines.len(), lines[0].len()), (1, 9));
        assert_eq!(lines[0].first(), lines[0].last());
        // A square of side 2 without its corners.
        assert!((area - 3.5).abs() < 1e-12, "{area}");
    }

    #[test]
    fn opposite_corners_are_joined() {
        let (lines, area) = walked(["....", "..#.", ".#..", "...."]);
        assert_eq!(lines.len(), 1);
        // Two diamonds of ½, and the middle of the square between them without its corners' triangles, ½.
        assert!((area - 1.5).abs() < 1e-12, "{area}");
    }

    #[test]
    fn the_unknown_has_no_edge() {
        let (lines, area) = walked(["####", "####", "..??", "..??"]);
        assert_eq!(lines, [[[0.0, 1.5], [1.0, 1.5]]]);
        assert!((area - 3.5).abs() < 1e-12, "{area}");
        // No square with four known cells has this side.
        assert_eq!(walked(["#?##", ".?##", "??##", "####"]).0, [[[0.0, 2.5]]]);
    }
}
