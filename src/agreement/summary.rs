//! Agreement in summary: R², percentiles and shares of z-scores.

use serde::Serialize;

use super::{Bounds, Compared, Comparison};

/// The |z| below which a deviation counts as agreement within the sampling error, for a normal distribution.
pub(crate) const CLOSE: f64 = 2.0;
/// The |relative error| and the |z| (for a normal distribution) above which a cell counts as off; both must be
/// exceeded. Chance does not produce such deviations in millions of cells.
const OFF: (f64, f64) = (0.05, 5.0);

/// Agreement of one quantity over the stream sites; numbers that do not exist are `None`.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Fit {
    /// Number of cells.
    pub count: usize,
    /// R² of the logarithms; positive quantities only.
    pub r2_log: Option<f64>,
    /// R² of the values, where correlations enter as covariances; `None` if a value is beyond f64.
    pub r2_linear: Option<f64>,
    /// Median of |relative error|, nearest rank: the smallest value that half of all do not exceed.
    pub p50: Option<f64>,
    /// 90th percentile of |relative error|, nearest rank.
    pub p90: Option<f64>,
    /// 99th percentile of |relative error|, nearest rank.
    pub p99: Option<f64>,
    /// Share of the cells with |z| < 2. If replicates are few, the bound is instead the quantile of Student's t that
    /// leaves the same probability outside.
    pub share_z_below_2: Option<f64>,
    /// Number of cells with a |relative error| above 5 % and |z| above 5. If replicates are few, a quantile of
    /// Student's t replaces the 5.
    pub off: usize,
    /// ln of the ratio of the largest to the smallest observed value. A narrow range makes R² mostly noise.
    pub ln_range: Option<f64>,
}

/// Agreement of a whole measurement.
#[derive(Clone, Debug, PartialEq)]
pub struct Summary {
    /// The agreement of every quantity that is present.
    pub quantities: Vec<(Compared, Fit)>,
    /// The agreement of variance and grad_variance as one set, with one common average.
    pub pooled: Fit,
}

/// Summarises the stream sites and the weight tensors.
pub fn summarise(comparisons: &[Comparison]) -> Summary {
    let of = |wanted: &dyn Fn(Compared) -> bool| {
        comparisons.iter().filter(|row| row.in_summary && row.is_finite() && wanted(row.quantity)).collect::<Vec<_>>()
    };
    let quantities = Compared::ALL.into_iter().map(|quantity| (quantity, fit(&of(&|found| found == quantity))));
    Summary {
        quantities: quantities.filter(|(_, fit)| fit.count > 0).collect(),
        pooled: fit(&of(&Compared::is_pooled)),
    }
}

fn fit(comparisons: &[&Comparison]) -> Fit {
    let logarithms: Vec<[f64; 2]> = comparisons.iter().filter_map(|row| row.logarithms()).collect();
    let linear: Vec<[f64; 2]> = comparisons.iter().map(|row| row.linear).collect();
    let mut errors: Vec<f64> = comparisons.iter().filter_map(|row| row.relative_error).map(f64::abs).collect();
    errors.sort_by(f64::total_cmp);
    let [mut close, mut far] = [CLOSE, OFF.1].map(Bounds::new);
    let scores: Vec<bool> = comparisons.iter().filter_map(|row| close.hold(row)).collect();
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
            .then(|| scores.iter().filter(|is_close| **is_close).count() as f64 / scores.len() as f64),
        off: comparisons.iter().filter(|row| is_off(row, &mut far)).count(),
        ln_range: (!logarithms.is_empty()).then_some(high - low),
    }
}

fn is_off(row: &Comparison, far: &mut Bounds) -> bool {
    row.relative_error.is_some_and(|error| error.abs() > OFF.0) && far.hold(row) == Some(false)
}

/// Returns R² = 1 − SSE/SST of pairs (predicted, observed); `None` if the observed values are constant or a sum exceeds
/// f64.
fn r_squared(pairs: &[[f64; 2]]) -> Option<f64> {
    let average = pairs.iter().map(|[_, observed]| observed).sum::<f64>() / pairs.len() as f64;
    let square_sum = |deviation: &dyn Fn(&[f64; 2]) -> f64| pairs.iter().map(|pair| deviation(pair).powi(2)).sum();
    let residual: f64 = square_sum(&|[predicted, observed]| observed - predicted);
    let total: f64 = square_sum(&|[_, observed]| observed - average);
    // The largest sum of squares of a constant that rounding explains.
    let rounding = pairs.len() as f64 * (4.0 * f64::EPSILON * average).powi(2);
    (total > rounding && total.is_finite() && residual.is_finite()).then(|| 1.0 - residual / total)
}

/// Returns the percentile by nearest rank: the smallest of the `sorted` values such that at least a `share` of all
/// values are not larger.
pub(crate) fn percentile(sorted: &[f64], share: f64) -> Option<f64> {
    let rank = (share * sorted.len() as f64).ceil() as usize;
    sorted.get(rank.saturating_sub(1)).copied()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::agreement::compare;
    use crate::agreement::tests::{cell, close, row, variances};
    use sigprop_stack::SiteTable;

    /// Predicted 1, 2, 4 against observed 2, 2, 8. Linear: average 4, SSE = 1 + 0 + 16 = 17,
    /// SST = 4 + 4 + 16 = 24. Log, in units of ln 2: predicted 0, 1, 2, observed 1, 1, 3,
    /// average 5/3, SSE = 2, SST = 4/9 + 4/9 + 16/9 = 8/3, R² = 1/4.
    #[test]
    fn r_squared_by_hand() {
        let comparisons = compare(
            &variances(&[(1.0, 0.0), (2.0, 0.0), (4.0, 0.0)]),
            &variances(&[(2.0, 0.5), (2.0, 0.5), (8.0, 1.0)]),
            1000,
        );
        let fit = &summarise(&comparisons).pooled;
        assert_eq!(fit.count, 3);
        close(fit.r2_linear, 1.0 - 17.0 / 24.0);
        close(fit.r2_log, 0.25);
        close(fit.ln_range, 4f64.ln());
        // Relative errors −0.5, 0, −0.5; z = 2, 0, 4, where 2.003 of a thousand replicates is as likely as 2.
        close(fit.p50, 0.5);
        close(fit.share_z_below_2, 2.0 / 3.0);
        close(comparisons[0].z, 2.0);
        close(comparisons[2].relative_error, -0.5);
    }

    #[test]
    fn pooled_takes_one_average_over_both_quantities() {
        let table = |variance, grad| SiteTable {
            sites: vec![row(0, [None, Some(cell(variance, 0.0)), None, Some(cell(grad, 0.0)), None])],
            weights: Vec::new(),
        };
        let e = std::f64::consts::E;
        // ln observed 0 and 2, average 1, SST = 2; ln predicted 0.5 and 2, SSE = 0.25.
        let summary = summarise(&compare(&table(e.sqrt(), e * e), &table(1.0, e * e), 2));
        close(summary.pooled.r2_log, 1.0 - 0.25 / 2.0);
        // One cell per quantity: no spread, no R².
        assert!(summary.quantities.iter().all(|(_, fit)| fit.r2_log.is_none() && fit.r2_linear.is_none()));
    }

    #[test]
    fn a_constant_has_no_r_squared() {
        let constant = variances(&[(0.1, 0.0); 7]);
        let fit = summarise(&compare(&constant, &constant, 2)).pooled;
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
}
