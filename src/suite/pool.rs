//! Runs of a suite with different seeds, pooled into one measurement.
//!
//! ```text
//! observed    Σ n x / Σ n        x: observed by a run of n networks
//! std_error   √(Σ (n s)²) / Σ n  s: its standard error
//! ```

use std::collections::HashMap;
use std::io::Read;

use sigprop_stack::{Cell, Number};

use super::{Case, Predicted};
use crate::agreement::{Compared, Comparison, Observation, ObservedError, compare_observations, read};
use crate::nearest::nearest;

/// The result of a run: for every case, in the order of the cases, its comparisons. The list is empty for a case that
/// was not sampled.
#[derive(Clone, Debug, PartialEq)]
pub struct Run(pub Vec<Vec<Comparison>>);

impl Run {
    /// Reads the observations of an earlier run, in the format of its `cells.csv`, and compares them with current
    /// predictions. Groups that are not among the cases are left out.
    pub fn read(cases: &[Case], predicted: &[Predicted], source: impl Read) -> Result<Self, ObservedError> {
        let mut observed = vec![Vec::new(); cases.len()];
        for ([group, name], seen) in read(source, ["group", "case"])? {
            let mut of_group = cases.iter().enumerate().filter(|(_, case)| case.group == group).peekable();
            if of_group.peek().is_none() {
                continue;
            }
            let names = of_group.clone().map(|(_, case)| case.name.as_str());
            let Some((index, _)) = of_group.find(|(_, case)| case.name == name) else {
                let hint = nearest(&name, names).map_or(String::new(), |near| format!("; did you mean `{near}`?"));
                return Err(ObservedError::new(seen.line, format!("{group} has no case `{name}`{hint}")));
            };
            if seen.replicates.is_none_or(|count| count == 0) {
                return Err(ObservedError::new(seen.line, "replicates: expected how many networks, from 1"));
            }
            observed[index].push(seen);
        }
        let cells = cases.iter().zip(predicted).zip(&observed);
        let cells = cells.map(|((case, predicted), seen)| case.compare_observations(predicted, seen));
        cells.collect::<Result<_, _>>().map(Self)
    }
}

/// Pools all runs into one, compared with the predictions of the cases.
///
/// # Panics
///
/// If a run was compared with other predictions.
pub fn pool(predicted: &[Predicted], runs: &[Run]) -> Run {
    if let [run] = runs {
        return run.clone();
    }
    let cells = predicted.iter().enumerate().map(|(case, Predicted { table, .. })| {
        let rows: Vec<&Comparison> = runs.iter().flat_map(|Run(cases)| &cases[case]).collect();
        compare_observations(table, &pooled(&rows)).expect("they were compared with these predictions")
    });
    Run(cells.collect())
}

/// Returns one pooled observation per site and quantity, in the order of their first occurrence in `rows`.
fn pooled(rows: &[&Comparison]) -> Vec<Observation> {
    let mut places = HashMap::new();
    let mut cells: Vec<Vec<&Comparison>> = Vec::new();
    for &row in rows {
        let key: (&str, Compared) = (&row.site, row.quantity);
        let place = *places.entry(key).or_insert(cells.len());
        if place == cells.len() {
            cells.push(Vec::new());
        }
        cells[place].push(row);
    }
    cells.iter().map(|rows| together(rows)).collect()
}

/// Pools the observations of one quantity in several runs.
fn together(rows: &[&Comparison]) -> Observation {
    // Sums use ratios to the largest value, so that they exist for values beyond f64, too.
    let largest = rows.iter().map(|row| row.observed.ln_abs()).fold(f64::NEG_INFINITY, f64::max);
    let unit = Number::from_ln(if largest.is_finite() { largest } else { 0.0 });
    let networks = |row: &Comparison| row.replicates.map_or(f64::NAN, |count| count as f64);
    let total: f64 = rows.iter().map(|row| networks(row)).sum();
    let sum: f64 = rows.iter().map(|row| networks(row) * row.observed.ratio(&unit)).sum();
    let square: f64 = rows.iter().map(|row| (networks(row) * row.std_error.ratio(&unit)).powi(2)).sum();
    let in_unit = |share: f64| Number::scaled(share / total, unit.ln_abs());
    Observation {
        line: 0,
        site: rows[0].site.clone(),
        quantity: rows[0].quantity,
        cell: Cell { value: in_unit(sum), std_error: in_unit(square.sqrt()) },
        replicates: rows.iter().map(|row| row.replicates).sum(),
    }
}

#[cfg(test)]
mod tests {
    use std::slice;

    use sigprop_stack::{Quantity, SiteRow, SiteTable};

    use super::*;
    use crate::agreement::compare;
    use crate::suite::{GaussianScores, Look, Sample, Suite};

    fn table(values: [(Number, Number); 2]) -> SiteTable {
        let mut cells = [None; Quantity::ALL.len()];
        for (quantity, (value, std_error)) in [Quantity::Variance, Quantity::TokenCorrelation].into_iter().zip(values) {
            cells[quantity as usize] = Some(Cell { value, std_error });
        }
        let site = SiteRow { layer: 0, site: "blocks.0".to_owned(), is_stream_site: true, cells };
        SiteTable { sites: vec![site], weights: Vec::new() }
    }

    fn told(values: [(Number, Number); 2]) -> Predicted {
        Predicted { table: table(values), caveats: 0 }
    }

    /// Variances of 1 ± 0.3 from two networks and 2 ± 0.1 from six are pooled to (2 + 12)/8 ± √(0.6² + 0.6²)/8, all in
    /// units of e^1000.
    #[test]
    fn runs_weigh_as_much_as_they_have_networks() {
        let large = |value: f64| Number::scaled(value, 1000.0);
        let predicted = [told([(large(1.4), Number::ZERO), (0.5.into(), Number::ZERO)])];
        let run = |variance, std_error, correlation: f64, networks| {
            let observed = table([(large(variance), large(std_error)), (correlation.into(), 0.2.into())]);
            Run(vec![compare(&predicted[0].table, &observed, networks)])
        };
        let Run(cells) = pool(&predicted, &[run(1.0, 0.3, 0.2, 2), run(2.0, 0.1, 0.6, 6)]);
        let [variance, correlation] = &cells[0][..] else { panic!("{cells:?}") };
        let near = |found: f64, expected: f64| approx::assert_relative_eq!(found, expected, max_relative = 1e-9);
        near(variance.observed.ratio(&large(1.0)), 1.75);
        near(variance.std_error.ratio(&large(1.0)), 0.72f64.sqrt() / 8.0);
        near(variance.relative_error.unwrap(), 1.4 / 1.75 - 1.0);
        assert_eq!(variance.replicates, Some(8));
        // (0.4 + 3.6)/8 ± √(0.4² + 1.2²)/8; in units of the variance, 0.5 · 1.4/1.75 − 0.5.
        near(correlation.observed.value(), 0.5);
        near(correlation.std_error.value(), 1.6f64.sqrt() / 8.0);
        near(correlation.relative_error.unwrap(), -0.1);
    }

    #[test]
    fn what_was_observed_is_compared_with_predictions_of_now() {
        let sample =
            Sample::Softmax { scores: GaussianScores { count: 9, variance: 1.0, correlation: 0.0 }, replicates: 1 };
        let cases = ["narrow", "wide"].map(|name| Case {
            group: "pre",
            name: name.to_owned(),
            sample: sample.clone(),
            look: Look::Everything,
        });
        let predicted = [1.0, 3.0].map(|variance: f64| told([(variance.into(), Number::ZERO); 2]));
        let read = |rows: &str| {
            let text = format!("group,case,site,quantity,predicted,observed,std_error,replicates\n{rows}");
            Run::read(&cases, &predicted, text.as_bytes()).map_err(|error| error.to_string())
        };
        let Run(cells) = read("pre,wide,blocks.0,variance,9,2,0.5,4\npost,wide,blocks.0,variance,9,2,0.5,4\n").unwrap();
        assert!(cells[0].is_empty() && cells[1].len() == 1);
        approx::assert_relative_eq!(cells[1][0].relative_error.unwrap(), 0.5, max_relative = 1e-12);
        assert_eq!(
            read("pre,wid,blocks.0,variance,9,2,0.5,4\n").unwrap_err(),
            "line 2: pre has no case `wid`; did you mean `wide`?"
        );
        for networks in ["", "0"] {
            let error = read(&format!("pre,wide,blocks.0,variance,9,2,0.5,{networks}\n")).unwrap_err();
            assert_eq!(error, "line 2: replicates: expected how many networks, from 1");
        }
        let error = Run::read(&cases, &predicted, "site,quantity,observed,std_error\n".as_bytes()).unwrap_err();
        assert!(error.to_string().contains("expected the columns group, case, site"), "{error}");
    }

    /// ReLU's error of the mean is taken at three scales: a report has a row for each scale, a measurement only one
    /// row.
    #[test]
    fn a_mean_is_compared_at_every_scale() {
        let case = Suite::Components.cases(false, 0).into_iter().find(|case| case.group == "relu").unwrap();
        let predicted = case.predict().unwrap();
        let read = |means: &[f64]| {
            let row = |mean: &f64| format!("relu,\"{}\",relu,mean,{mean},0.01,9\n", case.name);
            let rows: String = means.iter().map(row).collect();
            let text = format!("group,case,site,quantity,observed,std_error,replicates\n{rows}");
            let Run(cells) = Run::read(slice::from_ref(&case), slice::from_ref(&predicted), text.as_bytes()).unwrap();
            cells[0].clone()
        };
        let once = read(&[0.4]);
        assert_eq!(once.len(), 3);
        assert_eq!(once, read(&[0.4 * 0.1f64.sqrt(), 0.4, 0.4 * 10f64.sqrt()]));
    }
}
