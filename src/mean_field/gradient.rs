//! What is known of a gradient: its kernel, and what the signal goes to.

use std::sync::Arc;

use super::dual::Dual;
use super::kernel::Kernel;

/// What is known of the gradient g = dL/dx of a signal x.
#[derive(Clone, Debug)]
pub(crate) struct Gradient {
    /// E g_a g_b.
    pub(crate) kernel: Kernel,
    /// What x goes to.
    pub(crate) next: Next,
    /// The share of E g² that every part of the features has, if they are not alike.
    pub(crate) parts: Option<Arc<[f64]>>,
    /// E g_a g_b before the rotation that x comes from, where it is known.
    pub(crate) before: Option<Kernel>,
}

/// What a signal x goes to, where its gradient knows of it.
#[derive(Clone, Debug)]
pub(crate) enum Next {
    /// Anything of which the gradient is independent of x.
    Anything,
    /// An activation φ, whose φ'(x) the gradient has as a factor.
    Activation(Dual),
    /// Scores, of which what all keys share takes nothing: Σ_b g_b = 0.
    Scores,
}

impl Gradient {
    /// A gradient that is independent of the signal.
    pub(crate) fn independent(kernel: Kernel) -> Self {
        Self { kernel, next: Next::Anything, parts: None, before: None }
    }

    /// ln Σ_ab E g_a g_b E x_a x_b over all tokens.
    pub(crate) fn ln_collected(&self, x: &Kernel) -> f64 {
        match self.next {
            Next::Scores => self.kernel.ln_contracted(&x.doubly_centred()),
            Next::Anything | Next::Activation(_) => self.kernel.ln_contracted(x),
        }
    }

    /// The sum of uncorrelated gradients.
    pub(crate) fn sum(parts: &[Self]) -> Self {
        match parts {
            [only] => only.clone(),
            _ => Self::independent(Kernel::sum(parts.iter().map(|part| (1.0, &part.kernel)))),
        }
    }
}
