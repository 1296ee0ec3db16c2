//! How well a prediction agrees with a measurement: cell by cell, and in summary.
//!
//! ```text
//! relative_error   predicted/observed − 1                                  positive quantities
//!                  (predicted covariance − observed covariance)/observed variance   correlations
//!                  (predicted − observed)/observed standard deviation      mean
//! z                (observed − predicted)/std_error
//! R²               1 − Σ(observed − predicted)²/Σ(observed − average)²     identity line, no fit
//! ```

use std::collections::HashMap;

use serde::Serialize;
use sigprop_stack::{Cell, Number, Quantity, SiteRow, SiteTable, WeightRow};

/// Below this relative standard error a value is constant by construction: its scatter is rounding,
/// and a z-score would measure nothing else.
const CONSTANT_ERROR: f64 = 1e-4;

/// |z| below this counts as agreement within the sampling error.
const Z_LIMIT: f64 = 2.0;

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
    for row in &predicted.weights {
        if let Some(seen) = weights.get(row.tensor.as_str()) {
            comparisons.push(compare_weight(row, seen));
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

fn compare_weight(predicted: &WeightRow, observed: &WeightRow) -> Comparison {
    let told = predicted.grad_second_moment.value;
    let seen = observed.grad_second_moment;
    let at = (predicted.layer, predicted.tensor.clone(), Compared::WeightGradient);
    let linear = [told.value(), seen.value.value()];
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

/// Agreement of one quantity over the stream sites; numbers that do not exist are `None`.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Fit {
    /// Number of cells.
    pub count: usize,
    /// R² of the logarithms; positive quantities only.
    pub r2_log: Option<f64>,
    /// R² of the values, correlations as covariances; `None` where a value is beyond f64.
    pub r2_linear: Option<f64>,
    /// Median of |relative error|, nearest rank: the smallest value that half of all do not exceed.
    pub p50: Option<f64>,
    /// 90th percentile of |relative error|, nearest rank.
    pub p90: Option<f64>,
    /// 99th percentile of |relative error|, nearest rank.
    pub p99: Option<f64>,
    /// Share of the z-scores with |z| < 2.
    pub share_z_below_2: Option<f64>,
    /// ln of largest over smallest observed value. A narrow range makes R² mostly noise.
    pub ln_range: Option<f64>,
}

/// Agreement of a whole measurement.
#[derive(Clone, Debug, PartialEq)]
pub struct Summary {
    /// Per quantity, those present.
    pub quantities: Vec<(Compared, Fit)>,
    /// variance and grad_variance as one set, with one common average.
    pub pooled: Fit,
}

/// Summarises the stream sites and the weight tensors.
pub fn summarise(comparisons: &[Comparison]) -> Summary {
    let of = |wanted: &dyn Fn(Compared) -> bool| {
        comparisons.iter().filter(|row| row.in_summary && row.is_finite() && wanted(row.quantity)).collect::<Vec<_>>()
    };
    let quantities = Compared::ALL.into_iter().map(|quantity| (quantity, fit(&of(&|found| found == quantity))));
    Summary { quantities: quantities.filter(|(_, fit)| fit.count > 0).collect(), pooled: fit(&of(&Compared::is_pooled)) }
}

fn fit(comparisons: &[&Comparison]) -> Fit {
    let logarithms: Vec<[f64; 2]> = comparisons.iter().filter_map(|row| row.logarithms()).collect();
    let linear: Vec<[f64; 2]> = comparisons.iter().map(|row| row.linear).collect();
    let mut errors: Vec<f64> = comparisons.iter().filter_map(|row| row.relative_error).map(f64::abs).collect();
    errors.sort_by(f64::total_cmp);
    let scores: Vec<f64> = comparisons.iter().filter_map(|row| row.z).collect();
    let (low, high) = logarithms
        .iter()
        .fold((f64::INFINITY, f64::NEG_INFINITY), |(low, high), &[_, seen]| (low.min(seen), high.max(seen)));
    Fit {
        count: comparisons.len(),
        r2_log: r_squared(&logarithms),
        r2_linear: r_squared(&linear),
        p50: percentile(&errors, 0.50),
        p90: percentile(&errors, 0.90),
        p99: percentile(&errors, 0.99),
        share_z_below_2: (!scores.is_empty())
            .then(|| scores.iter().filter(|z| z.abs() < Z_LIMIT).count() as f64 / scores.len() as f64),
        ln_range: (!logarithms.is_empty()).then_some(high - low),
    }
}

/// 1 − SSE/SST of pairs (predicted, observed); `None` for a constant, and beyond f64.
fn r_squared(pairs: &[[f64; 2]]) -> Option<f64> {
    let average = pairs.iter().map(|[_, observed]| observed).sum::<f64>() / pairs.len() as f64;
    let square_sum = |deviation: &dyn Fn(&[f64; 2]) -> f64| pairs.iter().map(|pair| deviation(pair).powi(2)).sum();
    let residual: f64 = square_sum(&|[predicted, observed]| observed - predicted);
    let total: f64 = square_sum(&|[_, observed]| observed - average);
    // What rounding alone makes of a constant.
    let rounding = pairs.len() as f64 * (4.0 * f64::EPSILON * average).powi(2);
    (total > rounding && total.is_finite() && residual.is_finite()).then(|| 1.0 - residual / total)
}

/// Nearest rank: the smallest of the `sorted` values that at least a `share` of them do not exceed.
fn percentile(sorted: &[f64], share: f64) -> Option<f64> {
    let rank = (share * sorted.len() as f64).ceil() as usize;
    sorted.get(rank.saturating_sub(1)).copied()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cell(value: f64, std_error: f64) -> Option<Cell> {
        Some(Cell { value: value.into(), std_error: std_error.into() })
    }

    fn row(layer: i64, cells: [Option<Cell>; 5]) -> SiteRow {
        SiteRow { layer, site: format!("blocks.{layer}"), is_stream_site: true, cells }
    }

    fn variances(values: &[(f64, f64)]) -> SiteTable {
        let sites = values
            .iter()
            .enumerate()
            .map(|(layer, &(value, std_error))| row(layer as i64, [None, cell(value, std_error), None, None, None]));
        SiteTable { sites: sites.collect(), weights: Vec::new() }
    }

    fn close(found: Option<f64>, expected: f64) {
        let found = found.expect("the number exists");
        assert!((found - expected).abs() < 1e-12, "expected {expected}, got {found}");
    }

    /// Predicted 1, 2, 4 against observed 2, 2, 8. Linear: average 4, SSE = 1 + 0 + 16 = 17,
    /// SST = 4 + 4 + 16 = 24. Log, in units of ln 2: predicted 0, 1, 2, observed 1, 1, 3,
    /// average 5/3, SSE = 2, SST = 4/9 + 4/9 + 16/9 = 8/3, R² = 1/4.
    #[test]
    fn r_squared_by_hand() {
        let comparisons =
            compare(&variances(&[(1.0, 0.0), (2.0, 0.0), (4.0, 0.0)]), &variances(&[(2.0, 0.5), (2.0, 0.5), (8.0, 1.0)]));
        let fit = &summarise(&comparisons).pooled;
        assert_eq!(fit.count, 3);
        close(fit.r2_linear, 1.0 - 17.0 / 24.0);
        close(fit.r2_log, 0.25);
        close(fit.ln_range, 4f64.ln());
        // Relative errors −0.5, 0, −0.5; z = 2, 0, 4.
        close(fit.p50, 0.5);
        close(fit.share_z_below_2, 1.0 / 3.0);
        close(comparisons[0].z, 2.0);
        close(comparisons[2].relative_error, -0.5);
    }

    #[test]
    fn pooled_takes_one_average_over_both_quantities() {
        let table = |variance, grad| SiteTable {
            sites: vec![row(0, [None, cell(variance, 0.0), None, cell(grad, 0.0), None])],
            weights: Vec::new(),
        };
        let e = std::f64::consts::E;
        // ln observed 0 and 2, average 1, SST = 2; ln predicted 0.5 and 2, SSE = 0.25.
        let summary = summarise(&compare(&table(e.sqrt(), e * e), &table(1.0, e * e)));
        close(summary.pooled.r2_log, 1.0 - 0.25 / 2.0);
        // One cell per quantity: no spread, no R².
        assert!(summary.quantities.iter().all(|(_, fit)| fit.r2_log.is_none() && fit.r2_linear.is_none()));
    }

    #[test]
    fn a_constant_has_no_r_squared() {
        let constant = variances(&[(0.1, 0.0); 7]);
        let fit = summarise(&compare(&constant, &constant)).pooled;
        assert_eq!((fit.r2_log, fit.r2_linear), (None, None));
        close(fit.p99, 0.0);
    }

    #[test]
    fn percentiles_by_nearest_rank() {
        let values: Vec<f64> = (1..=10).map(f64::from).collect();
        close(percentile(&values, 0.50), 5.0);
        close(percentile(&values, 0.90), 9.0);
        close(percentile(&values, 0.99), 10.0);
        close(percentile(&[7.0], 0.50), 7.0);
        assert_eq!(percentile(&[], 0.50), None);
    }

    /// Predicted r 0.5 of variance 2, observed r 0.25 of variance 1: covariances 1 and 0.25.
    #[test]
    fn correlations_are_compared_as_covariances() {
        let table = |variance, correlation: f64, std_error| SiteTable {
            sites: vec![row(0, [None, cell(variance, 0.0), cell(correlation, std_error), None, None])],
            weights: Vec::new(),
        };
        let comparisons = compare(&table(2.0, 0.5, 0.0), &table(1.0, 0.25, 0.05));
        close(comparisons[1].relative_error, 0.75);
        close(comparisons[1].z, -5.0);
    }

    #[test]
    fn means_are_compared_in_standard_deviations() {
        let table = |mean, std_error| SiteTable {
            sites: vec![row(0, [cell(mean, std_error), cell(4.0, 0.0), None, None, None])],
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
