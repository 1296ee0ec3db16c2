//! LayerNorm and RMSNorm: y = gain (x − m)/√(E (x − m)² + ε) + b, where m = E x for LayerNorm and 0 for RMSNorm.
//! Biases b have the variance s_bias². G^y and G^x are the kernels E g_a g_b of the gradients at the output y and at
//! the input x.
//!
//! ```text
//! h_ab = E x_a x_b − m_a m_b
//! forward    E y_a y_b = gain² h_ab/√((h_aa + ε)(h_bb + ε)) + s_bias²
//! backward   G^x_ab = gain² G^y_ab/√((h_aa + ε)(h_bb + ε))
//! gains      E dgain² = Σ_ab E (g x̂)_a (g x̂)_b            x̂: y before gain and bias, g: at y
//! ```
//!
//! A norm removes the parts of a gradient along x and along (1, …, 1). They are of order 1/width and neglected here.
//! The product g x̂ has the moments G^y_ab E x̂_a x̂_b, unless an activation follows, whose derivative depends on x̂:
//! [`super::activation`].
//!
//! Assumption: averages over features are expectations. Source: Kedia et al. 2024, appendix on layer normalisation.
//! DyT and Derf are treated as the components that they consist of: a scale, an activation, the gains. BatchNorm has a
//! file of its own.

use sigprop_stack::{Norm, NormKind};
use smallvec::smallvec;

use super::batch_norm::BatchNorm;
use super::component::{MeanField, Parameter};
use super::few::Few;
use super::gradient::{Gradient, Next};
use super::kernel::Kernel;
use super::signal::Signal;

/// The kernel h of a norm (`centred`), and the divisor at every node.
struct Division {
    centred: Kernel,
    /// h_aa + ε, in units of e^`ln_unit`.
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

    /// Returns `kernel` divided by √((h_aa + ε)(h_bb + ε)).
    fn of(&self, kernel: &Kernel) -> Kernel {
        let own = kernel.own.iter().zip(&self.divisors).map(|(&own, &divisor)| own / divisor).collect();
        let inverse: Few<f64> = self.divisors.iter().map(|divisor| divisor.sqrt().recip()).collect();
        let pairs = kernel.map_pairs(&inverse, |_, [a, b], product| product * a * b);
        kernel.with(kernel.ln_unit - self.ln_unit, own, pairs)
    }
}

fn centres(norm: &Norm) -> bool {
    norm.kind == NormKind::LayerNorm
}

fn over_batch(norm: &Norm) -> Option<BatchNorm<'_>> {
    let NormKind::BatchNorm { training } = norm.kind else { return None };
    Some(BatchNorm { norm, training })
}

impl MeanField for Norm {
    fn forward(&self, x: &Signal) -> Signal {
        if let Some(batch_norm) = over_batch(self) {
            return batch_norm.forward(x);
        }
        let division = Division::new(self, x);
        let kernel = division.of(&division.centred).scaled(self.gain * self.gain).shifted(self.bias.variance());
        let mut y = Signal::centred(x.width, kernel);
        if !centres(self) && !y.kernel.is_zero() {
            let unit = self.gain * (0.5 * (x.kernel.ln_unit - division.ln_unit - y.kernel.ln_unit)).exp();
            y.means = x.scaled_means(|node| division.divisors[node].sqrt().recip() * unit);
        }
        y
    }

    fn backward(&self, x: &Signal, y: &Signal, gradient: &Gradient) -> Gradient {
        if let Some(batch_norm) = over_batch(self) {
            return batch_norm.backward(x, y, gradient);
        }
        let kernel = Division::new(self, x).of(&gradient.kernel);
        Gradient::independent(kernel.scaled(self.gain * self.gain))
    }

    fn weights<'a>(&'a self, x: &Signal, y: &Signal, gradient: &Gradient) -> Few<(Parameter<'a>, f64)> {
        if !self.has_own_gains() {
            return Few::new();
        }
        let normalised = || match self.kind {
            NormKind::BatchNorm { training } => {
                let plain = Norm { gain: 1.0, ..*self };
                BatchNorm { norm: &plain, training }.forward(x).kernel
            }
            NormKind::LayerNorm | NormKind::RmsNorm | NormKind::Dyt { .. } | NormKind::Derf { .. } => {
                let division = Division::new(self, x);
                division.of(&division.centred)
            }
        };
        let ln_collected = match &gradient.next {
            // If gains are zero, the derivative does not depend on x̂.
            Next::Activation(activation) if self.gain != 0.0 => {
                activation.with_signal(y, &gradient.kernel).ln_total() - 2.0 * self.gain.abs().ln()
            }
            Next::Activation(_) | Next::Anything | Next::Scores => gradient.ln_collected(&normalised()),
        };
        smallvec![(Parameter::Gain, ln_collected)]
    }
}
