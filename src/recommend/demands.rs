//! The demands on a network.

use crate::compare::{MARGIN_FORMATS, Summary};

/// The limits that a network has to keep. A limit that is `None` does not apply.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Demands {
    /// Largest factor by which the variance of the stream may grow or shrink over all blocks.
    pub max_forward_growth: Option<f64>,
    /// Largest ratio of gradient norms of one weight matrix over the blocks.
    pub max_gradient_ratio: Option<f64>,
    /// Largest token correlation after the last block.
    pub max_correlation: Option<f64>,
    /// Largest standard deviation of scores.
    pub max_score_std: Option<f64>,
    /// The float format whose range the stream has to fit, as an index into [`MARGIN_FORMATS`].
    pub format: Option<usize>,
}

impl Default for Demands {
    fn default() -> Self {
        Self {
            max_forward_growth: Some(2.0),
            max_gradient_ratio: Some(3.0),
            max_correlation: Some(0.9),
            max_score_std: Some(1.0),
            format: Some(1),
        }
    }
}

/// One limit, with its value.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Demand {
    /// Limit on the growth or decay of the variance over all blocks.
    ForwardGrowth(f64),
    /// Limit on the ratio of gradient norms over the blocks.
    GradientRatio(f64),
    /// Limit on the correlation between tokens after the last block.
    Correlation(f64),
    /// Limit on the standard deviation of scores.
    ScoreStd(f64),
    /// Float format to fit, an index into [`MARGIN_FORMATS`].
    Format(usize),
}

/// A limit and the value that a network reaches.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Outcome {
    /// The limit.
    pub demand: Demand,
    /// The value that the network reaches, in the unit of the limit; `None` if the network does not have the quantity.
    pub reached: Option<f64>,
    /// ln of the factor by which the limit is exceeded; negative within the limit.
    pub excess: f64,
}

/// An excess below this counts as rounding error.
const ROUNDING: f64 = 1e-3;
/// A network is at its limit if its excess is above minus this number.
const BINDING: f64 = 0.03;

impl Outcome {
    /// Returns true if the limit is kept.
    pub fn is_met(&self) -> bool {
        self.excess <= ROUNDING
    }

    /// Returns true if the limit is reached or exceeded.
    pub fn is_binding(&self) -> bool {
        self.excess > -BINDING
    }
}

impl Demands {
    /// Returns the demands whose limits are set.
    pub fn all(&self) -> Vec<Demand> {
        let Self { max_forward_growth, max_gradient_ratio, max_correlation, max_score_std, format } = *self;
        let demands = [
            max_forward_growth.map(Demand::ForwardGrowth),
            max_gradient_ratio.map(Demand::GradientRatio),
            max_correlation.map(Demand::Correlation),
            max_score_std.map(Demand::ScoreStd),
            format.map(Demand::Format),
        ];
        demands.into_iter().flatten().collect()
    }
}

impl Demand {
    /// The name of the demand and of its flag.
    pub fn name(self) -> &'static str {
        match self {
            Self::ForwardGrowth(_) => "max-forward-growth",
            Self::GradientRatio(_) => "max-gradient-ratio",
            Self::Correlation(_) => "max-correlation",
            Self::ScoreStd(_) => "max-score-std",
            Self::Format(_) => "dtype",
        }
    }

    /// The limit as text.
    pub fn limit(self) -> String {
        match self {
            Self::ForwardGrowth(limit)
            | Self::GradientRatio(limit)
            | Self::Correlation(limit)
            | Self::ScoreStd(limit) => limit.to_string(),
            Self::Format(format) => MARGIN_FORMATS[format].name.to_owned(),
        }
    }

    /// Compares a network, given by its summary, with the limit.
    pub fn outcome(self, summary: &Summary) -> Outcome {
        Outcome { demand: self, reached: self.reached(summary), excess: self.excess(summary) }
    }

    /// The value that the network reaches, in the unit of the limit. For a format it is the number of doublings or
    /// halvings until the format is left. `None` if the network does not have the quantity.
    fn reached(self, summary: &Summary) -> Option<f64> {
        match self {
            Self::ForwardGrowth(_) => Some(summary.forward.ln_total.abs().exp()),
            Self::GradientRatio(_) => summary.ln_gradient_ratio.map(f64::exp),
            Self::Correlation(_) => summary.token_correlation,
            Self::ScoreStd(_) => summary.score_variance.map(|variance| (0.5 * variance.ln_abs()).exp()),
            Self::Format(format) => summary.margins[format],
        }
    }

    /// ln of the factor by which the network exceeds the limit; −∞ if it does not have the quantity. Correlations r are
    /// compared by 1 − r.
    fn excess(self, summary: &Summary) -> f64 {
        /// Values of 1 − r below this count as rounding error.
        const ALIKE: f64 = 1e-12;
        let excess = match self {
            Self::ForwardGrowth(limit) => Some(summary.forward.ln_total.abs() - limit.ln()),
            Self::GradientRatio(limit) => summary.ln_gradient_ratio.map(|ln| ln - limit.ln()),
            Self::Correlation(limit) => {
                let apart = |r: f64| (1.0 - r).max(ALIKE).ln();
                summary.token_correlation.map(|r| apart(limit) - apart(r))
            }
            Self::ScoreStd(limit) => summary.score_variance.map(|variance| 0.5 * variance.ln_abs() - limit.ln()),
            Self::Format(format) => summary.margins[format].map(|margin| -margin * std::f64::consts::LN_2),
        };
        excess.unwrap_or(f64::NEG_INFINITY)
    }

    /// Smooth functions whose maximum is the excess of the demand. A limit on the growth of the variance has one for
    /// growth and one for decay; a limit on the gradient ratio has one for each of the weight `matrices`.
    pub(super) fn excesses(self, summary: &Summary, matrices: &[String]) -> Vec<f64> {
        match self {
            Self::ForwardGrowth(limit) => [1.0, -1.0].map(|sign| sign * summary.forward.ln_total - limit.ln()).to_vec(),
            Self::GradientRatio(limit) => {
                let ratio = |name| summary.ln_gradient_ratios.get(name).map_or(f64::NEG_INFINITY, |ln| ln - limit.ln());
                matrices.iter().map(ratio).collect()
            }
            Self::Correlation(_) | Self::ScoreStd(_) | Self::Format(_) => vec![self.excess(summary)],
        }
    }

    /// The number of excesses that [`Self::excesses`] returns.
    pub(super) fn count(self, matrices: &[String]) -> usize {
        match self {
            Self::ForwardGrowth(_) => 2,
            Self::GradientRatio(_) => matrices.len(),
            Self::Correlation(_) | Self::ScoreStd(_) | Self::Format(_) => 1,
        }
    }
}
