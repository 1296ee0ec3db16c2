//! Gains that meet demands, searched in the fastest of several models of a network.

use std::slice;

use super::Demand;
use super::search::{Gains, Step, search};
use super::sketch::Models;
use crate::assemble::AssembleError;
use crate::compare::{Setting, candidate};
use crate::schemes::SchemeError;

/// The margin, in ln, by which demands are tightened for the search. It compensates for the excess that a finite
/// penalty leaves.
const SLACK: f64 = 0.005;

pub(super) struct Solver<'a> {
    /// The models of the network, from slow to fast; the first is the network itself.
    models: &'a [Setting],
    demands: &'a [Demand],
    /// Names of the weight matrices that occur in all blocks, with a `*` for the number of the block.
    matrices: &'a [String],
    /// Per model (except the fastest), and per excess of the demands: the excess in this model minus the excess in the
    /// next faster model.
    differences: Vec<Vec<Difference>>,
    /// Called after every prediction of the network itself.
    done: &'a (dyn Fn() + Sync),
}

impl<'a> Solver<'a> {
    pub(super) fn new(models: &'a Models, demands: &'a [Demand], done: &'a (dyn Fn() + Sync)) -> Self {
        let Models { settings, matrices, .. } = models;
        let count = demands.iter().map(|demand| demand.count(matrices)).sum();
        let differences = vec![vec![Difference::default(); count]; settings.len() - 1];
        Self { models: settings, demands, matrices, differences, done }
    }

    /// Finds gains that meet all demands, except the demand of index `dropped` if it is given. The search starts at
    /// `nearby` if it is given: gains that were found for similar demands.
    pub(super) fn solve(&mut self, dropped: Option<usize>, nearby: Option<&Gains>) -> Result<Gains, AssembleError> {
        Ok(self.solve_in(0, &[], dropped, nearby)?.0)
    }

    /// Finds gains in a model, and returns them with their excesses. The excesses are corrected by the differences from
    /// the `slower` models.
    fn solve_in(
        &mut self,
        model: usize,
        slower: &[Vec<Difference>],
        dropped: Option<usize>,
        nearby: Option<&Gains>,
    ) -> Result<(Gains, Vec<f64>), AssembleError> {
        /// The largest number of rounds with a faster model; after them the model itself is searched.
        const ROUNDS: usize = 12;
        let mut nearby = nearby.copied();
        if model + 1 < self.models.len() {
            for _ in 0..ROUNDS {
                let with_own = [slower, slice::from_ref(&self.differences[model])].concat();
                let (gains, expected) = self.solve_in(model + 1, &with_own, dropped, nearby.as_ref())?;
                let found = moved(self.excesses(model, dropped, &gains)?, slower, &gains);
                if expected.iter().zip(&found).all(|(expected, found)| agree(*expected, *found)) {
                    return Ok((gains, found));
                }
                for (difference, (expected, found)) in
                    self.differences[model].iter_mut().zip(expected.iter().zip(&found))
                {
                    difference.update(gains, found - expected);
                }
                nearby = Some(gains);
            }
        }
        let n_layers = self.models[model].architecture().n_layers;
        search(n_layers, nearby.as_ref(), |gains| Ok(moved(self.excesses(model, dropped, gains)?, slower, gains)))
    }

    /// The excesses of a model over the tightened demands; −∞ for the demand of index `dropped`.
    fn excesses(&self, model: usize, dropped: Option<usize>, gains: &Gains) -> Result<Vec<f64>, AssembleError> {
        let outcome = candidate(&self.models[model], &gains.scheme(), |_| {})?.outcome;
        if model == 0 {
            (self.done)();
        }
        let excesses = |(place, demand): (usize, &Demand)| match &outcome {
            _ if dropped == Some(place) => vec![f64::NEG_INFINITY; demand.count(self.matrices)],
            Ok(summary) => demand.excesses(summary, self.matrices).into_iter().map(|excess| excess + SLACK).collect(),
            // If the signal cannot be followed under these gains, all demands count as far from met.
            Err(_) => vec![1e3; demand.count(self.matrices)],
        };
        let excesses = self.demands.iter().enumerate().flat_map(excesses).collect();
        match outcome {
            Ok(_) | Err(SchemeError::Predict(_)) => Ok(excesses),
            Err(error) => Err(error.into()),
        }
    }
}

/// The excess over a limit in one model minus the excess in a faster one, as a linear function of the gains (Broyden's
/// method).
#[derive(Clone, Debug, Default)]
struct Difference {
    /// The last gains at which both models were predicted, the difference there, and its slope; `None` before the
    /// first.
    last: Option<(Gains, f64, Step)>,
}

impl Difference {
    fn at(&self, gains: &Gains) -> f64 {
        self.last.map_or(0.0, |(last, difference, slope)| difference + slope.dot(&gains.away_from(last)))
    }

    /// Corrects the difference by `lacking`, so that it is exact at `gains`. Does nothing if an excess does not exist.
    fn update(&mut self, gains: Gains, lacking: f64) {
        /// Steps shorter than this, in ln, leave the slope unchanged.
        const SHORTEST: f64 = 3e-3;
        if !lacking.is_finite() {
            return;
        }
        let difference = self.at(&gains) + lacking;
        let slope = self.last.map_or(Step::zeros(), |(last, _, slope)| {
            let step = gains.away_from(last);
            if step.norm() < SHORTEST { slope } else { slope + step * (lacking / step.norm_squared()) }
        });
        self.last = Some((gains, difference, slope));
    }
}

/// Returns the excesses of a model, corrected by the differences from the slower models.
fn moved(excesses: Vec<f64>, slower: &[Vec<Difference>], gains: &Gains) -> Vec<f64> {
    let difference = |demand: usize| slower.iter().map(|models| models[demand].at(gains)).sum::<f64>();
    let moved = |(demand, excess)| excess + difference(demand);
    excesses.into_iter().enumerate().map(moved).collect()
}

/// Returns true if a model and a slower one agree on a demand: their excesses, `told` and `found`, are close, or both
/// are far below the limit.
fn agree(told: f64, found: f64) -> bool {
    /// The excess in the slower model may be larger by less than this.
    const BEYOND: f64 = 0.003;
    /// The excess in the slower model may be smaller by less than this.
    const LESS: f64 = 0.004;
    /// An excess below this means that the demand does not limit the search.
    const WITHIN: f64 = -0.03;
    (told < WITHIN && found < 0.0) || (told - LESS < found && found < told + BEYOND)
}
