//! JSON documents. Numbers beyond f64 are null; a field next to them holds their logarithm.

use std::io::{self, Write};

use serde::Serialize;
use sigprop_stack::{Quantity, SiteRow, Stack, WeightRow};

use super::{Run, SCHEMA_VERSION, ln, numbers::within_f64, std_error, summary::SummaryDocument, update::UpdateJson};
use crate::{
    agreement::{Comparison, Summary},
    caveat::{Caveat, CaveatKind},
    cost::Cost,
    first_step::FirstUpdate,
    head::Loss,
    predict::{Prediction, Sequences},
    stack_file::stack_hash,
    verdict::Verdict,
};

/// The contents of the JSON of a prediction.
#[derive(Clone, Copy, Debug)]
pub struct PredictionDocument<'a> {
    /// The stack that was predicted.
    pub stack: &'a Stack,
    /// The prediction.
    pub prediction: &'a Prediction,
    /// True if the weight tensors are included.
    pub weights: bool,
    /// The verdict on the prediction.
    pub verdict: &'a Verdict,
    /// The costs of the network.
    pub cost: &'a Cost,
    /// The loss under the head; `None` without a head.
    pub loss: Option<&'a Loss>,
    /// The first step of an optimiser, if it is included.
    pub update: Option<&'a FirstUpdate>,
}

/// The contents of the JSON of a validation.
#[derive(Clone, Copy, Debug)]
pub struct ValidationDocument<'a> {
    /// The prediction.
    pub prediction: &'a Prediction,
    /// The verdict on the prediction.
    pub verdict: &'a Verdict,
    /// The stack, and the source of the observations.
    pub run: &'a Run,
    /// How well prediction and observations agree.
    pub summary: &'a Summary,
    /// The comparisons, number by number.
    pub comparisons: &'a [Comparison],
}

/// Writes a prediction as JSON.
pub fn prediction_json(document: &PredictionDocument, out: &mut dyn Write) -> io::Result<()> {
    serde_json::to_writer_pretty(&mut *out, &PredictionJson::of(document))?;
    writeln!(out)
}

/// Writes a validation as JSON: its summary, the caveats of the prediction, and all comparisons.
pub fn validation_json(document: &ValidationDocument, out: &mut dyn Write) -> io::Result<()> {
    let ValidationDocument { prediction, run, summary, comparisons, .. } = document;
    let document = ValidationJson {
        summary: SummaryDocument::new(run, summary),
        caveats: prediction.caveats.iter().map(CaveatJson::of).collect(),
        comparisons: comparisons.iter().map(ComparisonJson::of).collect(),
    };
    serde_json::to_writer_pretty(&mut *out, &document)?;
    writeln!(out)
}

#[derive(Serialize)]
pub(super) struct PredictionJson<'a> {
    schema_version: u32,
    version: &'static str,
    stack: &'a str,
    stack_hash: String,
    seq_len: usize,
    sites: Vec<SiteJson<'a>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    weights: Option<Vec<WeightJson<'a>>>,
    caveats: Vec<CaveatJson<'a>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    sequences: Option<Sequences>,
    cost: CostJson,
    #[serde(skip_serializing_if = "Option::is_none")]
    loss: Option<LossJson>,
    #[serde(skip_serializing_if = "Option::is_none")]
    first_update: Option<UpdateJson<'a>>,
    verdict: &'a Verdict,
}

impl<'a> PredictionJson<'a> {
    pub(super) fn of(document: &PredictionDocument<'a>) -> Self {
        let PredictionDocument { stack, prediction, weights, verdict, cost, loss, update } = *document;
        Self {
            schema_version: SCHEMA_VERSION,
            version: env!("CARGO_PKG_VERSION"),
            stack: &stack.name,
            stack_hash: stack_hash(stack),
            seq_len: stack.streams[stack.gradient.stream].seq_len,
            sites: prediction.table.sites.iter().map(SiteJson::of).collect(),
            weights: weights.then(|| prediction.table.weights.iter().map(WeightJson::of).collect()),
            caveats: prediction.caveats.iter().map(CaveatJson::of).collect(),
            sequences: prediction.sequences,
            cost: CostJson::of(cost),
            loss: loss.map(LossJson::of),
            first_update: update.map(UpdateJson::of),
            verdict,
        }
    }
}

#[derive(Serialize)]
struct SiteJson<'a> {
    layer: i64,
    site: &'a str,
    mean: Option<f64>,
    variance: Option<f64>,
    token_correlation: Option<f64>,
    grad_variance: Option<f64>,
    grad_token_correlation: Option<f64>,
    ln_variance: Option<f64>,
    ln_grad_variance: Option<f64>,
    variance_first: Option<f64>,
    variance_last: Option<f64>,
    grad_variance_first: Option<f64>,
    grad_variance_last: Option<f64>,
    ln_variance_std: Option<f64>,
    ln_grad_variance_std: Option<f64>,
}

impl<'a> SiteJson<'a> {
    fn of(row: &'a SiteRow) -> Self {
        let value = |quantity| within_f64(row.value(quantity));
        Self {
            layer: row.layer,
            site: &row.site,
            mean: value(Quantity::Mean),
            variance: value(Quantity::Variance),
            token_correlation: value(Quantity::TokenCorrelation),
            grad_variance: value(Quantity::GradVariance),
            grad_token_correlation: value(Quantity::GradTokenCorrelation),
            ln_variance: ln(row.value(Quantity::Variance)),
            ln_grad_variance: ln(row.value(Quantity::GradVariance)),
            variance_first: value(Quantity::VarianceFirst),
            variance_last: value(Quantity::VarianceLast),
            grad_variance_first: value(Quantity::GradVarianceFirst),
            grad_variance_last: value(Quantity::GradVarianceLast),
            ln_variance_std: value(Quantity::LnVarianceStd),
            ln_grad_variance_std: value(Quantity::LnGradVarianceStd),
        }
    }
}

#[derive(Serialize)]
struct WeightJson<'a> {
    layer: i64,
    tensor: &'a str,
    weight_variance: f64,
    weight_grad_second_moment: Option<f64>,
    ln_weight_grad_second_moment: Option<f64>,
}

impl<'a> WeightJson<'a> {
    fn of(row: &'a WeightRow) -> Self {
        let gradient = Some(row.grad_second_moment.value);
        Self {
            layer: row.layer,
            tensor: &row.tensor,
            weight_variance: row.variance,
            weight_grad_second_moment: within_f64(gradient),
            ln_weight_grad_second_moment: ln(gradient),
        }
    }
}

#[derive(Serialize)]
pub(super) struct CaveatJson<'a> {
    kind: &'static str,
    site: &'a str,
    sites: usize,
    quantity: &'static str,
    size: Option<f64>,
    text: String,
    advice: &'static str,
}

impl<'a> CaveatJson<'a> {
    pub(super) fn of(caveat: &'a Caveat) -> Self {
        let Caveat { site, sites, condition } = caveat;
        let CaveatKind { name, quantity, advice, .. } = caveat.kind();
        Self {
            kind: name,
            site,
            sites: *sites,
            quantity,
            size: condition.size().filter(|size| size.is_finite()),
            text: caveat.text(),
            advice,
        }
    }
}

#[derive(Serialize)]
pub(super) struct CostJson {
    pub(super) parameters: u64,
    pub(super) flops_forward_per_token: f64,
    pub(super) flops_backward_per_token: f64,
    pub(super) activation_bytes: f64,
}

impl CostJson {
    pub(super) fn of(cost: &Cost) -> Self {
        let Cost { parameters, flops_forward_per_token, flops_backward_per_token, activation_bytes } = *cost;
        Self { parameters, flops_forward_per_token, flops_backward_per_token, activation_bytes }
    }
}

#[derive(Serialize)]
struct LossJson {
    logit_variance: Option<f64>,
    ln_logit_variance: Option<f64>,
    cross_entropy: Option<f64>,
    ln_cross_entropy: Option<f64>,
    uniform: f64,
    grad_norm: Option<f64>,
    ln_grad_norm: Option<f64>,
}

impl LossJson {
    fn of(loss: &Loss) -> Self {
        let Loss { logit_variance, cross_entropy, uniform, grad_norm } = *loss;
        Self {
            logit_variance: within_f64(Some(logit_variance)),
            ln_logit_variance: ln(Some(logit_variance)),
            cross_entropy: within_f64(Some(cross_entropy)),
            ln_cross_entropy: ln(Some(cross_entropy)),
            uniform,
            grad_norm: within_f64(Some(grad_norm)),
            ln_grad_norm: ln(Some(grad_norm)),
        }
    }
}

#[derive(Serialize)]
struct ValidationJson<'a> {
    #[serde(flatten)]
    summary: SummaryDocument<'a>,
    caveats: Vec<CaveatJson<'a>>,
    comparisons: Vec<ComparisonJson<'a>>,
}

#[derive(Serialize)]
struct ComparisonJson<'a> {
    layer: i64,
    site: &'a str,
    quantity: &'static str,
    predicted: Option<f64>,
    ln_predicted: Option<f64>,
    observed: Option<f64>,
    ln_observed: Option<f64>,
    std_error: Option<f64>,
    relative_error: Option<f64>,
    z: Option<f64>,
}

impl<'a> ComparisonJson<'a> {
    fn of(row: &'a Comparison) -> Self {
        Self {
            layer: row.layer,
            site: &row.site,
            quantity: row.quantity.name(),
            predicted: within_f64(Some(row.predicted)),
            ln_predicted: ln(Some(row.predicted)),
            observed: within_f64(Some(row.observed)),
            ln_observed: ln(Some(row.observed)),
            std_error: within_f64(std_error(row)),
            relative_error: row.relative_error,
            z: row.z,
        }
    }
}
