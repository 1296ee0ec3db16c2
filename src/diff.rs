//! Differences between two reports of `predict --format json`, or of `inspect`.
//!
//! # Formula
//!
//! The sizes of differences can be sorted together: |ln(b/a)| for positive quantities, |b − a| for correlations and for
//! deviations of logarithms, |b − a|/√variance for means, with the larger of both variances.

use std::collections::HashMap;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use serde::Deserialize;
use sigprop_stack::Quantity;

use crate::report::SCHEMA_VERSION;

/// The reason why a file is not a report.
#[derive(Debug, thiserror::Error)]
pub enum DiffError {
    /// The file cannot be read.
    #[error("cannot read {}", path.display())]
    Io {
        /// The file.
        path: PathBuf,
        /// The cause.
        source: io::Error,
    },
    /// The file is not a report.
    #[error("{}: expected a report of predict --format json, got {got}", path.display())]
    Format {
        /// The file.
        path: PathBuf,
        /// The content that was found.
        got: String,
    },
}

/// The parts of a report that are compared with another report.
#[derive(Clone, Debug, PartialEq, Deserialize)]
pub struct Report {
    schema_version: u32,
    sites: Vec<Site>,
    verdict: Verdict,
}

#[derive(Clone, Debug, PartialEq, Deserialize)]
struct Site {
    #[serde(rename = "site")]
    path: String,
    mean: Option<f64>,
    variance: Option<f64>,
    token_correlation: Option<f64>,
    grad_variance: Option<f64>,
    grad_token_correlation: Option<f64>,
    ln_variance: Option<f64>,
    ln_grad_variance: Option<f64>,
    variance_first: Option<f64>,
    variance_last: Option<f64>,
    grad_variance_first: Option<f64>,
    grad_variance_last: Option<f64>,
    ln_variance_std: Option<f64>,
    ln_grad_variance_std: Option<f64>,
}

#[derive(Clone, Debug, PartialEq, Deserialize)]
struct Verdict {
    headline: String,
    findings: Vec<Finding>,
}

#[derive(Clone, Debug, PartialEq, Deserialize)]
struct Finding {
    kind: String,
    text: String,
}

/// A JSON document that holds a report: the report by itself, or an inspection that contains one.
#[derive(Deserialize)]
#[serde(untagged)]
enum Document {
    Inspection { prediction: Report },
    Prediction(Report),
}

impl Report {
    /// Reads a report.
    pub fn read(path: &Path) -> Result<Self, DiffError> {
        let here = || path.to_owned();
        let wrong = |got: String| DiffError::Format { path: here(), got };
        let bytes = fs::read(path).map_err(|source| DiffError::Io { path: here(), source })?;
        let json: serde_json::Value = serde_json::from_slice(&bytes).map_err(|error| wrong(error.to_string()))?;
        let Ok(Document::Inspection { prediction: report } | Document::Prediction(report)) =
            Document::deserialize(json)
        else {
            return Err(wrong("another document".to_owned()));
        };
        if report.schema_version != SCHEMA_VERSION {
            return Err(wrong(format!("version {} of it, which this release does not know", report.schema_version)));
        }
        Ok(report)
    }
}

/// One quantity of one site in both reports.
#[derive(Clone, Debug, PartialEq)]
pub struct Difference {
    /// Path of the site.
    pub site: String,
    /// The quantity that differs.
    pub quantity: Quantity,
    /// Its value in the first report; `None` if it exceeds f64.
    pub first: Option<f64>,
    /// Its value in the second report; `None` if it exceeds f64.
    pub second: Option<f64>,
    /// ln(second/first) if `is_ratio` is true, else second − first.
    pub change: f64,
    /// True if the change is a logarithm of a ratio.
    pub is_ratio: bool,
    /// The absolute value of `change`; for means in units of the larger standard deviation of the site in both reports,
    /// so that sizes of different quantities can be compared.
    pub size: f64,
}

/// All differences between two reports.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Diff {
    /// Quantities of sites in both reports, the largest difference first.
    pub differences: Vec<Difference>,
    /// Sites, and quantities of sites, that only the first report has.
    pub only_first: Vec<String>,
    /// Sites, and quantities of sites, that only the second report has.
    pub only_second: Vec<String>,
    /// The headlines of the first and of the second verdict.
    pub headlines: [String; 2],
    /// Texts of findings of the first report whose kind the second report does not have.
    pub lost: Vec<String>,
    /// Texts of findings of the second report whose kind the first report does not have.
    pub gained: Vec<String>,
}

impl Diff {
    /// Compares two reports.
    pub fn of(first: &Report, second: &Report) -> Self {
        let mut diff = Self {
            headlines: [first.verdict.headline.clone(), second.verdict.headline.clone()],
            lost: findings_without(&first.verdict, &second.verdict),
            gained: findings_without(&second.verdict, &first.verdict),
            ..Self::default()
        };
        let others: HashMap<&str, &Site> = second.sites.iter().map(|site| (site.path.as_str(), site)).collect();
        let known: HashMap<&str, &Site> = first.sites.iter().map(|site| (site.path.as_str(), site)).collect();
        for site in &first.sites {
            match others.get(site.path.as_str()) {
                Some(other) => diff.compare(site, other),
                None => diff.only_first.push(site.path.clone()),
            }
        }
        let new = second.sites.iter().filter(|site| !known.contains_key(site.path.as_str()));
        diff.only_second.extend(new.map(|site| site.path.clone()));
        diff.differences.sort_by(|a, b| b.size.total_cmp(&a.size));
        diff
    }

    /// The largest difference; `None` if there are no differences to compare.
    pub fn largest(&self) -> Option<&Difference> {
        self.differences.first()
    }

    fn compare(&mut self, first: &Site, second: &Site) {
        let std = [first, second].into_iter().filter_map(|site| site.variance).fold(0.0, f64::max).sqrt();
        for quantity in Quantity::ALL {
            let [a, b] = [first, second].map(|site| site.value(quantity));
            let is_ratio = match quantity {
                Quantity::Mean
                | Quantity::TokenCorrelation
                | Quantity::GradTokenCorrelation
                | Quantity::LnVarianceStd
                | Quantity::LnGradVarianceStd => false,
                Quantity::Variance
                | Quantity::GradVariance
                | Quantity::VarianceFirst
                | Quantity::VarianceLast
                | Quantity::GradVarianceFirst
                | Quantity::GradVarianceLast => true,
            };
            let logarithms = [first, second].map(|site| site.ln(quantity));
            let change = match (is_ratio, logarithms, [a, b]) {
                (true, [Some(a), Some(b)], _) | (false, _, [Some(a), Some(b)]) => b - a,
                // Two zeros have no logarithm, but they agree.
                (true, [None, None], [Some(_), Some(_)]) => 0.0,
                (true, [Some(_), None], [_, Some(_)]) => f64::NEG_INFINITY,
                (true, [None, Some(_)], [Some(_), _]) => f64::INFINITY,
                (_, _, [None, None]) => continue,
                (_, _, [Some(_), None]) => {
                    self.only_first.push(format!("{} {}", first.path, quantity.name()));
                    continue;
                }
                (_, _, [None, Some(_)]) => {
                    self.only_second.push(format!("{} {}", first.path, quantity.name()));
                    continue;
                }
            };
            let unit = if quantity == Quantity::Mean && std > 0.0 { std } else { 1.0 };
            let size = change.abs() / unit;
            let site = first.path.clone();
            self.differences.push(Difference { site, quantity, first: a, second: b, change, is_ratio, size });
        }
    }
}

impl Site {
    fn value(&self, quantity: Quantity) -> Option<f64> {
        match quantity {
            Quantity::Mean => self.mean,
            Quantity::Variance => self.variance,
            Quantity::TokenCorrelation => self.token_correlation,
            Quantity::GradVariance => self.grad_variance,
            Quantity::GradTokenCorrelation => self.grad_token_correlation,
            Quantity::VarianceFirst => self.variance_first,
            Quantity::VarianceLast => self.variance_last,
            Quantity::GradVarianceFirst => self.grad_variance_first,
            Quantity::GradVarianceLast => self.grad_variance_last,
            Quantity::LnVarianceStd => self.ln_variance_std,
            Quantity::LnGradVarianceStd => self.ln_grad_variance_std,
        }
    }

    /// Returns ln of the value of a quantity; `None` if the value is zero or missing. Reports contain ln of variances,
    /// so that these can be compared beyond the range of f64.
    fn ln(&self, quantity: Quantity) -> Option<f64> {
        let told = match quantity {
            Quantity::Variance => self.ln_variance,
            Quantity::GradVariance => self.ln_grad_variance,
            Quantity::Mean
            | Quantity::TokenCorrelation
            | Quantity::GradTokenCorrelation
            | Quantity::VarianceFirst
            | Quantity::VarianceLast
            | Quantity::GradVarianceFirst
            | Quantity::GradVarianceLast
            | Quantity::LnVarianceStd
            | Quantity::LnGradVarianceStd => None,
        };
        told.or_else(|| self.value(quantity).map(f64::ln).filter(|ln| ln.is_finite()))
    }
}

/// Returns the texts of the findings of `verdict` whose kinds do not occur in `other`.
fn findings_without(verdict: &Verdict, other: &Verdict) -> Vec<String> {
    let kinds: Vec<&str> = other.findings.iter().map(|finding| finding.kind.as_str()).collect();
    let new = verdict.findings.iter().filter(|finding| !kinds.contains(&finding.kind.as_str()));
    new.map(|finding| finding.text.clone()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn site(name: &str, values: [Option<f64>; 3], ln_variance: Option<f64>) -> serde_json::Value {
        let [mean, variance, correlation] = values;
        json!({"site": name, "mean": mean, "variance": variance, "token_correlation": correlation,
               "ln_variance": ln_variance})
    }

    fn report(sites: &serde_json::Value, kind: &str) -> Report {
        let verdict = json!({"headline": kind, "findings": [{"kind": kind, "text": format!("it is {kind}")}]});
        Report::deserialize(json!({"schema_version": 1, "sites": sites, "verdict": verdict})).expect("a report")
    }

    /// By hand: variance ×4 (ln 1.386), mean 0.5 more over a standard deviation of 2, correlation 0.1 more.
    #[test]
    fn differences_are_sorted_by_size() {
        let first = report(
            &json!([site("a", [Some(0.0), Some(1.0), Some(0.2)], Some(0.0)), site("b", [Some(0.0); 3], None)]),
            "fine",
        );
        let second = report(&json!([site("a", [Some(0.5), Some(4.0), Some(0.3)], Some(4f64.ln()))]), "bad");
        let diff = Diff::of(&first, &second);
        let told: Vec<(&str, Quantity)> =
            diff.differences.iter().map(|row| (row.site.as_str(), row.quantity)).collect();
        assert_eq!(told, [("a", Quantity::Variance), ("a", Quantity::Mean), ("a", Quantity::TokenCorrelation)]);
        for (row, size) in diff.differences.iter().zip([4f64.ln(), 0.25, 0.1]) {
            assert!((row.size - size).abs() < 1e-12, "{row:?}");
        }
        assert_eq!((diff.only_first, diff.only_second), (vec!["b".to_owned()], vec![]));
        assert_eq!((diff.lost, diff.gained), (vec!["it is fine".to_owned()], vec!["it is bad".to_owned()]));
    }

    #[test]
    fn numbers_beyond_f64_zeros_and_absent_quantities_are_compared() {
        let of = |values, ln| report(&json!([site("a", values, ln)]), "fine");
        let beyond = Diff::of(&of([None, None, None], Some(1000.0)), &of([None, None, None], Some(1001.0)));
        assert!((beyond.largest().expect("a difference").size - 1.0).abs() < 1e-12);
        let zero = of([Some(0.0), Some(0.0), None], None);
        assert!(Diff::of(&zero, &zero).largest().expect("a difference").size <= 0.0);
        let some = of([Some(0.0), Some(1.0), Some(0.5)], Some(0.0));
        let vanished = Diff::of(&some, &zero);
        assert!(vanished.largest().expect("a difference").change < f64::MIN);
        assert_eq!(vanished.only_first, ["a token_correlation"]);
    }
}
