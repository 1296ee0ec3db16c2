//! BatchNorm: y_a = gain z_a √n/D for every feature, with z_a = x_a − mean_b x_b and D² = Σ_a z_a² + n ε over the n
//! tokens of a batch. G^y and G^x are the kernels E g_a g_b of the gradients at the output y and at the input x.
//!
//! ```text
//! q = E x_a² − E x_a x_b        z_a = x_a − mean_b x_b        |z|² = q s,  s ~ χ²(n − 1)        D² = |z|² + n ε        h = |z|²/D²
//! forward    E y_a² = gain² E h        E y_a y_b = −E y_a²/(n − 1)
//! backward   Σ_a G^x_aa = gain² (E[n/D²] (Σ_a G^y_aa − Σ_ab G^y_ab/n) − E[(2 − h) h n/D²] Σ_ab E g_a g_b e_a e_b)        e = z/|z|, g: at y
//!            G^x_ab = −G^x_aa/(n − 1)        in evaluation G^x_ab = gain² E[n/D²] G^y_ab
//! ```
//!
//! E[n/D²] = n/((n − 3) q) for ε = 0. Where an activation follows, its derivative depends on e: see `activation`.
//!
//! Assumptions: all tokens are exchangeable, and x is Gaussian, as after a linear map, so that the length and the
//! direction of z are independent.
//! Source: Yang et al. 2019, A mean field theory of batch normalization, section 3 and appendix E.

use sigprop_stack::Norm;

use super::few::Few;
use super::gradient::{Gradient, Next};
use super::kernel::Kernel;
use super::signal::Signal;

/// A BatchNorm. In training, gradients also pass through the statistics of the batch.
pub(crate) struct BatchNorm<'n> {
    pub(super) norm: &'n Norm,
    pub(super) training: bool,
}

/// The distribution of D²/n for a batch of `count` tokens. Squares are in units of e^`ln_unit`.
struct Batch {
    count: f64,
    /// q = E x_a² − E x_a x_b.
    spread: f64,
    eps: f64,
    ln_unit: f64,
    /// Values of s ~ χ²(n − 1) and their probabilities.
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

    /// Returns the expectation of the function `of` D²/n and h = |z|²/D².
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

/// Returns the kernel, at the positions of `like`, of a signal that sums to zero over the batch and has E x_a² = `own`.
fn without_sum(like: &Kernel, ln_unit: f64, own: f64) -> Kernel {
    let pair = own * (1.0 - like.positions.length).recip();
    Kernel { ln_unit, ..Kernel::new(&like.positions, |_| own, |_| pair) }
}

impl BatchNorm<'_> {
    /// Returns Σ_ab E g_a g_b e_a e_b, in units of the gradient's kernel.
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

    pub(super) fn forward(&self, x: &Signal) -> Signal {
        let own = Batch::new(self.norm, &x.kernel).mean(|_, share| share);
        let y = Signal::centred(x.width, without_sum(&x.kernel, 0.0, own).scaled(self.norm.gain * self.norm.gain));
        Signal { length_lost: Some(x.kernel.positions.length - 1.0), ..y }
    }

    /// Returns the relative variance Var |y|²/(E |y|²)² of one feature over the batch. It is zero for ε = 0, where the
    /// length is fixed.
    pub(crate) fn square_variance(norm: &Norm, x: &Kernel) -> f64 {
        let batch = Batch::new(norm, x);
        let [mean, square] = [1, 2].map(|power| batch.mean(|_, share| share.powi(power)));
        (square / (mean * mean) - 1.0).max(0.0)
    }

    pub(super) fn backward(&self, x: &Signal, y: &Signal, gradient: &Gradient) -> Gradient {
        let batch = Batch::new(self.norm, &x.kernel);
        let squared_gain = self.norm.gain * self.norm.gain;
        let inverse = batch.mean(|divisor, _| divisor.recip());
        let ln_unit = gradient.kernel.ln_unit - batch.ln_unit;
        if !self.training {
            let times = |numbers: &Few<f64>| numbers.iter().map(|&number| number * inverse).collect();
            let kernel = gradient.kernel.with(ln_unit, times(&gradient.kernel.own), times(&gradient.kernel.pairs));
            return Gradient::independent(kernel.scaled(squared_gain));
        }
        let [own, pair] = averages(&gradient.kernel);
        let across = (own - pair) * (batch.count - 1.0);
        let along = if y.kernel.is_zero() { 0.0 } else { Self::radial(y, gradient) };
        let removed = batch.mean(|divisor, share| (2.0 - share) * share / divisor);
        let kernel = without_sum(&x.kernel, ln_unit, (inverse * across - removed * along) / batch.count);
        Gradient::independent(kernel.scaled(squared_gain))
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use approx::assert_relative_eq;
    use sigprop_stack::{Activation, NormKind};

    use super::super::component::MeanField as _;
    use super::super::dual::Dual;
    use super::super::positions::Positions;
    use super::*;

    /// Returns a norm with its input and output, for a batch of 17 tokens.
    fn normalised(gain: f64) -> (Norm, [Signal; 2]) {
        let norm = Norm { gain, ..Norm::plain(NormKind::BatchNorm { training: true }, 0.0) };
        let positions = Arc::new(Positions::groups(&[17.0], None));
        let x = Signal::centred(64.0, Kernel::new(&positions, |_| 2.0, |_| 0.5));
        let y = norm.forward(&x);
        (norm, [x, y])
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
