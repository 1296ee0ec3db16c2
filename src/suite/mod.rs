//! Suites: many stacks, each predicted and sampled, and the percentiles of the differences.
//!
//! * *components*: single components over the grids for which Kedia et al. (ICML 2024) published the percentile errors
//!   of their formulas, compared with those numbers (`data/published/`);
//! * *attention*: single heads from flat to condensed, beyond the published grid;
//! * *models*: whole encoders;
//! * *random*: networks of all kinds, drawn at random.
//!
//! Nothing is sampled here: a [`Case`] holds its stack and the quantities to compare, and its caller samples it and
//! returns the table.

mod components;
mod grid;
mod models;
mod pool;
mod published;
mod random;
mod score;

use sigprop_stack::{Quantity, SiteTable, Stack};

use crate::agreement::{Compared, Comparison, Observation, ObservedError, compare, compare_observations};
use crate::{Options, PredictError, Prediction, Sites, Theory, predict};

pub use components::GaussianScores;
pub use pool::{Run, pool};
pub(crate) use published::PRINTED_ZERO;
pub use score::{LARGEST_ERROR, Line, score};

/// A set of stacks that are predicted and sampled, to compare the prediction with the samples.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Suite {
    /// Single components over the published grids.
    Components,
    /// Single-head attention, from flat to sharp.
    Attention,
    /// Whole Transformer encoders.
    Models,
    /// Networks of all kinds, drawn at random.
    Random,
}

impl Suite {
    /// The cases of the suite: its whole grid if `full`, else a sample drawn with `seed`, in which all levels of a
    /// factor occur equally often. The random suite draws more networks if `full`.
    pub fn cases(self, full: bool, seed: u64) -> Vec<Case> {
        match self {
            Self::Components => components::cases(full, seed),
            Self::Attention => components::attention(full, seed),
            Self::Models => models::cases(),
            Self::Random => random::cases(full, seed),
        }
    }
}

/// A network or component to be predicted and sampled.
#[derive(Clone, Debug)]
pub struct Case {
    /// The component, or the kind of model.
    pub group: &'static str,
    /// The values of the factors of the grid, as text.
    pub name: String,
    /// The network or softmax to sample.
    pub sample: Sample,
    /// The sites and quantities to compare.
    pub look: Look,
}

/// A network or softmax to sample.
#[derive(Clone, Debug)]
pub enum Sample {
    /// A network.
    Stack {
        /// The network.
        stack: Box<Stack>,
        /// The standard error at which sampling ends: relative for variances, absolute for token correlations.
        std_error: f64,
        /// The number of replicates at the start, and the largest number.
        replicates: [usize; 2],
    },
    /// A softmax of Gaussian scores by itself.
    Softmax {
        /// Its scores.
        scores: GaussianScores,
        /// Number of replicates, each of about 2·10⁵ scores.
        replicates: usize,
    },
}

/// The quantities of a case that are compared.
#[derive(Clone, Debug, PartialEq)]
pub enum Look {
    /// Every stream site and every weight.
    Everything,
    /// The signal at one site and the gradient at another.
    Component {
        /// Site of the signal's variance and token correlation. If a random weight matrix follows this site, it only
        /// multiplies both by its known second moment; the average over the matrix is then exact.
        signal: &'static str,
        /// Site of the signal's mean.
        mean: &'static str,
        /// Site of the gradient.
        gradient: &'static str,
        /// Factors by which the output is multiplied. The error of the mean, as the publication defines it, depends on
        /// them.
        scales: &'static [f64],
    },
}

impl Look {
    /// The sites whose standard errors have to reach the target; empty if all sites have to.
    pub fn sites(&self) -> Vec<String> {
        match self {
            Self::Everything => Vec::new(),
            Self::Component { signal, gradient, .. } => vec![(*signal).to_owned(), (*gradient).to_owned()],
        }
    }
}

/// The prediction for a case.
#[derive(Clone, Debug)]
pub struct Predicted {
    /// The moments.
    pub table: SiteTable,
    /// Number of caveats: rules used outside the range for which they were derived.
    pub caveats: usize,
}

impl Case {
    /// Predicts the case in the default theory.
    pub fn predict(&self) -> Result<Predicted, PredictError> {
        self.predict_in(Theory::default())
    }

    /// Predicts the case in the given theory.
    pub fn predict_in(&self, theory: Theory) -> Result<Predicted, PredictError> {
        match &self.sample {
            Sample::Stack { stack, .. } => predict(stack, Options { theory, ..Options::from(Sites::Stream) })
                .map(|Prediction { table, caveats, .. }| Predicted { table, caveats: caveats.len() }),
            Sample::Softmax { scores, .. } => Ok(Predicted { table: scores.predict(), caveats: 0 }),
        }
    }

    /// Compares the prediction with `replicates` samples, in the quantities of the case.
    pub fn compare(&self, predicted: &Predicted, observed: &SiteTable, replicates: usize) -> Vec<Comparison> {
        self.chosen(predicted, compare(&predicted.table, observed, replicates))
    }

    /// Compares the prediction with observations from a file, in the quantities of the case.
    fn compare_observations(
        &self,
        predicted: &Predicted,
        seen: &[Observation],
    ) -> Result<Vec<Comparison>, ObservedError> {
        let all = compare_observations(&predicted.table, seen)?;
        let Look::Component { mean, scales, .. } = self.look else { return Ok(self.chosen(predicted, all)) };
        // The file of an earlier run has a row of the mean for every factor on the output, a measurement only one row.
        let is_mean = |row: &Comparison| row.site == mean && row.quantity == Compared::Site(Quantity::Mean);
        let [means, mut others] = all.into_iter().fold([Vec::new(), Vec::new()], |mut parts, row| {
            parts[usize::from(!is_mean(&row))].push(row);
            parts
        });
        let plain =
            if means.len() > 1 { scales.iter().position(|scale| scale.total_cmp(&1.0).is_eq()) } else { Some(0) };
        others.extend(plain.and_then(|place| means.get(place).cloned()));
        Ok(self.chosen(predicted, others))
    }

    /// Selects the quantities of the case from `all` comparisons.
    fn chosen(&self, predicted: &Predicted, all: Vec<Comparison>) -> Vec<Comparison> {
        let Look::Component { signal, mean, gradient, scales } = self.look else {
            return all.into_iter().filter(|row| is_averaged(row.quantity)).collect();
        };
        let at = |site: &str, quantity: Quantity| {
            all.iter().find(|row| row.site == site && row.quantity == Compared::Site(quantity)).cloned()
        };
        let signals = [Quantity::Variance, Quantity::TokenCorrelation].map(|quantity| at(signal, quantity));
        let gradients = [Quantity::GradVariance, Quantity::GradTokenCorrelation].map(|quantity| at(gradient, quantity));
        let variance = predicted.table.site(mean).and_then(|row| row.value(Quantity::Variance));
        let means = at(mean, Quantity::Mean)
            .zip(variance)
            .into_iter()
            .flat_map(|(row, variance)| scales.iter().map(move |&scale| published::mean_error(&row, variance, scale)));
        signals.into_iter().chain(gradients).flatten().chain(means).collect()
    }
}

/// Returns true for averages over positions. Quantities of single positions are noisier and add nothing here.
fn is_averaged(quantity: Compared) -> bool {
    use Quantity as Q;
    match quantity {
        Compared::Site(Q::Variance | Q::TokenCorrelation | Q::GradVariance | Q::GradTokenCorrelation)
        | Compared::WeightGradient => true,
        Compared::Site(
            Q::Mean
            | Q::VarianceFirst
            | Q::VarianceLast
            | Q::GradVarianceFirst
            | Q::GradVarianceLast
            | Q::LnVarianceStd
            | Q::LnGradVarianceStd,
        )
        | Compared::SecondMoment
        | Compared::CrossProduct
        | Compared::GradCrossProduct => false,
    }
}
