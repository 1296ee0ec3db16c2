//! The search over the gains.

use argmin::core::{CostFunction, Error, Executor};
use argmin::solver::neldermead::NelderMead;
use std::cell::RefCell;

use crate::schemes::Scheme;

/// Weight of ln² ratio beside that of the gains.
const RATIO_WEIGHT: f64 = 0.25;
/// Penalties on squared excesses, and edges of the simplex they are searched with.
const STAGES: [(f64, f64); 4] = [(1.0, 0.5), (1e2, 0.3), (1e4, 0.1), (1e4, 0.05)];
/// Stages that a solution of nearby demands needs no more.
const SKIPPED: usize = 1;
/// Steps of a stage.
const STEPS: u64 = 60;
/// A simplex whose costs scatter by less is done.
const TOLERANCE: f64 = 1e-7;

/// ln of qk, value, ffn, embedding and ratio.
#[derive(Clone, Debug)]
pub(super) struct Gains(Vec<f64>);

impl Gains {
    /// The scheme with these arguments.
    pub(super) fn scheme(&self) -> Scheme {
        self.scheme_with(|value| value)
    }

    /// The scheme with four significant digits of each.
    pub(super) fn rounded(&self) -> Scheme {
        self.scheme_with(|value| format!("{value:.3e}").parse().expect("a number"))
    }

    fn scheme_with(&self, digits: impl Fn(f64) -> f64) -> Scheme {
        let values: Vec<String> = self.0.iter().map(|ln| digits(ln.exp()).to_string()).collect();
        Scheme::parse(&format!("gains:{}", values.join(","))).expect("exponentials are positive and finite")
    }

    /// What is minimised where all demands hold.
    fn distance(&self) -> f64 {
        let (ratio, gains) = self.0.split_last().expect("five numbers");
        gains.iter().map(|ln| ln * ln).sum::<f64>() + RATIO_WEIGHT * ratio * ratio
    }
}

/// The distance with a penalty.
struct Penalised<'a, F, E> {
    penalty: f64,
    excess: &'a F,
    /// Why the search ended early.
    failed: &'a RefCell<Option<E>>,
}

impl<F: Fn(&Gains) -> Result<Vec<f64>, E>, E> CostFunction for Penalised<'_, F, E> {
    type Param = Vec<f64>;
    type Output = f64;

    fn cost(&self, lns: &Vec<f64>) -> Result<f64, Error> {
        /// Factors beyond are of no use.
        const FARTHEST: f64 = 30.0;
        let gains = Gains(lns.iter().map(|ln| ln.clamp(-FARTHEST, FARTHEST)).collect());
        match (self.excess)(&gains) {
            Ok(excess) => {
                let squares: f64 = excess.iter().map(|excess| excess * excess).sum();
                Ok(gains.distance() + self.penalty * squares)
            }
            Err(error) => {
                *self.failed.borrow_mut() = Some(error);
                Err(Error::msg("the network cannot be predicted"))
            }
        }
    }
}

/// The gains of smallest distance whose `excess` is nothing, or least; from those for other demands if there are any.
pub(super) fn search<E>(
    n_layers: usize,
    nearby: Option<&Gains>,
    excess: impl Fn(&Gains) -> Result<Vec<f64>, E>,
) -> Result<Gains, E> {
    let failed = RefCell::new(None);
    // Branches that add up to as much as the stream.
    let start = || vec![0.0, 0.0, 0.0, 0.0, -0.5 * (n_layers as f64).ln()];
    let mut best = nearby.map_or_else(start, |gains| gains.0.clone());
    for (penalty, edge) in STAGES.into_iter().skip(if nearby.is_some() { SKIPPED } else { 0 }) {
        let moved = |place: usize| {
            let mut corner = best.clone();
            corner[place] -= edge;
            corner
        };
        let simplex = [best.clone()].into_iter().chain((0..best.len()).map(moved)).collect();
        let solver = NelderMead::new(simplex).with_sd_tolerance(TOLERANCE).expect("a tolerance above zero");
        let problem = Penalised { penalty, excess: &excess, failed: &failed };
        let run = Executor::new(problem, solver).configure(|state| state.max_iters(STEPS)).run();
        if let Some(error) = failed.take() {
            return Err(error);
        }
        let found = run.expect("only the prediction can fail").state.best_param;
        best = found.expect("a simplex has a best corner");
    }
    Ok(Gains(best))
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;

    use super::*;

    /// ln qk ≤ −1 alone: its distance 1, the others 0. Two that exclude each other meet half-way.
    #[test]
    fn the_nearest_gains_are_found() {
        let Ok(gains) = search::<Infallible>(1, None, |gains| Ok(vec![(gains.0[0] + 1.0).max(0.0)]));
        for (found, expected) in gains.0.iter().zip([-1.0, 0.0, 0.0, 0.0, 0.0]) {
            assert!((found - expected).abs() < 0.02, "{:?}", gains.0);
        }
        let Ok(torn) =
            search::<Infallible>(1, None, |gains| Ok(vec![(gains.0[2] - 1.0).max(0.0), (3.0 - gains.0[2]).max(0.0)]));
        assert!((torn.0[2] - 2.0).abs() < 0.02, "{:?}", torn.0);
    }
}
