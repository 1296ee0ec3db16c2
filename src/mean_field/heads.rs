//! Norms after the heads of a recurrence: their scores fluctuate by their own size, and a norm divides by them.
//!
//! ```text
//! x = m/(m + ε)          E y² is too large by v x (1 − x)/h, E g² at the input is too small by v x²/h
//! ```
//!
//! where m is the second moment of a feature; ε is the number that the norm adds; v is the variance of the mean square of
//! a head, relative to its square; h is the number of heads with scores of their own under one norm.
//!
//! Source: ours, to second order in the fluctuation.

use sigprop_stack::Norm;

use super::kernel::Kernel;

/// The heads of a recurrence, as far as a norm after them depends on them.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Heads {
    /// v, averaged over positions.
    pub(crate) variance: f64,
    /// The number of heads with scores of their own.
    pub(crate) count: usize,
}

/// The shares by which the numbers of a norm after a recurrence are off.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Shares {
    /// The share by which the second moment of the output is too large.
    pub(crate) second_moment: f64,
    /// The share by which E g² at the input is too small.
    pub(crate) gradient: f64,
}

impl Heads {
    /// Returns the shares by which the numbers of a norm are off, for the kernel of its input.
    pub(crate) fn shares(self, norm: &Norm, input: &Kernel) -> Shares {
        let heads = (self.count as f64 / norm.groups as f64).max(1.0);
        let kept = |node: usize| {
            let square = input.own[node] * input.ln_unit.exp();
            if square > 0.0 { square / (square + norm.eps) } else { 0.0 }
        };
        let mean = |of: fn(f64) -> f64| {
            self.variance / heads * input.positions.sum(|node| of(kept(node))) / input.positions.length
        };
        Shares { second_moment: mean(|x| x * (1.0 - x)), gradient: mean(|x| x * x) }
    }
}

#[cfg(test)]
mod tests {
    use sigprop_stack::NormKind;

    use super::*;

    /// Two heads under one norm whose ε is a third of their mean square: x = 3/4.
    #[test]
    fn shares_are_those_of_the_header() {
        let heads = Heads { variance: 2.0, count: 2 };
        let Shares { second_moment, gradient } =
            heads.shares(&Norm::plain(NormKind::RmsNorm, 1.0), &Kernel::of_tokens(4.0, [3.0, 0.0]));
        approx::assert_relative_eq!(second_moment, 0.1875, max_relative = 1e-12);
        approx::assert_relative_eq!(gradient, 0.5625, max_relative = 1e-12);
    }
}
