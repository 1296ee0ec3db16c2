//! Sums over earlier or later positions with weights that decay geometrically.
//!
//! ```text
//! earlier    y(t, c) = Σ_b<c a^(c−1−b) f(t, b)          later    y(t, c) = Σ_b>c a^(b−1−c) f(t, b)
//! ```
//!
//! where y is the sum at a point of a chart; f is a function of two positions; t is the node of the point; c is the
//! second position of the point; b is the position that the sum is over; a is the decay.
//!
//! Decays differ from head to head and from block to block. The sums are built for a fixed ladder of decays, equidistant
//! in ln (−ln a), once per chart. Functions of a decay between two rungs are cubics through the four nearest rungs. Sums
//! f(t, c) + a y(t, c), which include the position itself, are off by 0.5 % at most, and by less on average over heads.
//!
//! Source: ours.

use std::sync::{Arc, OnceLock};

use crate::mean_field::positions::{Chart, Decay, Spec, Sum};

/// The number of rungs.
pub(super) const RUNGS: usize = 35;
/// ln (−ln a) of the slowest decay, over a million positions.
const SLOWEST: f64 = -14.0;
/// The difference of ln (−ln a) between two rungs. The fastest decay leaves 10⁻⁷ after one position.
const STEP: f64 = 0.5;

/// Sums for all decays, on one chart.
#[derive(Debug)]
pub(crate) struct Ladder {
    pub(super) chart: Arc<Chart>,
    rungs: [OnceLock<[Sum; 2]>; RUNGS],
}

/// The side of a position that a sum is over.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Side {
    Earlier,
    Later,
}

impl Ladder {
    pub(crate) fn new(chart: &Arc<Chart>) -> Self {
        Self { chart: Arc::clone(chart), rungs: [const { OnceLock::new() }; RUNGS] }
    }

    /// Returns the sums over rows of a function at all points, at all points.
    pub(super) fn sum(&self, side: Side, rung: usize, of: &[f64]) -> Vec<f64> {
        let sums = self.rungs[rung].get_or_init(|| {
            let rows = |side: Side| self.summed(side, rate(rung), |spec| Sum::along_rows(&self.chart, spec));
            [rows(Side::Earlier), rows(Side::Later)]
        });
        let sum = match side {
            Side::Earlier => &sums[0],
            Side::Later => &sums[1],
        };
        sum.of(of)
    }

    /// Returns the sums with any decay, from a function at all points.
    pub(super) fn between(&self, side: Side, decay: f64, of: &[f64]) -> Vec<f64> {
        let mut sum = vec![0.0; of.len()];
        for (rung, weight) in around(decay) {
            for (sum, part) in sum.iter_mut().zip(self.sum(side, rung, of)) {
                *sum += weight * part;
            }
        }
        sum
    }

    /// Returns the sums with any decay of a function of one position, at the nodes.
    pub(super) fn over_nodes(&self, side: Side, decay: f64, of: &[f64]) -> Vec<f64> {
        self.summed(side, decay, |spec| Sum::over_nodes(&self.chart, self.chart.diagonals(), spec)).of(of)
    }

    /// Returns a^(t−s−`less`) at the lower points (t, s) for a decay a; 1 where the exponent is negative.
    pub(super) fn powers(&self, decay: f64, less: usize) -> Vec<f64> {
        let at = |&place: &usize| {
            let (k, second) = self.chart.points[place];
            decay.powf((self.chart.nodes()[k] - second).saturating_sub(less) as f64)
        };
        self.chart.lower.iter().map(at).collect()
    }

    fn summed(&self, side: Side, rate: f64, build: impl Fn(&Spec) -> Sum) -> Sum {
        let last = self.chart.length - 1;
        let anchor = |_: usize, c: usize| match side {
            Side::Earlier => c.saturating_sub(1),
            Side::Later => (c + 1).min(last),
        };
        let ends = |_: usize, c: usize| match side {
            Side::Earlier => c == 0,
            Side::Later => c == last,
        };
        let range = |t: usize, c: usize| match side {
            Side::Earlier => 0..=anchor(t, c),
            Side::Later => anchor(t, c)..=last,
        };
        let decay = match rate {
            1.0.. => Decay::None,
            rate => Decay::OneSided { rate: rate.max(FASTEST), anchor: &anchor, is_before: side == Side::Earlier },
        };
        let scale = |t: usize, c: usize| if ends(t, c) { 0.0 } else { 1.0 };
        build(&Spec { range: &range, weight: &|_, _, _| 1.0, scale: &scale, decay })
    }
}

/// The fastest decay that sums are built for.
const FASTEST: f64 = 1e-9;

/// Returns the decay of a rung.
pub(super) fn rate(rung: usize) -> f64 {
    (-(SLOWEST + STEP * rung as f64).exp()).exp()
}

/// Returns the four rungs around a decay with the weights of the cubic there; one rung beyond the ends of the ladder.
pub(super) fn around(decay: f64) -> Vec<(usize, f64)> {
    let place = ((-decay.clamp(0.0, 1.0).ln()).ln() - SLOWEST) / STEP;
    let last = RUNGS - 1;
    if place <= 0.0 || place >= last as f64 {
        return vec![(if place > 0.0 { last } else { 0 }, 1.0)];
    }
    let first = (place as usize).saturating_sub(1).min(last - 3);
    let rungs = first..first + 4;
    let weight = |own: usize| -> f64 {
        let others = rungs.clone().filter(|&other| other != own);
        others.map(|other| (place - other as f64) / (own as f64 - other as f64)).product()
    };
    rungs.clone().map(|rung| (rung, weight(rung))).filter(|(_, weight)| weight.abs() > 1e-12).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::mean_field::positions::Grading;

    /// Decays between two rungs, and decays of a rung, by the definition on a chart of all positions.
    #[test]
    fn sums_are_those_of_the_header() {
        /// The largest error of cubics between rungs, as in the header.
        const CUBIC: f64 = 5e-3;
        let length = 30;
        let ladder = Ladder::new(&Arc::new(Chart::new(length, Grading::all(length), &[])));
        let f = |t: usize, b: usize| 1.0 / (1.0 + t as f64 + 2.0 * b as f64);
        let points: Vec<(usize, usize)> =
            ladder.chart.points.iter().map(|&(k, c)| (ladder.chart.nodes()[k], c)).collect();
        let values: Vec<f64> = points.iter().map(|&(t, c)| f(t, c)).collect();
        for (decay, tolerance) in [(rate(14), 1e-12), (0.95, CUBIC), (0.5, CUBIC), (1.0, 1e-4), (0.0, 1e-6)] {
            let [earlier, later] = [Side::Earlier, Side::Later].map(|side| ladder.between(side, decay, &values));
            for (place, &(t, c)) in points.iter().enumerate() {
                let before: f64 = (0..c).map(|b| decay.powi((c - 1 - b) as i32) * f(t, b)).sum();
                let after: f64 = (c + 1..length).map(|b| decay.powi((b - 1 - c) as i32) * f(t, b)).sum();
                let own = f(t, c);
                for (got, exact) in [(earlier[place], before), (later[place], after)] {
                    approx::assert_relative_eq!(own + decay * got, own + decay * exact, max_relative = tolerance);
                }
            }
        }
    }
}
