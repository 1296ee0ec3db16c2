//! Activations that are formulas: φ and φ' from the steps of a formula.
//!
//! # Formula
//!
//! ```text
//! (u, u') + (v, v') = (u + v, u' + v')      (u, u')·(v, v') = (u v, u' v + u v')      f((u, u')) = (f(u), f'(u) u')
//! ```
//!
//! where u, v are values of parts of the formula; u', v' are their derivatives with respect to the variable x, which is
//! the pair (x, 1); f is a function that the formula calls.
//!
//! # Source
//!
//! Forward-mode differentiation: Wengert 1964, A simple automatic derivative evaluation program.

use std::f64::consts::{FRAC_1_SQRT_2, FRAC_2_SQRT_PI};

use sigprop_stack::{Binary, Expression, Step, Unary};

/// A value, and its derivative with respect to x.
type Pair = (f64, f64);

/// Returns φ(x) and φ'(x) of a formula.
pub(crate) fn value_and_derivative(expression: Expression, x: f64) -> Pair {
    let mut stack = [(0.0, 0.0); Expression::DEEPEST];
    let mut length = 0;
    for step in expression.steps() {
        let pair = match *step {
            Step::X => (x, 1.0),
            Step::Number(number) => (number, 0.0),
            Step::Negative => (-stack[length - 1].0, -stack[length - 1].1),
            Step::Unary(function) => {
                let (u, slope) = stack[length - 1];
                let (value, derivative) = unary(function, u);
                // A part that does not depend on x keeps the derivative 0 where f' is infinite.
                (value, if slope == 0.0 { 0.0 } else { derivative * slope })
            }
            Step::Binary(operation) => binary(operation, stack[length - 2], stack[length - 1]),
        };
        length = length + 1 - step.operands();
        stack[length - 1] = pair;
    }
    stack[0]
}

/// Returns f(u) and f'(u).
fn unary(function: Unary, u: f64) -> Pair {
    match function {
        Unary::Abs => (u.abs(), if u > 0.0 { 1.0 } else { -1.0 }),
        Unary::Sqrt => (u.sqrt(), 0.5 / u.sqrt()),
        Unary::Exp => (libm::exp(u), libm::exp(u)),
        Unary::Expm1 => (libm::expm1(u), libm::exp(u)),
        Unary::Log => (libm::log(u), 1.0 / u),
        Unary::Log1p => (libm::log1p(u), 1.0 / (1.0 + u)),
        Unary::Sin => (libm::sin(u), libm::cos(u)),
        Unary::Cos => (libm::cos(u), -libm::sin(u)),
        Unary::Atan => (libm::atan(u), 1.0 / (1.0 + u * u)),
        Unary::Tanh => {
            let t = libm::tanh(u);
            (t, 1.0 - t * t)
        }
        Unary::Erf => (libm::erf(u), FRAC_2_SQRT_PI * libm::exp(-u * u)),
        Unary::Sigmoid => {
            let s = sigmoid(u);
            (s, s * (1.0 - s))
        }
        Unary::Softplus => (softplus(u), sigmoid(u)),
        Unary::Relu => (u.max(0.0), if u > 0.0 { 1.0 } else { 0.0 }),
        Unary::Gelu => {
            let below = 0.5 * libm::erfc(-u * FRAC_1_SQRT_2);
            let density = libm::exp(-0.5 * u * u) * FRAC_2_SQRT_PI * 0.5 * FRAC_1_SQRT_2;
            (u * below, below + u * density)
        }
        Unary::Silu => {
            let s = sigmoid(u);
            (u * s, s * (1.0 + u * (1.0 - s)))
        }
    }
}

fn binary(operation: Binary, (u, du): Pair, (v, dv): Pair) -> Pair {
    match operation {
        Binary::Sum => (u + v, du + dv),
        Binary::Difference => (u - v, du - dv),
        Binary::Product => (u * v, du * v + u * dv),
        Binary::Quotient => (u / v, (du - u / v * dv) / v),
        Binary::Power => power((u, du), (v, dv)),
        Binary::Min => {
            if u <= v {
                (u, du)
            } else {
                (v, dv)
            }
        }
        Binary::Max => {
            if u > v {
                (u, du)
            } else {
                (v, dv)
            }
        }
    }
}

/// Returns u^v and its derivative. A constant part adds nothing to the derivative, even where its factor is infinite.
fn power((u, du): Pair, (v, dv): Pair) -> Pair {
    let value = u.powf(v);
    let of_base = if du == 0.0 || v == 0.0 { 0.0 } else { v * u.powf(v - 1.0) * du };
    let of_exponent = if dv == 0.0 { 0.0 } else { value * u.ln() * dv };
    (value, of_base + of_exponent)
}

/// The reason why a formula has no prediction.
#[derive(Clone, Copy, Debug, PartialEq, thiserror::Error)]
pub enum UnfitExpression {
    /// φ, φ' or their squares are infinite or not a number at a point.
    #[error("it or its slope is infinite or not a number at x = {x}")]
    NotFinite {
        /// The point.
        x: f64,
    },
    /// The square of φ or φ' has no finite integral at a point.
    #[error("the square of it or of its slope has no finite average near x = {x}")]
    NotIntegrable {
        /// The point.
        x: f64,
    },
    /// φ varies too fast near a point for quadrature.
    #[error("it varies too fast near x = {x}")]
    Unresolved {
        /// The point.
        x: f64,
    },
    /// φ is not continuous at a point.
    #[error("it jumps at x = {x}, where no gradient passes")]
    Jump {
        /// The point.
        x: f64,
    },
    /// φ grows too fast for averages over Gaussian arguments that networks sample.
    #[error("it grows faster than x^6, so that rare arguments dominate its averages")]
    Growth,
}

pub(crate) fn softplus(x: f64) -> f64 {
    x.max(0.0) + libm::log1p(libm::exp(-x.abs()))
}

pub(crate) fn sigmoid(x: f64) -> f64 {
    1.0 / (1.0 + libm::exp(-x))
}
