//! A comparison of the tails of a tensor with a distribution: large entries must be as rare as in the distribution.
//!
//! # Formula
//!
//! The kurtosis k of n independent samples with standardised moments μ₄, μ₆, μ₈ has the variance
//!
//! ```text
//! n Var k = μ₈ − μ₄² − 4 μ₄ (μ₆ − μ₄) + 4 μ₄² (μ₄ − 1)        (normal: 24)
//! ```
//!
//! and the largest of n normal entries is above m standard deviations with a probability of at most n erfc(m/√2).
//!
//! # Source
//!
//! Delta method (Kendall, Stuart 1977, §10.6), for symmetric distributions.

use super::spread::Spread;
use sigprop_stack::Init;

/// The number of standard errors above which a kurtosis is not due to chance; large because the distribution of a
/// kurtosis is skewed.
const BEYOND: f64 = 7.0;
/// The least number of entries for which the kurtosis is judged.
const FEWEST: u64 = 4096;
/// Relative differences of the kurtosis below this are not reported.
const VISIBLE: f64 = 0.05;
/// The probability below which the largest entry is too large to be due to chance.
const IMPROBABLE: f64 = 1e-7;
/// The relative tolerance of the largest entry; rounding to bf16 changes less.
const ROUNDING: f64 = 0.01;

/// The kurtosis and the largest entry of a tensor, compared with a distribution.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Tails {
    /// The measured kurtosis.
    pub kurtosis: f64,
    /// The kurtosis of the distribution.
    pub expected: f64,
    /// The largest distance of an entry from the mean, in measured standard deviations.
    pub reach: f64,
    /// True if the kurtosis and the largest entry agree with the distribution, given the number of entries.
    pub allowed: bool,
}

impl Tails {
    /// Compares entries with their distribution; `None` for constants.
    pub fn of(spread: &Spread, init: Init) -> Option<Self> {
        let [fourth, sixth, eighth] = init.standardised_moments()?;
        let (kurtosis, std) = (spread.kurtosis()?, spread.std()?);
        let n = spread.count as f64;
        let reach = spread.reach(spread.mean)? / std;
        let variance =
            eighth - fourth * fourth - 4.0 * fourth * (sixth - fourth) + 4.0 * fourth * fourth * (fourth - 1.0);
        let z = (kurtosis - fourth) / (variance / n).sqrt();
        let is_kurtosis_off = spread.count >= FEWEST && z.abs() > BEYOND && (kurtosis / fourth - 1.0).abs() > VISIBLE;
        // The measured standard deviation has an error, too.
        let largest = reach / (1.0 + ROUNDING + BEYOND * ((fourth - 1.0) / (4.0 * n)).sqrt());
        let is_out_of_reach = match init.bound() {
            Some(bound) => largest > bound,
            None => n * libm::erfc(largest / std::f64::consts::SQRT_2) < IMPROBABLE,
        };
        Some(Self { kurtosis, expected: fourth, reach, allowed: !(is_kurtosis_off || is_out_of_reach) })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rand::{RngExt, SeedableRng, rngs::Xoshiro256PlusPlus};
    use rand_distr::StandardNormal;

    const NORMAL: Init = Init::Normal { std: 0.02 };

    fn drawn(n: usize) -> Vec<f32> {
        let mut random = Xoshiro256PlusPlus::seed_from_u64(3);
        (0..n).map(|_| random.sample::<f32, _>(StandardNormal)).collect()
    }

    fn allowed(entries: &[f32], init: Init) -> bool {
        Tails::of(&Spread::of(entries), init).expect("no constant").allowed
    }

    /// Entries may have any size: only their shape is judged.
    #[test]
    fn normal_draws_are_allowed_and_uniform_ones_are_another_distribution() {
        for n in [16, 1000, 100_000] {
            assert!(allowed(&drawn(n), NORMAL));
        }
        let uniform: Vec<f32> = (0..10_000).map(|index| index as f32 / 10_000.0).collect();
        assert!(!allowed(&uniform, NORMAL));
        assert!(allowed(&uniform, Init::Uniform { bound: 1.0 }));
        assert!(!allowed(&drawn(10_000), Init::Uniform { bound: 1.0 }));
        assert!(!allowed(&drawn(10_000), Init::TruncatedNormal { std: 1.0, cutoff: 2.0 }));
    }

    /// The largest of 10⁵ normal entries is above 6.8 with a probability of 10⁻⁶, and above 7.5 with a probability of
    /// 6·10⁻⁹.
    #[test]
    fn one_large_entry_is_seen() {
        let with = |entry: f32| [drawn(100_000), vec![entry]].concat();
        assert!(allowed(&with(-6.8), NORMAL));
        assert!(!allowed(&with(-7.8), NORMAL));
        assert_eq!(Tails::of(&Spread::of(&[0.3; 5]), NORMAL), None);
    }
}
