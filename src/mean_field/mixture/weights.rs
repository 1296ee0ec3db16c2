//! Weights of the experts of one token, and their derivatives with respect to the scores.

use sigprop_stack::{Mixture, Weighting};

/// Weights of one token: ∂w_i/∂score_j = w_i (`alone`_i δ_ij − `shared`_j).
pub(crate) struct Weights {
    /// w, zero for experts that are not chosen.
    pub(crate) chosen: Vec<f64>,
    pub(crate) alone: Vec<f64>,
    pub(crate) shared: Vec<f64>,
}

impl Weights {
    pub(crate) fn new(mixture: &Mixture, scores: &[f64]) -> Self {
        let mut order: Vec<usize> = (0..scores.len()).collect();
        order.sort_by(|a, b| scores[*b].total_cmp(&scores[*a]));
        // The weights before the choice.
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
        // The derivative of ln weight with respect to its own score, before weights are divided by their sum.
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

    /// Returns w_i w'_i for every expert i, where w' are the weights of the `other` token.
    pub(crate) fn overlaps(&self, other: &Self) -> impl Iterator<Item = f64> {
        self.chosen.iter().zip(&other.chosen).map(|(a, b)| a * b)
    }

    /// Returns Σ_j ∂w_i/∂score_j ∂w'_i/∂score'_j for every expert i, where w' and score' are of the `other` token.
    pub(crate) fn passed(&self, other: &Self) -> impl Iterator<Item = f64> {
        let together: f64 = self.shared.iter().zip(&other.shared).map(|(a, b)| a * b).sum();
        let row = move |i: usize| {
            let [(one, s), (another, t)] = [self, other].map(|weights| (weights.alone[i], weights.shared[i]));
            self.chosen[i] * other.chosen[i] * (one * another - one * t - another * s + together)
        };
        (0..self.chosen.len()).map(row)
    }
}

#[cfg(test)]
mod tests {
    use sigprop_stack::{Init, Multiplied, Tensor};

    use super::*;

    fn mixture(n_experts: usize, top_k: usize, weighting: Weighting, normalised: bool) -> Mixture {
        let router = Tensor { name: "router".to_owned(), init: Init::Zero };
        Mixture {
            n_experts,
            top_k,
            weighting,
            weights_multiply: Multiplied::Outputs,
            normalised,
            scale: 1.0,
            router,
            expert: Vec::new(),
        }
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
            let got = weights.passed(&weights).sum::<f64>();
            approx::assert_relative_eq!(got, expected, max_relative = 1e-7);
        }
    }
}
