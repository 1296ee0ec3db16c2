//! From comparisons to lines of percentiles.

use serde::Serialize;

use super::published::{self, PRINTED_ZERO};
use crate::agreement::{Compared, Comparison, Fit, percentile, summarise};

/// One quantity of one group.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Line {
    /// The component, or kind of model.
    pub group: String,
    /// Name of what is compared.
    pub quantity: &'static str,
    /// How well it agrees.
    pub fit: Fit,
    /// 50th, 90th and 99th percentile of the standard errors of what was observed, in the unit of the errors; the
    /// largest below 100 cells.
    pub noise: Option<[f64; 3]>,
    /// What was published: the same percentiles of the error.
    pub published: Option<[f64; 3]>,
    /// Whether no percentile is above the published one.
    pub beats_published: Option<bool>,
}

/// The lines of one group.
pub fn score(group: &str, comparisons: &[Comparison]) -> Vec<Line> {
    let summary = summarise(comparisons);
    let pooled = (summary.pooled.count > 0).then_some(("variances, pooled", None, summary.pooled));
    let quantities = summary.quantities.into_iter().map(|(quantity, fit)| (quantity.name(), Some(quantity), fit));
    let line = |(name, quantity, fit): (&'static str, Option<Compared>, Fit)| {
        let published = quantity.and_then(|quantity| published::percentiles(group, quantity));
        let ours = [fit.p50, fit.p90, fit.p99];
        let beats = |published: [f64; 3]| {
            ours.iter().zip(published).all(|(ours, published)| ours.is_some_and(|p| p <= published.max(PRINTED_ZERO)))
        };
        Line {
            group: group.to_owned(),
            quantity: name,
            noise: quantity.and_then(|quantity| noise(comparisons, quantity)),
            published,
            beats_published: published.map(beats),
            fit,
        }
    };
    let mut lines: Vec<Line> = quantities.map(line).collect();
    // Components are told quantity by quantity, as they are published.
    let of_component = lines.iter().any(|line| line.published.is_some());
    lines.extend(pooled.filter(|_| !of_component).map(line));
    lines
}

/// Percentiles of the standard errors, in the unit of the errors.
fn noise(comparisons: &[Comparison], quantity: Compared) -> Option<[f64; 3]> {
    let unit = |row: &Comparison| {
        let difference = (row.predicted.value() - row.observed.value()).abs();
        match row.relative_error {
            // The error of a correlation is close to the difference; that of a variance is relative.
            Some(error) if difference > 0.0 && error.abs() > 0.0 => difference / error.abs(),
            _ => 1.0,
        }
    };
    let rows = comparisons.iter().filter(|row| row.quantity == quantity && row.std_error.is_finite());
    let mut errors: Vec<f64> = rows.map(|row| row.std_error.value() / unit(row)).collect();
    errors.sort_by(f64::total_cmp);
    Some([percentile(&errors, 0.5)?, percentile(&errors, 0.9)?, percentile(&errors, 0.99)?])
}

#[cfg(test)]
mod tests {
    use sigprop_stack::{Cell, Quantity, SiteRow, SiteTable};

    use super::*;
    use crate::agreement::compare;

    /// Predicted 1.01 against 1 ± 0.002 and 1.03 against 1 ± 0.004: errors of 1 and 3 %.
    #[test]
    fn lines_by_hand() {
        let table = |values: [(f64, f64); 2]| SiteTable {
            sites: values
                .into_iter()
                .enumerate()
                .map(|(layer, (value, std_error))| {
                    let mut cells = [None; Quantity::ALL.len()];
                    cells[Quantity::Variance as usize] =
                        Some(Cell { value: value.into(), std_error: std_error.into() });
                    SiteRow { layer: layer as i64, site: format!("site{layer}"), is_stream_site: true, cells }
                })
                .collect(),
            weights: Vec::new(),
        };
        let comparisons = compare(&table([(1.01, 0.0), (1.03, 0.0)]), &table([(1.0, 0.002), (1.0, 0.004)]), 9);
        let lines = score("sha", &comparisons);
        assert_eq!(lines.len(), 1);
        let near = |found: Option<f64>, expected: f64| {
            approx::assert_relative_eq!(found.unwrap(), expected, max_relative = 1e-9);
        };
        near(lines[0].fit.p50, 0.01);
        near(lines[0].fit.p99, 0.03);
        near(lines[0].noise.map(|noise| noise[2]), 0.004);
        // Published for single-head attention: 1.4, 4.1, 7.8 %; for linear maps 0.4, 1.4, 2.8 %.
        assert_eq!(lines[0].beats_published, Some(true));
        assert_eq!(score("linear", &comparisons)[0].beats_published, Some(false));
        assert_eq!(score("pre", &comparisons)[0].beats_published, None);
    }
}
