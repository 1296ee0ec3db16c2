//! The deviation of a tensor from its initialisation by a scheme.
//!
//! # Formula
//!
//! Let n independent samples have the standard deviation σ and the kurtosis κ. Then their measured standard deviation s
//! has the standard error σ √((κ − 1)/4n), and their mean has σ/√n:
//!
//! ```text
//! z = (s − σ)/(σ √((κ − 1)/4n))       z of the mean = mean √n/σ
//! ```

use sigprop_stack::{Rates, StepBias};

use super::spread::Spread;
use crate::huggingface::Start;

/// The |z| above which a tensor deviates, if the deviation is also above [`VISIBLE`]. One in 1.7 million tensors that
/// follow their scheme has a larger |z|.
const BEYOND: f64 = 5.0;
/// The relative difference of the standard deviation or of the mean from the scheme's above which a tensor deviates.
/// Rounding to bf16 changes less.
const VISIBLE: f64 = 0.01;

/// A measured tensor compared with a scheme.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Deviation {
    /// The initialisation by the scheme.
    pub start: Start,
    /// The ratio of the measured standard deviation to that of the scheme; for constants, the ratio of the measured
    /// mean to the constant. `None` if the scheme sets the tensor to zero.
    pub ratio: Option<f64>,
    /// The z-score of the standard deviation, or of the mean if the z-score of the mean is further from zero; `None`
    /// for constants.
    pub z: Option<f64>,
    /// True if the tensor differs from the scheme by more than chance and rounding.
    pub deviates: bool,
}

impl Deviation {
    /// Compares a tensor with its initialisation; `None` if it has no finite entries.
    pub fn of(spread: &Spread, start: Start) -> Option<Self> {
        let std = spread.std()?;
        let n = spread.count as f64;
        let drawn = match start {
            Start::Constant(value) => return Some(Self::of_constant(spread, start, value)),
            Start::LogRates(rates) => return Some(Self::of_range(spread, start, range_of_rates(rates, spread))),
            Start::StepBiases(bias) => return Some(Self::of_range(spread, start, range_of_biases(bias))),
            Start::Drawn(init) => init,
        };
        let Some(kurtosis) = drawn.kurtosis() else { return Some(Self::of_constant(spread, start, 0.0)) };
        let expected = drawn.std();
        if expected <= 0.0 {
            return Some(Self::of_constant(spread, start, 0.0));
        }
        let z_std = (std - expected) / (expected * ((kurtosis - 1.0) / (4.0 * n)).sqrt());
        let z_mean = spread.mean * n.sqrt() / expected;
        let off = |z: f64, share: f64| z.abs() > BEYOND && share.abs() > VISIBLE;
        let ratio = std / expected;
        let deviates = off(z_std, ratio - 1.0) || off(z_mean, spread.mean / expected);
        let z = if z_mean.abs() > z_std.abs() { z_mean } else { z_std };
        Some(Self { start, ratio: Some(ratio), z: Some(z), deviates })
    }

    fn of_constant(spread: &Spread, start: Start, value: f64) -> Self {
        let ratio = (value.abs() > 0.0).then(|| spread.mean / value);
        let deviates = spread.reach(value).is_some_and(|distance| distance > VISIBLE * value.abs());
        Self { start, ratio, z: None, deviates }
    }

    /// Compares a tensor with the range of its initialisation.
    fn of_range(spread: &Spread, start: Start, [low, high]: [f64; 2]) -> Self {
        let half = 0.5 * (high - low);
        let allowed = half + VISIBLE * low.abs().max(high.abs());
        let deviates = spread.reach(low + half).is_some_and(|distance| distance > allowed);
        Self { start, ratio: None, z: None, deviates }
    }

    /// Returns the relative deviation of the standard deviation, or the deviation of the mean in standard deviations,
    /// whichever is larger. For constants it is the relative deviation of the mean; it is infinite if the scheme has
    /// zeros and the tensor has not.
    pub fn share(&self, spread: &Spread) -> f64 {
        let mean = match self.start {
            Start::Drawn(init) if init.std() > 0.0 => spread.mean / init.std(),
            Start::Drawn(_) | Start::Constant(_) | Start::LogRates(_) | Start::StepBiases(_) => 0.0,
        };
        match self.ratio {
            Some(ratio) => (ratio - 1.0).abs().max(mean.abs()),
            None if self.deviates => f64::INFINITY,
            None => 0.0,
        }
    }
}

/// Returns the range of the logarithms of rates.
fn range_of_rates(rates: Rates, spread: &Spread) -> [f64; 2] {
    match rates {
        Rates::Counted => [0.0, (spread.count as f64).ln()],
        Rates::Uniform { low, high } => [low.max(f64::MIN_POSITIVE).ln(), high.ln()],
    }
}

/// Returns the range of the biases of steps.
fn range_of_biases(bias: StepBias) -> [f64; 2] {
    match bias {
        StepBias::Value(value) => [value, value],
        StepBias::LogUniform { low, high } => [low, high].map(|step| step.exp_m1().ln()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use sigprop_stack::Init;

    fn numbers(std: f32) -> Spread {
        // ±std: mean 0, standard deviation std.
        Spread::of(&[std, -std].repeat(200))
    }

    /// The standard error of a normal tensor's standard deviation is σ/√800 for n = 400.
    #[test]
    fn z_is_that_by_hand() {
        let of = |std| Deviation::of(&numbers(std), Start::Drawn(Init::Normal { std: 0.02 })).expect("numbers");
        let got = of(0.02 * 1.1);
        assert!((got.z.expect("drawn") - 0.1 * 800f64.sqrt()).abs() < 1e-4, "{got:?}");
        assert!(!got.deviates);
        assert!((of(0.04).z.expect("drawn") - 800f64.sqrt()).abs() < 1e-4);
        assert!(of(0.04).deviates);
        assert!((of(0.04).share(&numbers(0.04)) - 1.0).abs() < 1e-6);
    }

    #[test]
    fn a_mean_deviates_too() {
        let shifted = Spread::of(&[0.03, -0.01].repeat(200));
        let got = Deviation::of(&shifted, Start::Drawn(Init::Normal { std: 0.02 })).expect("numbers");
        assert!((got.z.expect("drawn") - 10.0).abs() < 1e-3 && got.deviates, "{got:?}");
    }

    #[test]
    fn constants_are_themselves_or_not() {
        let deviates = |entry: f32, start| Deviation::of(&Spread::of(&[entry; 8]), start).expect("numbers").deviates;
        assert!(!deviates(1.0, Start::Constant(1.0)));
        assert!(deviates(1.1, Start::Constant(1.0)));
        let one_off = Spread::of(&[vec![1.0; 10_000], vec![1.5]].concat());
        assert!(Deviation::of(&one_off, Start::Constant(1.0)).expect("numbers").deviates);
        assert!(!deviates(0.0, Start::Drawn(Init::Zero)));
        assert!(deviates(1e-6, Start::Drawn(Init::Zero)));
        assert!(deviates(1e-6, Start::Drawn(Init::Normal { std: 0.0 })));
        assert_eq!(Deviation::of(&Spread::default(), Start::Constant(1.0)), None);
    }
}
