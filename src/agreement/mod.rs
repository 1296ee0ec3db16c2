//! How well a prediction agrees with a measurement: cell by cell, and in summary.
//!
//! ```text
//! relative_error   predicted/observed − 1                                  positive quantities
//!                  (predicted covariance − observed covariance)/observed variance   correlations
//!                  (predicted − observed)/observed standard deviation      mean
//! z                (observed − predicted)/std_error
//! R²               1 − Σ(observed − predicted)²/Σ(observed − average)²     identity line, no fit
//! ```

mod summary;

use std::collections::HashMap;

use sigprop_stack::{Cell, Number, Quantity, SiteRow, SiteTable, WeightRow};

pub use summary::{Fit, Summary, summarise};

/// Below this relative standard error a value is constant by construction: its scatter is rounding,
/// and a z-score would measure nothing else.
const CONSTANT_ERROR: f64 = 1e-4;

/// Below this, in units of the largest weight gradient of the network, a gradient that cancels exactly
/// (that of a key bias) is the rounding of single precision.
const ROUNDING: f64 = 1e-10;

/// What is compared.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Compared {
    /// A quantity of a site.
    Site(Quantity),
    /// The second moment of a weight's gradient.
    WeightGradient,
}

impl Compared {
    /// All of them, in the order of the reports.
    pub const ALL: [Self; 6] = [
        Self::Site(Quantity::Mean),
        Self::Site(Quantity::Variance),
        Self::Site(Quantity::TokenCorrelation),
        Self::Site(Quantity::GradVariance),
        Self::Site(Quantity::GradTokenCorrelation),
        Self::WeightGradient,
    ];

    /// Name in CSV and JSON.
    pub fn name(self) -> &'static str {
        match self {
            Self::Site(quantity) => quantity.name(),
            Self::WeightGradient => "weight_grad_second_moment",
        }
    }

    /// Whether it cannot change sign, so that its logarithm exists.
    fn is_positive(self) -> bool {
        match self {
            Self::Site(Quantity::Variance | Quantity::GradVariance) | Self::WeightGradient => true,
            Self::Site(Quantity::Mean | Quantity::TokenCorrelation | Quantity::GradTokenCorrelation) => false,
        }
    }

    /// Whether it belongs to the pooled numbers: variance and grad_variance together.
    fn is_pooled(self) -> bool {
        matches!(self, Self::Site(Quantity::Variance | Quantity::GradVariance))
    }
}

/// One predicted number beside the observed one.
#[derive(Clone, Debug, PartialEq)]
pub struct Comparison {
    /// Layer of the site.
    pub layer: i64,
    /// Path of the site, or name of the weight tensor.
    pub site: String,
    /// What is compared.
    pub quantity: Compared,
    /// What theory says.
    pub predicted: Number,
    /// What the samples say; not finite where they overflowed.
    pub observed: Number,
    /// Standard error of `observed`; not finite where it is unknown.
    pub std_error: Number,
    /// Deviation in the unit of the quantity (see the module); infinite where something was
    /// predicted and nothing observed.
    pub relative_error: Option<f64>,
    /// Deviation in standard errors; blank where the value is constant by construction or the
    /// standard error unknown.
    pub z: Option<f64>,
    in_summary: bool,
    /// Predicted and observed as the linear scale sees them: correlations as covariances.
    linear: [f64; 2],
}

impl Comparison {
    fn is_finite(&self) -> bool {
        self.predicted.is_finite() && self.observed.is_finite()
    }

    /// ln of predicted and observed, where both exist.
    fn logarithms(&self) -> Option<[f64; 2]> {
        let positive = |number: &Number| number.is_finite() && number.value().is_sign_positive() && !number.is_zero();
        (self.quantity.is_positive() && positive(&self.predicted) && positive(&self.observed))
            .then(|| [self.predicted.ln_abs(), self.observed.ln_abs()])
    }
}

/// Compares all cells that both tables have; rows are matched by the path of their site, weights by
/// the name of their tensor.
pub fn compare(predicted: &SiteTable, observed: &SiteTable) -> Vec<Comparison> {
    let rows: HashMap<&str, &SiteRow> = observed.sites.iter().map(|row| (row.site.as_str(), row)).collect();
    let weights: HashMap<&str, &WeightRow> = observed.weights.iter().map(|row| (row.tensor.as_str(), row)).collect();
    let mut comparisons = Vec::new();
    for row in &predicted.sites {
        if let Some(seen) = rows.get(row.site.as_str()) {
            comparisons.extend(Quantity::ALL.into_iter().filter_map(|quantity| compare_site(row, seen, quantity)));
        }
    }
    let largest = observed.weights.iter().map(|row| row.grad_second_moment.value.ln_abs()).fold(f64::NAN, f64::max);
    let rounding = Number::from_ln(largest + ROUNDING.ln());
    for row in &predicted.weights {
        if let Some(seen) = weights.get(row.tensor.as_str()) {
            comparisons.push(compare_weight(row, seen, &rounding));
        }
    }
    comparisons
}

fn compare_site(predicted: &SiteRow, observed: &SiteRow, quantity: Quantity) -> Option<Comparison> {
    let told = predicted.value(quantity)?;
    let seen = *observed.get(quantity)?;
    let values = [told.value(), seen.value.value()];
    let (relative_error, unit, linear) = match quantity {
        Quantity::Variance | Quantity::GradVariance => {
            (excess(&told, &seen.value), Number::from_ln(seen.value.ln_abs()), values)
        }
        Quantity::Mean => {
            let std = Number::from_ln(observed.value(Quantity::Variance)?.ln_abs() / 2.0);
            (told.ratio(&std) - seen.value.ratio(&std), std, values)
        }
        Quantity::TokenCorrelation | Quantity::GradTokenCorrelation => {
            let level =
                if quantity == Quantity::TokenCorrelation { Quantity::Variance } else { Quantity::GradVariance };
            let variances = [predicted.value(level)?, observed.value(level)?];
            let covariances = [values[0] * variances[0].value(), values[1] * variances[1].value()];
            (values[0] * variances[0].ratio(&variances[1]) - values[1], Number::from(1.0), covariances)
        }
    };
    let at = (predicted.layer, predicted.site.clone(), Compared::Site(quantity));
    Some(comparison(at, predicted.is_stream_site, told, &seen, relative_error, &unit, linear))
}

fn compare_weight(predicted: &WeightRow, observed: &WeightRow, rounding: &Number) -> Comparison {
    let told = predicted.grad_second_moment.value;
    let seen = observed.grad_second_moment;
    let at = (predicted.layer, predicted.tensor.clone(), Compared::WeightGradient);
    let linear = [told.value(), seen.value.value()];
    if told.is_zero() && seen.value.ln_abs() < rounding.ln_abs() {
        return comparison(at, true, told, &seen, 0.0, rounding, linear);
    }
    comparison(at, true, told, &seen, excess(&told, &seen.value), &Number::from_ln(seen.value.ln_abs()), linear)
}

fn comparison(
    (layer, site, quantity): (i64, String, Compared),
    in_summary: bool,
    predicted: Number,
    seen: &Cell,
    relative_error: f64,
    unit: &Number,
    linear: [f64; 2],
) -> Comparison {
    let Cell { value: observed, std_error } = *seen;
    let finite = predicted.is_finite() && observed.is_finite();
    let varies = std_error.is_finite() && std_error.ratio(unit) >= CONSTANT_ERROR;
    let z = observed.ratio(&std_error) - predicted.ratio(&std_error);
    Comparison {
        layer,
        site,
        quantity,
        predicted,
        observed,
        std_error,
        relative_error: (finite && !relative_error.is_nan()).then_some(relative_error),
        z: (finite && varies && !z.is_nan()).then_some(z),
        in_summary,
        linear,
    }
}

/// `predicted`/`observed` − 1; two zeros agree.
fn excess(predicted: &Number, observed: &Number) -> f64 {
    match (predicted.is_zero(), observed.is_zero()) {
        (true, true) => 0.0,
        (false, true) => f64::INFINITY,
        (_, false) => predicted.ratio(observed) - 1.0,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    pub(super) fn cell(value: f64, std_error: f64) -> Cell {
        Cell { value: value.into(), std_error: std_error.into() }
    }

    pub(super) fn row(layer: i64, cells: [Option<Cell>; 5]) -> SiteRow {
        SiteRow { layer, site: format!("blocks.{layer}"), is_stream_site: true, cells }
    }

    pub(super) fn variances(values: &[(f64, f64)]) -> SiteTable {
        let sites = values.iter().enumerate().map(|(layer, &(value, std_error))| {
            row(layer as i64, [None, Some(cell(value, std_error)), None, None, None])
        });
        SiteTable { sites: sites.collect(), weights: Vec::new() }
    }

    pub(super) fn close(found: Option<f64>, expected: f64) {
        let found = found.expect("the number exists");
        assert!((found - expected).abs() < 1e-12, "expected {expected}, got {found}");
    }

    /// Predicted r 0.5 of variance 2, observed r 0.25 of variance 1: covariances 1 and 0.25.
    #[test]
    fn correlations_are_compared_as_covariances() {
        let table = |variance, correlation: f64, std_error| SiteTable {
            sites: vec![row(0, [None, Some(cell(variance, 0.0)), Some(cell(correlation, std_error)), None, None])],
            weights: Vec::new(),
        };
        let comparisons = compare(&table(2.0, 0.5, 0.0), &table(1.0, 0.25, 0.05));
        close(comparisons[1].relative_error, 0.75);
        close(comparisons[1].z, -5.0);
    }

    #[test]
    fn means_are_compared_in_standard_deviations() {
        let table = |mean, std_error| SiteTable {
            sites: vec![row(0, [Some(cell(mean, std_error)), Some(cell(4.0, 0.0)), None, None, None])],
            weights: Vec::new(),
        };
        let comparisons = compare(&table(1.0, 0.0), &table(0.5, 0.25));
        close(comparisons[0].relative_error, 0.25);
        close(comparisons[0].z, -2.0);
        // A standard error of 1e-4 of the standard deviation is scatter; half of that is rounding.
        assert_eq!(compare(&table(0.0, 0.0), &table(0.1, 1e-4))[0].z, None);
        assert!(compare(&table(0.0, 0.0), &table(0.1, 3e-4))[0].z.is_some());
    }

    #[test]
    fn works_beyond_f64() {
        let table = |lns: [f64; 3], std_error: f64| SiteTable {
            sites: lns
                .iter()
                .enumerate()
                .map(|(layer, &ln)| {
                    let cell = Cell { value: Number::from_ln(ln), std_error: Number::scaled(std_error, ln) };
                    row(layer as i64, [None, Some(cell), None, None, None])
                })
                .collect(),
            weights: Vec::new(),
        };
        let comparisons = compare(&table([0.0, 1000.0, 2000.0], 0.0), &table([1.0, 1000.0, 2000.0], 0.1));
        let fit = summarise(&comparisons).pooled;
        // Average 3001/3, SST by hand from 1, 1000, 2000; SSE = 1.
        let average = 3001.0 / 3.0;
        let total: f64 = [1.0, 1000.0, 2000.0].iter().map(|ln: &f64| (ln - average).powi(2)).sum();
        close(fit.r2_log, 1.0 - 1.0 / total);
        assert_eq!(fit.r2_linear, None);
        close(comparisons[2].z, 0.0);
    }

    #[test]
    fn zeros_and_overflows() {
        let predicted = variances(&[(0.0, 0.0), (1.0, 0.0), (1.0, 0.0)]);
        let observed = variances(&[(0.0, 0.0), (0.0, 0.0), (f64::INFINITY, f64::NAN)]);
        let comparisons = compare(&predicted, &observed);
        close(comparisons[0].relative_error, 0.0);
        assert_eq!(comparisons[1].relative_error, Some(f64::INFINITY));
        assert_eq!((comparisons[2].relative_error, comparisons[2].z), (None, None));
        assert_eq!(summarise(&comparisons).pooled.count, 2);
    }

    #[test]
    fn weights_are_matched_by_tensor() {
        let weight = |tensor: &str, value: f64| WeightRow {
            layer: 0,
            tensor: tensor.to_owned(),
            variance: 1.0,
            grad_second_moment: Cell { value: value.into(), std_error: 0.5.into() },
        };
        let table = |weights| SiteTable { sites: Vec::new(), weights };
        let comparisons =
            compare(&table(vec![weight("a", 3.0), weight("b", 1.0)]), &table(vec![weight("c", 1.0), weight("a", 2.0)]));
        assert_eq!(comparisons.len(), 1);
        assert_eq!(comparisons[0].quantity.name(), "weight_grad_second_moment");
        close(comparisons[0].z, -2.0);
    }
}
