//! Cosines of an activation at one scale, as a table in the cosine of its arguments.

use super::profile::Profile;
use crate::interpolation::lagrange_weights;

/// Intervals between c = −1 and 1.
const INTERVALS: usize = 256;

/// E φ(u)φ(v)/E φ² and E φ'(u)φ'(v)/E φ'² at equidistant cosines, interpolated by cubics: the first by values
/// and slopes, for d/dc E φφ = σ² E φ'φ'; the second by four values. Error below 1e-6 for all activations
/// without closed form.
pub(super) struct Table {
    nodes: Vec<(f64, f64)>,
    /// d(first)/dc over the second.
    slope: f64,
}

impl Table {
    pub(super) fn new(profile: &Profile) -> Self {
        let cosine = |i: usize| (2.0 * i as f64 / INTERVALS as f64 - 1.0).clamp(-1.0, 1.0);
        Self { nodes: (0..=INTERVALS).map(|i| profile.cosines(cosine(i))).collect(), slope: profile.slope() }
    }

    /// The interval of a cosine, and its place in units of intervals.
    fn interval(cosine: f64) -> (usize, f64) {
        let place = (cosine.clamp(-1.0, 1.0) + 1.0) * (0.5 * INTERVALS as f64);
        ((place as usize).min(INTERVALS - 1), place)
    }

    pub(super) fn value(&self, cosine: f64) -> f64 {
        let (below, place) = Self::interval(cosine);
        let t = place - below as f64;
        let (lower, upper) = (self.nodes[below], self.nodes[below + 1]);
        let step = 2.0 / INTERVALS as f64 * self.slope;
        let (square, cube) = (t * t, t * t * t);
        lower.0 * (2.0 * cube - 3.0 * square + 1.0)
            + step * lower.1 * (cube - 2.0 * square + t)
            + upper.0 * (3.0 * square - 2.0 * cube)
            + step * upper.1 * (cube - square)
    }

    pub(super) fn derivative(&self, cosine: f64) -> f64 {
        let (below, place) = Self::interval(cosine);
        let first = below.clamp(1, INTERVALS - 2) - 1;
        let weights: [f64; 4] = lagrange_weights(place - first as f64);
        self.nodes[first..].iter().zip(weights).map(|(node, weight)| weight * node.1).sum()
    }
}

#[cfg(test)]
mod tests {
    use sigprop_stack::Activation;

    use super::*;

    #[test]
    fn tables_agree_with_what_they_tabulate() {
        for activation in [Activation::Silu, Activation::GeluTanh, Activation::Tanh, Activation::Elu] {
            for q in [0.04f64, 1.0, 6.0] {
                let profile = Profile::new(activation, q.ln());
                let table = Table::new(&profile);
                for c in [-0.9, -0.103, 0.017, 0.4499, 0.83, 0.97] {
                    let (value, derivative) = profile.cosines(c);
                    approx::assert_relative_eq!(value, table.value(c), epsilon = 1e-7);
                    approx::assert_relative_eq!(derivative, table.derivative(c), epsilon = 1e-5);
                }
            }
        }
    }
}
