//! Whether large entries are as rare as a distribution has them.
//!
//! # Formula
//!
//! The kurtosis k of n independent draws with standardised moments μ₄, μ₆, μ₈ has the variance
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

/// Standard errors of the kurtosis, whose distribution is skewed, beyond which it is none of chance,
const BEYOND: f64 = 7.0;
/// for so many entries.
const FEWEST: u64 = 4096;
/// Kurtoses that differ by a smaller share are not worth knowing.
const VISIBLE: f64 = 0.05;
/// A largest entry with a smaller probability is none of chance.
const IMPROBABLE: f64 = 1e-7;
/// Rounding to bf16 moves bounds less.
const ROUNDING: f64 = 0.01;

/// Kurtosis and largest entry of a tensor beside those of a distribution.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Tails {
    /// Measured kurtosis.
    pub kurtosis: f64,
    /// That of the distribution.
    pub expected: f64,
    /// Largest distance from the mean, in measured standard deviations.
    pub reach: f64,
    /// Whether both are what the distribution and the number of entries allow.
    pub allowed: bool,
}

impl Tails {
    /// None of constants.
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

    /// At any size of the entries: only their shape is judged.
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

    /// The largest of 10⁵ normal entries is above 6.8 with a probability of 10⁻⁶, above 7.5 with one of 6·10⁻⁹.
    #[test]
    fn one_large_entry_is_seen() {
        let with = |entry: f32| [drawn(100_000), vec![entry]].concat();
        assert!(allowed(&with(-6.8), NORMAL));
        assert!(!allowed(&with(-7.8), NORMAL));
        assert_eq!(Tails::of(&Spread::of(&[0.3; 5]), NORMAL), None);
    }
}
