//! The gradient of a signal: its kernel, and the kind of component that reads the signal.

use std::sync::Arc;

use super::dual::Dual;
use super::kernel::Kernel;

/// The second moments of the gradient g = dL/dx of a signal x.
#[derive(Clone, Debug)]
pub(crate) struct Gradient {
    /// E g_a g_b.
    pub(crate) kernel: Kernel,
    /// The component that reads x.
    pub(crate) next: Next,
    /// The share of each part of the features in Σ g² over all features; `None` if E g² is the same for all features.
    pub(crate) parts: Option<Arc<[f64]>>,
    /// E g_a g_b at the input of the rotation whose output is x; `None` if it is not known separately.
    pub(crate) before: Option<Kernel>,
}

/// The component that reads a signal x, as far as the gradient depends on it.
#[derive(Clone, Debug)]
pub(crate) enum Next {
    /// Any component for which the gradient is independent of x.
    Anything,
    /// An activation φ: the gradient has the factor φ'(x).
    Activation(Dual),
    /// Attention scores without a sink, where x are keys. The softmax ignores the common part of all keys: Σ_b g_b = 0.
    Scores,
}

impl Gradient {
    /// Returns a gradient that is independent of the signal.
    pub(crate) fn independent(kernel: Kernel) -> Self {
        Self { kernel, next: Next::Anything, parts: None, before: None }
    }

    /// Returns ln Σ_ab E g_a g_b E x_a x_b over all tokens a, b, which is ln E dW² of a linear map of x.
    pub(crate) fn ln_collected(&self, x: &Kernel) -> f64 {
        match self.next {
            Next::Scores => self.kernel.ln_contracted(&x.doubly_centred()),
            Next::Anything | Next::Activation(_) => self.kernel.ln_contracted(x),
        }
    }

    /// Returns the sum of uncorrelated gradients.
    pub(crate) fn sum(parts: &[Self]) -> Self {
        match parts {
            [only] => only.clone(),
            _ => Self::independent(Kernel::sum(parts.iter().map(|part| (1.0, &part.kernel)))),
        }
    }
}
