//! Activation y = φ(x) of pixels whose mean is not zero, such as those of a residual stream that starts with a ReLU.
//!
//! ```text
//! forward    E y_a² = E φ(u)²      E y_a = A_0      E y_a y_b = Σ_k A_k B_k r^k      A_k = E φ(mean + σ t) h_k(t)
//! backward   G^x_ab = G^y_ab Σ_k A'_k B'_k r^k, for φ' in place of φ
//! ```
//!
//! where a, b are positions of tokens; E is the average over random weights and over features; φ is the activation; φ'
//! is the derivative of φ; u is a Gaussian variable with the mean and the variance of x_a; mean is E x_a; σ is the
//! standard deviation of x_a; t is a standard Gaussian variable; h_k is the normalised Hermite polynomial of degree k;
//! A_k, B_k are the coefficients of φ at tokens a and b; A'_k, B'_k are those of φ'; r is the correlation of x_a and x_b;
//! G^y is the kernel E g_a g_b of the gradients at the output y; G^x is the kernel E g_a g_b of the gradients at the
//! input x.
//!
//! Example: ReLU for x of mean 0.4 and second moment 1.5: E y² = 1.126, and 0.635 of a gradient's variance at y arrives
//! at x.
//!
//! Assumption: x is Gaussian. A ReLU of a Gaussian variable plus another of the same variance has E y² = 1.159 and a
//! share of 0.625 there, so that second moments are 3 % too small and gradients 2 % too large. Source: Mehler's formula.

use sigprop_stack::Activation;

use super::component::{MeanField, Parameter};
use super::dual::function::{homogeneous, value_and_derivative};
use super::few::Few;
use super::gradient::Gradient;
use super::kernel::{Kernel, correlation};
use super::signal::Signal;

/// The number of Hermite polynomials.
const DEGREES: usize = 24;

/// An activation of a signal with a mean.
#[derive(Debug)]
pub(crate) struct Shifted(pub(crate) Activation);

/// Moments of a function of a Gaussian variable.
struct Moments {
    second: f64,
    /// The coefficients A_k.
    coefficients: [f64; DEGREES],
}

impl Moments {
    fn new(mean: f64, std: f64, of: impl Fn(f64) -> f64) -> Self {
        const END: f64 = 8.0;
        const STEPS: usize = 640;
        const STEP: f64 = 2.0 * END / STEPS as f64;
        // A kink of φ at zero lies between two nodes.
        let shift = if std > 0.0 { (END - mean / std).rem_euclid(STEP) } else { 0.0 };
        let mut moments = Self { second: 0.0, coefficients: [0.0; DEGREES] };
        for step in 0..STEPS {
            let t = (step as f64 + 0.5) * STEP - END + shift;
            let weight = (-0.5 * t * t).exp() * STEP / std::f64::consts::TAU.sqrt();
            let value = of(mean + std * t);
            moments.second += weight * value * value;
            let mut polynomials = [0.0, 1.0];
            for (degree, coefficient) in moments.coefficients.iter_mut().enumerate() {
                *coefficient += weight * value * polynomials[1];
                let (root, next) = ((degree as f64).sqrt(), (degree as f64 + 1.0).sqrt());
                polynomials = [polynomials[1], (t * polynomials[1] - root * polynomials[0]) / next];
            }
        }
        moments
    }
}

impl Shifted {
    /// Returns the kernel of a function of the signal, and its means. The unit of the signal is `unit`.
    fn of(x: &Signal, unit: f64, of: impl Fn(f64) -> f64) -> (Kernel, Few<f64>) {
        let kernel = &x.kernel;
        let variance = |node: usize| (kernel.own[node] - x.mean(node).powi(2)).max(0.0);
        let variances: Vec<f64> = (0..kernel.own.len()).map(variance).collect();
        let moments: Vec<Moments> = variances
            .iter()
            .enumerate()
            .map(|(node, variance)| Moments::new(x.mean(node) * unit, variance.sqrt() * unit, &of))
            .collect();
        let pair = |point: usize| {
            let (a, nodes) = kernel.positions.nodes_of(point);
            let b = nodes[0].0 as usize;
            let r = correlation([variances[a], variances[b]], kernel.pairs[point] - x.mean_product(point));
            let products = moments[a].coefficients.iter().zip(&moments[b].coefficients).map(|(a, b)| a * b);
            products.rev().fold(0.0, |sum, product| sum * r + product)
        };
        let means = moments.iter().map(|moments| moments.coefficients[0]).collect();
        (Kernel::new(&kernel.positions, |node| moments[node].second, pair), means)
    }

    /// Returns the unit of the argument, and ln of the unit of φ²: numbers keep their unit if φ(c x) = c φ(x).
    fn units(&self, x: &Signal) -> (f64, f64) {
        match homogeneous(self.0) {
            Some(degrees) if degrees.value < 1.5 => (1.0, x.kernel.ln_unit),
            Some(_) | None => ((0.5 * x.kernel.ln_unit).exp(), 0.0),
        }
    }
}

impl MeanField for Shifted {
    fn forward(&self, x: &Signal) -> Signal {
        let (unit, ln_unit) = self.units(x);
        let (kernel, means) = Self::of(x, unit, |u| value_and_derivative(self.0, u).0);
        Signal { means: Some(means), ..Signal::centred(x.width, Kernel { ln_unit, ..kernel }) }
    }

    fn backward(&self, x: &Signal, _: &Signal, gradient: &Gradient) -> Gradient {
        let (slopes, _) = Self::of(x, self.units(x).0, |u| value_and_derivative(self.0, u).1);
        Gradient::independent(gradient.kernel.times(&slopes))
    }

    fn weights<'a>(&'a self, _: &Signal, _: &Signal, _: &Gradient) -> Few<(Parameter<'a>, f64)> {
        Few::new()
    }
}

#[cfg(test)]
mod tests {
    use approx::assert_relative_eq;
    use smallvec::smallvec;

    use super::*;

    #[test]
    fn example_of_the_header() {
        let kernel = Kernel::of_tokens(2.0, [1.5, 0.4]);
        let x = Signal { means: Some(smallvec![0.4]), ..Signal::centred(64.0, kernel) };
        let relu = Shifted(Activation::Relu);
        let y = relu.forward(&x);
        assert_relative_eq!(y.kernel.own[0], 1.126, max_relative = 1e-3);
        let gradient = Gradient::independent(Kernel::of_tokens(2.0, [1.0, 0.0]));
        assert_relative_eq!(relu.backward(&x, &y, &gradient).kernel.own[0], 0.635, max_relative = 1e-3);
    }
}
