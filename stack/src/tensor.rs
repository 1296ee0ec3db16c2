//! Weight tensors: a name and a distribution.

use serde::{Deserialize, Serialize};

/// A weight tensor. Equal names denote one tensor.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Tensor {
    /// Name of the tensor, which identifies it.
    pub name: String,
    /// Distribution of one entry.
    pub init: Init,
}

/// Distribution of one weight.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Init {
    /// Exactly zero.
    Zero,
    /// N(0, std²).
    Normal {
        /// Standard deviation.
        std: f64,
    },
    /// Uniform on [−bound, bound].
    Uniform {
        /// Half the width of the interval.
        bound: f64,
    },
    /// N(0, std²) conditioned on |w| ≤ cutoff · std.
    TruncatedNormal {
        /// Standard deviation before truncation.
        std: f64,
        /// Largest magnitude of an entry, in units of `std`.
        cutoff: f64,
    },
    /// A multiple of a random matrix with orthonormal rows or columns, whichever are fewer, from Haar's measure
    /// (PyTorch's `nn.init.orthogonal_`). All other distributions have independent entries. Only weights of linear maps
    /// may be orthogonal.
    Orthogonal {
        /// Standard deviation of an entry: gain/√max(rows, columns).
        std: f64,
    },
}

impl Init {
    /// [`Init::Zero`], for fields that old files do not have.
    pub(crate) fn zero() -> Self {
        Self::Zero
    }

    /// Returns true if every entry is zero.
    pub fn is_zero(&self) -> bool {
        self.variance() <= 0.0
    }

    /// Variance of one entry, truncation included.
    pub fn variance(&self) -> f64 {
        match *self {
            Self::Zero => 0.0,
            Self::Normal { std } | Self::Orthogonal { std } => std * std,
            Self::Uniform { bound } => bound * bound / 3.0,
            Self::TruncatedNormal { std, cutoff } => std * std * truncated_moments(cutoff)[0],
        }
    }

    /// E w⁴ over the square of the variance: 3 for a normal distribution; `None` for zeros. An entry of an orthogonal
    /// weight has 3 N/(N + 2), where N is the larger of its numbers of rows and columns; for it this is 3 too, because
    /// its at most N² entries have a sampling error of at least √24/N.
    pub fn kurtosis(&self) -> Option<f64> {
        self.standardised_moments().map(|[fourth, ..]| fourth)
    }

    /// E w⁴/σ⁴, E w⁶/σ⁶ and E w⁸/σ⁸; `None` for zeros.
    pub fn standardised_moments(&self) -> Option<[f64; 3]> {
        match *self {
            Self::Zero => None,
            Self::Normal { .. } | Self::Orthogonal { .. } => Some([3.0, 15.0, 105.0]),
            Self::Uniform { .. } => Some([9.0 / 5.0, 27.0 / 7.0, 9.0]),
            Self::TruncatedNormal { cutoff, .. } => {
                let [square, fourth, sixth, eighth] = truncated_moments(cutoff);
                Some([fourth / square.powi(2), sixth / square.powi(3), eighth / square.powi(4)])
            }
        }
    }

    /// The largest possible entry, in standard deviations; `None` for zeros and for distributions without a bound that
    /// samples come near to.
    pub fn bound(&self) -> Option<f64> {
        match *self {
            Self::Zero | Self::Normal { .. } | Self::Orthogonal { .. } => None,
            Self::Uniform { .. } => Some(3f64.sqrt()),
            Self::TruncatedNormal { cutoff, .. } => Some(cutoff / truncated_moments(cutoff)[0].sqrt()),
        }
    }

    /// Standard deviation of one entry, truncation included.
    pub fn std(&self) -> f64 {
        self.variance().sqrt()
    }

    /// Returns the distribution with all values multiplied by `factor` ≥ 0.
    #[must_use]
    pub fn scaled(&self, factor: f64) -> Self {
        match *self {
            Self::Zero => Self::Zero,
            Self::Normal { std } => Self::Normal { std: std * factor },
            Self::Uniform { bound } => Self::Uniform { bound: bound * factor },
            Self::TruncatedNormal { std, cutoff } => Self::TruncatedNormal { std: std * factor, cutoff },
            Self::Orthogonal { std } => Self::Orthogonal { std: std * factor },
        }
    }
}

/// E z², E z⁴, E z⁶ and E z⁸ of N(0, 1) conditioned on |z| ≤ c, the `cutoff`: E z^2k = (2k − 1)!! S_k/S_0, from the
/// series of ∫_0^c e^{−z²/2} dz = e^{−c²/2} S_0 by parts: S_k = Σ_{n ≥ k} c^{2n+1}/(2n + 1)!!, no term of which is
/// negative.
fn truncated_moments(cutoff: f64) -> [f64; 4] {
    // Beyond 12 σ a cut has no effect.
    let cutoff = cutoff.min(12.0);
    let mut sums = [0.0; 5];
    let (mut n, mut term) = (0, cutoff);
    // The last sum has the fewest terms.
    while n < sums.len() || term > 1e-17 * sums[sums.len() - 1] {
        sums.iter_mut().take(n + 1).for_each(|sum| *sum += term);
        n += 1;
        term *= cutoff * cutoff / (2 * n + 1) as f64;
    }
    [1, 2, 3, 4].map(|k| [1.0, 3.0, 15.0, 105.0][k - 1] * sums[k] / sums[0])
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Standard deviations of the truncated standard normal, recomputed in f64 from
    /// 1 − 2cφ(c)/(2Φ(c) − 1) with Python's math.erf.
    #[test]
    fn truncated_std_matches_the_closed_form() {
        for (cutoff, expected) in [(1.0, 0.539_560_093_8), (2.0, 0.879_625_661_0), (3.0, 0.986_578_392_6)] {
            let std = Init::TruncatedNormal { std: 1.0, cutoff }.std();
            assert!((std - expected).abs() < 1e-10, "cut {cutoff}: expected {expected}, got {std}");
        }
    }

    /// At 2 σ the kurtosis is (3 − (c³ + 3c)·2φ(c)/(2Φ(c) − 1))/variance², recomputed with Python's math.erf. Without a
    /// cut it is 3, and for a cut near zero it is that of a uniform distribution.
    #[test]
    fn truncated_kurtosis_matches_the_closed_form() {
        for (cutoff, expected) in [(2.0, 2.365_537), (40.0, 3.0), (1e-3, 1.8)] {
            let got = Init::TruncatedNormal { std: 0.3, cutoff }.kurtosis().expect("it is not zero");
            assert!((got - expected).abs() < 1e-6, "cut {cutoff}: expected {expected}, got {got}");
        }
    }

    /// For a narrow cut E w⁶ and E w⁸ agree with a uniform distribution, for a wide one with a normal distribution.
    #[test]
    fn truncated_moments_lie_between_uniform_and_normal() {
        let moments = |init: Init| init.standardised_moments().expect("it is not zero");
        let truncated = |cutoff| moments(Init::TruncatedNormal { std: 0.3, cutoff });
        let (uniform, normal) = (moments(Init::Uniform { bound: 0.1 }), moments(Init::Normal { std: 2.0 }));
        for index in 0..3 {
            assert!((truncated(1e-3)[index] / uniform[index] - 1.0).abs() < 1e-5);
            assert!((truncated(40.0)[index] / normal[index] - 1.0).abs() < 1e-5);
        }
    }

    #[test]
    fn scaling_multiplies_the_std() {
        for init in [
            Init::Normal { std: 0.3 },
            Init::Uniform { bound: 0.3 },
            Init::TruncatedNormal { std: 0.3, cutoff: 2.0 },
            Init::Orthogonal { std: 0.3 },
            Init::Zero,
        ] {
            assert!((init.scaled(2.5).std() - 2.5 * init.std()).abs() < 1e-15);
        }
    }
}
