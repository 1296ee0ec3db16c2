//! The contents of a checkpoint: a table with one row per tensor over all blocks, and rows and JSON part by part.

use std::io::{self, Write};

use serde::Serialize;

use super::{PredictionDocument, Rows, SCHEMA_VERSION, json::PredictionJson, plain_table};
use crate::{
    huggingface::Start,
    inspect::{Coverage, Deviation, Finding, Group, Inspection, Judgement, Reading, Resemblance, range},
    numerals::{column, short, signed},
    verdict::Grade,
};

/// The contents of the JSON of an inspection.
#[derive(Debug)]
pub struct InspectionDocument<'a> {
    /// Path of the checkpoint.
    pub checkpoint: &'a str,
    /// The measurements of the tensors.
    pub inspection: &'a Inspection,
    /// The scheme that the checkpoint was compared with; `None` without a config.
    pub scheme: Option<&'a str>,
    /// Facts about the checkpoint that are not findings, a sentence each.
    pub notes: &'a [String],
    /// The problems found, the gravest first.
    pub findings: &'a [Finding],
    /// The verdict.
    pub judgement: &'a Judgement,
    /// The convention that the tensors' names follow; `None` if it is the one that the config implies.
    pub names: Option<&'a str>,
    /// Known schemes, the one most similar to the checkpoint first.
    pub closest: &'a [Resemblance],
    /// The prediction of the network with the measured weights; `None` if nothing was predicted.
    pub prediction: Option<PredictionDocument<'a>>,
}

/// Writes a table with one row per tensor over all blocks. Standard deviations that deviate are marked.
pub fn inspection_table(inspection: &Inspection, out: &mut dyn Write) -> io::Result<()> {
    let header = ["tensor", "n", "shape", "mean", "std", "scheme", "z", "kurtosis", "σ₁"];
    let rows = Group::all(&inspection.readings).into_iter().map(|group| {
        let (reading, _) = group.readings[0];
        let [rows, columns] = reading.shape;
        let mark = if group.deviating().next().is_some() { "!" } else { "" };
        let has_other_tails = group.readings.iter().any(|(reading, _)| reading.has_other_tails());
        let tails = if has_other_tails { "!" } else { "" };
        let number = |value: Option<f64>| value.map(short).unwrap_or_default();
        vec![
            group.title(),
            group.readings.len().to_string(),
            if columns == 1 { rows.to_string() } else { format!("{rows}×{columns}") },
            short(group.spread.mean),
            format!("{mark}{}", number(group.spread.std())),
            group.scheme_stds().map(range).unwrap_or_default(),
            group.worst_z().map(|z| signed(z, 1)).unwrap_or_default(),
            group.spread.kurtosis().map(|kurtosis| format!("{tails}{}", column(kurtosis, 2))).unwrap_or_default(),
            group.singular_ratio().map(|ratio| column(ratio, 2)).unwrap_or_default(),
        ]
    });
    plain_table(&header, rows, out)?;
    writeln!(out, "(n: tensors of that name; z: largest deviation of std in standard errors; σ₁: largest")?;
    writeln!(out, " singular value over that of a random matrix; !: differs from the scheme)")
}

/// Returns one row per measured tensor, with all its statistics.
pub fn inspection_rows(inspection: &Inspection) -> Rows {
    let columns = [
        "tensor",
        "parameter",
        "expert",
        "dtype",
        "rows",
        "columns",
        "count",
        "not_finite",
        "mean",
        "std",
        "kurtosis",
        "largest",
        "singular_value",
        "random_singular_value",
        "scheme_mean",
        "scheme_std",
        "ratio",
        "z",
        "deviates",
    ];
    let rows = inspection.readings.iter().map(|reading| {
        let row = Row::of(reading);
        [
            row.tensor.into(),
            row.parameter.into(),
            row.expert.into(),
            row.dtype.into(),
            row.rows.into(),
            row.columns.into(),
            row.count.into(),
            row.not_finite.into(),
            row.mean.into(),
            row.std.into(),
            row.kurtosis.into(),
            row.largest.into(),
            row.singular_value.into(),
            row.random_singular_value.into(),
            row.scheme_mean.into(),
            row.scheme_std.into(),
            row.ratio.into(),
            row.z.into(),
            row.deviates.into(),
        ]
    });
    Rows::new(columns, rows)
}

/// Writes an inspection as JSON.
pub fn inspection_json(document: &InspectionDocument, out: &mut dyn Write) -> io::Result<()> {
    let InspectionDocument { checkpoint, inspection, scheme, notes, names, findings, judgement, closest, prediction } =
        document;
    let document = InspectionJson {
        schema_version: SCHEMA_VERSION,
        version: env!("CARGO_PKG_VERSION"),
        checkpoint,
        scheme: *scheme,
        grade: judgement.grade,
        headline: &judgement.headline,
        notes,
        findings: findings.iter().map(FindingJson::of).collect(),
        coverage: scheme.map(|_| CoverageJson::of(inspection.coverage)),
        names: *names,
        tensors: inspection.readings.iter().map(Row::of).collect(),
        unknown: &inspection.unknown,
        missing: &inspection.missing,
        unread: inspection.unread.iter().map(|(tensor, dtype)| UnreadJson { tensor, dtype }).collect(),
        closest: closest.iter().map(|Resemblance { scheme, factor }| ClosestJson { scheme, factor: *factor }).collect(),
        prediction: prediction.as_ref().map(PredictionJson::of),
    };
    serde_json::to_writer_pretty(&mut *out, &document)?;
    writeln!(out)
}

#[derive(Serialize)]
struct InspectionJson<'a> {
    schema_version: u32,
    version: &'static str,
    checkpoint: &'a str,
    scheme: Option<&'a str>,
    grade: Option<Grade>,
    headline: &'a str,
    notes: &'a [String],
    findings: Vec<FindingJson<'a>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    coverage: Option<CoverageJson>,
    names: Option<&'a str>,
    tensors: Vec<Row<'a>>,
    unknown: &'a [String],
    missing: &'a [String],
    unread: Vec<UnreadJson<'a>>,
    closest: Vec<ClosestJson<'a>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    prediction: Option<PredictionJson<'a>>,
}

#[derive(Serialize)]
struct FindingJson<'a> {
    problem: &'a str,
    tensors: &'a [String],
    blocks: &'a [usize],
    text: &'a str,
    value: Option<f64>,
}

impl<'a> FindingJson<'a> {
    fn of(finding: &'a Finding) -> Self {
        let Finding { problem, tensors, blocks, text, value } = finding;
        Self { problem: problem.name(), tensors, blocks, text, value: value.is_finite().then_some(*value) }
    }
}

#[derive(Serialize)]
struct CoverageJson {
    parameters: usize,
    found: usize,
    entries: u64,
    missing_entries: u64,
}

impl CoverageJson {
    fn of(Coverage { parameters, found, entries, missing_entries }: Coverage) -> Self {
        Self { parameters, found, entries, missing_entries }
    }
}

#[derive(Serialize)]
struct UnreadJson<'a> {
    tensor: &'a str,
    dtype: &'a str,
}

#[derive(Serialize)]
struct ClosestJson<'a> {
    scheme: &'a str,
    factor: f64,
}

/// The statistics of one measured tensor; the fields are the columns of its row.
#[derive(Serialize)]
struct Row<'a> {
    tensor: &'a str,
    parameter: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    expert: Option<usize>,
    dtype: &'a str,
    rows: usize,
    columns: usize,
    count: u64,
    not_finite: u64,
    mean: Option<f64>,
    std: Option<f64>,
    kurtosis: Option<f64>,
    largest: Option<f64>,
    singular_value: Option<f64>,
    random_singular_value: Option<f64>,
    scheme_mean: Option<f64>,
    scheme_std: Option<f64>,
    ratio: Option<f64>,
    z: Option<f64>,
    deviates: Option<bool>,
}

impl<'a> Row<'a> {
    fn of(reading: &'a Reading) -> Self {
        let Reading { tensor, dtype, shape: [rows, columns], part, spread, .. } = reading;
        let deviation = part.as_ref().and_then(|part| Deviation::of(spread, part.start));
        let start = part.as_ref().and_then(|part| {
            Some(match part.start {
                Start::Drawn(init) => (0.0, init.std()),
                Start::Constant(value) => (value, 0.0),
                Start::LogRates(_) | Start::StepBiases(_) => return None,
            })
        });
        Self {
            tensor,
            parameter: part.as_ref().map(|part| part.parameters[0].as_str()),
            expert: part.as_ref().and_then(|part| part.expert),
            dtype,
            rows: *rows,
            columns: *columns,
            count: spread.count,
            not_finite: spread.not_finite,
            mean: spread.std().map(|_| spread.mean),
            std: spread.std(),
            kurtosis: spread.kurtosis(),
            largest: spread.reach(0.0),
            singular_value: reading.singular_value,
            random_singular_value: reading.random_singular_value(),
            scheme_mean: start.map(|(mean, _)| mean),
            scheme_std: start.map(|(_, std)| std),
            ratio: deviation.and_then(|deviation| deviation.ratio),
            z: deviation.and_then(|deviation| deviation.z),
            deviates: part.as_ref().map(|_| reading.deviates()),
        }
    }
}
