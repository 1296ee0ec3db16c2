//! A recommendation: tables for people, rows, JSON.

use std::collections::BTreeMap;
use std::io::{self, Write};

use serde::Serialize;
use sigprop_stack::WeightRow;

use super::{Rows, SCHEMA_VERSION, plain_table};
use crate::numerals::short;
use crate::recommend::{Outcome, Recommendation};
use crate::verdict::{Verdict, over_blocks};

/// Writes the demands with the values that are reached, and the smallest and the largest std of every kind of tensor.
pub fn recommendation_tables(recommendation: &Recommendation, out: &mut dyn Write) -> io::Result<()> {
    let rows = recommendation.outcomes.iter().map(|outcome| {
        let word = match (outcome.is_met(), outcome.is_binding()) {
            (false, _) => "gives way",
            (true, true) => "at its limit",
            (true, false) => "met",
        };
        let reached = outcome.reached.map_or("none".to_owned(), short);
        vec![outcome.demand.name().to_owned(), outcome.demand.limit(), reached, word.to_owned()]
    });
    plain_table(&["demand", "limit", "reached", ""], rows, out)?;
    writeln!(out)?;
    let stds = stds(&recommendation.weights).into_iter().map(|(tensor, [low, high])| {
        let range = if high > low * (1.0 + 1e-9) { format!("{} … {}", short(low), short(high)) } else { short(low) };
        vec![tensor, range]
    });
    plain_table(&["tensor", "std"], stds, out)
}

/// Returns the smallest and the largest std over the blocks, by the name of the tensor with `*` for the block.
fn stds(weights: &[WeightRow]) -> BTreeMap<String, [f64; 2]> {
    let mut stds: BTreeMap<String, [f64; 2]> = BTreeMap::new();
    for row in weights.iter().filter(|row| row.variance > 0.0) {
        let name = over_blocks(&row.tensor).unwrap_or_else(|| row.tensor.clone());
        let std = row.variance.sqrt();
        let range = stds.entry(name).or_insert([std, std]);
        *range = [range[0].min(std), range[1].max(std)];
    }
    stds
}

/// Returns the std of every tensor.
pub fn recommendation_rows(recommendation: &Recommendation) -> Rows {
    let rows = recommendation.weights.iter().map(|row| [row.tensor.as_str().into(), row.variance.sqrt().into()]);
    Rows::new(["tensor", "std"], rows)
}

/// Writes everything but the stack as JSON.
pub fn recommendation_json(recommendation: &Recommendation, out: &mut dyn Write) -> io::Result<()> {
    let Recommendation { scheme, summary, outcomes, nearest, without, stack, weights } = recommendation;
    let document = RecommendationJson {
        schema_version: SCHEMA_VERSION,
        version: env!("CARGO_PKG_VERSION"),
        network: &stack.name,
        scheme: scheme.to_string(),
        feasible: recommendation.is_feasible(),
        demands: outcomes.iter().map(OutcomeJson::of).collect(),
        nearest: nearest
            .as_ref()
            .map(|nearest| NearestJson { scheme: nearest.scheme.to_string(), distance: nearest.distance }),
        without: without.iter().map(|(demand, scheme)| (demand.name(), scheme.to_string())).collect(),
        stds: weights.iter().map(|row| (row.tensor.as_str(), row.variance.sqrt())).collect(),
        verdict: &summary.verdict,
    };
    serde_json::to_writer_pretty(&mut *out, &document)?;
    writeln!(out)
}

#[derive(Serialize)]
struct RecommendationJson<'a> {
    schema_version: u32,
    version: &'static str,
    network: &'a str,
    scheme: String,
    feasible: bool,
    demands: Vec<OutcomeJson>,
    nearest: Option<NearestJson>,
    without: BTreeMap<&'static str, String>,
    stds: BTreeMap<&'a str, f64>,
    verdict: &'a Verdict,
}

#[derive(Serialize)]
struct OutcomeJson {
    demand: &'static str,
    limit: String,
    reached: Option<f64>,
    met: bool,
    at_limit: bool,
}

impl OutcomeJson {
    fn of(outcome: &Outcome) -> Self {
        let Outcome { demand, reached, .. } = *outcome;
        let (met, at_limit) = (outcome.is_met(), outcome.is_binding());
        Self { demand: demand.name(), limit: demand.limit(), reached: reached.filter(|x| x.is_finite()), met, at_limit }
    }
}

#[derive(Serialize)]
struct NearestJson {
    scheme: String,
    distance: f64,
}
