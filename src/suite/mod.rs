//! Suites: many stacks, each predicted and sampled, and the percentiles of how far both are apart.
//!
//! * *components*: single components over the grids for which Kedia et al. (ICML 2024) published the percentile
//!   errors of their formulas, beside those numbers (`data/published/`);
//! * *attention*: single heads from flat to condensed, beyond the published grid;
//! * *models*: whole encoders;
//! * *random*: networks of all kinds, drawn.
//!
//! Nothing is sampled here: a [`Case`] tells its stack and what is looked at, whoever samples it gives the table
//! back.

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

pub use components::Scores;
pub use pool::{Run, pool};
pub(crate) use published::PRINTED_ZERO;
pub use score::{LARGEST_ERROR, Line, score};

/// Which suite.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Suite {
    /// Single components over the published grids.
    Components,
    /// Attention from flat to condensed.
    Attention,
    /// Whole encoders.
    Models,
    /// Networks of all kinds, drawn at random.
    Random,
}

impl Suite {
    /// Its cases: all of the grids if `full`, else as many of each as a `seed` draws, every level of every factor
    /// as often as the others. Of random networks a full suite has more.
    pub fn cases(self, full: bool, seed: u64) -> Vec<Case> {
        match self {
            Self::Components => components::cases(full, seed),
            Self::Attention => components::attention(full, seed),
            Self::Models => models::cases(),
            Self::Random => random::cases(full, seed),
        }
    }
}

/// One thing to be predicted and sampled.
#[derive(Clone, Debug)]
pub struct Case {
    /// The component, or what kind of model.
    pub group: &'static str,
    /// Its factors.
    pub name: String,
    /// What is sampled.
    pub sample: Sample,
    /// What of it is compared.
    pub look: Look,
}

/// What is sampled.
#[derive(Clone, Debug)]
pub enum Sample {
    /// A network.
    Stack {
        /// Which.
        stack: Box<Stack>,
        /// The standard error to sample down to: of variances relative, of token correlations.
        std_error: f64,
        /// Replicates to start with, and at most.
        replicates: [usize; 2],
    },
    /// A softmax of Gaussian scores by itself.
    Softmax {
        /// Its scores.
        scores: Scores,
        /// Replicates, of about 2·10⁵ scores.
        replicates: usize,
    },
}

/// What of a case is compared.
#[derive(Clone, Debug, PartialEq)]
pub enum Look {
    /// Every stream site and every weight.
    Everything,
    /// The signal at one site, the gradient at another.
    Component {
        /// Site of the signal's variance and token correlation: where a fresh weight matrix follows, it multiplies
        /// both by its known second moment, so that the average over it is exact.
        signal: &'static str,
        /// Site of the signal's mean.
        mean: &'static str,
        /// Site of the gradient.
        gradient: &'static str,
        /// Factors on the output that change none of the errors but that of the mean.
        scales: &'static [f64],
    },
}

impl Look {
    /// The sites whose errors are to be small; all if there are none.
    pub fn sites(&self) -> Vec<String> {
        match self {
            Self::Everything => Vec::new(),
            Self::Component { signal, gradient, .. } => vec![(*signal).to_owned(), (*gradient).to_owned()],
        }
    }
}

/// What theory says of a case.
#[derive(Clone, Debug)]
pub struct Predicted {
    /// The moments.
    pub table: SiteTable,
    /// In how many ways rules are used outside the range they were derived for.
    pub caveats: usize,
}

impl Case {
    /// What theory says.
    pub fn predict(&self) -> Result<Predicted, PredictError> {
        self.predict_in(Theory::default())
    }

    /// What a theory says.
    pub fn predict_in(&self, theory: Theory) -> Result<Predicted, PredictError> {
        match &self.sample {
            Sample::Stack { stack, .. } => predict(stack, Options { theory, ..Options::from(Sites::Stream) })
                .map(|Prediction { table, caveats, .. }| Predicted { table, caveats: caveats.len() }),
            Sample::Softmax { scores, .. } => Ok(Predicted { table: scores.predict(), caveats: 0 }),
        }
    }

    /// The prediction beside what `replicates` samples say, of what the case looks at.
    pub fn compare(&self, predicted: &Predicted, observed: &SiteTable, replicates: usize) -> Vec<Comparison> {
        self.chosen(predicted, compare(&predicted.table, observed, replicates))
    }

    /// The prediction beside what a file says, of what the case looks at.
    fn compare_observations(
        &self,
        predicted: &Predicted,
        seen: &[Observation],
    ) -> Result<Vec<Comparison>, ObservedError> {
        let all = compare_observations(&predicted.table, seen)?;
        let Look::Component { mean, scales, .. } = self.look else { return Ok(self.chosen(predicted, all)) };
        // A report has the mean times every factor, a measurement the mean.
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

    /// Of `all` comparisons what the case looks at.
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

/// Quantities of single positions are noisier than their averages and say nothing more here.
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
