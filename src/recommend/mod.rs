//! Recommends an initialisation: the nearest to LeCun's that meets demands on the actual network.
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
//! so that weights keep their size where no demand asks for another one, and branches contribute as much as they may.
//! The minimum is found by sequential least squares with a quadratic penalty, without randomness. If demands cannot
//! hold together, the result is the network that violates them least, in Σ ln², and the demands that it violates.
//!
//! # Models
//!
//! A prediction at finite width takes seconds where every pair of positions is followed. In the mean-field theory it
//! takes milliseconds per block, and less where tokens attend to all others. The fastest network is searched. Its
//! excesses over the demands, one for each weight matrix, are corrected by differences from the next slower model.
//! These differences are linear in the gains: their values are exact at the last gains found, their slopes follow
//! Broyden's method (space mapping). Gains are found where both models agree; then the next slower model is predicted,
//! up to the network in the theory asked for, which decides. A model that does not agree after some rounds is searched
//! itself. Where the mean-field theory does not follow the network, a network with few tokens takes its place.
//!
//! # Source
//!
//! Space mapping: Bandler et al. 2004 (10.1109/TMTT.2003.820904); Broyden 1965 (10.1090/S0025-5718-1965-0198670-6); the
//! demands and the distance are ours.

mod demands;
mod nearest;
mod search;
mod sketch;
mod solver;

use sigprop_stack::{Stack, WeightRow};

use crate::assemble::{AssembleError, Assembled};
use crate::compare::{Setting, Summary};
use crate::predict::predict;
use crate::schemes::Scheme;
pub use demands::{Demand, Demands, Outcome};
pub use nearest::Nearest;
use search::Gains;
use sketch::Models;
use solver::Solver;

/// A scheme that meets the demands, or comes closest.
#[derive(Clone, Debug)]
pub struct Recommendation {
    /// The scheme with its arguments.
    pub scheme: Scheme,
    /// The summary of the network under this scheme.
    pub summary: Summary,
    /// Every demand with the value that is reached.
    pub outcomes: Vec<Outcome>,
    /// The named scheme whose weights and scales are nearest; `None` if no other scheme is defined for the network.
    pub nearest: Option<Nearest>,
    /// For each demand whose limit is reached: the demand, and the scheme that is recommended if this demand is
    /// dropped.
    pub without: Vec<(Demand, Scheme)>,
    /// The network under this scheme.
    pub stack: Stack,
    /// The predicted rows of the weight tensors of this network.
    pub weights: Vec<WeightRow>,
}

impl Recommendation {
    /// Returns true if all demands are met.
    pub fn is_feasible(&self) -> bool {
        self.outcomes.iter().all(Outcome::is_met)
    }
}

/// Computes the recommendation for a network. `done` is called after every prediction of the whole network.
///
/// ```
/// use sigprop::{architecture::Architecture, compare::Setting, recommend, recommend::Demands};
///
/// let setting = Setting::from(Architecture { n_layers: 12, d_model: 256, ..Architecture::default() });
/// let recommendation = recommend(&setting, &Demands { max_correlation: Some(0.5), ..Demands::default() }, &|| {})?;
/// assert!(recommendation.is_feasible());
/// println!("--scheme {}", recommendation.scheme);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub fn recommend(
    setting: &Setting,
    demands: &Demands,
    done: &(dyn Fn() + Sync),
) -> Result<Recommendation, AssembleError> {
    let demanded = demands.all();
    let models = Models::new(setting, &Gains::start(setting.architecture().n_layers).scheme())?;
    let mut solver = Solver::new(&models, &demanded, done);
    let gains = solver.solve(None, None)?;
    let scheme = gains.rounded();
    let Assembled { stack, .. } = setting.assemble(&scheme)?;
    let prediction = predict(&stack, setting.options)?;
    let summary = Summary::of(&stack, &prediction);
    done();
    let outcomes: Vec<Outcome> = demanded.iter().map(|demand| demand.outcome(&summary)).collect();
    let binding = outcomes.iter().map(Outcome::is_binding).enumerate().filter(|(_, binding)| *binding);
    let without = binding.map(|(place, _)| Ok((demanded[place], solver.solve(Some(place), Some(&gains))?.rounded())));
    let without = without.collect::<Result<_, AssembleError>>()?;
    let nearest = nearest::nearest(setting, &stack)?;
    let weights = prediction.table.weights;
    Ok(Recommendation { scheme, summary, outcomes, nearest, without, stack, weights })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::architecture::Architecture;
    use crate::assemble::{Input, Run, assemble, with_roles};

    /// A stack with roles gets the gains of the architecture from which it was assembled, and these meet the demands.
    #[test]
    fn a_stack_gets_gains_by_its_roles() {
        let shape = Architecture { n_layers: 3, d_model: 64, seq_len: 8, vocab_size: 50, ..Architecture::default() };
        let architecture = Architecture { causal: true, ..shape };
        let scheme = Scheme::parse("uniform:0.3").expect("a scheme");
        let assembled = assemble(&architecture, &scheme, &Input::default(), &Run::default()).expect("a network");
        let demands = Demands { max_correlation: Some(0.5), ..Demands::default() };
        let [expected, found] = [Setting::from(architecture), Setting::from(with_roles(assembled.stack))]
            .map(|setting| recommend(&setting, &demands, &|| {}).expect("a network"));
        assert!(found.is_feasible() && found.outcomes.iter().any(Outcome::is_binding), "{:?}", found.outcomes);
        assert_eq!((found.scheme.to_string(), found.outcomes), (expected.scheme.to_string(), expected.outcomes));
        let name = |nearest: Option<Nearest>| nearest.map(|nearest| nearest.scheme.to_string());
        assert_eq!(name(found.nearest), name(expected.nearest));
    }
}
