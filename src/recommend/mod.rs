//! Which initialisation to use: the nearest to LeCun's that meets demands on the actual network.
//!
//! # Formula
//!
//! Over the gains of the scheme `gains` (queries and keys, values and outputs, feed-forward network, embeddings) and
//! the ratio of branch to skip,
//!
//! ```text
//! minimise  Σ ln² gain + ¼ ln² ratio    where every demand holds
//! ```
//!
//! so that weights stay as they are where nothing asks for another size, and branches count as much as they may. By
//! Nelder and Mead's simplex with a quadratic penalty that grows; no randomness. Demands that cannot hold together
//! leave the network that violates them least, in Σ ln², and the demands that gave way.
//!
//! # Source
//!
//! Nelder & Mead 1965; the demands and the distance are ours.

mod demands;
mod nearest;
mod search;

use sigprop_stack::Stack;

use crate::assemble::{AssembleError, Assembled, assemble};
use crate::compare::{Setting, Summary, candidate};
use crate::schemes::{Scheme, SchemeError};
pub use demands::{Demand, Demands, Outcome};
pub use nearest::Nearest;
use search::{Gains, search};

/// Demands are searched for a little tighter than they are, as ln: the penalty leaves this much.
const SLACK: f64 = 0.005;

/// A scheme that meets the demands, or comes closest.
#[derive(Clone, Debug)]
pub struct Recommendation {
    /// It, with its arguments.
    pub scheme: Scheme,
    /// What it makes of the network.
    pub summary: Summary,
    /// Every demand with what is reached.
    pub outcomes: Vec<Outcome>,
    /// The named scheme whose weights and scales are nearest; none where no other is defined.
    pub nearest: Option<Nearest>,
    /// What each demand at its limit costs: the recommendation without it.
    pub without: Vec<(Demand, Scheme)>,
    /// The network with it.
    pub stack: Stack,
}

impl Recommendation {
    /// Whether all demands are met.
    pub fn is_feasible(&self) -> bool {
        self.outcomes.iter().all(Outcome::is_met)
    }
}

/// The recommendation for a network.
///
/// ```
/// use sigprop::{architecture::Architecture, compare::Setting, recommend, recommend::Demands};
///
/// let setting = Setting::from(Architecture { n_layers: 12, d_model: 256, ..Architecture::default() });
/// let recommendation = recommend(&setting, &Demands { max_correlation: Some(0.5), ..Demands::default() })?;
/// assert!(recommendation.is_feasible());
/// println!("--scheme {}", recommendation.scheme);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub fn recommend(setting: &Setting, demands: &Demands) -> Result<Recommendation, AssembleError> {
    let demanded = demands.all();
    let gains = solve(setting, &demanded, None)?;
    let scheme = gains.rounded();
    let summary = candidate(setting, &scheme, |_| {})?.outcome?;
    let outcomes: Vec<Outcome> = demanded.iter().map(|demand| demand.outcome(&summary)).collect();
    let binding = outcomes.iter().filter(|outcome| outcome.is_binding());
    let without = binding.map(|outcome| {
        let others: Vec<Demand> = demanded.iter().filter(|demand| **demand != outcome.demand).copied().collect();
        Ok((outcome.demand, solve(setting, &others, Some(&gains))?.rounded()))
    });
    let without = without.collect::<Result<_, AssembleError>>()?;
    let Assembled { stack, .. } = assemble(&setting.architecture, &scheme, &setting.input, &setting.run)?;
    let nearest = nearest::nearest(setting, &stack)?;
    Ok(Recommendation { scheme, summary, outcomes, nearest, without, stack })
}

fn solve(setting: &Setting, demands: &[Demand], nearby: Option<&Gains>) -> Result<Gains, AssembleError> {
    search(setting.architecture.n_layers, nearby, |gains| match candidate(setting, &gains.scheme(), |_| {})?.outcome {
        Ok(summary) => Ok(demands.iter().map(|demand| (demand.excess(&summary) + SLACK).max(0.0)).collect()),
        // Where nothing can be followed any more every demand is far off.
        Err(SchemeError::Predict(_)) => Ok(vec![1e3]),
        Err(error) => Err(error.into()),
    })
}
