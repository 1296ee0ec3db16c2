//! The summary of one prediction.
//!
//! ```text
//! growth            variance after the last block over that at its input; backward the other way round
//! gradient ratio    largest over smallest gradient norm of one weight matrix over the blocks, of the worst one
//! worst tensor      largest gradient norm of a tensor over the median of all that have a gradient
//! score std         √(E s²) of the attention with the largest scores s
//! attended tokens   1/E ΣA² of the attention A that looks at the smallest part of the tokens in view
//! margin            doublings or halvings until a float format is left (largest entry to expect; std)
//! ```
//!
//! All numbers are for the stream that the gradient goes through; a final norm is left out of the growth. The norm of a
//! tensor's gradient is √(entries · E (dL/dW)²).

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use sigprop_stack::{Number, Quantity, SiteRow, Stack};

use crate::Prediction;
use crate::caveat::Caveat;
use crate::cost::tensor_entries;
use crate::verdict::{FORMATS, Format, NARROW_FORMATS, Profile, Shape, Spread, Verdict, margin, sharpest};

/// The formats whose margins are reported.
pub const MARGIN_FORMATS: [Format; 4] = [FORMATS[0], FORMATS[1], NARROW_FORMATS[0], NARROW_FORMATS[1]];

/// The growth of a variance along a stream: forward from its input to its output, or backward from its output to its
/// input.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Growth {
    /// ln of the factor; −∞ if the variance becomes exactly zero.
    pub ln_total: f64,
    /// Number of blocks over which the variance grows.
    pub n_blocks: usize,
}

impl Growth {
    /// The factor over all blocks.
    pub fn total(&self) -> Number {
        Number::from_ln(self.ln_total)
    }

    /// The factor per block: the geometric mean over the blocks.
    pub fn per_block(&self) -> Number {
        Number::from_ln(self.ln_total / self.n_blocks.max(1) as f64)
    }
}

/// The tensor with the largest gradient norm of a network.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct WorstTensor {
    /// Name of the tensor.
    pub tensor: String,
    /// ln of the ratio of its gradient norm to the median over all tensors with a gradient.
    pub ln_ratio: f64,
}

/// The summary of a prediction.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Summary {
    /// Growth of the variance of the stream.
    pub forward: Growth,
    /// Growth of the variance of the gradient, backward from the end of the stream to its input.
    pub backward: Growth,
    /// Fluctuations between initialisations: the standard deviation of ln of the variance after the last block, and of
    /// ln of the gradient variance at the input. `None` if it is not predicted.
    pub stds: [Option<f64>; 2],
    /// ln of the ratio of the largest to the smallest gradient norm over the blocks, for the weight matrix with the
    /// largest ratio. `None` if no matrix in the blocks has a gradient.
    pub ln_gradient_ratio: Option<f64>,
    /// ln of the ratio of the largest to the smallest gradient norm over the blocks, for every weight matrix. The key
    /// is the name of the matrix with a `*` for the block.
    pub ln_gradient_ratios: BTreeMap<String, f64>,
    /// The tensor with the largest gradient norm; `None` if no weight has a gradient.
    pub worst_tensor: Option<WorstTensor>,
    /// Correlation between tokens after the last block; `None` for a single token.
    pub token_correlation: Option<f64>,
    /// Variance of the scores of the attention with the largest scores; `None` without attention.
    pub score_variance: Option<Number>,
    /// Effective number of tokens that the sharpest attention attends to; `None` without attention.
    pub attended: Option<f64>,
    /// Number of doublings or halvings until each of [`MARGIN_FORMATS`] is left; `None` if the stream is exactly zero.
    pub margins: [Option<f64>; 4],
    /// The verdict on the network.
    pub verdict: Verdict,
    /// Caveats: rules used outside their range.
    pub caveats: Vec<Caveat>,
    /// The sites of the stream, from its input to its last block.
    pub stream: Vec<SiteRow>,
    /// The size of the stream.
    pub shape: Shape,
}

impl Summary {
    /// Summarises the prediction for a stack.
    ///
    /// # Panics
    ///
    /// If the prediction was made for another stack.
    pub fn of(stack: &Stack, prediction: &Prediction) -> Self {
        let shape = Shape::of(stack);
        let profiles = Profile::all(&prediction.table);
        let profile = &profiles[stack.gradient.stream];
        let ends = [profile.rows.first(), profile.rows.last()].map(|row| row.expect("a stream has sites"));
        let growth = |quantity, [from, to]: [usize; 2]| {
            let [from, to] = [from, to].map(|end| ends[end].value(quantity).map_or(f64::NEG_INFINITY, |v| v.ln_abs()));
            let ln_total = if to == f64::NEG_INFINITY { to } else { to - from };
            Growth { ln_total, n_blocks: profile.rows.len() - 1 }
        };
        let spreads = Spread::all(&prediction.table.weights).into_iter();
        let ln_gradient_ratios: BTreeMap<String, f64> =
            spreads.map(|spread| (spread.tensor, spread.ln_ratio)).collect();
        let scores = prediction.attentions.iter().map(|row| row.score_variance);
        Self {
            forward: growth(Quantity::Variance, [0, 1]),
            backward: growth(Quantity::GradVariance, [1, 0]),
            stds: [(1, Quantity::LnVarianceStd), (0, Quantity::LnGradVarianceStd)]
                .map(|(end, quantity)| ends[end].value(quantity).map(|std| std.value())),
            ln_gradient_ratio: ln_gradient_ratios.values().copied().max_by(f64::total_cmp),
            ln_gradient_ratios,
            worst_tensor: worst_tensor(stack, prediction),
            token_correlation: ends[1].value(Quantity::TokenCorrelation).map(|cell| cell.value()),
            score_variance: scores.max_by(|one, other| one.ln_abs().total_cmp(&other.ln_abs())),
            attended: sharpest(&prediction.attentions).map(|row| row.attended),
            margins: MARGIN_FORMATS.map(|format| margin(profile, shape, &format)),
            verdict: Verdict::of(prediction, shape, None),
            caveats: prediction.caveats.clone(),
            stream: profile.rows.iter().copied().cloned().collect(),
            shape,
        }
    }
}

fn worst_tensor(stack: &Stack, prediction: &Prediction) -> Option<WorstTensor> {
    let entries = tensor_entries(stack);
    let weights = prediction.table.weights.iter().filter(|row| !row.grad_second_moment.value.is_zero());
    let norm = |ln_second: f64, tensor: &str| 0.5 * (ln_second + (entries[tensor] as f64).ln());
    let mut norms: Vec<(f64, &str)> =
        weights.map(|row| (norm(row.grad_second_moment.value.ln_abs(), &row.tensor), row.tensor.as_str())).collect();
    norms.sort_by(|one, other| one.0.total_cmp(&other.0));
    let (largest, tensor) = *norms.last()?;
    let middle = norms.len() / 2;
    let median =
        if norms.len() % 2 == 1 { norms[middle].0 } else { f64::midpoint(norms[middle - 1].0, norms[middle].0) };
    Some(WorstTensor { tensor: tensor.to_owned(), ln_ratio: largest - median })
}
