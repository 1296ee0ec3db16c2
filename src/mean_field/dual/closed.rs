//! E φ(u) φ(v) and E φ'(u) φ'(v) for jointly Gaussian u, v.
//!
//! Closed forms exist for the ReLU family (Cho & Saul 2009, arc-cosine kernels of order 0–2), erf (Williams 1997) and
//! GELU (two steps of Stein's lemma on u Φ(u) v Φ(v), unequal variances included; equal variances: Tsuchida et al.
//! 2021). All other activations use Mehler's series Σ a_k² c^k over the Hermite coefficients of φ (`series.rs`).

use std::f64::consts::PI;

use sigprop_stack::Activation;

/// Returns E φ(u) φ(v) and E φ'(u) φ'(v) in closed form, for u and v with variances `q` and correlation `c`; `None` if
/// φ has no closed form.
pub(crate) fn closed(activation: Activation, q: [f64; 2], c: f64) -> Option<(f64, f64)> {
    let c = c.clamp(-1.0, 1.0);
    let scale = (q[0] * q[1]).sqrt();
    match activation {
        Activation::Identity => Some((scale * c, 1.0)),
        Activation::PlusOne => Some((scale * c + 1.0, 1.0)),
        Activation::Relu => Some(leaky(scale, c, 0.0)),
        Activation::LeakyRelu { slope } => Some(leaky(scale, c, slope)),
        Activation::Relu2 => {
            let (angle, sine) = (c.acos(), sine(c));
            let kernel = (sine * 3.0 * c + (-angle + PI) * (c * 2.0 * c + 1.0)) / (2.0 * PI);
            Some((scale * scale * kernel, leaky(scale, c, 0.0).0 * 4.0))
        }
        Activation::Erf => {
            let [a, b] = q.map(|q| q * 2.0 + 1.0);
            let determinant = (q[0] + q[1]) * 2.0 + 1.0 + q[0] * 4.0 * q[1] * (-(c * c) + 1.0);
            let sine = (scale * 2.0 * c / (a * b).sqrt()).clamp(-1.0, 1.0);
            Some((sine.asin() * (2.0 / PI), determinant.sqrt().recip() * (4.0 / PI)))
        }
        Activation::Gelu => {
            let ([a, b], p) = (q.map(|q| q + 1.0), scale * c);
            let determinant = a + q[1] + q[0] * q[1] * (-(c * c) + 1.0);
            let root = determinant.sqrt();
            let angle = (p / (a * b).sqrt()).clamp(-1.0, 1.0).asin() / (2.0 * PI) + 0.25;
            let kernel = p * angle + (q[0] * (determinant - a) / a + p * p / b) / (root * (2.0 * PI));
            let inverses = a.recip() + b.recip() + determinant.recip();
            Some((kernel, angle + p / (root * (2.0 * PI)) * inverses))
        }
        Activation::GeluTanh
        | Activation::Silu
        | Activation::QuickGelu
        | Activation::Mish
        | Activation::HardSwish
        | Activation::Relu6
        | Activation::Tanh
        | Activation::Sigmoid
        | Activation::Softplus
        | Activation::Elu
        | Activation::Selu
        | Activation::Xielu
        | Activation::Expression(_) => None,
    }
}

/// Returns √(1 − c²).
fn sine(c: f64) -> f64 {
    let square = -(c * c) + 1.0;
    if square > 0.0 { square.sqrt() } else { 0.0 }
}

/// Returns E φ(u) φ(v) and E φ'(u) φ'(v) for φ(x) = slope·x + (1 − slope)·max(x, 0), where `scale` is the square root
/// of the product of the variances of u and v.
fn leaky(scale: f64, c: f64, slope: f64) -> (f64, f64) {
    let step = (-c.acos() + PI) / (2.0 * PI);
    let relu = sine(c) / (2.0 * PI) + c * step;
    let bend = 1.0 - slope;
    (scale * (c * slope + relu * (bend * bend)), step * (bend * bend) + slope)
}

#[cfg(test)]
mod tests {
    use super::super::function::value_and_derivative;
    use super::super::nodes::{Nodes, Precision};
    use super::*;

    const QUADRATURE_TOLERANCE: f64 = 1e-11;

    #[test]
    fn closed_forms_agree_with_quadrature() {
        let activations = [
            Activation::Identity,
            Activation::PlusOne,
            Activation::Relu,
            Activation::LeakyRelu { slope: 0.2 },
            Activation::Relu2,
            Activation::Erf,
            Activation::Gelu,
        ];
        for activation in activations {
            for q in [[1.0, 1.0], [0.3, 4.0], [9.0, 0.01]] {
                for c in [-0.7, 0.0, 0.3, 0.95] {
                    let exact = closed(activation, q, c).expect("has a closed form");
                    let numerical = by_quadrature(activation, q, c);
                    let size = (q[0] * q[1]).sqrt().max(q[0] * q[1]).max(1.0);
                    assert!((exact.0 - numerical.0).abs() < QUADRATURE_TOLERANCE * size, "{activation:?} {q:?} {c}");
                    assert!((exact.1 - numerical.1).abs() < QUADRATURE_TOLERANCE * size, "{activation:?} {q:?} {c}");
                }
            }
        }
    }

    /// Returns E φ(u) φ(v) and E φ'(u) φ'(v) by quadrature in two dimensions, for u and v with variances `q`. The outer
    /// integral is over the wider variable: averages over the other one vary with it no faster than φ.
    fn by_quadrature(activation: Activation, q: [f64; 2], c: f64) -> (f64, f64) {
        let (scale_u, scale_v) = (q[0].max(q[1]).sqrt(), q[0].min(q[1]).sqrt());
        let own = scale_v * (1.0 - c * c).max(0.0).sqrt();
        let [of_u, of_v] = [scale_u, own].map(|scale| Nodes::new(activation, scale, Precision::Series));
        let mut kernels = (0.0, 0.0);
        for &(z, weight) in of_u.around(0.0).iter() {
            let (value, derivative) = value_and_derivative(activation, scale_u * z);
            let shift = scale_v * c * z;
            let mut means = (0.0, 0.0);
            if own > 0.0 {
                for &(y, inner) in of_v.around(shift).iter() {
                    let (v, d) = value_and_derivative(activation, shift + own * y);
                    means.0 += inner * v;
                    means.1 += inner * d;
                }
            } else {
                means = value_and_derivative(activation, shift);
            }
            kernels.0 += weight * value * means.0;
            kernels.1 += weight * derivative * means.1;
        }
        kernels
    }
}
