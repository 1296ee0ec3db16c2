//! Bounds on deviations in units of a standard error that is itself an estimate.
//!
//! # Formula
//!
//! The jackknife of R replicates has R − 1 degrees of freedom, so that z = (observed − predicted)/std_error has
//! Student's t law with as many. The bound b that replaces k normal standard errors leaves the same probability outside
//! as k does for a normal law:
//!
//! ```text
//! P(|t| > b; R − 1) = P(|x| > k), x ~ N(0, 1)
//! ```
//!
//! where k = 2 gives b = 13.97 at R = 2, 2.65 at R = 6, 2.18 at R = 16 and 2.01 at R = 256.

use std::collections::HashMap;

use statrs::distribution::{ContinuousCDF, Normal, StudentsT};

use super::Comparison;

/// The bounds on |z| that replace `k` standard errors of a normal distribution, by number of replicates.
pub(crate) struct Bounds {
    k: f64,
    by_replicates: HashMap<usize, f64>,
}

impl Bounds {
    /// Creates bounds on |z| that leave the same probability outside as `k` standard errors of a normal distribution.
    pub(crate) fn new(k: f64) -> Self {
        Self { k, by_replicates: HashMap::new() }
    }

    /// The bound for a number of replicates; `k` itself if their number is unknown.
    pub(crate) fn of(&mut self, replicates: Option<usize>) -> f64 {
        let k = self.k;
        replicates.map_or(k, |count| *self.by_replicates.entry(count).or_insert_with(|| bound(k, count)))
    }

    /// Returns true if |z| of a comparison is below the bound for its number of replicates; `None` if it has no
    /// z-score.
    pub(crate) fn hold(&mut self, row: &Comparison) -> Option<bool> {
        let z = row.z?;
        Some(z.abs() < self.of(row.replicates))
    }
}

/// The bound for a number of replicates; infinite for a single replicate.
fn bound(k: f64, replicates: usize) -> f64 {
    let below = Normal::standard().cdf(-k);
    StudentsT::new(0.0, 1.0, replicates as f64 - 1.0).map_or(f64::INFINITY, |student| -student.inverse_cdf(below))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Roots of mpmath 1.3 for `betainc(n/2, 1/2, 0, n/(n + b*b)) = erfc(k/sqrt(2))`, n = replicates − 1, at 25 digits.
    #[test]
    fn bounds_are_quantiles_of_student() {
        for (k, replicates, expected) in [
            (2.0, 2, 13.967_730_2),
            (2.0, 6, 2.648_649_431),
            (2.0, 16, 2.181_162_635),
            (2.0, 256, 2.009_851_192),
            (5.0, 16, 8.267_096_14),
            (5.0, 400, 5.082_620_057),
            (5.0, 2, 1_110_441.796),
        ] {
            approx::assert_relative_eq!(bound(k, replicates), expected, max_relative = 1e-6);
        }
        assert!(bound(2.0, 1).is_infinite());
    }
}
