//! Four-point functions of the entries of an activation, of its derivative, and of both together.
//!
//! ```text
//! u_a = σ(√r x + √(1 − r) e_a)
//! E Π_a f_a(u_a) = E_x Π_a E_e f_a          σ⁴ ∂²E f(u_a) f(u_b)/∂(σ²r)² = E_x (E_e f (e² − 1))²/(1 − r)²
//! ```
//!
//! where u_a, u_b are the arguments of the activation at tokens a and b; σ is the standard deviation of an argument of
//! φ; r is the correlation of the arguments at two tokens; x is the common part of the arguments of all tokens, with
//! law N(0, 1); e, e_a are the own part of the argument of a token, with law N(0, 1); f, f_a are functions of the
//! argument, such as powers of the activation φ and of φ'; E is the average over random weights and over features; E_x,
//! E_e are averages over x and over e; a, b are positions of tokens.
//!
//! Given x, entries of different tokens are independent.
//!
//! Assumption: no negative correlations (among many tokens there are none). Source: Price 1958 for the derivative.

use sigprop_stack::Activation;

use super::noise::{FourPoint, GainCovariances};
use crate::mean_field::dual::function::{value_and_derivative, widest};
use crate::mean_field::dual::nodes::{Nodes, Precision};
use crate::quadrature::trapezoidal_nodes;

/// Fourth-order moments of φ(u) and φ'(u) of one entry, relative to products of their second moments.
#[derive(Clone, Copy, Debug)]
pub(crate) struct EntryMoments {
    /// The moments of φ.
    values: Bent,
    /// The moments of φ − E φ.
    centred: Bent,
    /// The moments of φ'.
    pub(crate) derivatives: FourPoint,
    /// The covariances of products of φ of two tokens with φ'_a² and with φ'_aφ'_b.
    pub(crate) gains: GainCovariances,
    /// The covariances of products of φ − E φ of two tokens with φ'_a² and with φ'_aφ'_b.
    pub(crate) centred_gains: GainCovariances,
    /// E u²φ'²/(E u² E φ'²), and (E uφφ')²/(E φ² E u² E φ'²).
    pub(crate) radial: [f64; 2],
    /// E u_a²φ'_aφ'_b/(E u² E φ'_aφ'_b) for two tokens a and b.
    pub(crate) cross: f64,
    /// E u_aφ'_a u_bφ'_b/(E u² E φ'²), and E φ'_aφ'_b/E φ'², for two tokens a and b.
    pub(crate) pairs: [f64; 2],
    /// E u²φ²φ'²/(E u²φ'² E φ²) − E φ²φ'²/(E φ² E φ'²).
    pub(crate) squares: f64,
}

/// A four-point function, and half the second derivative of its entry `aabb` with respect to the correlation r.
#[derive(Clone, Copy, Debug)]
struct Bent {
    at_rest: FourPoint,
    bend: f64,
}

impl Bent {
    /// Computes the four-point function and the derivative. `of` returns the averages of powers of an entry given the
    /// common part of all tokens, and `mean` averages over this common part.
    fn new(mean: impl Fn(&dyn Fn(&Given) -> f64) -> f64, of: impl Fn(&Given) -> Powers, r: f64) -> Self {
        let second = mean(&|at| of(at).values[1]);
        let of_point = |point: &dyn Fn([f64; 4]) -> f64| mean(&|at| point(of(at).values)) / (second * second);
        Self {
            at_rest: FourPoint {
                aaaa: of_point(&|[_, _, _, fourth]| fourth),
                aaab: of_point(&|[first, _, third, _]| third * first),
                aabb: of_point(&|[_, second, ..]| second * second),
                aabc: of_point(&|[first, second, ..]| second * first * first),
                abcd: of_point(&|[first, ..]| first.powi(4)),
            },
            bend: 0.5 * mean(&|at| of(at).bent.powi(2)) / (second * (1.0 - r)).powi(2),
        }
    }

    /// Returns the four-point function for arguments whose r has this variance over networks.
    fn at(self, variance: f64) -> FourPoint {
        FourPoint { aabb: self.at_rest.aabb + self.bend * variance, ..self.at_rest }
    }
}

/// Averages over e, the own part of a token, at one value of x, the common part of all tokens: of f, f², f³, f⁴
/// (`values`), of fφ', fφ'², f²φ', f²φ'² (`mixed`) and of f²(e² − 1) (`bent`), for a function f of the argument.
struct Powers {
    values: [f64; 4],
    mixed: [f64; 4],
    bent: f64,
}

/// Averages of products of powers of φ and φ' over e, the own part of a token, at one value of x, the common part of
/// all tokens.
#[derive(Clone, Copy, Default)]
struct Given {
    /// The averages of φ, φ², φ³, φ⁴.
    values: [f64; 4],
    /// The averages of φ', φ'², φ'³, φ'⁴.
    derivatives: [f64; 4],
    /// The averages of φφ', φφ'², φ²φ', φ²φ'².
    mixed: [f64; 4],
    /// The averages of u²φ'², uφφ', u²φ', uφ', u²φ²φ'², for the argument u.
    arguments: [f64; 5],
    /// The averages of φ(e² − 1) and φ²(e² − 1).
    bent: [f64; 2],
}

impl Given {
    fn new(activation: Activation, shift: f64, scale: f64, nodes: &Nodes) -> Self {
        let mut given = Self::default();
        for &(e, weight) in nodes.around(shift).iter() {
            let u = shift + scale * e;
            let (f, d) = value_and_derivative(activation, u);
            let add = |sums: &mut [f64], terms: &[f64]| {
                sums.iter_mut().zip(terms).for_each(|(sum, term)| *sum += weight * term);
            };
            let [f2, d2] = [f * f, d * d];
            add(&mut given.values, &[f, f2, f2 * f, f2 * f2]);
            add(&mut given.derivatives, &[d, d2, d2 * d, d2 * d2]);
            add(&mut given.mixed, &[f * d, f * d2, f2 * d, f2 * d2]);
            add(&mut given.arguments, &[u * u * d2, u * f * d, u * u * d, u * d, u * u * f2 * d2]);
            add(&mut given.bent, &[f * (e * e - 1.0), f2 * (e * e - 1.0)]);
        }
        given
    }

    /// Returns the averages of powers of φ − `average`, and of their products with powers of φ'.
    fn less(&self, average: f64) -> Powers {
        let [first, second, third, fourth] = self.values;
        let square = average * average;
        let values = [
            first - average,
            second - 2.0 * average * first + square,
            third - 3.0 * average * second + 3.0 * square * first - square * average,
            fourth - 4.0 * average * third + 6.0 * square * second - 4.0 * square * average * first + square * square,
        ];
        let ([slope, slopes, ..], [first, firsts, second, seconds]) = (self.derivatives, self.mixed);
        let mixed = [
            first - average * slope,
            firsts - average * slopes,
            second - 2.0 * average * first + square * slope,
            seconds - 2.0 * average * firsts + square * slopes,
        ];
        Powers { values, mixed, bent: self.bent[1] - 2.0 * average * self.bent[0] }
    }
}

/// Returns the covariances of products of f of two tokens with φ'_a² and with φ'_aφ'_b, whose averages are `slope` and
/// `slopes`. `of` returns the averages of powers of f.
fn gains(
    mean: impl Fn(&dyn Fn(&Given) -> f64) -> f64,
    of: impl Fn(&Given) -> Powers,
    [slope, slopes]: [f64; 2],
) -> GainCovariances {
    let mean = |what: &dyn Fn(&Given, Powers) -> f64| mean(&|at| what(at, of(at)));
    let second = mean(&|_, f| f.values[1]);
    let cosine = mean(&|_, f| f.values[0].powi(2)) / second;
    let own = [
        mean(&|_, f| f.mixed[3]) / (second * slope) - 1.0,
        mean(&|at, f| at.derivatives[1] * f.values[1]) / (second * slope) - 1.0,
        mean(&|_, f| f.mixed[1] * f.values[0]) / (second * slope) - cosine,
        mean(&|at, f| at.derivatives[1] * f.values[0].powi(2)) / (second * slope) - cosine,
    ];
    let pair = (slopes > 1e-12 * slope).then(|| {
        let size = second * slopes;
        [
            mean(&|at, f| f.mixed[2] * at.derivatives[0]) / size - 1.0,
            mean(&|at, f| at.derivatives[0].powi(2) * f.values[1]) / size - 1.0,
            mean(&|_, f| f.mixed[0].powi(2)) / size - cosine,
            mean(&|at, f| f.mixed[0] * at.derivatives[0] * f.values[0]) / size - cosine,
            mean(&|at, f| (at.derivatives[0] * f.values[0]).powi(2)) / size - cosine,
        ]
    });
    GainCovariances { own, pair }
}

impl EntryMoments {
    /// Computes the moments for arguments with this variance and the correlation `r`.
    pub(crate) fn new(activation: Activation, variance: f64, r: f64) -> Self {
        /// The spacing and the range of the nodes in x, the common part of all tokens, in which averages are smooth.
        const OUTER: (f64, f64) = (0.4, 5.6);
        /// The largest r; nearer to 1 the variance of r is too small to matter.
        const LARGEST: f64 = 1.0 - 1e-6;
        let r = r.clamp(0.0, LARGEST);
        let std = widest(activation).min(variance.sqrt());
        let variance = std * std;
        let scale = std * (1.0 - r).sqrt();
        let nodes = Nodes::new(activation, scale, Precision::Coarse);
        let outer: Vec<(Given, f64)> = trapezoidal_nodes(OUTER.0, OUTER.1)
            .into_iter()
            .map(|(x, weight)| (Given::new(activation, std * r.sqrt() * x, scale, &nodes), weight))
            .collect();
        Self::from_given(&outer, variance, r)
    }

    fn from_given(outer: &[(Given, f64)], variance: f64, r: f64) -> Self {
        let mean = |of: &dyn Fn(&Given) -> f64| outer.iter().map(|(given, weight)| weight * of(given)).sum::<f64>();
        let second = mean(&|at| at.values[1]);
        let slope = mean(&|at| at.derivatives[1]);
        let slopes = mean(&|at| at.derivatives[0].powi(2));
        let radial = mean(&|at| at.arguments[0]) / (variance * slope);
        let kept = mean(&|at| at.arguments[1]).powi(2) / (second * variance * slope);
        let first = mean(&|at| at.derivatives[0]);
        let alone = if first.abs() > 1e-9 { mean(&|at| at.arguments[2]) / (variance * first) } else { radial };
        let average = mean(&|at| at.values[0]);
        let large = mean(&|at| at.arguments[4]) / (radial * variance * slope * second);
        let of_slopes = |at: &Given| Powers { values: at.derivatives, mixed: [0.0; 4], bent: 0.0 };
        let gains = |average: f64| gains(mean, |at| at.less(average), [slope, slopes]);
        Self {
            values: Bent::new(mean, |at| at.less(0.0), r),
            centred: Bent::new(mean, |at| at.less(average), r),
            derivatives: Bent::new(mean, of_slopes, r).at_rest,
            gains: gains(0.0),
            centred_gains: gains(average),
            radial: [radial, kept],
            cross: alone + r * (radial - alone),
            pairs: [mean(&|at| at.arguments[3].powi(2)) / (variance * slope), slopes / slope],
            squares: large - mean(&|at| at.mixed[3]) / (second * slope),
        }
    }

    /// Returns the variance of the average of (φ − E φ)² over `length` tokens, relative to the square of its
    /// expectation. `variance` is the variance over networks of the correlation of arguments.
    pub(crate) fn variance(&self, length: f64, variance: f64) -> f64 {
        let FourPoint { aaaa, aabb, .. } = self.centred(variance);
        (aaaa - 1.0 + (length - 1.0) * (aabb - 1.0)) / length
    }

    /// Returns the four-point function of φ for arguments whose correlation has this variance over networks.
    pub(crate) fn values(&self, variance: f64) -> FourPoint {
        self.values.at(variance)
    }

    /// Returns the four-point function of φ − E φ for arguments whose correlation has this variance over networks.
    pub(crate) fn centred(&self, variance: f64) -> FourPoint {
        self.centred.at(variance)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn near(name: &str, got: f64, expected: f64) {
        assert!((got - expected).abs() < 2e-3 * (1.0 + expected.abs()), "{name}: {got}, not {expected}");
    }

    /// The identity leaves entries Gaussian.
    #[test]
    fn identity_has_the_moments_of_gaussian_entries() {
        for (variance, r) in [(0.3, 0.0), (1.0, 0.4), (5.0, 0.9)] {
            let moments = EntryMoments::new(Activation::Identity, variance, r);
            let (got, expected) = (moments.values(0.1), FourPoint::gaussian(r, 0.1));
            near("aaaa", got.aaaa, expected.aaaa);
            near("aaab", got.aaab, expected.aaab);
            near("aabb", got.aabb, expected.aabb);
            near("aabc", got.aabc, expected.aabc);
            near("abcd", got.abcd, expected.abcd);
            near("ρ", moments.radial[0], 1.0);
            near("α", moments.cross, 1.0);
            near("pairs", moments.pairs[0], r);
            near("variance of one token", moments.variance(1.0, 0.0), 2.0);
        }
    }

    /// For u of variance 1, E max(u, 0)⁴ = 3/2 and E max(u, 0)² = 1/2; φ' is 1 where φ is not 0.
    #[test]
    fn ramps_have_known_moments() {
        let moments = EntryMoments::new(Activation::Relu, 1.0, 0.0);
        near("fourth moment", moments.values(0.0).aaaa, 6.0);
        near("squares of two tokens", moments.values(0.0).aabb, 1.0);
        near("four tokens", moments.values(0.0).abcd, std::f64::consts::PI.powi(-2));
        near("ρ of entries", moments.radial[0], 1.0);
        near("ρ that is kept", moments.radial[1], 1.0);
        let [own, pair] = moments.gains.vectors(8.0);
        near("squares with their gain", own[0], 1.0);
        near("squares with the gain of two", pair[0], 1.0);
    }

    /// Moments of φ − μ for a ramp φ: E φ = μ = 1/√(2π), E φ² = ½, E φ³ = 2μ, E φ⁴ = 3/2, and E φ'² = ½.
    #[test]
    fn ramps_less_their_mean_have_known_moments() {
        let moments = EntryMoments::new(Activation::Relu, 1.0, 0.0);
        let mean = (2.0 * std::f64::consts::PI).sqrt().recip();
        let second = 0.5 - mean * mean;
        let fourth = 1.5 - 8.0 * mean * mean + 3.0 * mean * mean - 3.0 * mean.powi(4);
        near("fourth moment", moments.centred(0.0).aaaa, fourth / (second * second));
        near("squares of two tokens", moments.centred(0.0).aabb, 1.0);
        near("four tokens", moments.centred(0.0).abcd, 0.0);
        let [own, _] = moments.centred_gains.vectors(8.0);
        // E (φ − μ)² φ'² = ½ − 2μ² + ½ μ².
        near("squares with their gain", own[0], (0.5 - 1.5 * mean * mean) / (0.5 * second) - 1.0);
        near("squares of all", moments.variance(1.0, 0.0), fourth / (second * second) - 1.0);
    }
}
