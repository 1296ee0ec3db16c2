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
//! All experts together behave like one that receives E g_a·g_c scale² Ω. The scores receive, J the mean square of
//! ∂w/∂score (chosen set fixed, summed over both),
//!
//! ```text
//! E |g_score|² = scale² J width E f² E g²      E g_x² from it: s² times that
//! ```
//!
//! # Assumptions
//!
//! Ω and J by 2¹³ pseudo-random draws of the scores from a fixed seed (error about 0.5 %); pairs of score gradients
//! are taken to overlap like Ω.
//!
//! # Source
//!
//! Ours.

use rand::SeedableRng;
use rand::rngs::ChaCha8Rng;
use rand_distr::{Distribution, StandardNormal};
use sigprop_stack::{Mixture, Weighting};

use crate::domain::{Concentration, Domain, Fluctuation, Gradient, Signal};
use crate::moments::{Token, TokenGradient};

/// Draws of the scores.
const DRAWS: usize = 1 << 13;
/// Intervals of ρ between −1 and 1.
const INTERVALS: usize = 16;

/// Ω and J of one mixture at one scale of its scores.
#[derive(Clone, Debug)]
pub(crate) struct Routing {
    /// Ω at equidistant ρ from −1 to 1.
    overlaps: Vec<f64>,
    /// J.
    pub(crate) jacobian: f64,
}

impl Routing {
    /// For scores of standard deviation `std`.
    pub(crate) fn new(mixture: &Mixture, std: f64) -> Self {
        let mut generator = ChaCha8Rng::seed_from_u64(0);
        let mut normal = |_| -> f64 { StandardNormal.sample(&mut generator) };
        let mut overlaps = vec![0.0; INTERVALS + 1];
        let mut jacobian = 0.0;
        for _ in 0..DRAWS {
            let first: Vec<f64> = (0..mixture.n_experts).map(&mut normal).collect();
            let second: Vec<f64> = (0..mixture.n_experts).map(&mut normal).collect();
            let one = Weights::new(mixture, &first.iter().map(|z| std * z).collect::<Vec<f64>>());
            jacobian += one.jacobian(mixture);
            for (index, overlap) in overlaps.iter_mut().enumerate() {
                let rho = 2.0 * index as f64 / INTERVALS as f64 - 1.0;
                let own = (1.0 - rho * rho).max(0.0).sqrt();
                let scores: Vec<f64> = first.iter().zip(&second).map(|(a, b)| std * (rho * a + own * b)).collect();
                let other = Weights::new(mixture, &scores);
                *overlap += one.chosen.iter().zip(&other.chosen).map(|(a, b)| a * b).sum::<f64>();
            }
        }
        let overlaps = overlaps.into_iter().map(|overlap| overlap / DRAWS as f64).collect();
        Self { overlaps, jacobian: jacobian / DRAWS as f64 }
    }

    /// Ω(ρ).
    pub(crate) fn overlap(&self, rho: f64) -> f64 {
        let place = (rho.clamp(-1.0, 1.0) + 1.0) * (0.5 * INTERVALS as f64);
        let below = (place as usize).min(INTERVALS - 1);
        let part = place - below as f64;
        self.overlaps[below] * (1.0 - part) + self.overlaps[below + 1] * part
    }

    /// Ω(1).
    pub(crate) fn own(&self) -> f64 {
        self.overlaps[INTERVALS]
    }
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
    let ln_scale = 2.0 * mixture.scale.abs().ln();
    let scores = gradient.tokens.iter().zip(expert.tokens.iter()).map(|(g, f)| {
        let ln_second = g.ln_second + f.ln_second + (routing.jacobian * f.width).ln() + ln_scale;
        TokenGradient::isotropic(ln_second - (mixture.n_experts as f64).ln())
    });
    let cosines =
        domain.map(x.tokens.len(), |_, _, place| gradient.cosines[place] * expert.cosines[place] * overlap(place));
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

/// Weights of one token.
struct Weights {
    /// Before the choice: softmax or sigmoid of the scores.
    all: Vec<f64>,
    /// w, zero for those not chosen.
    chosen: Vec<f64>,
}

impl Weights {
    fn new(mixture: &Mixture, scores: &[f64]) -> Self {
        let mut order: Vec<usize> = (0..scores.len()).collect();
        order.sort_by(|a, b| scores[*b].total_cmp(&scores[*a]));
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
        Self { all, chosen }
    }

    /// Σ (∂w_i/∂score_j)².
    fn jacobian(&self, mixture: &Mixture) -> f64 {
        // d(weight before normalisation)/d(its own score), over the weight.
        let own = |i: usize| match mixture.weighting {
            Weighting::Softmax => 1.0,
            Weighting::Sigmoid => 1.0 - self.all[i],
        };
        let shared = |j: usize| match (mixture.normalised, mixture.weighting) {
            (true, _) => self.chosen[j] * own(j),
            (false, Weighting::Softmax) => self.all[j],
            (false, Weighting::Sigmoid) => 0.0,
        };
        let squares: f64 = (0..self.all.len()).map(|j| shared(j).powi(2)).sum();
        let row = |i: usize| {
            let w = self.chosen[i];
            w * w * (own(i) * own(i) - 2.0 * own(i) * shared(i) + squares)
        };
        (0..self.all.len()).map(row).sum()
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
        approx::assert_relative_eq!(routing.jacobian, 0.25, epsilon = 1e-6);
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
            let got = Weights::new(&mixture, &scores).jacobian(&mixture);
            approx::assert_relative_eq!(got, expected, max_relative = 1e-7);
        }
    }
}
