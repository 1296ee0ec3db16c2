//! Activations φ and their derivatives φ' in f64.

use libm::{erf, exp, expm1, tanh};
use sigprop_stack::Activation;

use super::expression;
pub(crate) use super::expression::{sigmoid, softplus};
pub(crate) use super::shape::Degrees;
use super::shape::shape;

use std::f64::consts::{FRAC_1_SQRT_2, FRAC_2_SQRT_PI, PI};

pub(crate) const SELU_SCALE: f64 = 1.050_700_987_355_480_5;
pub(crate) const SELU_ALPHA: f64 = 1.673_263_242_354_377_2;
/// Initial α and β of xIELU (Huang and Schlag 2024, arXiv 2411.13010).
const XIELU: (f64, f64) = (0.8, 0.5);
const GELU_TANH_CUBIC: f64 = 0.044_715;
pub(crate) const QUICK_GELU_SLOPE: f64 = 1.702;

/// A key that identifies an activation: its discriminant, the bits of its slope and the text of its formula.
pub(crate) type Words = (std::mem::Discriminant<Activation>, u64, &'static str);

pub(crate) fn words(activation: Activation) -> Words {
    let slope = if let Activation::LeakyRelu { slope } = activation { slope } else { 0.0 };
    let text = if let Activation::Expression(expression) = activation { expression.text() } else { "" };
    (std::mem::discriminant(&activation), slope.to_bits(), text)
}

/// Returns φ(x) and φ'(x).
pub(crate) fn value_and_derivative(activation: Activation, x: f64) -> (f64, f64) {
    match activation {
        Activation::Identity => (x, 1.0),
        Activation::PlusOne => (x + 1.0, 1.0),
        Activation::Relu => leaky(x, 0.0),
        Activation::LeakyRelu { slope } => leaky(x, slope),
        Activation::Relu2 => (x.max(0.0).powi(2), 2.0 * x.max(0.0)),
        Activation::Gelu => {
            let cumulative = 0.5 * libm::erfc(-x * FRAC_1_SQRT_2);
            let density = exp(-0.5 * x * x) * FRAC_2_SQRT_PI * 0.5 * FRAC_1_SQRT_2;
            (x * cumulative, cumulative + x * density)
        }
        Activation::GeluTanh => {
            let root = (2.0 / PI).sqrt();
            let t = tanh(root * (x + GELU_TANH_CUBIC * x * x * x));
            let inner = root * (1.0 + 3.0 * GELU_TANH_CUBIC * x * x);
            (0.5 * x * (1.0 + t), 0.5 * (1.0 + t) + 0.5 * x * (1.0 - t * t) * inner)
        }
        Activation::Silu => {
            let s = sigmoid(x);
            (x * s, s * (1.0 + x * (1.0 - s)))
        }
        Activation::QuickGelu => {
            let s = sigmoid(QUICK_GELU_SLOPE * x);
            (x * s, s * (1.0 + QUICK_GELU_SLOPE * x * (1.0 - s)))
        }
        Activation::Mish => {
            let t = tanh(softplus(x));
            (x * t, t + x * (1.0 - t * t) * sigmoid(x))
        }
        Activation::HardSwish => match x {
            _ if x <= -3.0 => (0.0, 0.0),
            _ if x >= 3.0 => (x, 1.0),
            _ => (x * (x + 3.0) / 6.0, (2.0 * x + 3.0) / 6.0),
        },
        Activation::Relu6 => (x.clamp(0.0, 6.0), if x > 0.0 && x < 6.0 { 1.0 } else { 0.0 }),
        Activation::Tanh => {
            let t = tanh(x);
            (t, 1.0 - t * t)
        }
        Activation::Sigmoid => {
            let s = sigmoid(x);
            (s, s * (1.0 - s))
        }
        Activation::Erf => (erf(x), FRAC_2_SQRT_PI * exp(-x * x)),
        Activation::Softplus => (softplus(x), sigmoid(x)),
        Activation::Elu => exponential_unit(x, 1.0, 1.0),
        Activation::Selu => exponential_unit(x, SELU_SCALE, SELU_ALPHA),
        Activation::Xielu => {
            let (alpha, beta) = XIELU;
            let (bent, slope) = if x > 0.0 { (x * x, 2.0 * x) } else { (expm1(x) - x, expm1(x)) };
            (alpha * bent + beta * x, alpha * slope + beta)
        }
        Activation::Expression(expression) => expression::value_and_derivative(expression, x),
    }
}

fn leaky(x: f64, slope: f64) -> (f64, f64) {
    if x > 0.0 { (x, 1.0) } else { (slope * x, slope) }
}

fn exponential_unit(x: f64, scale: f64, alpha: f64) -> (f64, f64) {
    if x > 0.0 { (scale * x, scale) } else { (scale * alpha * expm1(x), scale * alpha * exp(x)) }
}

/// Returns true if φ(−x) = −φ(x). The mean of φ is then exactly zero, not a rounding error.
pub(crate) fn is_odd(activation: Activation) -> bool {
    match activation {
        Activation::Expression(expression) => shape(expression).is_odd,
        _ => matches!(activation, Activation::Identity | Activation::Tanh | Activation::Erf),
    }
}

/// Returns the degrees of an activation that is homogeneous at every scale; `None` for others.
pub(crate) fn homogeneous(activation: Activation) -> Option<Degrees> {
    match activation {
        Activation::Identity | Activation::Relu | Activation::LeakyRelu { .. } => {
            Some(Degrees { value: 1.0, derivative: 0.0 })
        }
        Activation::Relu2 => Some(Degrees { value: 2.0, derivative: 1.0 }),
        Activation::PlusOne
        | Activation::Gelu
        | Activation::GeluTanh
        | Activation::Silu
        | Activation::QuickGelu
        | Activation::Mish
        | Activation::HardSwish
        | Activation::Relu6
        | Activation::Elu
        | Activation::Selu
        | Activation::Xielu
        | Activation::Tanh
        | Activation::Erf
        | Activation::Sigmoid
        | Activation::Softplus
        | Activation::Expression(_) => None,
    }
}

/// Returns the degrees of an activation in the limit of small scales, s → 0.
pub(crate) fn small_degrees(activation: Activation) -> Degrees {
    if let Activation::Expression(expression) = activation {
        return shape(expression).small;
    }
    let constant = value_and_derivative(activation, 0.0).0.abs() > 0.0;
    Degrees { value: if constant { 0.0 } else { 1.0 }, derivative: 0.0 }
}

/// Returns the degrees of an activation in the limit of large scales, s → ∞. A bounded φ has a slope only where |x| ≲
/// 1, a share 1/s of the arguments.
pub(crate) fn large_degrees(activation: Activation) -> Degrees {
    match activation {
        Activation::Tanh | Activation::Erf | Activation::Sigmoid | Activation::Relu6 => {
            Degrees { value: 0.0, derivative: -0.5 }
        }
        Activation::Relu2 | Activation::Xielu => Degrees { value: 2.0, derivative: 1.0 },
        Activation::Expression(expression) => shape(expression).large,
        _ => Degrees { value: 1.0, derivative: 0.0 },
    }
}

/// Returns the largest standard deviation of arguments at which averages resolve φ.
pub(crate) fn widest(activation: Activation) -> f64 {
    match activation {
        Activation::Expression(expression) => shape(expression).widest,
        _ => f64::INFINITY,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn odd_functions_are_odd() {
        for activation in Activation::ALL {
            let [there, back] = [0.7, -0.7].map(|x| value_and_derivative(activation, x).0);
            assert_eq!(is_odd(activation), (there + back).abs() < 1e-15, "{activation:?}");
        }
    }

    #[test]
    fn derivatives_agree_with_finite_differences() {
        let step = 1e-5;
        for activation in Activation::ALL {
            for x in [-7.0, -2.0, -0.5, 0.3, 1.1, 4.0] {
                let value = |x| value_and_derivative(activation, x).0;
                let numerical = (value(x + step) - value(x - step)) / (2.0 * step);
                let derivative = value_and_derivative(activation, x).1;
                assert!((derivative - numerical).abs() < 1e-9 * (1.0 + x.abs()), "{activation:?} at {x}");
            }
        }
    }
}
