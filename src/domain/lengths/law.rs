//! The distribution of one number, on a grid that is as wide as it is.

use std::array::from_fn;
use std::mem::replace;
use std::sync::LazyLock;

use statrs::distribution::{ContinuousCDF, Normal};

use crate::interpolation::lagrange_weights;
use crate::moments::ratio;
use crate::quadrature::{density, trapezoidal_nodes};

/// Places at equal distances, each with its share of the probability.
#[derive(Clone, Debug)]
pub(crate) struct Law {
    first: f64,
    step: f64,
    shares: Vec<f64>,
}

impl Law {
    /// Places per standard deviation.
    const FINENESS: i32 = 4;
    /// Between places, in standard deviations.
    pub(crate) const DISTANCE: f64 = 1.0 / Self::FINENESS as f64;
    /// Standard deviations that are covered on either side: long tails lead up.
    const REACH: [i32; 2] = [6, 8];

    /// A Gaussian one, if there are such numbers.
    pub(crate) fn gaussian(mean: f64, variance: f64) -> Option<Self> {
        Self::empty(mean, variance).map(|law| {
            let density = |place: f64| density((place - mean) / variance.sqrt());
            let densities: Vec<f64> = if law.is_one() { vec![1.0] } else { law.places().map(density).collect() };
            let total: f64 = densities.iter().sum();
            Self { shares: densities.iter().map(|density| density / total).collect(), ..law }
        })
    }

    /// Of what is in these places with these probabilities: their mean and variance, and third moments; beside it what is brought
    /// along, on average at every place.
    pub(crate) fn of<const N: usize>(points: &[(f64, f64, [f64; N])]) -> Option<(Self, [Vec<f64>; N])> {
        let mean: f64 = points.iter().map(|(place, share, _)| share * place).sum();
        let variance = points.iter().map(|(place, share, _)| share * (place - mean).powi(2)).sum();
        let mut law = Self::empty(mean, variance)?;
        let mut brought: [Vec<f64>; N] = from_fn(|_| vec![0.0; law.shares.len()]);
        for (place, share, brings) in points {
            let (first, weights) = law.around(*place);
            for (index, weight) in (first..law.shares.len()).zip(weights) {
                law.shares[index] += share * weight;
                for (sum, brings) in brought.iter_mut().zip(brings) {
                    sum[index] += share * weight * brings;
                }
            }
        }
        for sums in &mut brought {
            law.divide(sums);
        }
        Some((law, brought))
    }

    /// Sums at every place by its share; where that is next to nothing, as at the last place before.
    fn divide(&self, sums: &mut [f64]) {
        const LITTLE: f64 = 1e-7;
        let most = (0..self.shares.len()).max_by(|&a, &b| self.shares[a].total_cmp(&self.shares[b])).unwrap_or(0);
        sums[most] = ratio(sums[most], self.shares[most]);
        let mut outward = |indices: &mut dyn Iterator<Item = usize>| {
            let mut last = sums[most];
            for index in indices {
                if self.shares[index] > LITTLE {
                    last = sums[index] / self.shares[index];
                }
                sums[index] = last;
            }
        };
        outward(&mut (0..most).rev());
        outward(&mut (most + 1..self.shares.len()));
    }

    fn empty(mean: f64, variance: f64) -> Option<Self> {
        /// Where rounding is all there is, one place is enough.
        const SMALLEST: f64 = 1e-12;
        if !(mean.is_finite() && variance.is_finite()) {
            return None;
        }
        if variance < SMALLEST {
            return Some(Self { first: mean, step: 1.0, shares: vec![0.0] });
        }
        let step = Self::DISTANCE * variance.sqrt();
        let [below, above] = Self::REACH.map(|reach| reach * Self::FINENESS);
        Some(Self { first: mean - f64::from(below) * step, step, shares: vec![0.0; (below + above + 1) as usize] })
    }

    /// Whether it is one number.
    fn is_one(&self) -> bool {
        self.shares.len() == 1
    }

    pub(crate) fn variance(&self) -> f64 {
        if self.is_one() { 0.0 } else { (self.step / Self::DISTANCE).powi(2) }
    }

    pub(crate) fn places(&self) -> impl ExactSizeIterator<Item = f64> + use<> {
        let Self { first, step, .. } = *self;
        (0..self.shares.len()).map(move |index| first + step * index as f64)
    }

    /// Places with their shares.
    pub(crate) fn points(&self) -> impl Iterator<Item = (f64, f64)> + '_ {
        self.places().zip(self.shares.iter().copied())
    }

    /// The average of what is told of every place.
    pub(crate) fn mean_of(&self, values: impl Iterator<Item = f64>) -> f64 {
        values.zip(&self.shares).map(|(value, share)| share * value).sum()
    }

    /// ln E e^s.
    pub(crate) fn ln_mean_exp(&self) -> f64 {
        let last = self.first + self.step * (self.shares.len() - 1) as f64;
        last + self.mean_of(self.places().map(|place| (place - last).exp())).ln()
    }

    /// Four neighbours of a place, and their weights in what a cubic through them is there.
    pub(crate) fn around(&self, place: f64) -> (usize, [f64; 4]) {
        if self.is_one() {
            return (0, [1.0, 0.0, 0.0, 0.0]);
        }
        let inside = ((place - self.first) / self.step).clamp(1.0, (self.shares.len() - 3) as f64);
        let first = inside.floor() as usize - 1;
        (first, lagrange_weights(inside - first as f64))
    }

    /// d/ds of what is told of every place.
    pub(crate) fn slopes(&self, values: &[f64]) -> Vec<f64> {
        let last = values.len() - 1;
        let slope = |index: usize| {
            let (below, above) = (index.saturating_sub(1), (index + 1).min(last));
            ratio(values[above] - values[below], self.step * (above - below) as f64)
        };
        (0..=last).map(slope).collect()
    }

    /// Var ln Σ e^s over `count` draws, whose Gaussian scores have a part in common, by which those at every place are moved as far
    /// as `common` tells.
    ///
    /// With H(u) = E exp(−e^u Σ e^s), the probability that ln (E/Σ e^s) > u of an exponential E, and that of E alone taken off,
    /// ∫ D du = −E ln Σ and 2 ∫ u D du = E ln² Σ + 2γ E ln Σ, γ = 0.577…: what is left of the integrand is smooth and the
    /// trapezoidal rule exact.
    pub(crate) fn variance_of_ln_sum(&self, count: f64, common: &[f64]) -> f64 {
        const EULER: f64 = 0.577_215_664_901_532_9;
        /// Variance below which the sum is as good as linear.
        const NARROW: f64 = 1e-2;
        /// Widest distance in u, and where what is integrated has died out below.
        const WIDEST: f64 = 0.75;
        const LOWEST: f64 = -15.0;
        let variance = self.variance();
        if variance < NARROW {
            let common = self.mean_of(common.iter().copied()).powi(2).min(variance);
            return common + (variance - common) / count;
        }
        let centre = self.ln_mean_exp() + count.ln();
        let places = self.shares.len();
        let skip = (WIDEST / self.step).floor().max(1.0) as usize;
        let distance = self.step * skip as f64;
        let highest = 5.0 + 2.0 * self.step * f64::from(Self::REACH[0] * Self::FINENESS);
        let steps = ((highest - LOWEST) / distance).ceil() as usize;
        let lowest = self.first - centre + LOWEST;
        let decays: Vec<f64> =
            (0..places + steps * skip).map(|index| (-(lowest + self.step * index as f64).exp()).exp()).collect();
        let moments = |shares: &[f64]| {
            let (mut mean, mut square) = (0.0, 0.0);
            for index in 0..=steps {
                let u = LOWEST + distance * index as f64;
                let decayed = decays[index * skip..].iter().zip(shares).map(|(decay, share)| decay * share);
                let difference = decayed.sum::<f64>().max(0.0).powf(count) - (-u.exp()).exp();
                mean -= distance * difference;
                square += 2.0 * distance * u * difference;
            }
            [mean, square - 2.0 * EULER * mean]
        };
        let [mean, square] = if common.iter().any(|common| *common > 0.0) {
            let scores = self.scores();
            let alike = self.alike(&scores, common);
            COMMON.iter().fold([0.0; 2], |[mean, square], &(common, weight)| {
                let given = moments(&conditional(&scores, common, &alike));
                [mean + weight * given[0], square + weight * given[1]]
            })
        } else {
            moments(&self.shares)
        };
        (square - mean * mean).max(0.0)
    }

    /// The correlation of the `scores` of two draws, from how far what is in common moves s.
    fn alike(&self, scores: &[f64], common: &[f64]) -> Vec<f64> {
        /// Beyond, draws are one.
        const MOST: f64 = 0.9999;
        let slopes = self.slopes(scores);
        let between = |index: usize| 0.5 * (common[index] + common[(index + 1).min(common.len() - 1)]);
        slopes.iter().enumerate().map(|(index, slope)| (between(index) * slope).powi(2).min(MOST)).collect()
    }

    /// Gaussian scores between the places.
    fn scores(&self) -> Vec<f64> {
        /// Of probabilities that the shares do not tell from 0 and 1.
        const EDGE: f64 = 1e-15;
        let cumulated = self.shares.iter().scan(0.0, |sum, share| {
            *sum += share;
            Some(*sum)
        });
        cumulated.map(|below| NORMAL.inverse_cdf(f64::clamp(below, EDGE, 1.0 - EDGE))).collect()
    }
}

static NORMAL: LazyLock<Normal> = LazyLock::new(Normal::standard);

/// Of what draws have in common.
static COMMON: LazyLock<Vec<(f64, f64)>> = LazyLock::new(|| trapezoidal_nodes(0.75, 4.5));

/// The shares of places between these `scores` where the `common` part of a score is given. So far as scores are `alike`, which
/// need not be the same for all: on average over that part the shares are what they were.
fn conditional(scores: &[f64], common: f64, alike: &[f64]) -> Vec<f64> {
    let cumulated = scores.iter().zip(alike).map(|(score, alike)| {
        let own = (1.0 - alike).sqrt();
        NORMAL.cdf((score - alike.sqrt() * common) / own)
    });
    cumulated.scan(0.0, |below, upto| Some(upto - replace(below, upto))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What all draws of a law have in common, of the same covariance everywhere.
    fn all(law: &Law, covariance: f64) -> Vec<f64> {
        vec![covariance.sqrt(); law.places().len()]
    }

    /// Var ln (e^s + e^t) of Gaussian s and t, integrated over a square outside this project (NumPy).
    #[test]
    fn sums_of_two() {
        for (variance, correlation, expected) in [
            (0.04, 0.0, 0.020_192_40),
            (0.04, 0.3, 0.026_095_35),
            (1.0, 0.0, 0.567_129_90),
            (1.0, 0.3, 0.687_823_62),
            (4.0, 0.0, 2.486_722_33),
            (4.0, 0.3, 2.903_243_62),
        ] {
            let law = Law::gaussian(-3.0, variance).expect("a variance");
            let got = law.variance_of_ln_sum(2.0, &all(&law, correlation * variance));
            approx::assert_relative_eq!(got, expected, max_relative = 5e-3);
        }
    }

    /// What is in common moves long draws by more: the same integral at given common parts, summed over them (NumPy).
    #[test]
    fn sums_of_two_that_are_moved_unevenly() {
        for (variance, most, expected) in [(1.0, 0.6, 0.589_758_43), (4.0, 1.2, 2.502_567_17)] {
            let law = Law::gaussian(-3.0, variance).expect("a variance");
            let common: Vec<f64> = law.places().map(|place| most / (1.0 + (-3.0 - place).exp())).collect();
            approx::assert_relative_eq!(law.variance_of_ln_sum(2.0, &common), expected, max_relative = 5e-3);
        }
    }

    /// Of one draw the variance, of copies too, of many independent ones (e^V − 1)/count.
    #[test]
    fn sums_of_one_and_of_many() {
        let law = Law::gaussian(1.0, 0.5).expect("a variance");
        approx::assert_relative_eq!(law.variance_of_ln_sum(1.0, &all(&law, 0.2)), 0.5, max_relative = 5e-3);
        approx::assert_relative_eq!(law.variance_of_ln_sum(64.0, &all(&law, 0.5)), 0.5, max_relative = 1e-2);
        approx::assert_relative_eq!(
            law.variance_of_ln_sum(1e5, &all(&law, 0.0)),
            0.5f64.exp_m1() / 1e5,
            max_relative = 1e-2
        );
        let [narrow, wider] = [0.99e-2, 1.01e-2].map(|variance| {
            let law = Law::gaussian(1.0, variance).expect("a variance");
            law.variance_of_ln_sum(16.0, &all(&law, 0.3 * variance)) / variance
        });
        approx::assert_relative_eq!(narrow, wider, max_relative = 5e-3);
        let (number, []) = Law::of(&[(2.0, 1.0, [])]).expect("a number");
        assert!(number.variance_of_ln_sum(3.0, &[0.0]) <= 0.0);
    }

    /// What is laid on a grid keeps its first three moments, and a cubic is what it was between places.
    #[test]
    fn points_keep_their_moments() {
        let points = [(-0.3, 0.2), (0.1, 0.5), (0.4, 0.2), (1.7, 0.1)];
        let (law, [brought]) = Law::of(&points.map(|(place, share)| (place, share, [0.3]))).expect("a variance");
        assert!(brought.iter().all(|brought| (brought - 0.3).abs() < 1e-9));
        let moments = |points: &mut dyn Iterator<Item = (f64, f64)>| {
            points.fold([0.0; 4], |sum, (place, share)| from_fn(|k| sum[k] + share * place.powi(k as i32)))
        };
        let [expected, got] = [moments(&mut points.into_iter()), moments(&mut law.points())];
        approx::assert_abs_diff_eq!(expected.as_slice(), got.as_slice(), epsilon = 1e-12);
        let (first, weights) = law.around(0.234);
        let cubic: f64 = law.places().skip(first).zip(weights).map(|(place, weight)| weight * place.powi(3)).sum();
        approx::assert_relative_eq!(cubic, 0.234f64.powi(3), max_relative = 1e-10);
    }
}
