//! Everything about one activation at one scale of its argument.

use std::collections::VecDeque;
use std::sync::{Mutex, PoisonError};

use sigprop_stack::Activation;

use crate::mean_field::dual::closed::{by_quadrature, closed};
use crate::mean_field::dual::function::{
    Degrees, homogeneous, is_odd, large_degrees, small_degrees, value_and_derivative,
};
use crate::mean_field::dual::nodes::{Nodes, Precision};

/// Terms of Mehler's series.
const TERMS: usize = 80;
/// What the series may leave out, relative to its sum.
const SERIES_TOLERANCE: f64 = 1e-9;
/// Scales outside are mapped inside by the degree of φ there.
const SMALLEST_SCALE: f64 = 1e-8;
const LARGEST_SCALE: f64 = 1e6;

/// Moments of φ(u) and φ'(u), u ~ N(0, σ²).
#[derive(Debug)]
pub(super) struct Profile {
    activation: Activation,
    /// Variance of the argument, mapped into the range of the quadrature.
    pub(super) q: f64,
    /// ln of (true σ / mapped σ).
    ln_beyond: f64,
    degrees: Degrees,
    /// E φ² and E φ'² at the mapped scale.
    second: f64,
    derivative_second: f64,
    /// E φ/√E φ².
    pub(super) mean: f64,
    /// E φ³/(E φ²)^(3/2).
    pub(super) skewness: f64,
    /// χ = d ln E φ²/d ln σ² = E uφφ'/E φ².
    pub(super) sensitivity: f64,
    /// −d ln E φ'²/d ln σ².
    pub(super) exponent: f64,
    /// Of φ², of φ² and φ'², of φ'².
    pub(super) squares: [Covariance; 3],
    /// Of φ itself.
    entries: Covariance,
    /// Of φ and φ'².
    pub(super) averages: Covariance,
    /// Of (φ − E φ)² and φ'².
    pub(super) centred: Covariance,
    /// E u²φ'²/(σ² E φ'²).
    pub(super) radial_free: f64,
    /// (E uφ')²/(σ² E φ'²) and (E u²φ')²/(σ⁴ E φ'²): of E uφ'(u) vφ'(v), v of the correlation c with u, the terms 1 and c.
    radial_apart: [f64; 2],
    /// E u²φ'/(σ² E φ').
    pub(super) radial_across: f64,
    /// (E uφφ')²/(σ² E φ² E φ'²).
    pub(super) radial_kept: f64,
    /// E φ E uφ'/E uφφ'.
    pub(super) of_average: f64,
    /// What φ² has beyond (φ − E φ)².
    pub(super) of_mean: Difference,
    /// (E φ')²/E φ'².
    pub(super) constant_kept: f64,
    /// What a fourth cumulant of u, in units of σ⁴, adds to φ over E φ, and to ln of E φ², E φ⁴ and E φ'²: E f He₄(z)/24 E f.
    pub(super) tails: [f64; 4],
    /// a_k² of the normalised Hermite series φ(σz) = Σ a_k he_k(z), for k = 0 … TERMS.
    series: Vec<f64>,
    integrated: Integrated,
}

/// What was integrated last: a block asks for the same few correlations a dozen times.
#[derive(Debug, Default)]
struct Integrated(Mutex<VecDeque<(u64, (f64, f64))>>);

impl Integrated {
    fn at(&self, c: f64, integrate: impl Fn() -> (f64, f64)) -> (f64, f64) {
        const KEPT: usize = 8;
        let known = || self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let seen = known().iter().find(|(bits, _)| *bits == c.to_bits()).map(|(_, cosines)| *cosines);
        seen.unwrap_or_else(|| {
            let cosines = integrate();
            let mut known = known();
            known.truncate(KEPT - 1);
            known.push_front((c.to_bits(), cosines));
            cosines
        })
    }
}

/// φ and φ' at σz, where E f is Σ weight · f(z).
struct Node {
    z: f64,
    weight: f64,
    at: (f64, f64),
}

impl Profile {
    pub(super) fn new(activation: Activation, ln_q: f64) -> Self {
        let ln_scale = 0.5 * ln_q;
        let inside = ln_scale.clamp(SMALLEST_SCALE.ln(), LARGEST_SCALE.ln());
        let (ln_inside, degrees) = match homogeneous(activation) {
            Some(degrees) => (0.0, degrees),
            None if ln_scale < inside => (inside, small_degrees(activation)),
            None => (inside, large_degrees(activation)),
        };
        let scale = ln_inside.exp();

        let (mut mean, mut second, mut third) = (0.0, 0.0, 0.0);
        let (mut derivative, mut derivative_second, mut radial, mut product) = (0.0, 0.0, 0.0, 0.0);
        let (mut apart, mut linear) = (0.0, 0.0);
        let mut tails = [[0.0; 2]; 4];
        let wants_series = closed(activation, [1.0, 1.0], 0.0).is_none();
        let mut coefficients = vec![0.0; if wants_series { TERMS + 1 } else { 0 }];
        let nodes: Vec<Node> = Nodes::new(activation, scale, Precision::Series)
            .around(0.0)
            .iter()
            .map(|&(z, weight)| Node { z, weight, at: value_and_derivative(activation, scale * z) })
            .collect();
        for &Node { z, weight, at: (f, d) } in &nodes {
            let (f2, d2) = (f * f, d * d);
            mean += weight * f;
            second += weight * f2;
            third += weight * f2 * f;
            derivative += weight * d;
            derivative_second += weight * d2;
            radial += weight * z * z * d2;
            apart += weight * z * d;
            linear += weight * z * z * d;
            product += weight * z * f * d;
            let fourth = z.powi(4) - 6.0 * z * z + 3.0;
            for (tail, f) in tails.iter_mut().zip([f, f2, f2 * f2, d2]) {
                tail[0] += weight * f;
                tail[1] += weight * f * fourth / 24.0;
            }
            let (mut previous, mut hermite) = (0.0, 1.0);
            for (k, coefficient) in coefficients.iter_mut().enumerate() {
                *coefficient += weight * f * hermite;
                let next = (z * hermite - (k as f64).sqrt() * previous) / ((k + 1) as f64).sqrt();
                (previous, hermite) = (hermite, next);
            }
        }
        if is_odd(activation) {
            (mean, third) = (0.0, 0.0);
            tails[0] = [0.0; 2];
        }
        let of_one = |unit: f64, of: &dyn Fn((f64, f64)) -> f64| Covariance::new(&nodes, unit, |at| (of(at), of(at)));
        let of_values = of_one(second * second, &|(f, _)| f * f);
        let variance: f64 = nodes.iter().map(|node| node.weight * (node.at.0 - mean).powi(2)).sum();
        Self {
            activation,
            q: scale * scale,
            ln_beyond: ln_scale - ln_inside,
            degrees,
            second,
            derivative_second,
            mean: mean / second.sqrt(),
            skewness: third / second.powf(1.5),
            sensitivity: scale * product / second,
            exponent: 0.5 * (1.0 - radial / derivative_second),
            squares: [
                of_values,
                Covariance::new(&nodes, second * derivative_second, |(f, d)| (f * f, d * d)),
                of_one(derivative_second * derivative_second, &|(_, d)| d * d),
            ],
            entries: of_one(second, &|(f, _)| f),
            averages: Covariance::new(&nodes, second.sqrt() * derivative_second, |(f, d)| (f, d * d)),
            centred: Covariance::new(&nodes, variance * derivative_second, |(f, d)| ((f - mean).powi(2), d * d)),
            radial_free: radial / derivative_second,
            radial_apart: [apart, linear].map(|mean| mean * mean / derivative_second),
            radial_across: linear / derivative,
            radial_kept: product * product / (second * derivative_second),
            of_average: if product.abs() > 0.0 { mean * apart / product } else { 0.0 },
            of_mean: Difference([of_values, of_one(variance * variance, &|(f, _)| (f - mean).powi(2))]),
            constant_kept: derivative * derivative / derivative_second,
            tails: tails.map(|[all, tail]| if all.abs() > 0.0 { tail / all } else { 0.0 }),
            series: coefficients.into_iter().map(|a| a * a).collect(),
            integrated: Integrated::default(),
        }
    }

    /// E uφ'(u) vφ'(v)/(σ² E φ'²), u and v with the correlation c: to first order in c, and the rest in c².
    pub(super) fn radial_pairs(&self, c: f64) -> f64 {
        let [apart, linear] = self.radial_apart;
        apart + c * (linear + c * (self.radial_free - apart - linear))
    }

    /// ln E φ².
    pub(super) fn ln_second(&self) -> f64 {
        self.second.ln() + 2.0 * self.degrees.value * self.ln_beyond
    }

    /// Whether φ(0) = 0.
    pub(super) fn vanishes_at_zero(&self) -> bool {
        value_and_derivative(self.activation, 0.0).0.abs() <= 0.0
    }

    /// d/dc of the first of [`Self::cosines`], over the second: σ² E φ'²/E φ².
    pub(super) fn slope(&self) -> f64 {
        self.q * self.derivative_second / self.second
    }

    /// ln E φ'².
    pub(super) fn ln_derivative_second(&self) -> f64 {
        self.derivative_second.ln() + 2.0 * self.degrees.derivative * self.ln_beyond
    }

    /// (E φ(u)φ(v)/E φ², E φ'(u)φ'(v)/E φ'²) for arguments of this scale with correlation `c`.
    pub(super) fn cosines(&self, c: f64) -> (f64, f64) {
        let c = c.clamp(-1.0, 1.0);
        let (kernel, derivative) = closed(self.activation, [self.q, self.q], c)
            .or_else(|| self.by_series(c))
            .unwrap_or_else(|| self.integrated.at(c, || by_quadrature(self.activation, [self.q, self.q], c)));
        (kernel / self.second, derivative / self.derivative_second)
    }

    /// E φ(u)φ(v)/E φ² where the correlation strays about `c` with this `concentration`.
    pub(super) fn mean_cosine(&self, c: f64, concentration: f64) -> f64 {
        (self.mean * self.mean + self.entries.at(c, concentration)).clamp(-1.0, 1.0)
    }

    /// Mehler's series, if what it leaves out is small.
    ///
    /// The tail Σ_{k>K} a_k² c^k is known at c = 1, where it is what the terms leave of E φ², and
    /// so is its slope there, Σ k a_k² = σ² E φ'²; elsewhere it is at most |c|^(K+1) times that.
    fn by_series(&self, c: f64) -> Option<(f64, f64)> {
        let (mut kernel, mut slope, mut sum, mut slope_sum) = (0.0, 0.0, 0.0, 0.0);
        let (mut power, mut lower) = (1.0, 0.0);
        for (k, square) in self.series.iter().enumerate() {
            let k = k as f64;
            kernel += square * power;
            slope += k * square * lower;
            sum += square;
            slope_sum += k * square;
            lower = power;
            power *= c;
        }
        let slope_total = self.q * self.derivative_second;
        let left = power.abs() * (self.second - sum).abs() / self.second;
        let slope_left = lower.abs() * (slope_total - slope_sum).abs() / slope_total;
        (left < SERIES_TOLERANCE && slope_left < SERIES_TOLERANCE).then_some((kernel, slope / self.q))
    }
}

/// Between two covariances.
#[derive(Clone, Copy, Debug)]
pub(super) struct Difference([Covariance; 2]);

impl Difference {
    pub(super) fn own(&self) -> f64 {
        self.0[0].own - self.0[1].own
    }

    pub(super) fn at(&self, c: f64, concentration: f64) -> f64 {
        self.0[0].at(c, concentration) - self.0[1].at(c, concentration)
    }
}

/// Cov(f(u), g(v))/(E f E g) of arguments with correlation c: the first three terms of its Hermite series, the rest as c⁴.
#[derive(Clone, Copy, Debug)]
pub(super) struct Covariance {
    slope: f64,
    curvature: f64,
    third: f64,
    /// At c = 1.
    pub(super) own: f64,
}

impl Covariance {
    /// Of two functions of φ and φ', in such a `unit`.
    fn new(nodes: &[Node], unit: f64, both: impl Fn((f64, f64)) -> (f64, f64)) -> Self {
        // Of 1, z, z² − 1 and z³ − 3z, and the product.
        let (mut of_f, mut of_g, mut product) = ([0.0; 4], [0.0; 4], 0.0);
        for &Node { z, weight, at } in nodes {
            let (f, g) = both(at);
            for (k, hermite) in [1.0, z, z * z - 1.0, z * (z * z - 3.0)].into_iter().enumerate() {
                of_f[k] += weight * f * hermite;
                of_g[k] += weight * g * hermite;
            }
            product += weight * f * g;
        }
        let term = |k: usize, norm: f64| of_f[k] * of_g[k] / (norm * unit);
        let own = (product - of_f[0] * of_g[0]) / unit;
        Self { slope: term(1, 1.0), curvature: term(2, 2.0), third: term(3, 6.0), own }
    }

    /// At correlation `c` that strays with variance `concentration` (1 − c²)².
    pub(super) fn at(&self, c: f64, concentration: f64) -> f64 {
        let rest = self.own - self.slope - self.curvature - self.third;
        let strays = concentration * (1.0 - c * c).powi(2);
        let bend = self.curvature + 3.0 * c * (self.third + 2.0 * c * rest);
        c * (self.slope + c * (self.curvature + c * (self.third + c * rest))) + strays * bend
    }

    /// At given scales of the arguments.
    pub(super) fn beyond_scale(self) -> Self {
        Self { curvature: 0.0, own: self.own - self.curvature, ..self }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn series_agrees_with_quadrature() {
        for activation in [Activation::Silu, Activation::Tanh, Activation::Softplus, Activation::Elu] {
            for q in [0.1f64, 1.0, 4.0] {
                let profile = Profile::new(activation, q.ln());
                for c in [-0.5, 0.2, 0.6] {
                    let Some(series) = profile.by_series(c) else { continue };
                    let quadrature = by_quadrature(activation, [q, q], c);
                    approx::assert_relative_eq!(series.0, quadrature.0, max_relative = 1e-8, epsilon = 1e-10);
                    approx::assert_relative_eq!(series.1, quadrature.1, max_relative = 1e-8, epsilon = 1e-10);
                }
            }
        }
    }

    /// E φ⁴/(E φ²)² − 1 of N(0, 1), recomputed in f64 outside this project (SciPy), seven digits.
    #[test]
    fn kurtosis_of_activations() {
        let expected = [
            (Activation::Relu, 5.0),
            (Activation::Gelu, 6.215_614),
            (Activation::GeluTanh, 6.217_834),
            (Activation::Silu, 6.261_746),
            (Activation::Tanh, 0.627_291),
            (Activation::Sigmoid, 0.528_900),
            (Activation::Softplus, 1.754_529),
            (Activation::Elu, 2.776_022),
            (Activation::Selu, 1.503_140),
            (Activation::Relu2, 22.333_333),
            (Activation::Xielu, 15.495_144),
        ];
        for (activation, expected) in expected {
            approx::assert_relative_eq!(Profile::new(activation, 0.0).squares[0].own, expected, max_relative = 1e-6);
        }
    }
}
