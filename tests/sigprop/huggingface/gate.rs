//! The conditions under which a prediction agrees with a measurement.

use statrs::distribution::{ContinuousCDF, StudentsT};

use super::names::Group;

/// A cell on the stream is near if its relative deviation is within the sampling error or within this.
const NEAR: f64 = 0.01;
/// At least this share of the cells on the stream must be near. None may deviate by more than `FAR` beyond the sampling
/// error.
const NEAR_SHARE: f64 = 0.95;
const FAR: f64 = 0.05;
/// The share of the cells off the stream that may be further away; at least one cell may. Sampling errors of weight
/// gradients are far from normal.
const MISSES: f64 = 0.02;
/// The two-sided probability of a deviation beyond the sampling error, equal to that of 3 standard deviations.
const BEYOND: f64 = 0.0027;

/// One predicted number with its measurement.
pub(super) struct Cell {
    pub(super) group: Group,
    pub(super) layer: i64,
    pub(super) site: String,
    pub(super) quantity: &'static str,
    pub(super) predicted: f64,
    pub(super) observed: f64,
    pub(super) std_error: f64,
    pub(super) seeds: usize,
    /// The number by which deviations are divided.
    pub(super) unit: f64,
}

impl Cell {
    /// The relative deviation.
    pub(super) fn error(&self) -> f64 {
        (self.predicted - self.observed) / self.unit
    }

    /// The relative sampling error, which is exceeded with probability `BEYOND`.
    fn sampling(&self) -> f64 {
        let student = StudentsT::new(0.0, 1.0, (self.seeds - 1) as f64).expect("there are several seeds");
        student.inverse_cdf(1.0 - BEYOND / 2.0) * self.std_error / self.unit
    }

    /// The largest relative deviation at which the cell is near.
    pub(super) fn bound(&self) -> f64 {
        match self.group {
            Group::Stream | Group::Cross => self.sampling().max(NEAR),
            Group::Branch | Group::WeightGradient | Group::Weight | Group::First => self.limit(),
        }
    }

    /// The largest relative deviation that is allowed for any cell of the stream.
    pub(super) fn limit(&self) -> f64 {
        FAR + self.sampling()
    }

    /// Returns true if the deviation is within its bound, false for NaN.
    pub(super) fn is_near(&self) -> bool {
        self.error().abs() <= self.bound()
    }

    /// Returns true if the deviation is within its limit.
    fn is_possible(&self) -> bool {
        self.error().abs() <= self.limit()
    }
}

/// The agreement of the cells of one group.
pub(super) struct Agreement {
    pub(super) count: usize,
    pub(super) near: usize,
    /// Median and 90th percentile of the absolute relative deviations.
    pub(super) percentiles: [f64; 2],
    /// The share of deviations within two standard errors.
    pub(super) share_z_below_2: f64,
    /// Site, quantity and error of the cell whose error is largest relative to its bound.
    pub(super) worst: (String, &'static str, f64),
    pub(super) passes: bool,
}

impl Agreement {
    /// Returns the agreement of the cells of a group; `None` if there are none.
    pub(super) fn of(group: Group, cells: &[&Cell]) -> Option<Self> {
        let near = cells.iter().filter(|cell| cell.is_near()).count();
        let excess = |cell: &Cell| cell.error().abs() / cell.bound();
        let worst = cells.iter().max_by(|one, other| excess(one).total_cmp(&excess(other)))?;
        let count = cells.len() as f64;
        let passes = match group {
            Group::Stream | Group::Cross => {
                near as f64 >= NEAR_SHARE * count && cells.iter().all(|cell| cell.is_possible())
            }
            Group::Branch | Group::WeightGradient | Group::Weight => {
                (cells.len() - near) as f64 <= (MISSES * count).max(1.0)
            }
            Group::First => true,
        };
        let mut errors: Vec<f64> = cells.iter().map(|cell| cell.error().abs()).collect();
        errors.sort_by(f64::total_cmp);
        let close = cells.iter().filter(|cell| (cell.predicted - cell.observed).abs() < 2.0 * cell.std_error).count();
        Some(Self {
            count: cells.len(),
            near,
            percentiles: [0.5, 0.9].map(|share| errors[(share * (count - 1.0)).round() as usize]),
            share_z_below_2: close as f64 / count,
            worst: (worst.site.clone(), worst.quantity, worst.error()),
            passes,
        })
    }

    /// The values of the columns [`AGREEMENT`].
    pub(super) fn numbers(&self) -> [String; 5] {
        let [median, ninety] = self.percentiles.map(|error| format!("{error:.5}"));
        [self.count.to_string(), self.near.to_string(), median, ninety, format!("{:.3}", self.share_z_below_2)]
    }
}

/// The columns of [`Agreement::numbers`].
pub(super) const AGREEMENT: [&str; 5] = ["cells", "near", "p50", "p90", "share_z_below_2"];
