//! Paths with no more vertices than the eye needs.

use std::fmt::Write;

/// A place on the picture, in pixels.
pub(super) type PlotPoint = (f64, f64);

/// Simplified lines omit vertices closer than this, in pixels, to the line between the remaining ones.
const TOLERANCE: f64 = 0.1;

/// Returns the path through `places`.
pub(super) fn open(places: &[PlotPoint]) -> String {
    let mut data = String::new();
    for (index, (x, y)) in simplified(places).into_iter().enumerate() {
        let command = if index == 0 { 'M' } else { 'L' };
        write!(data, "{command}{x:.1} {y:.1}").expect("a string takes everything");
    }
    data
}

/// Returns the outline of the area between two curves.
pub(super) fn between(lower: &[PlotPoint], upper: &[PlotPoint]) -> String {
    let back: Vec<PlotPoint> = upper.iter().rev().copied().collect();
    format!("{}{}Z", open(lower), open(&back).replacen('M', "L", 1))
}

/// Returns the point of a line at the horizontal position `x`; `None` if `x` is beyond the ends of the line.
pub(super) fn at(places: &[PlotPoint], x: f64) -> Option<PlotPoint> {
    let (from, to) = places.iter().zip(places.get(1..)?).find(|(from, to)| (from.0..=to.0).contains(&x))?;
    let share = (x - from.0) / (to.0 - from.0);
    Some((x, from.1 + share * (to.1 - from.1)))
}

/// Simplifies a line by the algorithm of Ramer (1972), Douglas and Peucker (1973): it splits the line at the vertex
/// farthest from the chord between its ends, and repeats this on both parts until no vertex is farther than
/// [`TOLERANCE`].
fn simplified(places: &[PlotPoint]) -> Vec<PlotPoint> {
    let mut keep = vec![false; places.len()];
    let mut open = vec![(0, places.len().saturating_sub(1))];
    while let Some((from, to)) = open.pop() {
        let Some((start, end)) = places.get(from).zip(places.get(to)) else { break };
        keep[from] = true;
        keep[to] = true;
        let distances = (from + 1..to).map(|index| (distance(places[index], *start, *end), index));
        if let Some((farthest, index)) = distances.max_by(|one, other| one.0.total_cmp(&other.0))
            && farthest > TOLERANCE
        {
            open.extend([(from, index), (index, to)]);
        }
    }
    places.iter().zip(keep).filter_map(|(place, kept)| kept.then_some(*place)).collect()
}

/// Returns the distance of a place from the line through `start` and `end`.
fn distance((x, y): PlotPoint, start: PlotPoint, end: PlotPoint) -> f64 {
    let (along_x, along_y) = (end.0 - start.0, end.1 - start.1);
    let (from_x, from_y) = (x - start.0, y - start.1);
    let length = along_x.hypot(along_y);
    if length > 0.0 { (along_x * from_y - along_y * from_x).abs() / length } else { from_x.hypot(from_y) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn straight_lines_have_two_ends() {
        let line: Vec<PlotPoint> = (0..100).map(|index| (f64::from(index), 2.0 * f64::from(index))).collect();
        assert_eq!(open(&line), "M0.0 0.0L99.0 198.0");
        assert_eq!(open(&[(0.0, 0.0), (5.0, 9.0), (10.0, 0.0)]), "M0.0 0.0L5.0 9.0L10.0 0.0");
        assert_eq!((open(&[]), open(&[(1.0, 2.0)])), (String::new(), "M1.0 2.0".to_owned()));
    }

    #[test]
    fn curves_pass_between_their_ends() {
        let curve = [(0.0, 0.0), (2.0, 8.0), (4.0, 0.0)];
        assert_eq!([1.0, 2.0, 3.0].map(|x| at(&curve, x)), [(1.0, 4.0), (2.0, 8.0), (3.0, 4.0)].map(Some));
        assert_eq!([at(&curve, 4.5), at(&[], 0.0)], [None, None]);
    }

    #[test]
    fn areas_are_closed() {
        assert_eq!(between(&[(0.0, 1.0), (2.0, 1.0)], &[(0.0, 0.0), (2.0, 0.0)]), "M0.0 1.0L2.0 1.0L2.0 0.0L0.0 0.0Z");
    }
}
