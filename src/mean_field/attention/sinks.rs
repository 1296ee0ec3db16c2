//! A few sinks that represent the sinks of all heads, whose logits ς are independent Gaussian numbers.
//!
//! Averages over heads of functions of ς are computed by the five-point Gauss rule. A narrow distribution is represented
//! by its mean weight ω = E e^ς.

/// The variance of ς up to which one sink represents all heads: the relative error of an average of 1/(n + ω) is below
/// a quarter of it.
const NARROW: f64 = 0.01;
/// The nodes of the five-point Gauss rule for N(0, 1), with their weights.
const NODES: [(f64, f64); 5] = [
    (-2.856_970_013_872_806, 0.011_257_411_327_720_69),
    (-1.355_626_179_974_266, 0.222_075_922_005_612_64),
    (0.0, 0.533_333_333_333_333_3),
    (1.355_626_179_974_266, 0.222_075_922_005_612_64),
    (2.856_970_013_872_806, 0.011_257_411_327_720_69),
];

/// Returns the weights ω = e^ς of a few sinks that represent all heads, each as a pair (share of the heads, ω), where
/// ς has mean zero and this variance.
pub(crate) fn few(variance: f64) -> Vec<(f64, f64)> {
    if variance <= NARROW {
        return vec![(1.0, (0.5 * variance).exp())];
    }
    NODES.iter().map(|(node, share)| (*share, (node * variance.sqrt()).exp())).collect()
}

#[cfg(test)]
mod tests {
    use super::few;

    /// E ω = e^(variance/2) and E ω² = e^(2 variance).
    #[test]
    fn sinks_have_the_moments_of_their_distribution() {
        for (variance, tolerance) in [(0.0, 1e-12), (4e-4, 1e-3), (0.25, 1e-3), (0.49, 1e-2)] {
            let moment = |power: i32| few(variance).iter().map(|(share, omega)| share * omega.powi(power)).sum::<f64>();
            approx::assert_relative_eq!(moment(0), 1.0, max_relative = 1e-12);
            approx::assert_relative_eq!(moment(1), (0.5 * variance).exp(), max_relative = tolerance);
            approx::assert_relative_eq!(moment(2), (2.0 * variance).exp(), max_relative = 10.0 * tolerance);
        }
    }
}
