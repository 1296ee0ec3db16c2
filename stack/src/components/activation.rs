//! Elementwise functions φ.

use serde::{Deserialize, Serialize};

use super::Expression;

/// An elementwise function φ, applied to every entry.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Activation {
    /// φ(x) = x.
    Identity,
    /// φ(x) = x + 1.
    PlusOne,
    /// φ(x) = max(x, 0).
    Relu,
    /// φ(x) = x for x > 0, else `slope` · x.
    LeakyRelu {
        /// Slope for negative arguments.
        slope: f64,
    },
    /// φ(x) = max(x, 0)².
    Relu2,
    /// φ(x) = x Φ(x), Φ the standard normal distribution function.
    Gelu,
    /// φ(x) = x/2 · (1 + tanh(√(2/π) (x + 0.044715 x³))).
    GeluTanh,
    /// φ(x) = x / (1 + e^(−x)).
    Silu,
    /// φ(x) = x / (1 + e^(−1.702 x)).
    QuickGelu,
    /// φ(x) = x tanh(ln(1 + e^x)).
    Mish,
    /// φ(x) = x min(max(x + 3, 0), 6)/6.
    HardSwish,
    /// φ(x) = min(max(x, 0), 6).
    Relu6,
    /// φ(x) = tanh x.
    Tanh,
    /// φ(x) = 1 / (1 + e^(−x)).
    Sigmoid,
    /// φ(x) = erf x.
    Erf,
    /// φ(x) = ln(1 + e^x).
    Softplus,
    /// φ(x) = x for x > 0, else e^x − 1.
    Elu,
    /// φ(x) = s·x for x > 0, else s·α·(e^x − 1); s = 1.0507009873554805, α = 1.6732632423543772.
    Selu,
    /// φ(x) = 0.8 x² + x/2 for x > 0, else 0.8 (e^x − 1 − x) + x/2: xIELU at initialisation.
    Xielu,
    /// φ is a formula in x, such as `x*sigmoid(1.3*x)`.
    Expression(Expression),
}

impl Activation {
    /// Every activation but formulas, LeakyReLU with a slope of 0.1.
    pub const ALL: [Self; 19] = [
        Self::Identity,
        Self::PlusOne,
        Self::Relu,
        Self::LeakyRelu { slope: 0.1 },
        Self::Relu2,
        Self::Gelu,
        Self::GeluTanh,
        Self::Silu,
        Self::QuickGelu,
        Self::Mish,
        Self::HardSwish,
        Self::Relu6,
        Self::Tanh,
        Self::Sigmoid,
        Self::Erf,
        Self::Softplus,
        Self::Elu,
        Self::Selu,
        Self::Xielu,
    ];
}
