//! The effect of the first step of an optimiser on the output of a linear map y = W x, on the same sequence.
//!
//! ```text
//! SGD    ΔW = −η G         E Δy_s²/η² = n² (E_s Σ_tu Γ_tu K_ts K_us + noise K_ss Σ_tu Γ_tu K_tu)
//! Adam   ΔW = −η sign G    E Δy_s²/η² = n² (2/π) (E_s (K g)_s²/(g·K g) + noise K_ss) + n (1 − 2/π) K_ss
//! E |G| = √(2/π) E √(g·K g)           noise = 1/n + (γ − 1/n)(1 − ρ̄)² Σ_t Γ_tt K_tt/Σ_tu Γ_tu K_tu
//! ```
//!
//! where t, u, s are positions of tokens; E is the average over random weights and over features; E_s is the average
//! over all tokens s, and over g where it occurs; ΔW is the step of W; Δy_s is the change of an entry of the output at
//! token s; η is the learning rate; G is the gradient dL/dW = Σ_t g_t x_tᵀ of the loss; g is the vector of the
//! gradients at one entry of the output, over tokens; K is the kernel E x_a x_b of a signal; Γ is the kernel E g_a g_b
//! of the gradients at the output; n is the number of features of x; noise is the factor of the part that tokens do not
//! have in common; γ is the variance of x·x'/n for two differences x and x' of tokens; ρ̄ is the mean correlation of
//! two different tokens.
//!
//! The first term is the common part of tokens (`aligned.rs`, `signs.rs`), the second is noise. Σ_tu Γ_tu K_tu is E
//! dW². The variance of x_t·x_s/n is 1/n. Given g, an entry of G is jointly Gaussian with x_sj, and E sign(G_ij) x_sj =
//! √(2/π) (K g)_s/√(g·K g). A step of the sampled weight moves a standardised weight by √J of it: E Δy² has the factor
//! J² (SGD) or J (Adam), and E |G| the factor √J.
//!
//! Assumptions: gradients depend on signals only as far as Γ says; relative terms of order γ are neglected. For signs,
//! gradients and features are moreover Gaussian with mean zero (`src/first_step/untold.rs`). At infinite width γ = 1/n.
//! Source: ours.

mod aligned;
mod signs;

use std::f64::consts::FRAC_2_PI;

use sigprop_stack::Linear;

use super::gradient::{Gradient, Next};
use super::kernel::{Kernel, correlation};
use super::linear::ln_jacobian;
use super::signal::Signal;
use crate::logarithms::ln_sum;
use aligned::{Aligned, Matrices};
use signs::Signs;

/// The effect of first steps, per entry, in logarithms; −∞ if the gradient is zero.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Steps {
    /// ln E Δy²/η² of SGD.
    pub(crate) by_sgd: f64,
    /// ln E Δy²/η² of Adam.
    pub(crate) by_adam: f64,
    /// ln E |G| of an entry G of the gradient dL/dW.
    pub(crate) size: f64,
}

/// The corrections of finite width to the input of a map and to the gradient at its output.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct FiniteWidth {
    pub(crate) signal: Shift,
    pub(crate) gradient: Shift,
    /// γ − 1/n, where γ is the variance of the product of two differences of tokens (see the header).
    pub(crate) concentration: f64,
    /// The correction to ln E dW².
    pub(crate) weights: f64,
}

/// The corrections to ln E x² and to the correlation of two tokens.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Shift {
    pub(crate) ln_level: f64,
    pub(crate) correlation: f64,
}

impl Shift {
    fn applied(self, kernel: &Kernel) -> Kernel {
        let shifted = |_, [a, b]: [f64; 2], pair: f64| {
            let scale = (a * b).max(0.0).sqrt();
            (pair + self.correlation * scale).clamp(-scale, scale)
        };
        let pairs = kernel.map_pairs(&kernel.own, shifted);
        kernel.with(kernel.ln_unit + self.ln_level, kernel.own.clone(), pairs)
    }
}

impl Steps {
    /// The steps of a gradient that is zero.
    pub(crate) const NONE: Self =
        Self { by_sgd: f64::NEG_INFINITY, by_adam: f64::NEG_INFINITY, size: f64::NEG_INFINITY };

    /// Returns the steps of the map from `x` to an output with this gradient.
    pub(crate) fn of(linear: &Linear, x: &Signal, gradient: &Gradient, finite: FiniteWidth) -> Self {
        let x = if linear.standardised.is_some() { &x.centred_kernel() } else { &x.kernel };
        let ln_collected = gradient.ln_collected(x) + finite.weights;
        if ln_collected == f64::NEG_INFINITY {
            return Self::NONE;
        }
        let x = finite.signal.applied(x);
        let x = if matches!(gradient.next, Next::Scores) { x.doubly_centred() } else { x };
        Self::of_kernels(linear, [&x, &finite.gradient.applied(&gradient.kernel)], ln_collected, finite.concentration)
    }

    /// Returns the steps from the kernels of the input and of the gradient, from ln E dW² and from γ − 1/n.
    fn of_kernels(linear: &Linear, [x, gradient]: [&Kernel; 2], ln_collected: f64, concentration: f64) -> Self {
        let (width, positions) = (linear.fan_in as f64, &x.positions);
        let ln_level = (positions.sum(|node| x.own[node]) / positions.length).ln() + x.ln_unit;
        let ln_own = positions.sum(|node| x.own[node] * gradient.own[node]).ln() + x.ln_unit + gradient.ln_unit;
        let concentrated = concentration * (1.0 - mean_correlation(x)).powi(2) * (ln_own - ln_collected).exp();
        let ln_noise = ln_level + (width.recip() + concentrated).ln();
        let [k, g] = [x, gradient].map(Matrices::new);
        let aligned = Aligned::new(&k, &g);
        let ln_aligned = aligned.at(positions.shares().0).ln() + 2.0 * x.ln_unit + gradient.ln_unit;
        let signs = Signs::of(&k, &g, &aligned);
        let (along, across) = (FRAC_2_PI.ln(), (1.0 - FRAC_2_PI).ln() - width.ln());
        let ln_jacobian = ln_jacobian(linear);
        let of = |terms: &[f64]| 2.0 * width.ln() + ln_sum(terms.iter().copied());
        Self {
            by_sgd: 2.0 * ln_jacobian + of(&[ln_aligned, ln_noise + ln_collected]),
            by_adam: ln_jacobian + of(&[along + signs.ln_aligned, along + ln_noise, across + ln_level]),
            size: 0.5 * (ln_jacobian + ln_collected) + signs.ln_size,
        }
    }
}

/// Returns the mean correlation of two different tokens; 0 for a single token.
fn mean_correlation(x: &Kernel) -> f64 {
    let positions = &x.positions;
    let pairs = positions.length * (positions.length - 1.0);
    let sum = || positions.sum_pairs(|point| correlation(positions.ends(point, &x.own), x.pairs[point]));
    if pairs > 0.0 { sum() / pairs } else { 0.0 }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use approx::assert_relative_eq;
    use sigprop_stack::{Init, Tensor};

    use super::*;
    use crate::mean_field::positions::Positions;

    const TOKENS: f64 = 12.0;

    fn linear() -> Linear {
        let weight = Tensor { name: String::new(), init: Init::Normal { std: 0.1 } };
        Linear { fan_in: 64, fan_out: 32, weight, bias: None, standardised: None }
    }

    /// Returns the steps for tokens with these second moments (as logarithms) and correlations of the signal and of the
    /// gradient.
    fn steps(linear: &Linear, levels: [f64; 2], correlations: [f64; 2], finite: FiniteWidth) -> Steps {
        let positions = Arc::new(Positions::groups(&[TOKENS], None));
        let [x, gradient] = [0, 1].map(|index: usize| {
            let kernel = Kernel::new(&positions, |_| 1.0, |_| correlations[index]);
            kernel.with(levels[index], kernel.own.clone(), kernel.pairs.clone())
        });
        Steps::of(linear, &Signal::centred(64.0, x), &Gradient::independent(gradient), finite)
    }

    /// Δy is proportional to |x|² |g| (SGD) or |x| (Adam), |G| to |x| |g|, also beyond the range of f64.
    #[test]
    fn steps_are_homogeneous() {
        let base = steps(&linear(), [0.0, 0.0], [0.4, 0.1], FiniteWidth::default());
        for [x, g] in [[2.0, -3.0], [-700.0, 900.0]] {
            let got = steps(&linear(), [x, g], [0.4, 0.1], FiniteWidth::default());
            assert_relative_eq!(got.by_sgd - base.by_sgd, 2.0 * x + g, max_relative = 1e-12);
            assert_relative_eq!(got.by_adam - base.by_adam, x, max_relative = 1e-12);
            assert_relative_eq!(got.size - base.size, 0.5 * (x + g), max_relative = 1e-12);
        }
    }

    /// L copies of a token with equal gradients move as one token with L times the gradient.
    #[test]
    fn copies_move_as_one_token() {
        let Steps { by_sgd, by_adam, size } = steps(&linear(), [0.0; 2], [1.0; 2], FiniteWidth::default());
        let (n, tokens) = (64f64, TOKENS);
        assert_relative_eq!(by_sgd.exp(), n * n * tokens * tokens * (1.0 + 1.0 / n), max_relative = 1e-9);
        let noise = FRAC_2_PI / n + (1.0 - FRAC_2_PI) / n;
        assert_relative_eq!(by_adam.exp(), n * n * (FRAC_2_PI + noise), max_relative = 1e-6);
        assert_relative_eq!(size.exp(), FRAC_2_PI * tokens, max_relative = 1e-6);
    }

    /// γ adds noise in proportion to the squared differences of tokens.
    #[test]
    fn concentrated_differences_are_noise() {
        let of = |concentration| {
            let finite = FiniteWidth { concentration, ..FiniteWidth::default() };
            steps(&linear(), [0.0; 2], [0.4, 0.1], finite).by_sgd.exp()
        };
        let noise = 64.0 * 64.0 * 0.1 * 0.36 * TOKENS;
        assert_relative_eq!(of(0.1) - of(0.0), noise, max_relative = 1e-9);
    }

    /// The moments are those of finite width, and E dW² is the one that is given.
    #[test]
    fn finite_width_moves_moments() {
        let signal = Shift { ln_level: 0.2, correlation: -0.1 };
        let gradient = Shift { ln_level: -0.3, correlation: 0.05 };
        let collected = |x: f64, g: f64| (TOKENS * (1.0 + (TOKENS - 1.0) * x * g)).ln();
        let weights = collected(0.3, 0.15) - collected(0.4, 0.1) - 0.1;
        let finite = FiniteWidth { signal, gradient, weights, concentration: 0.0 };
        let got = steps(&linear(), [0.0; 2], [0.4, 0.1], finite);
        let expected = steps(&linear(), [0.2, -0.3], [0.3, 0.15], FiniteWidth::default());
        for (got, expected) in
            [(got.by_sgd, expected.by_sgd), (got.by_adam, expected.by_adam), (got.size, expected.size)]
        {
            assert_relative_eq!(got, expected, max_relative = 1e-12);
        }
    }
}
