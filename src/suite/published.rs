//! The percentiles that Kedia et al. (2024) published, and their error of a mean.

use std::sync::LazyLock;

use sigprop_stack::Number;

use crate::agreement::{Compared, Comparison};

/// The published table, in percent: component, quantity, percentiles.
const TABLE: &str = include_str!("../../data/published/deepscalelm_components.csv");

/// The largest error that the publication prints as 0.
pub(crate) const PRINTED_ZERO: f64 = 5e-4;

/// Published 50th, 90th and 99th percentiles of the error of a component, as fractions.
pub(super) fn percentiles(component: &str, quantity: Compared) -> Option<[f64; 3]> {
    static ROWS: LazyLock<Vec<(String, String, [f64; 3])>> = LazyLock::new(|| {
        let mut reader = csv::Reader::from_reader(TABLE.as_bytes());
        let rows = reader.deserialize().map(|row| {
            let (component, quantity, p50, p90, p99): (String, String, f64, f64, f64) = row.expect("the table is ours");
            (component, quantity, [p50, p90, p99].map(|percent| percent / 100.0))
        });
        rows.collect()
    });
    ROWS.iter().find(|row| row.0 == component && row.1 == quantity.name()).map(|row| row.2)
}

/// The mean of an output multiplied by `scale`, with the error as the publication defines it. This is the smaller of
/// the difference over the observed mean and the difference over the predicted variance. For a mean predicted to be
/// zero, it is the smaller of the mean itself and the mean over the predicted variance.
pub(super) fn mean_error(mean: &Comparison, predicted_variance: Number, scale: f64) -> Comparison {
    let (predicted, observed) = (mean.predicted.value() * scale, mean.observed.value() * scale);
    let difference = (predicted - observed).abs();
    let unit = if mean.predicted.is_zero() { 1.0 } else { observed.abs() };
    let unit = unit.max(predicted_variance.value() * scale * scale);
    let rounding = f64::EPSILON * observed.abs();
    let mut row = mean.clone();
    row.predicted = predicted.into();
    row.observed = observed.into();
    row.std_error = (mean.std_error.value() * scale).into();
    row.relative_error = Some(if difference <= rounding { 0.0 } else { difference / unit });
    row.relative_std_error = row.std_error.value() / unit;
    row
}

#[cfg(test)]
mod tests {
    use sigprop_stack::Quantity;

    use super::*;

    const QUANTITIES: [Compared; 5] = [
        Compared::Site(Quantity::Mean),
        Compared::Site(Quantity::Variance),
        Compared::Site(Quantity::GradVariance),
        Compared::Site(Quantity::TokenCorrelation),
        Compared::Site(Quantity::GradTokenCorrelation),
    ];

    #[test]
    fn the_table_is_read_as_shares() {
        let found = percentiles("sha", Compared::Site(Quantity::GradVariance)).expect("published");
        approx::assert_relative_eq!(found.as_slice(), [0.022, 0.133, 0.445].as_slice(), max_relative = 1e-12);
        assert_eq!(percentiles("softmax", Compared::Site(Quantity::TokenCorrelation)), None);
        let all = ["linear", "relu", "gelu", "layernorm", "dropout", "sha"];
        assert!(all.iter().all(|component| QUANTITIES.iter().all(|&q| percentiles(component, q).is_some())));
    }
}
