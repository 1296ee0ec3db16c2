//! Formulas as elementwise functions: values and derivatives on numbers of f64.
//!
//! ```text
//! forward   y = φ(x)
//! backward  dx = φ'(x) dy      φ' by the chain rule, from the first step of the formula to the last
//! ```
//!
//! Derivatives at kinks are those from the left, but for `max` and `min` of equal arguments.

use libm::{atan, cos, erf, exp, expm1, log, log1p, sin, tanh};
use sigprop_stack::{Binary, Expression, Step, Unary};
use std::f64::consts::{FRAC_2_SQRT_PI, SQRT_2};

/// The value of a part of a formula, and its slope in x.
#[derive(Clone, Copy, Default)]
pub(super) struct Slope {
    pub(super) value: f64,
    pub(super) slope: f64,
}

impl Slope {
    /// Returns f of this part, for a function with the value f(u) and the derivative f'(u). A constant stays constant.
    fn chain(self, [value, derivative]: [f64; 2]) -> Self {
        Self { value, slope: if self.slope == 0.0 { 0.0 } else { derivative * self.slope } }
    }
}

/// Computes a formula and its slope at x.
pub(super) fn evaluate(expression: Expression, x: f64) -> Slope {
    let mut parts = [Slope::default(); Expression::DEEPEST];
    let mut length = 0;
    for step in expression.steps() {
        let part = match *step {
            Step::X => Slope { value: x, slope: 1.0 },
            Step::Number(value) => Slope { value, slope: 0.0 },
            Step::Negative => Slope { value: -parts[length - 1].value, slope: -parts[length - 1].slope },
            Step::Unary(function) => parts[length - 1].chain(of_one(function, parts[length - 1].value)),
            Step::Binary(operation) => of_two(operation, parts[length - 2], parts[length - 1]),
        };
        length += 1;
        length -= step.operands();
        parts[length - 1] = part;
    }
    parts[0]
}

/// Returns f(u) and f'(u).
fn of_one(function: Unary, u: f64) -> [f64; 2] {
    let logistic = |u: f64| 1.0 / (1.0 + exp(-u));
    match function {
        Unary::Abs => [u.abs(), if u > 0.0 { 1.0 } else { -1.0 }],
        Unary::Sqrt => [u.sqrt(), 0.5 / u.sqrt()],
        Unary::Exp => [exp(u); 2],
        Unary::Expm1 => [expm1(u), exp(u)],
        Unary::Log => [log(u), 1.0 / u],
        Unary::Log1p => [log1p(u), 1.0 / (1.0 + u)],
        Unary::Sin => [sin(u), cos(u)],
        Unary::Cos => [cos(u), -sin(u)],
        Unary::Atan => [atan(u), 1.0 / (1.0 + u * u)],
        Unary::Tanh => [tanh(u), 1.0 - tanh(u) * tanh(u)],
        Unary::Erf => [erf(u), FRAC_2_SQRT_PI * exp(-u * u)],
        Unary::Sigmoid => [logistic(u), logistic(u) * logistic(-u)],
        Unary::Softplus => [if u > 0.0 { u + log1p(exp(-u)) } else { log1p(exp(u)) }, logistic(u)],
        // Not-a-number passes, which a maximum would hide.
        Unary::Relu => {
            if u <= 0.0 {
                [0.0, 0.0]
            } else {
                [u, 1.0]
            }
        }
        Unary::Gelu => {
            let (normal, density) = (0.5 * (1.0 + erf(u / SQRT_2)), exp(-0.5 * u * u) * FRAC_2_SQRT_PI / SQRT_2 * 0.5);
            [u * normal, normal + u * density]
        }
        Unary::Silu => [u * logistic(u), logistic(u) + u * logistic(u) * logistic(-u)],
    }
}

fn of_two(operation: Binary, u: Slope, v: Slope) -> Slope {
    let (value, slope) = match operation {
        Binary::Sum => (u.value + v.value, u.slope + v.slope),
        Binary::Difference => (u.value - v.value, u.slope - v.slope),
        Binary::Product => (u.value * v.value, u.slope * v.value + u.value * v.slope),
        Binary::Quotient => {
            let value = u.value / v.value;
            (value, (u.slope - value * v.slope) / v.value)
        }
        Binary::Power => {
            let value = u.value.powf(v.value);
            let base = u.chain([value, v.value * u.value.powf(v.value - 1.0)]).slope;
            (value, base + v.chain([value, value * log(u.value)]).slope)
        }
        Binary::Min => return if u.value <= v.value { u } else { v },
        Binary::Max => return if u.value > v.value { u } else { v },
    };
    Slope { value, slope }
}
