//! Weights of the experts of one token, and their derivatives with respect to the scores.

use sigprop_stack::{Mixture, Weighting};

/// Weights of one token: ∂w_i/∂score_j = w_i (`alone`_i δ_ij − `shared`_rj), where r is the row of expert i.
pub(crate) struct Weights {
    /// w, zero for experts that are not chosen.
    pub(crate) chosen: Vec<f64>,
    pub(crate) alone: Vec<f64>,
    /// One row for all experts, or one per chosen expert for [`Weighting::Sparsemixer`].
    shared: Vec<Vec<f64>>,
    /// The row of `shared` that belongs to every expert.
    rows: Vec<usize>,
}

impl Weights {
    pub(crate) fn new(mixture: &Mixture, scores: &[f64]) -> Self {
        // The chosen experts come first, in the order of their scores.
        let mut order: Vec<usize> = (0..scores.len()).collect();
        let by_score = |a: &usize, b: &usize| scores[*b].total_cmp(&scores[*a]).then(a.cmp(b));
        order.select_nth_unstable_by(mixture.top_k - 1, by_score);
        order[..mixture.top_k].sort_unstable_by(by_score);
        let mut rows = vec![0; scores.len()];
        let mut softmaxes = Vec::new();
        // The weights before the choice.
        let all: Vec<f64> = match mixture.weighting {
            Weighting::Softmax => {
                let largest = scores[order[0]];
                let total: f64 = scores.iter().map(|score| (score - largest).exp()).sum();
                scores.iter().map(|score| (score - largest).exp() / total).collect()
            }
            Weighting::Sigmoid => scores.iter().map(|score| 1.0 / (1.0 + (-score).exp())).collect(),
            Weighting::Sparsemixer => {
                let mut all = vec![0.0; scores.len()];
                for (row, &expert) in order.iter().take(mixture.top_k).enumerate() {
                    let near = near_largest(scores, &order[row..]);
                    (all[expert], rows[expert]) = (near[expert], row);
                    softmaxes.push(near);
                }
                all
            }
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
            Weighting::Softmax | Weighting::Sparsemixer => vec![1.0; all.len()],
            Weighting::Sigmoid => all.iter().map(|weight| 1.0 - weight).collect(),
        };
        let shared = match (mixture.normalised, mixture.weighting) {
            (true, Weighting::Softmax | Weighting::Sigmoid) => {
                vec![chosen.iter().zip(&alone).map(|(weight, alone)| weight * alone).collect()]
            }
            (false, Weighting::Softmax) => vec![all],
            (false, Weighting::Sigmoid) => vec![vec![0.0; all.len()]],
            (true, Weighting::Sparsemixer) => minus_mean(softmaxes, &chosen, &order),
            (false, Weighting::Sparsemixer) => softmaxes,
        };
        Self { chosen, alone, shared, rows }
    }

    /// Returns w_i w'_i for every expert i, where w' are the weights of the `other` token.
    pub(crate) fn overlaps(&self, other: &Self) -> impl Iterator<Item = f64> {
        self.chosen.iter().zip(&other.chosen).map(|(a, b)| a * b)
    }

    /// Returns Σ_j ∂w_i/∂score_j ∂w'_i/∂score'_j for every expert i, where w' and score' are of the `other` token.
    pub(crate) fn passed(&self, other: &Self) -> impl Iterator<Item = f64> {
        let product = |a: &Vec<f64>, b: &Vec<f64>| -> f64 { a.iter().zip(b).map(|(a, b)| a * b).sum() };
        let products = |a: &Vec<f64>| -> Vec<f64> { other.shared.iter().map(|b| product(a, b)).collect() };
        let together: Vec<Vec<f64>> = self.shared.iter().map(products).collect();
        let row = move |i: usize| {
            let [(one, r), (another, q)] = [self, other].map(|weights| (weights.alone[i], weights.rows[i]));
            let (s, t) = (self.shared[r][i], other.shared[q][i]);
            self.chosen[i] * other.chosen[i] * (one * another - one * t - another * s + together[r][q])
        };
        (0..self.chosen.len()).map(row)
    }
}

/// Returns the softmax of the scores near the largest, that of the first of `candidates`; 0 for other experts.
fn near_largest(scores: &[f64], candidates: &[usize]) -> Vec<f64> {
    let largest = scores[candidates[0]];
    let mut near = vec![0.0; scores.len()];
    for &expert in candidates {
        let score = scores[expert];
        if largest - score <= Weighting::MARGIN * score.abs().max(largest) {
            near[expert] = (score - largest).exp();
        }
    }
    let total: f64 = near.iter().sum();
    near.into_iter().map(|exponential| exponential / total).collect()
}

/// Returns the rows of `shared` after weights were divided by their sum, from the `softmaxes` of the chosen experts in
/// `order`: the mean derivative of the logs of weights, by weight, is subtracted.
fn minus_mean(softmaxes: Vec<Vec<f64>>, chosen: &[f64], order: &[usize]) -> Vec<Vec<f64>> {
    let mut mean = chosen.to_vec();
    for (softmax, &expert) in softmaxes.iter().zip(order) {
        for (mean, share) in mean.iter_mut().zip(softmax) {
            *mean -= chosen[expert] * share;
        }
    }
    softmaxes.into_iter().map(|softmax| softmax.iter().zip(&mean).map(|(share, mean)| share + mean).collect()).collect()
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
            (Weighting::Sparsemixer, true),
            (Weighting::Sparsemixer, false),
        ] {
            let mixture = mixture(4, 2, weighting, normalised);
            // Two scores are near the largest.
            let scores = vec![1.09, -0.2, 1.1, 1.085];
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
    /// Each of two experts is weighed among the scores within 2 % of its own that are not larger; negative scores are
    /// compared with the size of the smaller one.
    #[test]
    fn sparsemixer_weighs_each_choice_among_near_scores() {
        let mixture = mixture(4, 2, Weighting::Sparsemixer, false);
        let got = |scores: [f64; 4]| Weights::new(&mixture, &scores).chosen;
        assert_eq!(got([0.3, 2.0, -0.2, 1.0]), [0.0, 1.0, 0.0, 1.0]);
        let share = 1.0 / (1.0 + f64::exp(-0.01));
        let near = got([1.0, 0.99, 0.5, -1.0]);
        approx::assert_relative_eq!(near[0], share, max_relative = 1e-12);
        approx::assert_relative_eq!(near[1], 1.0, max_relative = 1e-12);
        let negative = got([-1.0, -1.019, -1.05, -2.0]);
        approx::assert_relative_eq!(negative[0], 1.0 / (1.0 + f64::exp(-0.019)), max_relative = 1e-12);
        approx::assert_relative_eq!(negative[1], 1.0, max_relative = 1e-12);
    }
}
