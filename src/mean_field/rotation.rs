//! Rotations of features by position · frequency: the factor κ(d) on the product of two tokens at the distance d.
//!
//! ```text
//! κ(d) = 1 + 2/d_head Σ_i (cos (θ_i d) − 1)
//! ```
//!
//! where κ is the factor of rotary positions on products of two tokens; d is the distance of two tokens; d_head is the
//! number of features of a head; θ_i is the angle of rotation per position of pair i of features.
//!
//! Source: Su et al. 2021.

use std::sync::Arc;

use sigprop_stack::Rotary;

use super::positions::{Averages, Chart};

/// κ, the factor of a rotation on products of two tokens, for the distances of a chart.
#[derive(Debug)]
pub(crate) struct Turn {
    /// Averages of κ over distances, up to twice the length of the sequence.
    pub(super) of_distance: Averages,
    /// κ at the lower points, averaged over the distances that a point represents.
    at_points: Vec<f64>,
}

impl Turn {
    pub(crate) fn new(rotary: &Rotary, chart: &Chart) -> Self {
        let part = 2.0 / rotary.d_head as f64;
        let still = 1.0 - part * rotary.frequencies.len() as f64;
        let of_distance =
            Averages::new(waves(&rotary.frequencies, 2 * chart.length).map(|[sum, _]| still + part * sum));
        Self { at_points: chart.averaged(&of_distance), of_distance }
    }
}

/// Returns Σ_i cos (θ_i d) and Σ_i sin (θ_i d) for d = 0, 1, … below `length`.
pub(super) fn waves(frequencies: &[f64], length: usize) -> impl Iterator<Item = [f64; 2]> {
    let steps: Vec<[f64; 2]> = frequencies.iter().map(|frequency| [frequency.cos(), frequency.sin()]).collect();
    let mut at = vec![[1.0, 0.0]; frequencies.len()];
    (0..length).map(move |_| {
        let mut sums = [0.0; 2];
        for (at, [cos, sin]) in at.iter_mut().zip(&steps) {
            sums = [sums[0] + at[0], sums[1] + at[1]];
            *at = [at[0] * cos - at[1] * sin, at[0] * sin + at[1] * cos];
        }
        sums
    })
}

/// The rotation of features: a list of rules, each with the share of the features that it rotates. The other features
/// are not rotated.
#[derive(Clone, Debug)]
pub(crate) struct Rotation(Vec<(f64, Arc<Turn>)>);

impl Rotation {
    /// Returns the rotation of all features by one rule.
    pub(super) fn by(turn: &Arc<Turn>) -> Self {
        Self(vec![(1.0, Arc::clone(turn))])
    }

    /// Returns the rotation of a signal from the share and the rotation of each part; `None` if no part is rotated.
    pub(crate) fn mixed<'p>(parts: impl Iterator<Item = (f64, Option<&'p Self>)> + Clone) -> Option<Self> {
        let total: f64 = parts.clone().map(|(share, _)| share).sum();
        let of_part = |(share, rotation): (f64, Option<&'p Self>)| {
            let rules = rotation.into_iter().flat_map(|Self(rules)| rules);
            rules.map(move |(own, rule)| (own * share / total, Arc::clone(rule)))
        };
        let rules: Vec<_> = parts.flat_map(of_part).collect();
        (!rules.is_empty()).then_some(Self(rules))
    }

    /// Returns the rules with their shares.
    pub(crate) fn rules(&self) -> impl Iterator<Item = &(f64, Arc<Turn>)> {
        self.0.iter()
    }

    /// Returns the share of the features that is not rotated.
    pub(super) fn still(&self) -> f64 {
        1.0 - self.0.iter().map(|(share, _)| share).sum::<f64>()
    }

    /// Returns κ at a point of any class, averaged over all features.
    pub(super) fn at(&self, point: usize) -> f64 {
        let of_rule = |(share, rule): &(f64, Arc<Turn>)| share * rule.at_points[point % rule.at_points.len()];
        self.still() + self.0.iter().map(of_rule).sum::<f64>()
    }
}
