//! LayerNorm and RMSNorm: y = gain (x − m)/√(E (x − m)² + ε) + bias.
//!
//! ```text
//! K_ab = E x_a x_b − m_a m_b
//! forward    E y_a y_b = gain² K_ab/√((K_aa + ε)(K_bb + ε)) + s_bias²
//! backward   G^x_ab = gain² G^y_ab/√((K_aa + ε)(K_bb + ε))
//! gains      E dgain² = Σ_ab E (g x̂)_a (g x̂)_b            x̂: y before gain and bias, g: at y
//! ```
//!
//! where a, b are positions of tokens; E is the average over random weights and over features; m_a is E x_a for
//! LayerNorm and 0 for RMSNorm; K_ab is the kernel of x − m; ε is the number that a norm adds to the variance; gain is
//! the gain of a norm; s_bias² is the variance of an entry of a bias; G^y is the kernel E g_a g_b of the gradients at
//! the output y; G^x is the kernel E g_a g_b of the gradients at the input x; dgain is the gradient of the gain of a
//! feature; x̂ is the output of a norm before gain and bias; g is the gradient of the loss.
//!
//! A norm removes the parts of a gradient along x and along (1, …, 1). They are of order 1/width and neglected here.
//! The product g x̂ has the moments G^y_ab E x̂_a x̂_b, unless an activation follows, whose derivative depends on x̂:
//! [`super::activation`].
//!
//! Example: x of variance 0.0008 and correlation 0.5, ε = 0.00001 and gain 1: y has variance 0.0008/0.00081 = 0.988 and
//! correlation 0.5. A gradient of variance 1 at y becomes 1/0.00081 = 1235 at x.
//!
//! Assumption: averages over features are expectations. Source: Kedia et al. 2024, appendix on layer normalisation.
//! DyT and Derf are treated as the components that they consist of: a scale, an activation, the gains. BatchNorm has a
//! file of its own.

use sigprop_stack::{Norm, NormKind};
use smallvec::smallvec;

use super::component::{MeanField, Parameter};
use super::few::Few;
use super::gradient::{Gradient, Next};
use super::kernel::Kernel;
use super::signal::Signal;

/// The kernel K of x − m (`centred`), and the divisor at every node.
struct Division {
    centred: Kernel,
    /// K_aa + ε, in units of e^`ln_unit`.
    divisors: Few<f64>,
    ln_unit: f64,
}

impl Division {
    fn new(norm: &Norm, x: &Signal) -> Self {
        let centred = if centres(norm) { x.centred_kernel() } else { x.kernel.clone() };
        let ln_eps = norm.eps.ln();
        let ln_unit = if centred.is_zero() { ln_eps } else { centred.ln_unit.max(ln_eps) };
        let [unit, eps] = [centred.ln_unit - ln_unit, ln_eps - ln_unit].map(f64::exp);
        let divisors = centred.own.iter().map(|&own| own * unit + eps).collect();
        Self { centred, divisors, ln_unit }
    }

    /// Returns `kernel` divided by √((K_aa + ε)(K_bb + ε)).
    fn of(&self, kernel: &Kernel) -> Kernel {
        let own = kernel.own.iter().zip(&self.divisors).map(|(&own, &divisor)| own / divisor).collect();
        let inverse: Few<f64> = self.divisors.iter().map(|divisor| divisor.sqrt().recip()).collect();
        let pairs = kernel.map_pairs(&inverse, |_, [a, b], product| product * a * b);
        kernel.with(kernel.ln_unit - self.ln_unit, own, pairs)
    }
}

fn centres(norm: &Norm) -> bool {
    match norm.kind {
        NormKind::LayerNorm => true,
        NormKind::RmsNorm | NormKind::Dyt { .. } | NormKind::Derf { .. } => false,
        NormKind::BatchNorm { .. } => unreachable!("BatchNorm has a rule of its own"),
    }
}

impl MeanField for Norm {
    fn forward(&self, x: &Signal) -> Signal {
        let division = Division::new(self, x);
        let kernel = division.of(&division.centred).scaled(self.gain * self.gain).shifted(self.bias.variance());
        let mut y = Signal::centred(x.width, kernel);
        if !centres(self) && !y.kernel.is_zero() {
            let unit = self.gain * (0.5 * (x.kernel.ln_unit - division.ln_unit - y.kernel.ln_unit)).exp();
            y.means = x.scaled_means(|node| division.divisors[node].sqrt().recip() * unit);
        }
        y
    }

    fn backward(&self, x: &Signal, _: &Signal, gradient: &Gradient) -> Gradient {
        let kernel = Division::new(self, x).of(&gradient.kernel);
        Gradient::independent(kernel.scaled(self.gain * self.gain))
    }

    fn weights<'a>(&'a self, x: &Signal, y: &Signal, gradient: &Gradient) -> Few<(Parameter<'a>, f64)> {
        if !self.has_own_gains() {
            return Few::new();
        }
        let division = Division::new(self, x);
        let ln_gain = ln_gain_gradient(self, y, gradient, || division.of(&division.centred));
        smallvec![(Parameter::Gain, ln_gain)]
    }
}

/// Returns ln E dgain² of a norm with the output `y`. `normalised` returns the kernel of the output for gains of 1.
pub(super) fn ln_gain_gradient(
    norm: &Norm,
    y: &Signal,
    gradient: &Gradient,
    normalised: impl FnOnce() -> Kernel,
) -> f64 {
    match &gradient.next {
        // If gains are zero, the derivative does not depend on x̂.
        Next::Activation(activation) if norm.gain != 0.0 => {
            activation.with_signal(y, &gradient.kernel).ln_total() - 2.0 * norm.gain.abs().ln()
        }
        Next::Activation(_) | Next::Anything | Next::Scores => gradient.ln_collected(&normalised()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn example_of_the_header() {
        for kind in [NormKind::LayerNorm, NormKind::RmsNorm] {
            let norm = Norm::plain(kind, 0.000_01);
            let x = Signal::centred(64.0, Kernel::of_tokens(2.0, [0.0008, 0.5]));
            let y = norm.forward(&x);
            y.kernel.assert_is([0.0008 / 0.000_81, 0.5]);
            let gradient = Gradient::independent(Kernel::of_tokens(2.0, [1.0, 0.0]));
            norm.backward(&x, &y, &gradient).kernel.assert_is([0.000_81f64.recip(), 0.0]);
        }
    }
}
