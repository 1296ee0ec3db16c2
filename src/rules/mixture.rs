//! Mixture of experts with top-k routing at initialisation.
//!
//! # Formula
//!
//! Router scores of two tokens are Gaussian with standard deviation s √(width E x²) and the correlation of the
//! tokens; experts are independent with zero mean, so only an expert that both tokens go to correlates them:
//!
//! ```text
//! E y_a·y_c = scale² Ω(cosine) E f_a·f_c      Ω(ρ) = E Σ_e w_ae w_ce
//! ```
//!
//! # Backward
//!
//! All experts together behave like one that receives E g_a·g_c scale² Ω. The scores receive, with J the mean product of
//! ∂w/∂score of two tokens (chosen sets fixed, summed over weights and scores),
//!
//! ```text
//! E g_score,a·g_score,c = scale² J(cosine) width E f_a·f_c E g_a·g_c      E g_x² from it: s² times that
//! J(ρ) = E Σ_ef ∂w_ae/∂score_af ∂w_ce/∂score_cf
//! ```
//!
//! # Assumptions
//!
//! Ω and J by 2¹³ pseudo-random draws of the scores from a fixed seed, at 17 angles arccos ρ (error about 0.5 %).
//!
//! # Source
//!
//! Ours.

use std::f64::consts::PI;

use rand::SeedableRng;
use rand::rngs::ChaCha8Rng;
use rand_distr::{Distribution, StandardNormal};
use sigprop_stack::{Mixture, Weighting};

use crate::domain::{Concentration, Domain, Fluctuation, Gradient, Signal};
use crate::moments::{Token, TokenGradient, ratio};

/// Draws of the scores.
const DRAWS: usize = 1 << 13;
/// Intervals of arccos ρ between 0 and π: towards ρ = 1 Ω falls like √(1 − ρ).
const INTERVALS: usize = 16;

/// Ω and J of one mixture at one scale of its scores, at equidistant angles arccos ρ from 0 to π.
#[derive(Clone, Debug)]
pub(crate) struct Routing {
    overlaps: Vec<f64>,
    passed: Vec<f64>,
}

impl Routing {
    /// For scores of standard deviation `std`.
    pub(crate) fn new(mixture: &Mixture, std: f64) -> Self {
        let mut generator = ChaCha8Rng::seed_from_u64(0);
        let mut normal = |_| -> f64 { StandardNormal.sample(&mut generator) };
        let mut overlaps = vec![0.0; INTERVALS + 1];
        let mut passed = vec![0.0; INTERVALS + 1];
        for _ in 0..DRAWS {
            let first: Vec<f64> = (0..mixture.n_experts).map(&mut normal).collect();
            let second: Vec<f64> = (0..mixture.n_experts).map(&mut normal).collect();
            let one = Weights::new(mixture, &first.iter().map(|z| std * z).collect::<Vec<f64>>());
            for (index, (overlap, passed)) in overlaps.iter_mut().zip(&mut passed).enumerate() {
                let (own, rho) = (PI * index as f64 / INTERVALS as f64).sin_cos();
                let scores: Vec<f64> = first.iter().zip(&second).map(|(a, b)| std * (rho * a + own * b)).collect();
                let other = Weights::new(mixture, &scores);
                *overlap += one.overlap(&other) / DRAWS as f64;
                *passed += one.passed(&other) / DRAWS as f64;
            }
        }
        Self { overlaps, passed }
    }

    /// Ω(ρ).
    pub(crate) fn overlap(&self, rho: f64) -> f64 {
        at(&self.overlaps, rho)
    }

    /// Ω(1).
    pub(crate) fn own(&self) -> f64 {
        self.overlaps[0]
    }

    /// J(1).
    pub(crate) fn own_passed(&self) -> f64 {
        self.passed[0]
    }
}

/// Between the two angles next to arccos ρ.
fn at(values: &[f64], rho: f64) -> f64 {
    let place = rho.clamp(-1.0, 1.0).acos() / PI * INTERVALS as f64;
    let below = (place as usize).min(INTERVALS - 1);
    let part = place - below as f64;
    values[below] * (1.0 - part) + values[below + 1] * part
}

/// The output, of an expert that stands for all and its input `x`.
pub(crate) fn forward(mixture: &Mixture, routing: &Routing, domain: &Domain, x: &Signal, expert: &Signal) -> Signal {
    let ln_gain = 2.0 * mixture.scale.abs().ln() + routing.own().ln();
    let tokens = expert
        .tokens
        .iter()
        .map(|token| Token { ln_second: token.ln_second + ln_gain, ..Token::gaussian(token.width, 0.0) });
    let cosines = domain.map(expert.tokens.len(), |_, _, place| {
        expert.cosines[place] * routing.overlap(x.cosines[place]) / routing.own()
    });
    let y = Signal { tokens: tokens.collect(), cosines, ..expert.clone() };
    // Tokens of different experts have different weights.
    let entries = domain.alike(&y, 0.0).drawn(2.0 / y.token().width);
    let fluctuation = Fluctuation { entries, ..expert.fluctuation };
    Signal { fluctuation, ..y }
}

/// The gradient at the scores, every one of them, and that at the experts, which one stands for.
pub(crate) fn split(
    mixture: &Mixture,
    routing: &Routing,
    domain: &Domain,
    [x, expert]: [&Signal; 2],
    gradient: &Gradient,
) -> [Gradient; 2] {
    let overlap = |place: usize| routing.overlap(x.cosines[place]) / routing.own();
    let passed = |place: usize| ratio(at(&routing.passed, x.cosines[place]), routing.own_passed());
    let ln_scale = 2.0 * mixture.scale.abs().ln();
    let scores = gradient.tokens.iter().zip(expert.tokens.iter()).map(|(g, f)| {
        let ln_second = g.ln_second + f.ln_second + (routing.own_passed() * f.width).ln() + ln_scale;
        TokenGradient::isotropic(ln_second - (mixture.n_experts as f64).ln())
    });
    let cosines =
        domain.map(x.tokens.len(), |_, _, place| gradient.cosines[place] * expert.cosines[place] * passed(place));
    let scores = Gradient::new(scores.collect(), cosines);
    let tokens = gradient.tokens.iter().map(|token| token.scaled(ln_scale + routing.own().ln()));
    let cosines = domain.map(x.tokens.len(), |_, _, place| gradient.cosines[place] * overlap(place));
    let experts = Gradient {
        concentration: Concentration { inherited: 1.0, ..gradient.concentration },
        fluctuation: gradient.fluctuation.forked(),
        response: gradient.response,
        ..Gradient::new(tokens.collect(), cosines)
    };
    [scores, experts]
}

/// What the router sends back to its input, from the gradient at the `scores`.
pub(crate) fn router_backward(mixture: &Mixture, scores: &Gradient) -> Gradient {
    let ln_gain = (mixture.n_experts as f64 * mixture.router.init.variance()).ln();
    let tokens = scores.tokens.iter().map(|token| token.scaled(ln_gain)).collect();
    Gradient { tokens, ..scores.clone() }
}

/// Weights of one token: ∂w_i/∂score_j = w_i (`alone`_i δ_ij − `shared`_j).
struct Weights {
    /// w, zero for those not chosen.
    chosen: Vec<f64>,
    alone: Vec<f64>,
    shared: Vec<f64>,
}

impl Weights {
    fn new(mixture: &Mixture, scores: &[f64]) -> Self {
        let mut order: Vec<usize> = (0..scores.len()).collect();
        order.sort_by(|a, b| scores[*b].total_cmp(&scores[*a]));
        // Before the choice.
        let all: Vec<f64> = match mixture.weighting {
            Weighting::Softmax => {
                let largest = scores[order[0]];
                let total: f64 = scores.iter().map(|score| (score - largest).exp()).sum();
                scores.iter().map(|score| (score - largest).exp() / total).collect()
            }
            Weighting::Sigmoid => scores.iter().map(|score| 1.0 / (1.0 + (-score).exp())).collect(),
        };
        let mut chosen = vec![0.0; scores.len()];
        for &expert in order.iter().take(mixture.top_k) {
            chosen[expert] = all[expert];
        }
        if mixture.normalised {
            let total: f64 = chosen.iter().sum();
            for weight in &mut chosen {
                *weight /= total;
            }
        }
        // d(weight before normalisation)/d(its own score), over the weight.
        let alone: Vec<f64> = match mixture.weighting {
            Weighting::Softmax => vec![1.0; all.len()],
            Weighting::Sigmoid => all.iter().map(|weight| 1.0 - weight).collect(),
        };
        let shared = match (mixture.normalised, mixture.weighting) {
            (true, _) => chosen.iter().zip(&alone).map(|(weight, alone)| weight * alone).collect(),
            (false, Weighting::Softmax) => all,
            (false, Weighting::Sigmoid) => vec![0.0; all.len()],
        };
        Self { chosen, alone, shared }
    }

    /// Σ w_i w'_i.
    fn overlap(&self, other: &Self) -> f64 {
        self.chosen.iter().zip(&other.chosen).map(|(a, b)| a * b).sum()
    }

    /// Σ ∂w_i/∂score_j ∂w'_i/∂score'_j.
    fn passed(&self, other: &Self) -> f64 {
        let together: f64 = self.shared.iter().zip(&other.shared).map(|(a, b)| a * b).sum();
        let row = |i: usize| {
            let [(one, s), (another, t)] = [self, other].map(|weights| (weights.alone[i], weights.shared[i]));
            self.chosen[i] * other.chosen[i] * (one * another - one * t - another * s + together)
        };
        (0..self.chosen.len()).map(row).sum()
    }
}

#[cfg(test)]
mod tests {
    use sigprop_stack::{Init, Tensor};

    use super::*;

    fn mixture(n_experts: usize, top_k: usize, weighting: Weighting, normalised: bool) -> Mixture {
        let router = Tensor { name: "router".to_owned(), init: Init::Zero };
        Mixture { n_experts, top_k, weighting, normalised, scale: 1.0, router, expert: Vec::new() }
    }

    /// Without scores all weights are 1/k, and two tokens meet in an expert with probability k/n.
    #[test]
    fn equal_scores_by_hand() {
        let routing = Routing::new(&mixture(8, 2, Weighting::Softmax, true), 1e-6);
        approx::assert_relative_eq!(routing.own(), 0.5, epsilon = 1e-6);
        approx::assert_relative_eq!(routing.overlap(0.0), 1.0 / 8.0, epsilon = 0.003);
        // (δ_ij − ½)/2 over two experts: 4 · 1/16.
        approx::assert_relative_eq!(routing.own_passed(), 0.25, epsilon = 1e-6);
        // Of two choices alike by chance, 1 in 28: ¼. With one expert in common, 12 in 28: 1/16.
        approx::assert_relative_eq!(at(&routing.passed, 0.0), (0.25 + 12.0 / 16.0) / 28.0, epsilon = 0.002);
    }

    #[test]
    fn jacobians_agree_with_finite_differences() {
        for (weighting, normalised) in [
            (Weighting::Softmax, true),
            (Weighting::Softmax, false),
            (Weighting::Sigmoid, true),
            (Weighting::Sigmoid, false),
        ] {
            let mixture = mixture(4, 2, weighting, normalised);
            let scores = vec![0.3, -0.2, 1.1, 0.4];
            let step = 1e-6;
            let mut expected = 0.0;
            for j in 0..4 {
                let moved = |sign: f64| {
                    let mut scores = scores.clone();
                    scores[j] += sign * step;
                    Weights::new(&mixture, &scores).chosen
                };
                expected +=
                    moved(1.0).iter().zip(moved(-1.0)).map(|(a, b)| ((a - b) / (2.0 * step)).powi(2)).sum::<f64>();
            }
            let weights = Weights::new(&mixture, &scores);
            let got = weights.passed(&weights);
            approx::assert_relative_eq!(got, expected, max_relative = 1e-7);
        }
    }
}
