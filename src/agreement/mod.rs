//! How well a prediction agrees with a measurement: cell by cell, and in summary.
//!
//! ```text
//! relative_error   predicted/observed − 1                                  positive quantities
//!                  (predicted covariance − observed covariance)/observed variance   correlations
//!                  (predicted − observed)/observed standard deviation      mean
//! z                (observed − predicted)/std_error
//! R²               1 − Σ(observed − predicted)²/Σ(observed − average)²     identity line, no fit
//! ```

mod observed;
mod student;
mod summary;

use std::collections::HashMap;

use sigprop_stack::{Cell, Number, Quantity, SiteRow, SiteTable, WeightRow};

pub(crate) use observed::read;
pub use observed::{Observation, ObservedError, compare_observations, read_observations};
pub(crate) use student::Bounds;
#[cfg(feature = "plot")]
pub(crate) use summary::CLOSE;
pub(crate) use summary::percentile;
pub use summary::{Fit, Summary, summarise};

/// A value with a smaller relative standard error than this is constant by construction. It fluctuates by rounding
/// alone, so that it gets no z-score.
const CONSTANT_ERROR: f64 = 1e-4;

/// A weight gradient below this, in units of the largest one of the network, is the rounding of single precision. An
/// example is the gradient of a key bias, which cancels exactly.
const ROUNDING: f64 = 1e-10;

/// A quantity that is compared.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Compared {
    /// A quantity of a site.
    Site(Quantity),
    /// E x².
    SecondMoment,
    /// E x_a x_b, averaged over ordered pairs of tokens.
    CrossProduct,
    /// E g_a g_b, averaged over ordered pairs of tokens.
    GradCrossProduct,
    /// The second moment of a weight's gradient.
    WeightGradient,
}

impl Compared {
    /// All quantities, in the order of the reports.
    pub const ALL: [Self; 15] = [
        Self::Site(Quantity::Mean),
        Self::Site(Quantity::Variance),
        Self::SecondMoment,
        Self::Site(Quantity::TokenCorrelation),
        Self::CrossProduct,
        Self::Site(Quantity::GradVariance),
        Self::Site(Quantity::GradTokenCorrelation),
        Self::GradCrossProduct,
        Self::Site(Quantity::VarianceFirst),
        Self::Site(Quantity::VarianceLast),
        Self::Site(Quantity::GradVarianceFirst),
        Self::Site(Quantity::GradVarianceLast),
        Self::Site(Quantity::LnVarianceStd),
        Self::Site(Quantity::LnGradVarianceStd),
        Self::WeightGradient,
    ];

    /// Name in CSV and JSON.
    pub fn name(self) -> &'static str {
        match self {
            Self::Site(quantity) => quantity.name(),
            Self::SecondMoment => "second_moment",
            Self::CrossProduct => "cross_product",
            Self::GradCrossProduct => "grad_cross_product",
            Self::WeightGradient => "weight_grad_second_moment",
        }
    }

    /// The predicted value in the row of a site; `None` if the row does not have it, or if the quantity belongs to
    /// weights.
    pub fn value(self, row: &SiteRow) -> Option<Number> {
        match self {
            Self::Site(quantity) => row.value(quantity),
            Self::SecondMoment => raw_moment(row, 1.0),
            Self::CrossProduct => raw_moment(row, row.value(Quantity::TokenCorrelation)?.value()),
            Self::GradCrossProduct => {
                let correlation = row.value(Quantity::GradTokenCorrelation)?.value();
                Some(Number::scaled(correlation, row.value(Quantity::GradVariance)?.ln_abs()))
            }
            Self::WeightGradient => None,
        }
    }

    /// The value in the row of a site, with its standard error (NaN if the value is computed from others); `None` if
    /// the row does not have it.
    fn cell(self, row: &SiteRow) -> Option<Cell> {
        if let Self::Site(quantity) = self {
            return row.get(quantity).copied();
        }
        Some(Cell { value: self.value(row)?, std_error: f64::NAN.into() })
    }

    fn scale(self) -> Scale {
        use Quantity as Q;
        match self {
            Self::Site(
                Q::Variance
                | Q::GradVariance
                | Q::VarianceFirst
                | Q::VarianceLast
                | Q::GradVarianceFirst
                | Q::GradVarianceLast
                | Q::LnVarianceStd
                | Q::LnGradVarianceStd,
            )
            | Self::SecondMoment
            | Self::WeightGradient => Scale::Own,
            Self::Site(Q::Mean) => Scale::Std,
            Self::Site(Q::TokenCorrelation) => Scale::Covariance(Self::Site(Q::Variance)),
            Self::Site(Q::GradTokenCorrelation) => Scale::Covariance(Self::Site(Q::GradVariance)),
            Self::CrossProduct => Scale::Of(Self::SecondMoment),
            Self::GradCrossProduct => Scale::Of(Self::Site(Q::GradVariance)),
        }
    }

    /// Returns true if the quantity is never negative, so that logarithms of its values can be compared.
    fn is_positive(self) -> bool {
        matches!(self.scale(), Scale::Own)
    }

    /// Returns true if the quantity is one of those that are also judged together, as one set: variance and
    /// grad_variance.
    fn is_pooled(self) -> bool {
        matches!(self, Self::Site(Quantity::Variance | Quantity::GradVariance))
    }
}

/// The unit of a deviation.
enum Scale {
    /// The observed number itself.
    Own,
    /// The standard deviation of the site.
    Std,
    /// The value of this other quantity at the site.
    Of(Compared),
    /// The value of this other quantity at the site, a variance. The compared correlations are multiplied by their own
    /// variances first, so that covariances are compared.
    Covariance(Compared),
}

/// Returns `correlation` · variance + mean²; `None` if the row lacks one of them.
fn raw_moment(row: &SiteRow, correlation: f64) -> Option<Number> {
    let (mean, variance) = (row.value(Quantity::Mean)?, row.value(Quantity::Variance)?);
    if variance.is_zero() {
        return Some(Number::from_ln(2.0 * mean.ln_abs()));
    }
    let share = mean.ratio(&Number::from_ln(variance.ln_abs() / 2.0));
    Some(Number::scaled(correlation + share * share, variance.ln_abs()))
}

/// A predicted number and the observed one.
#[derive(Clone, Debug, PartialEq)]
pub struct Comparison {
    /// Layer of the site.
    pub layer: i64,
    /// Path of the site, or name of the weight tensor.
    pub site: String,
    /// The quantity that is compared.
    pub quantity: Compared,
    /// The predicted value.
    pub predicted: Number,
    /// The observed value; not finite where samples overflowed.
    pub observed: Number,
    /// Standard error of `observed`; not finite where it is unknown.
    pub std_error: Number,
    /// Number of replicates of `observed`, where it is known; a single replicate has no standard error.
    pub replicates: Option<usize>,
    /// Deviation in the unit of the quantity (see the module). It is infinite if the prediction is not zero and the
    /// observation is zero.
    pub relative_error: Option<f64>,
    /// Standard error in the unit of `relative_error`; NaN if it is unknown. For a covariance it includes at least the
    /// standard error of the variance.
    pub relative_std_error: f64,
    /// Deviation in standard errors; `None` where the value is constant by construction or the standard error unknown.
    pub z: Option<f64>,
    in_summary: bool,
    /// Predicted and observed value on the linear scale; for correlations these are the covariances.
    linear: [f64; 2],
}

impl Comparison {
    fn is_finite(&self) -> bool {
        self.predicted.is_finite() && self.observed.is_finite()
    }

    /// ln of the predicted and of the observed value; `None` if one of them does not exist.
    fn logarithms(&self) -> Option<[f64; 2]> {
        let positive = |number: &Number| number.is_finite() && number.value().is_sign_positive() && !number.is_zero();
        (self.quantity.is_positive() && positive(&self.predicted) && positive(&self.observed))
            .then(|| [self.predicted.ln_abs(), self.observed.ln_abs()])
    }
}

/// Compares all cells that both tables have. Rows are matched by the path of their site, weights by the name of their
/// tensor. `observed` is the average over `replicates` networks.
pub fn compare(predicted: &SiteTable, observed: &SiteTable, replicates: usize) -> Vec<Comparison> {
    let rows: HashMap<&str, &SiteRow> = observed.sites.iter().map(|row| (row.site.as_str(), row)).collect();
    let weights: HashMap<&str, &WeightRow> = observed.weights.iter().map(|row| (row.tensor.as_str(), row)).collect();
    let mut comparisons = Vec::new();
    for row in &predicted.sites {
        if let Some(seen) = rows.get(row.site.as_str()) {
            let cells = Quantity::ALL.into_iter().filter_map(|quantity| Some((quantity, seen.get(quantity)?)));
            comparisons.extend(cells.filter_map(|(quantity, cell)| {
                compare_site(row, Compared::Site(quantity), cell, |level| level.cell(seen))
            }));
        }
    }
    let rounding = rounding(observed.weights.iter().map(|row| row.grad_second_moment.value));
    for row in &predicted.weights {
        if let Some(seen) = weights.get(row.tensor.as_str()) {
            comparisons.push(compare_weight(row, &seen.grad_second_moment, &rounding));
        }
    }
    for row in &mut comparisons {
        row.replicates = Some(replicates);
    }
    comparisons
}

/// Compares the observed cell `seen` of a quantity with the predicted row of its site. `level` returns the observed
/// cells of other quantities of the site, which serve as units.
fn compare_site(
    predicted: &SiteRow,
    quantity: Compared,
    seen: &Cell,
    level: impl Fn(Compared) -> Option<Cell>,
) -> Option<Comparison> {
    let told = quantity.value(predicted)?;
    // If the unit was not observed, its predicted value is used.
    let level = |wanted: Compared| level(wanted).or_else(|| wanted.cell(predicted));
    let Cell { value, std_error } = *seen;
    let values = [told.value(), value.value()];
    let at = (predicted.layer, predicted.site.clone(), quantity);
    let compared = |relative_error: f64, unit: Number, linear| {
        comparison(at, predicted.is_stream_site, told, seen, relative_error, &unit, linear)
    };
    Some(match quantity.scale() {
        Scale::Own => compared(excess(&told, &value), Number::from_ln(value.ln_abs()), values),
        Scale::Std => {
            let std = Number::from_ln(level(Compared::Site(Quantity::Variance))?.value.ln_abs() / 2.0);
            compared(told.ratio(&std) - value.ratio(&std), std, values)
        }
        Scale::Of(unit) => {
            let unit = level(unit)?.value;
            compared(told.ratio(&unit) - value.ratio(&unit), unit, values)
        }
        Scale::Covariance(unit) => {
            let (expected, unit) = (unit.value(predicted)?, level(unit)?);
            let covariances = [values[0] * expected.value(), values[1] * unit.value.value()];
            let relative_error = values[0] * expected.ratio(&unit.value) - values[1];
            let of_variance = values[1].abs() * unit.std_error.ratio(&unit.value);
            let relative_std_error = std_error.value().max(of_variance);
            Comparison { relative_std_error, ..compared(relative_error, 1.0.into(), covariances) }
        }
    })
}

/// The level below which weight gradients are the rounding of single precision.
fn rounding(observed: impl Iterator<Item = Number>) -> Number {
    let largest = observed.map(|value| value.ln_abs()).fold(f64::NAN, f64::max);
    Number::from_ln(largest + ROUNDING.ln())
}

fn compare_weight(predicted: &WeightRow, seen: &Cell, rounding: &Number) -> Comparison {
    let told = predicted.grad_second_moment.value;
    let at = (predicted.layer, predicted.tensor.clone(), Compared::WeightGradient);
    let linear = [told.value(), seen.value.value()];
    if told.is_zero() && seen.value.ln_abs() < rounding.ln_abs() {
        return comparison(at, true, told, seen, 0.0, rounding, linear);
    }
    comparison(at, true, told, seen, excess(&told, &seen.value), &Number::from_ln(seen.value.ln_abs()), linear)
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
        replicates: None,
        relative_error: (finite && !relative_error.is_nan()).then_some(relative_error),
        relative_std_error: std_error.ratio(unit),
        z: (finite && varies && !z.is_nan()).then_some(z),
        in_summary,
        linear,
    }
}

/// Returns `predicted`/`observed` − 1, or 0 if both are zero.
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

    /// A row of the five quantities averaged over positions.
    pub(super) fn row(layer: i64, averages: [Option<Cell>; 5]) -> SiteRow {
        let mut cells = [None; Quantity::ALL.len()];
        cells[..averages.len()].copy_from_slice(&averages);
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
        let comparisons = compare(&table(2.0, 0.5, 0.0), &table(1.0, 0.25, 0.05), 2);
        close(comparisons[1].relative_error, 0.75);
        close(comparisons[1].z, -5.0);
        close(Some(comparisons[1].relative_std_error), 0.05);
        // Half of a correlation of 0.25 is 0.125 of the variance: more than its own error.
        let mut noisy = table(1.0, 0.25, 0.05);
        noisy.sites[0].cells[Quantity::Variance as usize] = Some(cell(1.0, 0.5));
        close(Some(compare(&table(2.0, 0.5, 0.0), &noisy, 2)[1].relative_std_error), 0.125);
    }

    #[test]
    fn means_are_compared_in_standard_deviations() {
        let table = |mean, std_error| SiteTable {
            sites: vec![row(0, [Some(cell(mean, std_error)), Some(cell(4.0, 0.0)), None, None, None])],
            weights: Vec::new(),
        };
        let comparisons = compare(&table(1.0, 0.0), &table(0.5, 0.25), 2);
        close(comparisons[0].relative_error, 0.25);
        close(comparisons[0].z, -2.0);
        // A standard error of 1e-4 of the standard deviation is scatter; half of that is rounding.
        assert_eq!(compare(&table(0.0, 0.0), &table(0.1, 1e-4), 2)[0].z, None);
        assert!(compare(&table(0.0, 0.0), &table(0.1, 3e-4), 2)[0].z.is_some());
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
        let comparisons = compare(&table([0.0, 1000.0, 2000.0], 0.0), &table([1.0, 1000.0, 2000.0], 0.1), 2);
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
        let comparisons = compare(&predicted, &observed, 2);
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
        let comparisons = compare(
            &table(vec![weight("a", 3.0), weight("b", 1.0)]),
            &table(vec![weight("c", 1.0), weight("a", 2.0)]),
            2,
        );
        assert_eq!(comparisons.len(), 1);
        assert_eq!(comparisons[0].quantity.name(), "weight_grad_second_moment");
        close(comparisons[0].z, -2.0);
    }
}
