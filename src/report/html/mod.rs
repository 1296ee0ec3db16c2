//! Reports in HTML: one file that a browser shows offline.
//!
//! ```text
//! page.rs       what is said: verdict, caveats, the run, formulas; all text escaped by maud
//! data.rs       what scripts draw: curves in coordinates of their axes, tables of decimal text
//! formulas.rs   the rules of schemes and components, from where they are written
//! *.js, *.css   curves to be zoomed and read, tables to be filtered and sorted, downloads
//! ```

mod data;
mod formulas;
mod page;
#[cfg(test)]
mod tests;

use std::io::{self, Write};

use serde::Serialize;
use sigprop_stack::{SiteTable, Stack};

use super::chart::Chart;
use super::{
    PredictionDocument, ValidationDocument, comparison_json, comparison_rows, comparisons_rows, prediction_json,
    sites_rows, update_rows, validation_json, weights_rows,
};
use crate::{compare::Candidate, export::Plan, schemes::Scheme, stack_file::StackDocument, verdict::Shape};
use data::Table;
use page::{Download, Judgement, Page};

/// The source of a report: the command, its settings and its networks.
#[derive(Clone, Copy, Debug)]
pub struct Origin<'a> {
    /// A line that describes the network.
    pub title: &'a str,
    /// The words of the command that writes the report.
    pub command: &'a [String],
    /// The command as one line for a shell.
    pub command_line: &'a str,
    /// The settings that do not come from the command line, and where they come from.
    pub settings: &'a [String],
    /// The seed of random sequences and networks.
    pub seed: u64,
    /// The text that the command prints below its table.
    pub summary: &'a str,
    /// The networks.
    pub networks: &'a [Drawn],
}

/// A network and how its parameters are drawn.
#[derive(Clone, Debug)]
pub struct Drawn {
    /// The scheme; `None` if the network was read from a stack file.
    pub scheme: Option<Scheme>,
    /// The network, every number resolved.
    pub stack: Stack,
    /// The initialisation of every parameter.
    pub plan: Plan,
}

/// Writes the report of a prediction.
pub fn prediction_html(origin: &Origin, document: &PredictionDocument, out: &mut dyn Write) -> io::Result<()> {
    let PredictionDocument { stack, prediction, weights, verdict, update, .. } = document;
    let mut tables = vec![Table::new("Sites", &sites_rows(&prediction.table))];
    if *weights {
        tables.push(Table::new("Weights", &weights_rows(&prediction.table)));
    }
    if let Some(update) = update {
        tables.push(Table::new("First update", &update_rows(update)));
    }
    let page = Page {
        origin,
        judgements: vec![Judgement { name: None, verdict: Ok(verdict), caveats: prediction.caveats.iter().collect() }],
        chart: Chart::of_prediction(prediction, Shape::of(stack)),
        tables,
        downloads: downloads(origin, Download::new("prediction", |out| prediction_json(document, out))?)?,
    };
    page.write(out)
}

/// Writes the report of a validation.
pub fn validation_html(origin: &Origin, document: &ValidationDocument, out: &mut dyn Write) -> io::Result<()> {
    let ValidationDocument { prediction, verdict, comparisons, .. } = document;
    let shape = Shape::of(&origin.networks[0].stack);
    let json = Download::new("validation", |out| validation_json(document, out))?;
    let page = Page {
        origin,
        judgements: vec![Judgement { name: None, verdict: Ok(verdict), caveats: prediction.caveats.iter().collect() }],
        chart: Chart::of_validation(prediction, comparisons, shape),
        tables: vec![
            Table::new("Sites, predicted and observed", &comparisons_rows(comparisons)),
            Table::new("Sites, predicted", &sites_rows(&prediction.table)),
        ],
        downloads: downloads(origin, json)?,
    };
    page.write(out)
}

/// Writes the report of a comparison.
pub fn comparison_html(origin: &Origin, candidates: &[Candidate], out: &mut dyn Write) -> io::Result<()> {
    let judgements = candidates.iter().map(|candidate| {
        let summary = candidate.outcome.as_ref();
        let found = summary.ok().into_iter().flat_map(|summary| &summary.caveats);
        Judgement {
            name: Some(candidate.scheme.label()),
            verdict: summary.map(|summary| &summary.verdict).map_err(ToString::to_string),
            caveats: candidate.caveats.iter().chain(found).collect(),
        }
    });
    let defined = candidates.iter().filter_map(|candidate| Some((candidate, candidate.outcome.as_ref().ok()?)));
    let sites = defined.map(|(candidate, summary)| {
        let table = SiteTable { sites: summary.stream.clone(), weights: Vec::new() };
        Table::new("Sites", &sites_rows(&table)).labelled("scheme", &candidate.scheme.label())
    });
    let sites = Table::joined(&sites.collect::<Vec<_>>());
    let json = Download::new("comparison", |out| comparison_json(origin.title, candidates, out))?;
    let page = Page {
        origin,
        judgements: judgements.collect(),
        chart: Chart::of_comparison(candidates),
        tables: [Table::new("Schemes", &comparison_rows(candidates))].into_iter().chain(sites).collect(),
        downloads: downloads(origin, json)?,
    };
    page.write(out)
}

/// Returns the downloads of a report: the command with its settings and seed, the `result`, and the networks.
fn downloads(origin: &Origin, result: Download) -> io::Result<Vec<Download>> {
    let run = RunJson {
        schema_version: super::SCHEMA_VERSION,
        version: env!("CARGO_PKG_VERSION"),
        command: origin.command,
        settings: origin.settings,
        seed: origin.seed,
    };
    let mut downloads = vec![Download::of("run", &run)?, result];
    match origin.networks {
        [Drawn { stack, plan, .. }] => {
            downloads.extend([Download::of("stack", &StackDocument::of(stack))?, Download::of("plan", plan)?]);
        }
        several => {
            let networks: Vec<NetworkJson> = several.iter().map(NetworkJson::of).collect();
            downloads.push(Download::of("networks", &networks)?);
        }
    }
    Ok(downloads)
}

/// The contents of `run.json`.
#[derive(Serialize)]
struct RunJson<'a> {
    schema_version: u32,
    version: &'static str,
    command: &'a [String],
    settings: &'a [String],
    seed: u64,
}

/// One of several networks, in `networks.json`.
#[derive(Serialize)]
struct NetworkJson<'a> {
    scheme: Option<String>,
    stack: StackDocument<'a>,
    plan: &'a Plan,
}

impl<'a> NetworkJson<'a> {
    fn of(Drawn { scheme, stack, plan }: &'a Drawn) -> Self {
        Self { scheme: scheme.as_ref().map(ToString::to_string), stack: StackDocument::of(stack), plan }
    }
}
