//! Mixture of experts with top-k routing.

use serde::{Deserialize, Serialize};

use crate::{Node, Tensor};

/// y = `scale` · Σ_e w_e(x) expert_e(x) over the `top_k` experts with the largest router scores; if weights multiply
/// inputs, y = `scale` · Σ_e expert_e(w_e(x) x).
///
/// All experts have the structure of `expert` and weights of their own: a tensor in it represents `n_experts` tensors
/// of its shape.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Mixture {
    /// Number of experts.
    pub n_experts: usize,
    /// Number of experts that a token goes to.
    pub top_k: usize,
    /// The function from scores to weights.
    pub weighting: Weighting,
    /// The place where weights act.
    #[serde(default)]
    pub weights_multiply: Multiplied,
    /// True if the weights of the chosen experts are divided by their sum.
    pub normalised: bool,
    /// Factor on the weighted sum of the outputs of the experts.
    pub scale: f64,
    /// Scores are `router` · x; shape `n_experts` × width.
    pub router: Tensor,
    /// The chain of an expert.
    pub expert: Vec<Node>,
}

/// The function from router scores to weights.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Weighting {
    /// Softmax over all experts.
    Softmax,
    /// 1/(1 + e^(−score)).
    Sigmoid,
    /// Each chosen expert i has the weight e^(score_i) / Σ_j e^(score_j), where j are i and the experts with smaller
    /// scores for which score_i − score_j ≤ 0.02 max(score_i, −score_j) (Phi-3.5-MoE, in evaluation).
    Sparsemixer,
}

impl Weighting {
    /// The largest difference of scores in a softmax of [`Weighting::Sparsemixer`], relative to the scores.
    pub const MARGIN: f64 = 0.02;
}

/// The place where the weights of experts act.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Multiplied {
    /// Weights multiply the outputs of experts.
    #[default]
    Outputs,
    /// Weights multiply the inputs of experts (Llama 4).
    Inputs,
}
