//! A map of where a network can be trained: predictions over two of its numbers, and the edges of its failures.
//!
//! # Edges
//!
//! An edge shows where a failure of the verdict begins. It is found between neighbouring cells of which one fails and
//! one does not, by bisection on the prediction, and joined to lines (marching squares). An edge is known to 1/256 of a
//! cell along the side that it crosses.
//!
//! # Source
//!
//! Poole et al. 2016 (arXiv 1606.05340) and Schoenholz et al. 2017 (arXiv 1611.01232), phase diagrams of wide networks
//! over the variances of weights and biases. Theirs are for infinite depth; the failures here are those at the depth of
//! the network, and approach theirs as it grows.

mod axis;
mod depth;
mod edges;
mod knob;
#[cfg(test)]
mod tests;

use std::sync::atomic::AtomicBool;

use rayon::prelude::*;
use serde::{Deserialize, Serialize};
use sigprop_stack::Stack;

use crate::assemble::AssembleError;
use crate::caveat::Caveat;
use crate::compare::{Candidate, Setting, candidate};
use crate::schemes::{Scheme, SchemeError};
use crate::verdict::{Failure, Verdict};
pub use axis::{Axis, AxisError};
pub use depth::DepthScales;
pub use edges::Region;
use knob::Knob;

/// A place on a map.
pub type MapPoint = [f64; 2];

/// A map: predictions of a network while two of its numbers vary, and the edges of its failures.
#[derive(Clone, Debug)]
pub struct Phase {
    /// The numbers that are varied, first along x and then along y.
    pub axes: [Axis; 2],
    /// The values along each axis, ascending.
    pub values: [Vec<f64>; 2],
    /// The predictions, row by row: for every value of y, one cell per value of x.
    pub cells: Vec<Cell>,
    /// The region of every failure that occurs, in the order of [`Failure::ALL`].
    pub regions: Vec<Region>,
}

/// One prediction.
#[derive(Clone, Debug)]
pub struct Cell {
    /// The values of the two numbers.
    pub at: MapPoint,
    /// The prediction, or the reason why there is no such network.
    pub outcome: Result<Point, SchemeError>,
}

/// The prediction of a cell, or the reason why there is no such network.
type Outcome = Result<Point, SchemeError>;

/// The summary of a prediction.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Point {
    /// The numbers of blocks over which quantities change.
    pub scales: DepthScales,
    /// ln of the factor over all blocks by which the variance of the stream grows, and of the factor by which the
    /// variance of its gradient grows on the way back.
    pub ln_growth: [f64; 2],
    /// Correlation between tokens after the last block; `None` for a single token.
    pub token_correlation: Option<f64>,
    /// Effective number of tokens that the sharpest attention attends to; `None` without attention.
    pub attended: Option<f64>,
    /// The verdict on the network.
    pub verdict: Verdict,
    /// Caveats: rules used outside their range, and reasons why the scheme is not meant for the network.
    pub caveats: Vec<Caveat>,
}

impl Point {
    fn fails(&self, failure: Failure) -> bool {
        self.verdict.failures().iter().any(|(found, _)| *found == failure)
    }
}

/// The reason why there is no map.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum PhaseError {
    /// There is no number of that name that can be varied.
    #[error(
        "nothing called {got:?} can be varied{}; with this scheme there are {known}",
        nearest.as_ref().map(|name| format!("; did you mean {name}?")).unwrap_or_default()
    )]
    Unknown {
        /// The name that was asked for.
        got: String,
        /// The most similar name, if any is similar.
        nearest: Option<String>,
        /// The names of all numbers that can be varied.
        known: String,
    },
    /// The number of blocks of a stack, which are given.
    #[error(
        "{name} cannot be varied in a stack, whose blocks are given; expected one of {known}, or MODEL instead of a stack"
    )]
    Given {
        /// The name that was asked for.
        name: String,
        /// The names of all numbers that can be varied.
        known: String,
    },
    /// Both axes are the same.
    #[error("expected two different axes, got {name} twice")]
    Same {
        /// Their common name.
        name: String,
    },
    /// A number out of range.
    #[error("{name} must be {expected}, got {got}")]
    Range {
        /// Name of the axis.
        name: String,
        /// The expected range, in words.
        expected: &'static str,
        /// The given value.
        got: f64,
    },
    /// An axis along which the network does not change.
    #[error("{name} changes nothing in this network; expected something that it has")]
    Nothing {
        /// Name of the axis.
        name: String,
    },
    /// The network cannot be assembled.
    #[error(transparent)]
    Assemble(#[from] AssembleError),
    /// The computation was cancelled.
    #[error("cancelled before all edges were found")]
    Cancelled,
}

/// Predicts a network while two of its numbers vary. `done` is called after every cell.
///
/// ```
/// use sigprop::{architecture::Architecture, compare::Setting, phase, schemes::Scheme};
///
/// let setting = Setting::from(Architecture { n_layers: 192, ..Architecture::default() });
/// let axes = ["weight-gain=0.5..4:4".parse()?, "branch-scale=0.1..1:3".parse()?];
/// let map = phase(&setting, &Scheme::parse("lecun")?, &axes, &|| {})?;
/// for region in &map.regions {
///     println!("{}: {:?}", region.failure.name(), region.edges);
/// }
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub fn phase(
    setting: &Setting,
    scheme: &Scheme,
    axes: &[Axis; 2],
    done: &(dyn Fn() + Sync),
) -> Result<Phase, PhaseError> {
    let map = Map::new(setting, scheme, axes)?;
    let outcomes: Vec<Result<Outcome, AssembleError>> = map
        .places()
        .into_par_iter()
        .map(|at| {
            let outcome = map.outcome(at);
            done();
            outcome
        })
        .collect();
    // Report the first error in the order of the cells, even if another thread found a later one before.
    let outcomes = outcomes.into_iter().collect::<Result<Vec<Outcome>, AssembleError>>()?;
    map.phase(outcomes, &AtomicBool::new(false))
}

/// A network, and the two of its numbers that are varied.
pub(crate) struct Map<'a> {
    setting: &'a Setting,
    scheme: &'a Scheme,
    axes: &'a [Axis; 2],
    knobs: [Knob; 2],
    values: [Vec<f64>; 2],
}

impl<'a> Map<'a> {
    pub(crate) fn new(setting: &'a Setting, scheme: &'a Scheme, axes: &'a [Axis; 2]) -> Result<Self, PhaseError> {
        let [x, y] = axes;
        if x.name == y.name {
            return Err(PhaseError::Same { name: x.name.clone() });
        }
        let named = |axis: &Axis| Knob::named(&axis.name, &setting.subject, scheme);
        let knobs = [named(x)?, named(y)?];
        for (axis, knob) in axes.iter().zip(knobs) {
            let (expected, allows) = knob.range();
            if !allows(axis.low) {
                return Err(PhaseError::Range { name: axis.name.clone(), expected, got: axis.low });
            }
        }
        let values = [x.values(knobs[0].is_whole()), y.values(knobs[1].is_whole())];
        let map = Self { setting, scheme, axes, knobs, values };
        map.refuse_idle_knobs()?;
        Ok(map)
    }

    /// Returns an error if a knob acts on a part that the network does not have.
    fn refuse_idle_knobs(&self) -> Result<(), PhaseError> {
        let [first, last] = [0, 1].map(|end| {
            self.values.each_ref().map(|values| if end == 0 { values[0] } else { values[values.len() - 1] })
        });
        for (place, axis) in [[last[0], first[1]], [first[0], last[1]]].into_iter().zip(self.axes) {
            if let (Ok(near), Ok(far)) = (self.stack(first), self.stack(place))
                && near == far
            {
                return Err(PhaseError::Nothing { name: axis.name.clone() });
            }
        }
        Ok(())
    }

    /// The places of the cells, row by row: for every value of y, one place per value of x.
    pub(crate) fn places(&self) -> Vec<MapPoint> {
        let [columns, rows] = &self.values;
        rows.iter().flat_map(|y| columns.iter().map(|x| [*x, *y])).collect()
    }

    /// Makes the map from the predictions at all places. It also predicts the edges, unless `cancelled` becomes true.
    pub(crate) fn phase(&self, outcomes: Vec<Outcome>, cancelled: &AtomicBool) -> Result<Phase, PhaseError> {
        let cells = self.places().into_iter().zip(outcomes);
        let cells: Vec<Cell> = cells.map(|(at, outcome)| Cell { at, outcome }).collect();
        let regions = edges::regions(self, &cells, cancelled)?;
        Ok(Phase { axes: self.axes.clone(), values: self.values.clone(), cells, regions })
    }

    /// The knobs with their values at a place.
    fn knobs(&self, at: MapPoint) -> impl Iterator<Item = (Knob, f64)> {
        self.knobs.into_iter().zip(at)
    }

    fn setting(&self, at: MapPoint) -> Setting {
        let mut setting = self.setting.clone();
        self.knobs(at).for_each(|(knob, value)| knob.describe(value, &mut setting));
        setting
    }

    fn scheme(&self, at: MapPoint) -> Result<Scheme, SchemeError> {
        self.knobs(at).try_fold(self.scheme.clone(), |scheme, (knob, value)| knob.argue(value, scheme))
    }

    fn turn(&self, at: MapPoint, stack: &mut Stack) {
        self.knobs(at).for_each(|(knob, value)| knob.turn(value, stack));
    }

    fn stack(&self, at: MapPoint) -> Result<Stack, AssembleError> {
        let mut stack = self.setting(at).assemble(&self.scheme(at)?)?.stack;
        self.turn(at, &mut stack);
        Ok(stack)
    }

    /// The prediction of the network at a place.
    pub(crate) fn outcome(&self, at: MapPoint) -> Result<Outcome, AssembleError> {
        let scheme = match self.scheme(at) {
            Ok(scheme) => scheme,
            Err(error) => return Ok(Err(error)),
        };
        let candidate = candidate(&self.setting(at), &scheme, |stack| self.turn(at, stack))?;
        let Candidate { outcome, caveats, scheme: _ } = candidate;
        Ok(outcome.map(|summary| Point {
            scales: DepthScales::of(&summary.stream),
            ln_growth: [summary.forward.ln_total, summary.backward.ln_total],
            token_correlation: summary.token_correlation,
            attended: summary.attended,
            verdict: summary.verdict,
            caveats: caveats.into_iter().chain(summary.caveats).collect(),
        }))
    }
}
