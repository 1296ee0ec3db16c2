//! Schemes side by side: tables for people, rows, JSON.

use std::io::{self, Write};

use serde::Serialize;
use serde_json::{Map, Value as Json};
use sigprop_stack::Number;

use super::json::CaveatJson;
use super::numbers::within_f64;
use super::{Rows, SCHEMA_VERSION, plain_table};
use crate::compare::{Candidate, Column, Value};
use crate::numerals::short;
use crate::verdict::Verdict;

/// The columns of the first table, after the scheme.
const SIGNALS: [(Column, &str); 7] = [
    (Column::ForwardPerBlock, "fwd/block"),
    (Column::Forward, "forward"),
    (Column::ForwardStd, "±"),
    (Column::BackwardPerBlock, "bwd/block"),
    (Column::Backward, "backward"),
    (Column::BackwardStd, "±"),
    (Column::TokenCorrelation, "corr"),
];

/// The columns of the second table, after the scheme.
const NUMERICS: [(Column, &str); 8] = [
    (Column::ScoreStd, "score"),
    (Column::AttendedTokens, "attends"),
    (Column::GradientRatio, "uneven"),
    (Column::WorstTensorRatio, "worst"),
    (Column::Fp16Margin, "fp16"),
    (Column::Bf16Margin, "bf16"),
    (Column::E4m3Margin, "e4m3"),
    (Column::E5m2Margin, "e5m2"),
];

/// Writes two tables of the schemes that are defined for the network.
pub fn comparison_tables(candidates: &[Candidate], out: &mut dyn Write) -> io::Result<()> {
    let defined = || candidates.iter().filter(|candidate| candidate.outcome.is_ok());
    let mut table = |columns: &[(Column, &'static str)]| {
        let header: Vec<&str> = ["scheme"].into_iter().chain(columns.iter().map(|(_, title)| *title)).collect();
        let rows = defined().map(|candidate| {
            let cells = columns.iter().map(|(column, _)| match (column, column.of(candidate)) {
                (_, Value::Text(text)) => text,
                // Standard deviations are known to 20 % at best, and a line has no room for more digits.
                (Column::ForwardStd | Column::BackwardStd, Value::Number(Some(std))) => format!("{:.2}", std.value()),
                (_, Value::Number(number)) => number.map(short).unwrap_or_default(),
            });
            [candidate.scheme.label()].into_iter().chain(cells).collect()
        });
        plain_table(&header, rows, out)?;
        writeln!(out)
    };
    table(&SIGNALS)?;
    table(&NUMERICS)?;
    writeln!(out, "forward, backward: factors on the variance, per block and over all blocks")?;
    writeln!(out, "±: standard deviation of its ln, over initialisations")?;
    writeln!(out, "corr: of tokens at the end; score: largest std; attends: 1/ΣA² at its sharpest")?;
    writeln!(out, "uneven: gradient norms of a weight over the blocks; worst: largest over median")?;
    writeln!(out, "fp16 … e5m2: doublings or halvings of the stream until the format is left")
}

/// Returns all columns, one row per scheme.
pub fn comparison_rows(candidates: &[Candidate]) -> Rows {
    let rows = candidates.iter().map(|candidate| {
        Column::ALL.map(|column| match column.of(candidate) {
            Value::Text(text) => text.into(),
            Value::Number(number) => number.into(),
        })
    });
    Rows::new(Column::ALL.map(Column::name), rows)
}

/// Writes all columns as JSON, with the whole verdicts, the caveats of the rules, and the logarithms of growth.
pub fn comparison_json(network: &str, candidates: &[Candidate], out: &mut dyn Write) -> io::Result<()> {
    let document = ComparisonsJson {
        schema_version: SCHEMA_VERSION,
        version: env!("CARGO_PKG_VERSION"),
        network,
        schemes: candidates.iter().map(CandidateJson::of).collect(),
    };
    serde_json::to_writer_pretty(&mut *out, &document)?;
    writeln!(out)
}

#[derive(Serialize)]
struct ComparisonsJson<'a> {
    schema_version: u32,
    version: &'static str,
    network: &'a str,
    schemes: Vec<CandidateJson<'a>>,
}

#[derive(Serialize)]
struct CandidateJson<'a> {
    #[serde(flatten)]
    columns: Map<String, Json>,
    ln_forward: Option<f64>,
    ln_backward: Option<f64>,
    findings: Option<&'a Verdict>,
    caveats: Vec<CaveatJson<'a>>,
}

impl<'a> CandidateJson<'a> {
    fn of(candidate: &'a Candidate) -> Self {
        let summary = candidate.outcome.as_ref().ok();
        let finite = |number: Number| super::ln(Some(number));
        let columns = Column::ALL.map(|column| {
            let value = match column.of(candidate) {
                Value::Text(text) => Json::from(text),
                Value::Number(number) => Json::from(within_f64(number)),
            };
            (column.name().to_owned(), value)
        });
        Self {
            columns: columns.into_iter().collect(),
            ln_forward: summary.and_then(|summary| finite(summary.forward.total())),
            ln_backward: summary.and_then(|summary| finite(summary.backward.total())),
            findings: summary.map(|summary| &summary.verdict),
            caveats: summary.map_or(&[][..], |summary| &summary.caveats).iter().map(CaveatJson::of).collect(),
        }
    }
}
