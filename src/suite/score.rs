//! Summaries of comparisons as lines of percentiles.
//!
//! For several runs, percentiles and R² use only cells with a small standard error, so that they measure predictions
//! and not noise. Cells that are zero as predicted are left out. The share of |z| < 2 and the number of cells that are
//! off use all cells.

use serde::Serialize;

use super::published::{self, PRINTED_ZERO};
use super::{Case, Look, Predicted, Run};
use crate::agreement::{Compared, Comparison, Fit, Summary, percentile, summarise};

/// The largest standard error with which a cell of several runs counts, in the unit of the errors: half of 3 %.
pub const LARGEST_ERROR: f64 = 0.015;

/// The agreement in one quantity over all cases of a group.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Line {
    /// The component, or the kind of model; `all` for all models together.
    pub group: String,
    /// Name of the quantity that is compared.
    pub quantity: &'static str,
    /// Agreement of the cells with a small standard error (see the header). The share within two standard errors (by
    /// Student's t) and the number of cells that are off are for all cells.
    pub fit: Fit,
    /// Number of cells of the quantity, including those with a large standard error.
    pub of: usize,
    /// The smallest and the largest share of |z| < 2 over single runs; `None` if no run has z-scores.
    pub share_z_below_2_of_runs: Option<[f64; 2]>,
    /// 50th, 90th and 99th percentile of the standard errors of the observations, in the unit of the errors. With fewer
    /// than 100 cells the 99th is the largest. `None` if no standard error is known.
    pub noise: Option<[f64; 3]>,
    /// The published 50th, 90th and 99th percentiles of the error; `None` if there are none.
    pub published: Option<[f64; 3]>,
    /// True if none of the three percentiles is above the published one; `None` if there are none published.
    pub beats_published: Option<bool>,
    /// Number of cells that are off in cases without a caveat.
    pub silent: usize,
}

/// The lines of every group, and of all models together. `runs` have been compared with `predicted`; `pooled` holds all
/// runs pooled into one.
pub fn score(cases: &[Case], predicted: &[Predicted], runs: &[Run], pooled: &Run) -> Vec<Line> {
    let done = || cases.iter().zip(&pooled.0).filter(|(_, rows)| !rows.is_empty()).map(|(case, _)| case);
    let mut groups: Vec<&str> = done().map(|case| case.group).collect();
    groups.dedup();
    let lines = |group: Option<&str>| {
        let of = |Run(cells): &Run, counts: fn(&Predicted) -> bool| -> Vec<Comparison> {
            let chosen = cases.iter().zip(predicted).zip(cells);
            let chosen =
                chosen.filter(|((case, of_case), _)| group.is_none_or(|group| case.group == group) && counts(of_case));
            chosen.flat_map(|(_, rows)| rows).cloned().collect()
        };
        let each: Vec<_> = runs.iter().map(|run| of(run, |_| true)).collect();
        let without_caveat = of(pooled, |predicted| predicted.caveats == 0);
        lines(group.unwrap_or("all"), [&of(pooled, |_| true), &without_caveat], &each)
    };
    let mut all: Vec<Line> = groups.iter().flat_map(|&group| lines(Some(group))).collect();
    if groups.len() > 1 && done().all(|case| case.look == Look::Everything) {
        all.extend(lines(None));
    }
    all
}

/// Returns the lines of one group. `pooled` are all cells of the group, and `without_caveat` those of cases without a
/// caveat.
fn lines(group: &str, [pooled, without_caveat]: [&[Comparison]; 2], runs: &[Vec<Comparison>]) -> Vec<Line> {
    let chosen = |counts: fn(&Comparison) -> bool| -> Vec<Comparison> {
        pooled.iter().filter(|row| runs.len() < 2 || counts(row)).cloned().collect()
    };
    let counted = chosen(|row| is_told(row) && row.relative_std_error <= LARGEST_ERROR);
    let (count, of) = (summarise(&counted), summarise(&chosen(is_told)));
    let without_caveat = summarise(without_caveat);
    let runs: Vec<Summary> = runs.iter().map(|run| summarise(run)).collect();
    let line = |name: &'static str, quantity: Option<Compared>| {
        let (all, mut fit) = (fit(&of, quantity), fit(&count, quantity));
        let published = quantity.and_then(|quantity| published::percentiles(group, quantity));
        let ours = [fit.p50, fit.p90, fit.p99];
        let beats = |published: [f64; 3]| {
            ours.iter().zip(published).all(|(ours, published)| ours.is_some_and(|p| p <= published.max(PRINTED_ZERO)))
        };
        (fit.share_z_below_2, fit.off) = (all.share_z_below_2, all.off);
        let shares = runs.iter().filter_map(|run| self::fit(run, quantity).share_z_below_2);
        Line {
            group: group.to_owned(),
            quantity: name,
            of: all.count,
            share_z_below_2_of_runs: shares.fold(None, |range, share| {
                let [low, high] = range.unwrap_or([share; 2]);
                Some([share.min(low), share.max(high)])
            }),
            noise: quantity.and_then(|quantity| noise(&counted, quantity)),
            published,
            beats_published: published.map(beats),
            silent: self::fit(&without_caveat, quantity).off,
            fit,
        }
    };
    let mut lines: Vec<Line> =
        of.quantities.iter().map(|&(quantity, _)| line(quantity.name(), Some(quantity))).collect();
    // Published components are reported only quantity by quantity, as in the publication.
    if of.pooled.count > 0 && lines.iter().all(|line| line.published.is_none()) {
        lines.push(line("variances, pooled", None));
    }
    lines
}

/// The agreement of a quantity; without a quantity, the agreement of the pooled variances.
fn fit(summary: &Summary, quantity: Option<Compared>) -> Fit {
    let Some(quantity) = quantity else { return summary.pooled.clone() };
    summary.quantities.iter().find(|(found, _)| *found == quantity).map(|(_, fit)| fit.clone()).unwrap_or_default()
}

/// Returns true if the cell carries information: the predicted or the observed value is not zero. Gradients that cancel
/// exactly carry none.
fn is_told(row: &Comparison) -> bool {
    !row.predicted.is_zero() || row.relative_error.is_none_or(|error| error.abs() > 0.0)
}

/// Returns the 50th, 90th and 99th percentile of the standard errors of a quantity, in the unit of the errors; `None`
/// if no standard error is known.
fn noise(comparisons: &[Comparison], quantity: Compared) -> Option<[f64; 3]> {
    let of_quantity = comparisons.iter().filter(|row| row.quantity == quantity);
    let mut errors: Vec<f64> =
        of_quantity.map(|row| row.relative_std_error).filter(|error| error.is_finite()).collect();
    errors.sort_by(f64::total_cmp);
    Some([percentile(&errors, 0.5)?, percentile(&errors, 0.9)?, percentile(&errors, 0.99)?])
}

#[cfg(test)]
mod tests {
    use sigprop_stack::{Cell, Quantity, SiteRow, SiteTable};

    use super::*;
    use crate::agreement::compare;
    use crate::suite::{GaussianScores, Sample, pool};

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
        let scored = |group| lines(group, [&comparisons; 2], std::slice::from_ref(&comparisons));
        let lines = scored("sha");
        assert_eq!(lines.len(), 1);
        let near = |found: Option<f64>, expected: f64| {
            approx::assert_relative_eq!(found.unwrap(), expected, max_relative = 1e-9);
        };
        near(lines[0].fit.p50, 0.01);
        near(lines[0].fit.p99, 0.03);
        near(lines[0].noise.map(|noise| noise[2]), 0.004);
        // Published for single-head attention: 1.4, 4.1, 7.8 %; for linear maps 0.4, 1.4, 2.8 %.
        assert_eq!(lines[0].beats_published, Some(true));
        assert_eq!(scored("linear")[0].beats_published, Some(false));
        assert_eq!(scored("pre")[0].beats_published, None);
    }

    /// Three cells that both runs observe as 1, with standard errors of 0.01 in one run and 0.02 in the other. Those of
    /// the last cell are ten times as large, so that it does not count. Pooled standard errors are 0.0112 and 0.112.
    #[test]
    fn what_several_runs_know_well_counts() {
        let table = |values: [f64; 3], std_error: f64| SiteTable {
            sites: [1.0, 1.0, 10.0]
                .into_iter()
                .zip(values)
                .enumerate()
                .map(|(layer, (noise, value))| {
                    let mut cells = [None; Quantity::ALL.len()];
                    let std_error = (noise * std_error).into();
                    cells[Quantity::Variance as usize] = Some(Cell { value: value.into(), std_error });
                    SiteRow { layer: layer as i64, site: format!("site{layer}"), is_stream_site: true, cells }
                })
                .collect(),
            weights: Vec::new(),
        };
        let predicted = table([1.005, 1.03, 1.1], 0.0);
        let run = |std_error| compare(&predicted, &table([1.0; 3], std_error), 64);
        let runs = [0.01, 0.02].map(|std_error| Run(vec![run(std_error)]));
        let Run(together) = pool(&[Predicted { table: predicted, caveats: 0 }], &runs);
        let found = &lines("pre", [&together[0], &[]], &runs.map(|Run(mut cells)| cells.remove(0)))[0];
        assert_eq!((found.fit.count, found.of), (2, 3));
        let near = |found: f64, expected: f64| approx::assert_relative_eq!(found, expected, max_relative = 1e-9);
        near(found.fit.p50.unwrap(), 0.005);
        near(found.fit.p99.unwrap(), 0.03);
        near(found.noise.unwrap()[0], 5e-4f64.sqrt() / 2.0);
        // |z|: 0.5, 3, 1 of the first, 0.25, 1.5, 0.5 of the second run, 0.4, 2.7, 0.9 together.
        near(found.fit.share_z_below_2.unwrap(), 2.0 / 3.0);
        let [low, high] = found.share_z_below_2_of_runs.unwrap();
        near(low, 2.0 / 3.0);
        near(high, 1.0);
    }

    /// Both of two cases are off (predicted 1.1, observed 1 ± 0.002). One has a caveat, so that only the other counts
    /// as silent.
    #[test]
    fn what_is_off_without_a_caveat_is_silent() {
        let table = |value: f64, std_error: f64| {
            let mut cells = [None; Quantity::ALL.len()];
            cells[Quantity::Variance as usize] = Some(Cell { value: value.into(), std_error: std_error.into() });
            let site = SiteRow { layer: 0, site: "blocks.0".to_owned(), is_stream_site: true, cells };
            SiteTable { sites: vec![site], weights: Vec::new() }
        };
        let sample =
            Sample::Softmax { scores: GaussianScores { count: 9, variance: 1.0, correlation: 0.0 }, replicates: 1 };
        let case = Case { group: "encoder", name: "case".to_owned(), sample, look: Look::Everything };
        let predicted = [0, 2].map(|caveats| Predicted { table: table(1.1, 0.0), caveats });
        let run = Run(predicted.iter().map(|told| compare(&told.table, &table(1.0, 0.002), 9)).collect());
        let found = score(&[case.clone(), case], &predicted, std::slice::from_ref(&run), &run);
        assert!(!found.is_empty());
        for line in found {
            assert_eq!((line.fit.off, line.silent), (2, 1));
        }
    }
}
