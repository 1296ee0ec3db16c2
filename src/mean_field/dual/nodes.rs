//! Quadrature nodes for expectations of an activation over Gaussian arguments, as few as the precision allows.
//!
//! # Formula
//!
//! The trapezoidal rule is E f(z) = step Σ_k f(k step) density(k step), with the density of N(0, 1). If f is analytic
//! between the lines |Im z| = strip, its error is 2 e^(strip²/2 − 2π strip/step) times the size of f on these lines. An
//! error of e^−digits requires
//!
//! ```text
//! poles at a distance from the real line            step = 2π strip/(digits + strip²/2)
//!                                                   strip = ¾ distance/σ, √(2 digits) at most
//! entire, |φ(x + iy)| growing as e^(growth y²/2)    step = π √(2/(digits (1 + factors growth σ²))), at the best strip
//! ```
//!
//! where step is the distance of two nodes; strip is the largest |Im z| for which the error is bounded; digits is −ln
//! of the error; distance is the distance of the poles of φ from the real line; σ is the standard deviation of an
//! argument of φ; φ is the activation; x, y are the real and the imaginary part of the argument of φ; growth is the
//! rate at which φ grows off the real line; factors is the largest number of values and derivatives of φ in a product,
//! which is 4.
//!
//! This takes 30 to 100 nodes at the scales of networks, where panels take 150 to 300. Panels remain in use for
//! activations with kinks, and where the step would be too short.
//!
//! Source: Trefethen & Weideman 2014, The exponentially convergent trapezoidal rule, theorem 5.1.

use std::borrow::Cow;
use std::f64::consts::{FRAC_PI_2, PI, SQRT_2};

use sigprop_stack::Activation;

use super::function::QUICK_GELU_SLOPE;
use super::shape::shape;
use crate::quadrature::{coarse_nodes, gaussian_nodes, nodes_between, trapezoidal_nodes};

/// The precision of an expectation.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Precision {
    /// Eleven digits, also for terms up to k = 80 of a Hermite series. For a term like z^k, the trapezoidal rule adds
    /// the component of the frequency f = 2π/step, times f^k e^(−f²/2)/√k!.
    Series,
    /// Four digits.
    Coarse,
}

impl Precision {
    /// Returns `digits` (see the header), the largest |z|, the longest step, and the least number of nodes of panels.
    fn trapezoid(self) -> (f64, f64, f64, usize) {
        match self {
            Self::Series => (36.0, 10.0, 0.39, 144),
            Self::Coarse => (18.0, 6.0, 0.7, 32),
        }
    }
}

/// The behaviour of φ off the real line.
enum Beside {
    /// φ has poles, or ends of cuts, at this distance.
    Poles(f64),
    /// φ is analytic everywhere and grows as e^(growth y²/2), with this growth.
    Entire(f64),
    /// φ is not analytic: it has kinks.
    Nothing,
}

fn beside(activation: Activation) -> Beside {
    match activation {
        Activation::Expression(_)
        | Activation::Relu
        | Activation::LeakyRelu { .. }
        | Activation::Relu2
        | Activation::Relu6
        | Activation::HardSwish
        | Activation::Elu
        | Activation::Selu
        | Activation::Xielu => Beside::Nothing,
        Activation::Identity | Activation::PlusOne => Beside::Entire(0.0),
        Activation::Gelu => Beside::Entire(1.0),
        Activation::Erf => Beside::Entire(2.0),
        Activation::Tanh => Beside::Poles(FRAC_PI_2),
        Activation::Silu | Activation::Sigmoid | Activation::Softplus => Beside::Poles(PI),
        Activation::QuickGelu => Beside::Poles(PI / QUICK_GELU_SLOPE),
        // (1 + eˣ)² = −1 at x = ½ ln 2 ± ¾πi.
        Activation::Mish => Beside::Poles(0.75 * PI),
        // √(2/π) (x + 0.044715 x³) = iπ/2 at x = ±0.6344 + 2.7548i.
        Activation::GeluTanh => Beside::Poles(2.754_770_6),
    }
}

/// Nodes for E f(z), z ~ N(0, 1), where f is a product of up to four values and derivatives of φ at shift + `scale`·z.
pub(crate) struct Nodes {
    activation: Activation,
    scale: f64,
    precision: Precision,
    /// Nodes of the trapezoidal rule, valid for every shift; `None` if panels are used.
    trapezoid: Option<Vec<(f64, f64)>>,
}

impl Nodes {
    pub(crate) fn new(activation: Activation, scale: f64, precision: Precision) -> Self {
        /// The number of values and derivatives in a product.
        const FACTORS: f64 = 4.0;
        /// The width of the strip, as a fraction of the distance of the poles.
        const PART: f64 = 0.75;
        let (digits, limit, longest, of_panels) = precision.trapezoid();
        let step = match beside(activation) {
            Beside::Poles(distance) => {
                let strip = (PART * distance / scale).min(SQRT_2 * digits.sqrt());
                2.0 * PI * strip / (digits + 0.5 * strip * strip)
            }
            Beside::Entire(growth) => PI * (2.0 / (digits * (1.0 + FACTORS * growth * scale * scale))).sqrt(),
            Beside::Nothing => 0.0,
        };
        let step = step.min(longest);
        let is_short = limit <= 0.5 * of_panels as f64 * step;
        Self { activation, scale, precision, trapezoid: is_short.then(|| trapezoidal_nodes(step, limit)) }
    }

    /// Returns the nodes z and their weights, density included.
    pub(crate) fn around(&self, shift: f64) -> Cow<'_, [(f64, f64)]> {
        if let Activation::Expression(expression) = self.activation {
            return self.over(&shape(expression).breaks, shift).into();
        }
        match (&self.trapezoid, self.precision) {
            (Some(nodes), _) => nodes.into(),
            (None, Precision::Series) => gaussian_nodes(shift, self.scale).into(),
            (None, Precision::Coarse) => coarse_nodes(shift, self.scale).into(),
        }
    }

    /// Returns the nodes and their weights for a function with panels between these breaks of its argument.
    pub(super) fn over(&self, breaks: &[f64], shift: f64) -> Vec<(f64, f64)> {
        nodes_between(breaks, matches!(self.precision, Precision::Coarse), shift, self.scale)
    }
}

#[cfg(test)]
mod tests {
    use super::super::function::value_and_derivative;
    use super::*;

    /// The nodes agree with panels, which do not depend on poles. Errors are relative to the size of squares, because
    /// means may vanish.
    #[test]
    fn few_nodes_tell_what_panels_tell() {
        for activation in Activation::ALL {
            for scale in [1e-3f64, 0.1, 0.5, 1.0, 2.0, 5.0, 50.0] {
                for shift in [0.0, 1.3] {
                    let expectations = |nodes: &[(f64, f64)]| {
                        nodes.iter().fold([0.0; 7], |sums, &(z, weight)| {
                            let (f, d) = value_and_derivative(activation, shift + scale * z);
                            let of = [f, d, f * f, d * d, f.powi(4), f * f * d * d, z * z * d * d];
                            std::array::from_fn(|k| sums[k] + weight * of[k])
                        })
                    };
                    let exact = expectations(&gaussian_nodes(shift, scale));
                    let sizes = [exact[2].sqrt(), exact[3].sqrt(), exact[2], exact[3], exact[4], exact[5], exact[6]];
                    for (precision, tolerance) in [(Precision::Series, 1e-11), (Precision::Coarse, 1e-4)] {
                        let few = Nodes::new(activation, scale, precision);
                        let few = few.around(shift);
                        if few.len() >= precision.trapezoid().3 {
                            continue;
                        }
                        let got = expectations(&few);
                        for ((got, exact), size) in got.into_iter().zip(exact).zip(sizes) {
                            let error = (got - exact).abs() / size;
                            assert!(
                                error < tolerance,
                                "{activation:?}, {shift} + {scale} z, {precision:?}: {error:.1e}"
                            );
                        }
                    }
                }
            }
        }
    }

    #[test]
    fn analytic_activations_take_few_nodes() {
        for (activation, scale, most) in
            [(Activation::Gelu, 1.0, 35), (Activation::Tanh, 1.0, 50), (Activation::Silu, 2.0, 50)]
        {
            let taken = Nodes::new(activation, scale, Precision::Coarse).around(0.0).len();
            assert!(taken < most, "{activation:?}: {taken}");
        }
        let relu = Nodes::new(Activation::Relu, 1.0, Precision::Series);
        assert_eq!(relu.around(0.0).len(), gaussian_nodes(0.0, 1.0).len());
    }
}
