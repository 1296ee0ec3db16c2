//! What the first step of an optimiser does to the output of a linear map y = W x on the same sequence.
//!
//! # Formula
//!
//! With G = dL/dW = Σ_t g_t x_tᵀ, K_ab = E x_a x_b, Γ_ab = E g_a g_b, both of one entry, n features of x, c the mean
//! cosine of tokens, whose differences have 1/γ directions (`concentration`), averaged over s,
//!
//! ```text
//! SGD    ΔW = −η G         E Δy_s²/η² = n² (E_s Σ_tu Γ_tu K_ts K_us + φ K_ss Σ_tu Γ_tu K_tu)
//! Adam   ΔW = −η sign G    E Δy_s²/η² = n² (2/π) (E_s (K g)_s²/(g·K g) + φ K_ss) + n (1 − 2/π) K_ss
//! φ = 1/n + (γ − 1/n)(1 − c)² Σ_t Γ_tt K_tt/Σ_tu Γ_tu K_tu
//! ```
//!
//! The first term is what tokens have in common (`src/domain/aligned.rs`, `signs.rs`), the second noise: Σ_tu Γ_tu K_tu
//! is E dW², and x_t·x_s strays by 1/n, of differences by γ. Given g, an entry Σ_t g_t x_tj of Adam's gradient is
//! Gaussian over j together with x_sj, and E sign(G_ij) x_sj = √(2/π) (K g)_s/√(g·K g); a feature with itself has x_s²
//! in full.
//!
//! The step of a standardised weight moves the one in use by √J of it, J = γ²/(s_w² (n − 1)), x being less its mean: E
//! Δy² has J² (SGD) or J (Adam), E |G| has √J.
//!
//! # Assumptions
//!
//! Gradients do not depend on the signals beyond what Γ tells (what norms take off those of longer x is left out); relative terms of order γ are neglected. Of signs
//! besides: gradients are Gaussian over features of the output, and so are the features of x, without mean, as behind
//! norms and linear maps. Behind activations and products alike tokens have features of other laws, and nothing is
//! told.
//!
//! # Source
//!
//! Ours.

use std::f64::consts::FRAC_2_PI;

use sigprop_stack::Linear;

use super::ln_jacobian;
use crate::domain::{Domain, Flow, Gradient, Signal, Signs};
use crate::mean_field::steps::Steps;
use crate::moments::{ln_sum, share};

/// Of the map from `x` to an output with this gradient.
pub(crate) fn steps(linear: &Linear, domain: &Domain, x: &Signal, gradient: &Gradient) -> Steps {
    let ln_collected = domain.ln_collected(x, gradient, 0.0);
    if ln_collected == f64::NEG_INFINITY {
        return Steps::NONE;
    }
    let width = linear.fan_in as f64;
    let ln_level = x.ln_level();
    let ln_own = ln_sum(x.levels().zip(gradient.levels()).map(|(x, g)| x + g));
    let own = share(ln_own + (domain.length(x.tokens.len()) / x.tokens.len() as f64).ln(), ln_collected);
    let apart = (1.0 - domain.mean_cosine(x)).powi(2);
    let concentrated = (x.concentration.total - width.recip()).max(0.0);
    let ln_noise = ln_level + (width.recip() + concentrated * apart * own).ln();
    let moved = |terms: [f64; 3]| 2.0 * width.ln() + ln_sum(terms.into_iter());
    let Signs { ln_aligned, ln_size } = domain.signs(x, gradient);
    let along = FRAC_2_PI.ln();
    let own = (1.0 - FRAC_2_PI).ln() - width.ln();
    let ln_jacobian = ln_jacobian(linear);
    let by_sgd = moved([domain.ln_aligned(x, gradient), ln_noise + ln_collected, f64::NEG_INFINITY]);
    Steps {
        by_sgd: by_sgd + 2.0 * ln_jacobian,
        by_adam: ln_jacobian + moved([along + ln_aligned, along + ln_noise, own + ln_level]),
        size: ln_size + 0.5 * ln_jacobian,
    }
}
