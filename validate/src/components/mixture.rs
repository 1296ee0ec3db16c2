//! Mixture of experts: every expert runs on all tokens, and the router weighs their outputs.
//!
//! ```text
//! forward   s = R x,  w = softmax s or σ(s), kept for the k largest s (and divided by their sum),
//!           y = scale Σ_e w_e f_e(x)
//! backward  df_e = scale w_e dy,  dw_e = scale f_e·dy,  ds by the slopes of w,  dx = Rᵀ ds
//! ```
//!
//! If weights multiply inputs, y = scale Σ_e f_e(u_e) over the chosen experts, where u_e = w_e x; then df_e = scale dy,
//! dw_e = x·du_e and dx = Σ_e w_e du_e + Rᵀ ds.
//!
//! The choice of experts is a constant in the backward pass, as are the near scores of SparseMixer: its weights are
//! softmax over the near scores of each chosen expert.

use sigprop_stack::{Linear, Mixture, Multiplied, Weighting};

use super::linear;
use crate::{array::Array, random::Random, scalar::Scalar, signal::Signal};

pub(crate) fn forward<T: Scalar>(
    mixture: &Mixture,
    random: &Random,
    input: &Array<T>,
    experts: &[Signal<T>],
) -> Array<T> {
    let scores = linear::forward(&router(mixture, input.width()), random, input);
    let mut output = Array::zeros(input.shape(), experts[0].width());
    let width = output.width();
    for (token, (y, scores)) in output.rows_mut().zip(scores.rows()).enumerate() {
        for (expert, weight) in Weights::new(mixture, scores).chosen.into_iter().enumerate() {
            if weight > 0.0 {
                let c = T::from_f64(mixture.scale * of_output(mixture, weight));
                let row = &experts[expert].entries()[token * width..(token + 1) * width];
                y.iter_mut().zip(row).for_each(|(y, &f)| *y += c * f);
            }
        }
    }
    output
}

/// Returns the factor on the output of an expert of this weight.
fn of_output(mixture: &Mixture, weight: f64) -> f64 {
    match mixture.weights_multiply {
        Multiplied::Outputs => weight,
        Multiplied::Inputs => 1.0,
    }
}

/// Returns the input of an expert if weights multiply inputs: w x, which is zero for the tokens of other experts.
pub(crate) fn weighed<T: Scalar>(mixture: &Mixture, random: &Random, input: &Array<T>, expert: usize) -> Array<T> {
    let scores = linear::forward(&router(mixture, input.width()), random, input);
    let mut weighed = input.clone();
    for (row, scores) in weighed.rows_mut().zip(scores.rows()) {
        let weight = T::from_f64(Weights::new(mixture, scores).chosen[expert]);
        for x in row {
            *x *= weight;
        }
    }
    weighed
}

/// The gradients of a mixture.
pub(crate) struct Backward<T: Scalar> {
    /// Gradients at the outputs of the experts.
    pub experts: Vec<Array<T>>,
    /// Gradients through the router; `None` before the backward passes of experts whose inputs are weighed.
    pub router: Option<ThroughRouter<T>>,
}

/// Gradients of the router of a mixture.
pub(crate) struct ThroughRouter<T: Scalar> {
    /// Gradient of the input, through the router alone.
    pub input: Array<T>,
    /// Gradient of the scores.
    pub scores: Array<T>,
}

pub(crate) fn backward<T: Scalar>(
    mixture: &Mixture,
    random: &Random,
    input: &Array<T>,
    experts: &[Signal<T>],
    gradient: &Array<T>,
) -> Backward<T> {
    let router = router(mixture, input.width());
    let scores = linear::forward(&router, random, input);
    let width = gradient.width();
    let mut parts: Vec<Array<T>> = experts.iter().map(|f| Array::zeros(f.shape(), f.width())).collect();
    let mut slopes = Array::zeros(scores.shape(), mixture.n_experts);
    for (token, ((dy, scores), ds)) in gradient.rows().zip(scores.rows()).zip(slopes.rows_mut()).enumerate() {
        let weights = Weights::new(mixture, scores);
        let place = token * width..(token + 1) * width;
        let mut dw = vec![0.0; mixture.n_experts];
        for (expert, &weight) in weights.chosen.iter().enumerate().filter(|(_, weight)| **weight > 0.0) {
            let f = &experts[expert].entries()[place.clone()];
            dw[expert] = mixture.scale * f.iter().zip(dy).map(|(f, g)| f.to_f64() * g.to_f64()).sum::<f64>();
            let c = T::from_f64(mixture.scale * of_output(mixture, weight));
            let part = &mut parts[expert].entries_mut()[place.clone()];
            part.iter_mut().zip(dy).for_each(|(part, &g)| *part = c * g);
        }
        for (ds, slope) in ds.iter_mut().zip(weights.backward(mixture, &dw)) {
            *ds = T::from_f64(slope);
        }
    }
    let through_router = (mixture.weights_multiply == Multiplied::Outputs).then(|| {
        let input = linear::backward(&router, random, &slopes);
        ThroughRouter { input, scores: slopes }
    });
    Backward { experts: parts, router: through_router }
}

/// Replaces the gradients at the inputs of experts by those at x, if weights multiply inputs. Returns the gradients of
/// the router.
pub(crate) fn backward_weighed<T: Scalar>(
    mixture: &Mixture,
    random: &Random,
    input: &Array<T>,
    experts: &mut [Array<T>],
) -> ThroughRouter<T> {
    let router = router(mixture, input.width());
    let scores = linear::forward(&router, random, input);
    let width = input.width();
    let mut slopes = Array::zeros(scores.shape(), mixture.n_experts);
    for (token, ((x, scores), ds)) in input.rows().zip(scores.rows()).zip(slopes.rows_mut()).enumerate() {
        let weights = Weights::new(mixture, scores);
        let mut dw = vec![0.0; mixture.n_experts];
        for ((expert, dw), &weight) in experts.iter_mut().zip(&mut dw).zip(&weights.chosen) {
            let row = &mut expert.entries_mut()[token * width..(token + 1) * width];
            *dw = row.iter().zip(x).map(|(g, x)| g.to_f64() * x.to_f64()).sum::<f64>();
            for g in row {
                *g *= T::from_f64(weight);
            }
        }
        for (ds, slope) in ds.iter_mut().zip(weights.backward(mixture, &dw)) {
            *ds = T::from_f64(slope);
        }
    }
    ThroughRouter { input: linear::backward(&router, random, &slopes), scores: slopes }
}

/// The map from tokens to scores.
pub(crate) fn router(mixture: &Mixture, width: usize) -> Linear {
    Linear { fan_in: width, fan_out: mixture.n_experts, weight: mixture.router.clone(), bias: None, standardised: None }
}

/// An expert that SparseMixer chose.
struct Pick {
    expert: usize,
    /// Softmax over the near scores, per expert; zero for others.
    shares: Vec<f64>,
}

/// Weights of the experts for one token.
struct Weights {
    /// Softmax or sigmoid of the scores of all experts; for SparseMixer the share of each chosen expert.
    all: Vec<f64>,
    /// The softmax of each chosen expert over its near scores, with its index; empty but for SparseMixer.
    picks: Vec<Pick>,
    /// Weights of the output of every expert; zero for experts that are not chosen.
    chosen: Vec<f64>,
    /// The sum that the chosen weights were divided by; 1 if they are not normalised.
    total: f64,
}

impl Weights {
    fn new<T: Scalar>(mixture: &Mixture, scores: &[T]) -> Self {
        let scores: Vec<f64> = scores.iter().map(|s| s.to_f64()).collect();
        let mut order: Vec<usize> = (0..scores.len()).collect();
        order.sort_by(|&a, &b| scores[b].total_cmp(&scores[a]));
        let picks = match mixture.weighting {
            Weighting::Sparsemixer => picks(&scores, &order, mixture.top_k),
            Weighting::Softmax | Weighting::Sigmoid => Vec::new(),
        };
        let all: Vec<f64> = match mixture.weighting {
            Weighting::Softmax => {
                let exponentials: Vec<f64> = scores.iter().map(|s| libm::exp(s - scores[order[0]])).collect();
                let total: f64 = exponentials.iter().sum();
                exponentials.into_iter().map(|e| e / total).collect()
            }
            Weighting::Sigmoid => scores.iter().map(|s| 1.0 / (1.0 + libm::exp(-s))).collect(),
            Weighting::Sparsemixer => {
                let of = |e: usize| picks.iter().filter(|pick| pick.expert == e).map(|pick| pick.shares[e]).sum();
                (0..scores.len()).map(of).collect()
            }
        };
        let mut chosen = vec![0.0; scores.len()];
        for &expert in &order[..mixture.top_k] {
            chosen[expert] = all[expert];
        }
        let total: f64 = if mixture.normalised { chosen.iter().sum() } else { 1.0 };
        for weight in &mut chosen {
            *weight /= total;
        }
        Self { all, picks, chosen, total }
    }

    /// Returns the gradients of the scores from the gradients of the weights.
    fn backward(&self, mixture: &Mixture, dw: &[f64]) -> Vec<f64> {
        let met = |weights: &[f64]| -> f64 { weights.iter().zip(dw).map(|(w, g)| w * g).sum() };
        // First back through the division, then through softmax or sigmoid.
        let average = if mixture.normalised { met(&self.chosen) } else { 0.0 };
        let du = |e: usize| if self.chosen[e] > 0.0 { (dw[e] - average) / self.total } else { 0.0 };
        let spread: f64 = (0..dw.len()).map(|e| self.all[e] * du(e)).sum();
        (0..dw.len())
            .map(|e| match mixture.weighting {
                Weighting::Softmax => self.all[e] * (du(e) - spread),
                Weighting::Sigmoid => self.all[e] * (1.0 - self.all[e]) * du(e),
                Weighting::Sparsemixer => {
                    let through = |pick: &Pick| self.all[pick.expert] * du(pick.expert) * pick.shares[e];
                    self.all[e] * du(e) - self.picks.iter().map(through).sum::<f64>()
                }
            })
            .collect()
    }
}

/// Returns the choices of SparseMixer one after the other. The softmax of each leaves out the choices before it, and scores
/// that differ too much from its own.
fn picks(scores: &[f64], order: &[usize], top_k: usize) -> Vec<Pick> {
    let pick = |rank: usize| {
        let best = scores[order[rank]];
        let mut shares = vec![0.0; scores.len()];
        for &expert in &order[rank..] {
            let is_near = (best - scores[expert]) / f64::max(scores[expert].abs(), best) <= Weighting::MARGIN;
            shares[expert] = if is_near || expert == order[rank] { libm::exp(scores[expert] - best) } else { 0.0 };
        }
        let total: f64 = shares.iter().sum();
        Pick { expert: order[rank], shares: shares.into_iter().map(|share| share / total).collect() }
    };
    (0..top_k).map(pick).collect()
}

#[cfg(test)]
mod tests {
    use sigprop_stack::{Init, Tensor};

    use super::*;

    /// Three scores are near each other, as few random scores are.
    #[test]
    fn near_scores_agree_with_finite_differences() {
        const STEP: f64 = 1e-6;
        let mut mixture = Mixture {
            n_experts: 4,
            top_k: 2,
            weighting: Weighting::Sparsemixer,
            weights_multiply: Multiplied::Outputs,
            normalised: false,
            scale: 1.0,
            router: Tensor { name: "router".to_owned(), init: Init::Zero },
            expert: Vec::new(),
        };
        let (scores, dw) = ([1.09, -0.2, 1.1, 1.085], [0.7, 0.0, -0.4, 0.0]);
        for normalised in [false, true] {
            mixture.normalised = normalised;
            let loss = |scores: &[f64; 4]| -> f64 {
                Weights::new(&mixture, scores).chosen.iter().zip(&dw).map(|(weight, dw)| weight * dw).sum()
            };
            let got = Weights::new(&mixture, &scores).backward(&mixture, &dw);
            for (expert, slope) in got.into_iter().enumerate() {
                let moved = |sign: f64| {
                    let mut scores = scores;
                    scores[expert] += sign * STEP;
                    loss(&scores)
                };
                let expected = (moved(1.0) - moved(-1.0)) / (2.0 * STEP);
                approx::assert_relative_eq!(slope, expected, epsilon = 1e-9, max_relative = 1e-7);
            }
        }
    }
}
