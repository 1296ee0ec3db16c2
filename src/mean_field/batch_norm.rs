//! BatchNorm: y_a = gain z_a/√divisor for every feature, with z_a = x_a − mean_b x_b and divisor = Σ_a z_a²/L + ε over
//! the L tokens of a batch.
//!
//! ```text
//! spread = E x_a² − E x_a x_b      |z|² = spread χ²(L − 1)      divisor = |z|²/L + ε      share = |z|²/(L divisor)
//! forward    E y_a y_b = gain² E share L E z_a z_b/Σ_c E z_c²
//! backward   G^x_ab = gain² (E[1/divisor] G^z_ab − E[(2 − share) share/divisor] along E z_a z_b/Σ_c E z_c²)
//!            along = Σ_ab E g_a g_b ẑ_a ẑ_b        ẑ = z/|z|, g: at y
//!            in evaluation G^x_ab = gain² E[1/divisor] G^y_ab
//! ```
//!
//! where a, b are positions of tokens; E is the average over random weights and over features; L is the number of
//! tokens of a batch; spread is the variance of x_a without the part that all tokens share; z is the vector of z_a over
//! the tokens of a batch; χ²(L − 1) is a chi-squared variable with L − 1 degrees of freedom; ε is the number that a
//! norm adds to the variance; c is the position of a third token; G^z is the kernel of the gradients g minus their mean
//! over the batch; divisor is the variance of a feature over the batch plus ε; share is the share of |z|²/L
//! in the divisor; gain is the gain of a norm; G^y is the kernel E g_a g_b of the gradients at the output y; G^x is the
//! kernel E g_a g_b of the gradients at the input x; g is the gradient of the loss; ẑ is the direction of z; along is
//! the mean square of the gradient along ẑ.
//!
//! E[1/divisor] = L/((L − 3) spread) for ε = 0. Where an activation follows, its derivative depends on ẑ: see
//! `activation`.
//!
//! Example: a batch of 5 independent tokens of variance 1, gain 1 and ε = 0: y has variance 1 and correlation −1/4. In
//! training, independent gradients of variance 1 at y become gradients of variance 5/2 · (4 − 1)/5 = 1.5 and
//! correlation −1/4 at x.
//!
//! If all tokens are exchangeable, E z_a z_b = −E z_a²/(L − 1). The pixels of images differ by their distance from the
//! edges: then spread and along are averages over pixels.
//!
//! Assumptions: x is Gaussian, as after a linear map, so that the length and the direction of z are independent. The
//! length of z fluctuates as if all tokens were exchangeable.
//! Source: Yang et al. 2019, A mean field theory of batch normalization, section 3 and appendix E.

use sigprop_stack::{Norm, NormKind};

use smallvec::smallvec;

use super::component::{MeanField, Parameter};
use super::few::Few;
use super::gradient::{Gradient, Next};
use super::kernel::Kernel;
use super::norm::ln_gain_gradient;
use super::signal::Signal;

/// A BatchNorm. In training, gradients also pass through the statistics of the batch.
pub(crate) struct BatchNorm<'n> {
    norm: &'n Norm,
    training: bool,
}

/// The distribution of the divisor for a batch of L = `count` tokens. Squares are in units of e^`ln_unit`.
struct Batch {
    count: f64,
    /// E x_a² − E x_a x_b, the variance of x_a without the part that all tokens share.
    spread: f64,
    eps: f64,
    ln_unit: f64,
    /// Values of χ²(L − 1) and their probabilities.
    lengths: Vec<(f64, f64)>,
}

impl Batch {
    fn new(norm: &Norm, x: &Kernel) -> Self {
        let count = x.positions.length;
        let [own, pair] = averages(x);
        let ln_unit = x.ln_unit.max(norm.eps.ln());
        let [unit, eps] = [x.ln_unit - ln_unit, norm.eps.ln() - ln_unit].map(f64::exp);
        Self { count, spread: (own - pair) * unit, eps, ln_unit, lengths: chi_square(count - 1.0) }
    }

    /// Returns the expectation of `of`, a function of the divisor and of the share |z|²/(L divisor).
    fn mean(&self, of: impl Fn(f64, f64) -> f64) -> f64 {
        let at = |&(length, probability): &(f64, f64)| {
            let square = self.spread * (length / self.count);
            let divisor = square + self.eps;
            of(divisor, square / divisor) * probability
        };
        self.lengths.iter().map(at).sum()
    }
}

/// Returns values of a χ² variable with this number of degrees of freedom and their probabilities, by the trapezoidal
/// rule in ln χ².
fn chi_square(degrees: f64) -> Vec<(f64, f64)> {
    /// Number of steps per standard deviation of ln χ².
    const STEPS: f64 = 4.0;
    /// ln of the smallest density that is kept, relative to the maximum.
    const LEAST: f64 = -80.0;
    let step = (2.0 / degrees).sqrt() / STEPS;
    // ln of the density of ln (χ²/degrees), minus its maximum.
    let ln_density = |u: f64| 0.5 * degrees * (u + 1.0 - u.exp());
    let half = |sign: f64| {
        let points = (0..).map(move |index| sign * step * (f64::from(index) + 0.5));
        points.map(move |u| (u, ln_density(u))).take_while(|&(_, ln)| ln > LEAST)
    };
    let points: Vec<(f64, f64)> = half(-1.0).chain(half(1.0)).map(|(u, ln)| (degrees * u.exp(), ln.exp())).collect();
    let total: f64 = points.iter().map(|&(_, density)| density).sum();
    points.into_iter().map(|(value, density)| (value, density / total)).collect()
}

/// Returns E x_a² averaged over tokens, and E x_a x_b averaged over pairs of tokens.
fn averages(kernel: &Kernel) -> [f64; 2] {
    let (positions, count) = (&kernel.positions, kernel.positions.length);
    let own = positions.sum(|node| kernel.own[node]) / count;
    [own, positions.sum_pairs(|point| kernel.pairs[point]) / (count * (count - 1.0))]
}

/// Returns the kernel of a signal minus its mean over the batch.
fn without_sum(kernel: &Kernel) -> Kernel {
    let positions = &kernel.positions;
    let others = positions.row_sums(&kernel.pairs);
    let means: Few<f64> =
        kernel.own.iter().zip(&others).map(|(own, others)| (own + others) / positions.length).collect();
    let mean = positions.sum(|node| means[node]) / positions.length;
    let own = kernel.own.iter().zip(&means).map(|(own, of_token)| own - 2.0 * of_token + mean).collect();
    let pairs = kernel.map_pairs(&means, |_, [a, b], pair| pair - a - b + mean);
    kernel.with(kernel.ln_unit, own, pairs)
}

/// Returns the kernel of a signal minus its mean over the batch, times the factor after which the mean of E x_a² is
/// `own` in units of e^`ln_unit`.
fn normalised(kernel: &Kernel, ln_unit: f64, own: f64) -> Kernel {
    let rest = without_sum(kernel);
    let [square, _] = averages(&rest);
    Kernel { ln_unit, ..rest.multiplied(if square > 0.0 { own / square } else { 0.0 }) }
}

impl<'n> BatchNorm<'n> {
    /// Returns the rule of a norm; `None` if it is not over the batch.
    pub(crate) fn of(norm: &'n Norm) -> Option<Self> {
        let NormKind::BatchNorm { training } = norm.kind else { return None };
        Some(Self { norm, training })
    }

    /// Returns Σ_ab E g_a g_b ẑ_a ẑ_b, in units of the gradient's kernel.
    fn radial(y: &Signal, gradient: &Gradient) -> f64 {
        let of_products = match &gradient.next {
            Next::Activation(activation) => activation.with_signal(y, &gradient.kernel),
            Next::Anything | Next::Scores => gradient.kernel.times(&y.kernel),
        };
        let y = &y.kernel;
        let [square, _] = averages(y);
        let unit = (of_products.ln_unit - y.ln_unit - gradient.kernel.ln_unit).exp();
        of_products.total() / square * (unit / y.positions.length)
    }

    /// Returns the relative variance Var |y|²/(E |y|²)² of one feature over the batch. It is zero for ε = 0, where the
    /// length is fixed.
    pub(crate) fn square_variance(norm: &Norm, x: &Kernel) -> f64 {
        let batch = Batch::new(norm, x);
        let [mean, square] = [1, 2].map(|power| batch.mean(|_, share| share.powi(power)));
        (square / (mean * mean) - 1.0).max(0.0)
    }
}

impl MeanField for BatchNorm<'_> {
    fn forward(&self, x: &Signal) -> Signal {
        let own = Batch::new(self.norm, &x.kernel).mean(|_, share| share);
        let y = Signal::centred(x.width, normalised(&x.kernel, 0.0, own).scaled(self.norm.gain * self.norm.gain));
        Signal { length_lost: Some(x.kernel.positions.length - 1.0), ..y }
    }

    fn backward(&self, x: &Signal, y: &Signal, gradient: &Gradient) -> Gradient {
        let batch = Batch::new(self.norm, &x.kernel);
        let squared_gain = self.norm.gain * self.norm.gain;
        let inverse = batch.mean(|divisor, _| divisor.recip());
        let ln_unit = gradient.kernel.ln_unit - batch.ln_unit;
        if !self.training {
            let times = |numbers: &Few<f64>| numbers.iter().map(|&number| number * inverse).collect();
            let kernel = gradient.kernel.with(ln_unit, times(&gradient.kernel.own), times(&gradient.kernel.pairs));
            return Gradient::independent(kernel.scaled(squared_gain));
        }
        let along = if y.kernel.is_zero() { 0.0 } else { Self::radial(y, gradient) };
        let removed = batch.mean(|divisor, share| (2.0 - share) * share / divisor);
        let radial = normalised(&x.kernel, gradient.kernel.ln_unit, -removed * along / batch.count);
        let kernel = Kernel { ln_unit, ..without_sum(&gradient.kernel).multiplied(inverse).plus(&radial) };
        Gradient::independent(kernel.scaled(squared_gain))
    }

    fn weights<'a>(&'a self, x: &Signal, y: &Signal, gradient: &Gradient) -> Few<(Parameter<'a>, f64)> {
        let plain = Norm { gain: 1.0, ..*self.norm };
        let normalised = || BatchNorm { norm: &plain, training: self.training }.forward(x).kernel;
        smallvec![(Parameter::Gain, ln_gain_gradient(self.norm, y, gradient, normalised))]
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use approx::assert_relative_eq;
    use sigprop_stack::Activation;

    use super::super::component::MeanField as _;
    use super::super::dual::Dual;
    use super::super::positions::Positions;
    use super::*;

    /// Returns a norm with its input and output, for a batch of 17 tokens.
    fn normalised(gain: f64) -> (Norm, [Signal; 2]) {
        let norm = Norm { gain, ..Norm::plain(NormKind::BatchNorm { training: true }, 0.0) };
        let positions = Arc::new(Positions::groups(&[17.0], None));
        let x = Signal::centred(64.0, Kernel::new(&positions, |_| 2.0, |_| 0.5));
        let y = BatchNorm::of(&norm).expect("a BatchNorm").forward(&x);
        (norm, [x, y])
    }

    #[test]
    fn example_of_the_header() {
        let plain = Norm::plain(NormKind::BatchNorm { training: true }, 0.0);
        let norm = BatchNorm::of(&plain).expect("a BatchNorm");
        let x = Signal::centred(64.0, Kernel::of_tokens(5.0, [1.0, 0.0]));
        let y = norm.forward(&x);
        y.kernel.assert_is([1.0, -0.25]);
        let gradient = Gradient::independent(Kernel::of_tokens(5.0, [1.0, 0.0]));
        norm.backward(&x, &y, &gradient).kernel.assert_is([1.5, -0.25]);
    }

    /// The values of a feature lie on a sphere in 16 dimensions: E y⁴ = 3·16/18 (E y²)², and E y² is not affected.
    #[test]
    fn activations_see_directions() {
        let (_, [_, y]) = normalised(1.0);
        let phi = Dual::new(Activation::Relu2).forward(&y);
        let (square, mean) = (phi.kernel.own[0] * phi.kernel.ln_unit.exp(), phi.means.expect("it has one")[0]);
        assert_relative_eq!(square, 0.5 * 3.0 * 16.0 / 18.0, max_relative = 5.0 / (16.0 * 16.0));
        assert_relative_eq!(mean * (0.5 * phi.kernel.ln_unit).exp(), 0.5, max_relative = 1e-9);
    }

    /// Gains that start at zero have a gradient: x̂ times the gradient that the activation sends back at zero.
    #[test]
    fn gains_of_zero_learn() {
        let (norm, [x, y]) = normalised(0.0);
        let activation = Dual::new(Activation::Gelu);
        let after = activation.forward(&y);
        let ones = Gradient::independent(Kernel::new(&x.kernel.positions, |_| 1.0, |_| 0.0));
        let gradient = activation.backward(&y, &after, &ones);
        let norm = BatchNorm::of(&norm).expect("a BatchNorm");
        let [(_, ln_gain)] = norm.weights(&x, &y, &gradient)[..] else { panic!("it has gains") };
        // GELU'(0)² = ¼ for each of 17 tokens with E x̂² = 1.
        assert_relative_eq!(ln_gain.exp(), 17.0 / 4.0, max_relative = 1e-6);
    }

    /// E χ², E χ⁴ and E 1/χ² have their known values.
    #[test]
    fn moments_of_lengths() {
        for degrees in [3.0, 7.0, 255.0] {
            let points = chi_square(degrees);
            let mean = |of: fn(f64) -> f64| points.iter().map(|&(value, weight)| of(value) * weight).sum::<f64>();
            assert_relative_eq!(mean(|s| s), degrees, max_relative = 1e-9);
            assert_relative_eq!(mean(|s| s * s), degrees * (degrees + 2.0), max_relative = 1e-9);
            assert_relative_eq!(mean(f64::recip), (degrees - 2.0).recip(), max_relative = 1e-6);
        }
    }
}
