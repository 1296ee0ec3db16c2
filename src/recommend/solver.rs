//! Gains that meet demands, searched in the fastest of several models of a network.

use super::Demand;
use super::search::{Gains, search};
use crate::assemble::AssembleError;
use crate::compare::{Setting, candidate};
use crate::schemes::SchemeError;

/// Demands are searched for a little tighter than they are, as ln: the penalty leaves this much.
const SLACK: f64 = 0.005;

pub(super) struct Solver<'a> {
    /// From the network itself to what is like it and faster.
    models: &'a [Setting],
    demands: &'a [Demand],
    /// For each model but the fastest, how much further demands are exceeded in it than the next one tells.
    beyond: Vec<Vec<f64>>,
    /// Called after every prediction of the network itself.
    done: &'a dyn Fn(),
}

impl<'a> Solver<'a> {
    pub(super) fn new(models: &'a [Setting], demands: &'a [Demand], done: &'a dyn Fn()) -> Self {
        Self { models, demands, beyond: vec![vec![0.0; demands.len()]; models.len() - 1], done }
    }

    /// Without one of the demands, by its number; from gains that meet demands of the same kind, if there are any.
    pub(super) fn solve(&mut self, dropped: Option<usize>, nearby: Option<&Gains>) -> Result<Gains, AssembleError> {
        Ok(self.solve_in(0, &vec![0.0; self.demands.len()], dropped, nearby)?.0)
    }

    /// With excesses over the demands moved by `shift`, and what they are.
    fn solve_in(
        &mut self,
        model: usize,
        shift: &[f64],
        dropped: Option<usize>,
        nearby: Option<&Gains>,
    ) -> Result<(Gains, Vec<f64>), AssembleError> {
        /// Rounds after which a model is searched itself.
        const ROUNDS: usize = 12;
        let mut nearby = nearby.copied();
        let mut secants = vec![Secant::default(); self.demands.len()];
        if model + 1 < self.models.len() {
            for _ in 0..ROUNDS {
                let shifted = moved(shift, &self.beyond[model]);
                let (gains, told) = self.solve_in(model + 1, &shifted, dropped, nearby.as_ref())?;
                let found = moved(&self.excesses(model, dropped, &gains)?, shift);
                if told.iter().zip(&found).all(|(told, found)| agree(model, *told, *found)) {
                    return Ok((gains, found));
                }
                for (demand, (told, found)) in told.iter().zip(&found).enumerate() {
                    // What does not exist is never exceeded.
                    if told.is_finite() && found.is_finite() {
                        self.beyond[model][demand] += secants[demand].step(found - told);
                    }
                }
                nearby = Some(gains);
            }
        }
        let n_layers = self.models[model].architecture.n_layers;
        search(n_layers, nearby.as_ref(), |gains| Ok(moved(&self.excesses(model, dropped, gains)?, shift)))
    }

    /// How far a model exceeds demands that are a little tighter.
    fn excesses(&self, model: usize, dropped: Option<usize>, gains: &Gains) -> Result<Vec<f64>, AssembleError> {
        let outcome = candidate(&self.models[model], &gains.scheme(), |_| {})?.outcome;
        if model == 0 {
            (self.done)();
        }
        let excess = |(place, demand): (usize, &Demand)| match &outcome {
            _ if dropped == Some(place) => f64::NEG_INFINITY,
            Ok(summary) => demand.excess(summary) + SLACK,
            // Where nothing can be followed any more every demand is far off.
            Err(_) => 1e3,
        };
        let excesses = self.demands.iter().enumerate().map(excess).collect();
        match outcome {
            Ok(_) | Err(SchemeError::Predict(_)) => Ok(excesses),
            Err(error) => Err(error.into()),
        }
    }
}

/// How a shift goes to where a model tells what a slower one does.
#[derive(Clone, Copy, Debug, Default)]
struct Secant {
    /// What was lacking before the last step, and the step.
    last: Option<(f64, f64)>,
}

impl Secant {
    /// The next step, of what is `lacking`: all of it, or less where the last one went too far.
    fn step(&mut self, lacking: f64) -> f64 {
        const SHORTEST: f64 = 0.1;
        let part = self.last.map_or(1.0, |(before, step)| (step / (before - lacking)).clamp(SHORTEST, 1.0));
        let step = if part.is_nan() { lacking } else { part * lacking };
        self.last = Some((lacking, step));
        step
    }
}

fn moved(excesses: &[f64], shift: &[f64]) -> Vec<f64> {
    excesses.iter().zip(shift).map(|(excess, shift)| excess + shift).collect()
}

/// Whether a model tells of a demand what a slower one does: how far it is exceeded, or that it does not count.
fn agree(model: usize, told: f64, found: f64) -> bool {
    /// What may be found beyond.
    const BEYOND: f64 = 0.003;
    /// How much less, in the network itself and in what is between.
    const LESS: [f64; 2] = [0.01, 0.03];
    /// Further within than any search would come to a stop.
    const WITHIN: f64 = -0.03;
    (told < WITHIN && found < 0.0) || (told - LESS[model.min(1)] < found && found < told + BEYOND)
}
