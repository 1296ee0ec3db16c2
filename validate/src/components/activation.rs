//! Elementwise function φ.
//!
//! ```text
//! forward   y = φ(x)
//! backward  dx = φ'(x) dy
//! ```
//!
//! Derivatives at kinks are those from the left. Not-a-number passes through every function, so
//! that an overflow before it is not hidden.

mod expression;

use std::f64::consts::{FRAC_1_SQRT_2, FRAC_2_SQRT_PI, SQRT_2};

use sigprop_stack::Activation;

use self::expression::evaluate;
use crate::{array::Array, scalar::Scalar};

const SELU_SCALE: f64 = 1.050_700_987_355_480_5;
const SELU_ALPHA: f64 = 1.673_263_242_354_377_2;
/// The factor √(2/π) in the argument of the tanh of [`Activation::GeluTanh`]; the next constant is its cubic
/// coefficient.
const TANH_SCALE: f64 = FRAC_2_SQRT_PI / SQRT_2;
const TANH_CUBIC: f64 = 0.044_715;
/// α and β of [`Activation::Xielu`].
const XIELU: (f64, f64) = (0.8, 0.5);
/// Slope of the sigmoid in [`Activation::QuickGelu`].
const QUICK_GELU_SLOPE: f64 = 1.702;

pub(crate) fn forward<T: Scalar>(activation: Activation, input: &Array<T>) -> Array<T> {
    let c = T::from_f64;
    let (zero, one, half) = (c(0.0), c(1.0), c(0.5));
    match activation {
        Activation::Identity => input.clone(),
        Activation::PlusOne => input.map(|x| x + one),
        Activation::Relu => input.map(relu),
        Activation::LeakyRelu { slope } => {
            let slope = c(slope);
            input.map(|x| if x > zero { x } else { slope * x })
        }
        Activation::Relu2 => input.map(|x| relu(x) * x),
        Activation::Gelu => input.map(|x| x * normal_distribution(x)),
        Activation::GeluTanh => input.map(|x| half * x * (one + tanh_argument(x).tanh())),
        Activation::Silu => input.map(|x| x * sigmoid(x)),
        Activation::QuickGelu => input.map(|x| x * sigmoid(c(QUICK_GELU_SLOPE) * x)),
        Activation::Mish => input.map(|x| x * softplus(x).tanh()),
        Activation::HardSwish => input.map(|x| x * relu6(x + c(3.0)) * c(1.0 / 6.0)),
        Activation::Relu6 => input.map(relu6),
        Activation::Tanh => input.map(T::tanh),
        Activation::Sigmoid => input.map(sigmoid),
        Activation::Erf => input.map(T::erf),
        Activation::Softplus => input.map(softplus),
        Activation::Elu => input.map(|x| if x > zero { x } else { x.exp_m1() }),
        Activation::Selu => {
            let (scale, negative) = (c(SELU_SCALE), c(SELU_SCALE * SELU_ALPHA));
            input.map(|x| if x > zero { scale * x } else { negative * x.exp_m1() })
        }
        Activation::Xielu => {
            let (alpha, beta) = (c(XIELU.0), c(XIELU.1));
            input.map(|x| alpha * if x > zero { x * x } else { x.exp_m1() - x } + beta * x)
        }
        Activation::Expression(expression) => input.map(|x| c(evaluate(expression, x.to_f64()).value)),
    }
}

pub(crate) fn backward<T: Scalar>(activation: Activation, input: &Array<T>, gradient: Array<T>) -> Array<T> {
    let c = T::from_f64;
    let (zero, one, two, half) = (c(0.0), c(1.0), c(2.0), c(0.5));
    match activation {
        Activation::Identity | Activation::PlusOne => gradient,
        Activation::Relu => gradient.zip(input, |g, x| if x > zero { g } else { zero }),
        Activation::LeakyRelu { slope } => {
            let slope = c(slope);
            gradient.zip(input, |g, x| if x > zero { g } else { slope * g })
        }
        Activation::Relu2 => gradient.zip(input, |g, x| two * relu(x) * g),
        Activation::Gelu => {
            let density = c(0.5 * FRAC_2_SQRT_PI * FRAC_1_SQRT_2);
            gradient.zip(input, |g, x| (normal_distribution(x) + density * x * (-half * x * x).exp()) * g)
        }
        Activation::GeluTanh => {
            let (scale, cubic) = (c(TANH_SCALE), c(3.0 * TANH_CUBIC));
            gradient.zip(input, |g, x| {
                let t = tanh_argument(x).tanh();
                half * (one + t + x * (one - t * t) * scale * (one + cubic * x * x)) * g
            })
        }
        Activation::Silu => gradient.zip(input, |g, x| {
            let s = sigmoid(x);
            (s + x * s * (one - s)) * g
        }),
        Activation::QuickGelu => gradient.zip(input, |g, x| {
            let s = sigmoid(c(QUICK_GELU_SLOPE) * x);
            (s + c(QUICK_GELU_SLOPE) * x * s * (one - s)) * g
        }),
        Activation::Mish => gradient.zip(input, |g, x| {
            let t = softplus(x).tanh();
            (t + x * (one - t * t) * sigmoid(x)) * g
        }),
        Activation::HardSwish => gradient.zip(input, |g, x| {
            let three = c(3.0);
            let slope = if x > three { one } else { (two * x + three) * c(1.0 / 6.0) };
            if x < -three { zero } else { slope * g }
        }),
        Activation::Relu6 => gradient.zip(input, |g, x| if x > zero && x < c(6.0) { g } else { zero }),
        Activation::Tanh => gradient.zip(input, |g, x| {
            let t = x.tanh();
            (one - t * t) * g
        }),
        Activation::Sigmoid => gradient.zip(input, |g, x| {
            let s = sigmoid(x);
            s * (one - s) * g
        }),
        Activation::Erf => {
            let slope = c(FRAC_2_SQRT_PI);
            gradient.zip(input, |g, x| slope * (-(x * x)).exp() * g)
        }
        Activation::Softplus => gradient.zip(input, |g, x| sigmoid(x) * g),
        Activation::Elu => gradient.zip(input, |g, x| if x > zero { g } else { x.exp() * g }),
        Activation::Selu => {
            let (scale, negative) = (c(SELU_SCALE), c(SELU_SCALE * SELU_ALPHA));
            gradient.zip(input, |g, x| if x > zero { scale * g } else { negative * x.exp() * g })
        }
        Activation::Xielu => {
            let (alpha, beta) = (c(XIELU.0), c(XIELU.1));
            gradient.zip(input, |g, x| (alpha * if x > zero { two * x } else { x.exp_m1() } + beta) * g)
        }
        Activation::Expression(expression) => gradient.zip(input, |g, x| c(evaluate(expression, x.to_f64()).slope) * g),
    }
}

/// max(x, 0), and not-a-number for not-a-number, which a maximum would hide.
fn relu<T: Scalar>(x: T) -> T {
    if x < T::default() { T::default() } else { x }
}

/// min(max(x, 0), 6).
fn relu6<T: Scalar>(x: T) -> T {
    let six = T::from_f64(6.0);
    if x > six { six } else { relu(x) }
}

/// ln(1 + e^x).
pub(super) fn softplus<T: Scalar>(x: T) -> T {
    relu(x) + (-x.abs()).exp().ln_1p()
}

/// 1 / (1 + e^(−x)).
pub(super) fn sigmoid<T: Scalar>(x: T) -> T {
    let one = T::from_f64(1.0);
    one / (one + (-x).exp())
}

/// Φ(x).
fn normal_distribution<T: Scalar>(x: T) -> T {
    let half = T::from_f64(0.5);
    half + half * (x * T::from_f64(FRAC_1_SQRT_2)).erf()
}

/// √(2/π) (x + 0.044715 x³).
fn tanh_argument<T: Scalar>(x: T) -> T {
    T::from_f64(TANH_SCALE) * (x + T::from_f64(TANH_CUBIC) * x * x * x)
}
