//! Depth scales: the numbers of blocks over which quantities change.
//!
//! # Formula
//!
//! ```text
//! forward, backward   1/(d ln variance/d block), averaged over the deeper half of the blocks
//! correlation         ρ_l − ρ* ∝ e^(−l/ξ):  ξ = h/ln((ρ_middle − ρ_start)/(ρ_end − ρ_middle))
//! ```
//!
//! where variance is the variance of the stream (forward) or of its gradient (backward); block is the number of blocks
//! in the direction of travel; ρ_l is the token correlation after block l; ρ* is the limit of the correlation at great
//! depth; ξ is the depth scale of the correlation; end is the block where the correlation has arrived, up to a share
//! [`ARRIVED`] of its way, or the last block; h is the step end/4; start, middle are the blocks end − 2h and end − h.
//!
//! A correlation that approaches its limit by a power of the depth, as on the edge of chaos, gives about end/4.
//!
//! # Source
//!
//! Schoenholz et al. 2017 (arXiv 1611.01232), equations 9 to 12: the depth scales ξ_c of correlations, which diverges
//! on the edge of chaos, and ξ_∇ of gradients; a network can be trained if it is not much deeper than these.

use serde::{Deserialize, Serialize};
use sigprop_stack::{Quantity, SiteRow};

use crate::verdict::{Profile, rate};

/// The remaining share of the total change of the correlation at which it counts as having arrived at its limit.
const ARRIVED: f64 = 1e-6;

/// Changes of a correlation below this count as rounding errors.
const STILL: f64 = 1e-9;

/// Rates of ln variance per block below this count as rounding errors.
const FLAT: f64 = 1e-9;

/// The numbers of blocks over which quantities change by a factor of e; `None` if the quantity does not change.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct DepthScales {
    /// The depth scale of the variance of the stream; negative if the variance falls.
    pub forward: Option<f64>,
    /// The depth scale of the variance of the gradient on its way back; negative if the variance falls.
    pub backward: Option<f64>,
    /// The depth scale of the distance of the token correlation from its limit; `None` also if the correlation does not
    /// settle.
    pub correlation: Option<f64>,
}

impl DepthScales {
    /// The depth scales of a stream, given by its sites from the input to the last block.
    pub(super) fn of(stream: &[SiteRow]) -> Self {
        let profile = Profile { stream: None, rows: stream.iter().collect() };
        let scale = |quantity| rate(&profile, quantity).filter(|rate| rate.abs() > FLAT).map(f64::recip);
        let correlation = |row: &SiteRow| row.value(Quantity::TokenCorrelation).map(|value| value.value());
        let correlations: Option<Vec<f64>> = stream.iter().map(correlation).collect();
        Self {
            forward: scale(Quantity::Variance),
            backward: scale(Quantity::GradVariance),
            correlation: correlations.and_then(|correlations| settling(&correlations)),
        }
    }
}

/// The depth scale ξ of the correlation, given its values block by block; `None` if it does not settle.
fn settling(correlations: &[f64]) -> Option<f64> {
    let (first, last) = (correlations.first()?, correlations.last()?);
    let way = correlations.iter().map(|r| (r - last).abs()).fold((last - first).abs(), f64::max);
    if way < STILL {
        return None;
    }
    // The first block from which all correlations are close to the last.
    let arrived = correlations.iter().rposition(|r| (r - last).abs() > ARRIVED * way)? + 1;
    let end = arrived.max(2);
    let step = (end / 4).max(1);
    let [start, middle, end] = [end - 2 * step, end - step, end].map(|block| correlations.get(block));
    let (before, after) = ((middle? - start?).abs(), (end? - middle?).abs());
    (after < before).then(|| step as f64 / (before / after).ln())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn way(of: impl Fn(f64) -> f64) -> Vec<f64> {
        (0..=100).map(|block| of(f64::from(block))).collect()
    }

    /// The depth scale of an exponential does not depend on its limit, or on how soon the limit is reached.
    #[test]
    fn exponential_correlations_have_their_depth_scale() {
        for (end, scale) in [(1.0, 7.0), (0.3, 7.0), (0.0, 0.5), (1.0, 30.0)] {
            let depth = settling(&way(|block| end + (0.2 - end) * (-block / scale).exp())).expect("it settles");
            approx::assert_relative_eq!(depth, scale, max_relative = 1e-3);
        }
    }

    /// The depth scale of 1 − A/l² from the blocks 50, 75 and 100: 25/ln((1/2500 − 1/5625)/(1/5625 − 1/10000)) = 23.82.
    #[test]
    fn a_power_law_settles_no_sooner_than_the_network_ends() {
        let depth = settling(&way(|block| 1.0 - 0.5 / (block * block).max(1.0))).expect("it settles");
        approx::assert_relative_eq!(depth, 23.82, max_relative = 1e-3);
    }

    #[test]
    fn what_stands_still_or_runs_away_has_none() {
        assert_eq!(settling(&way(|_| 0.4)), None);
        assert_eq!(settling(&way(|block| 1e-6 * (block / 10.0).exp())), None);
        assert_eq!(settling(&[0.2]), None);
        assert_eq!(settling(&[0.2, 0.3]), None);
        // The limit is reached at once.
        assert_eq!(settling(&[0.2, 1.0, 1.0]), Some(0.0));
    }
}
