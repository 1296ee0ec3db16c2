//! A map over two numbers: a table for people, rows, JSON.

use std::io::{self, Write};

use serde::Serialize;

use super::json::CaveatJson;
use super::{Field, Rows, SCHEMA_VERSION, plain_table};
use crate::caveat::Caveat;
use crate::numerals::short;
use crate::phase::{Axis, Cell, DepthScales, MapPoint, Phase, Point};
use crate::verdict::{Failure, Grade, Verdict};

/// Columns of a terminal.
const COLUMNS: usize = 80;

/// The largest number of rows of the map that are shown.
const ROWS: usize = 40;

/// The largest number of vertices that the table shows for each edge.
const SHOWN: usize = 8;

/// Returns the letter that denotes a failure on the map.
fn letter(failure: Failure) -> char {
    match failure {
        Failure::Explosion => 'E',
        Failure::Vanishing => 'V',
        Failure::Collapse => 'C',
        Failure::EntropyCollapse => 'S',
    }
}

/// Returns the meaning of a failure, for the legends of maps.
pub(super) fn meaning(failure: Failure) -> &'static str {
    match failure {
        Failure::Explosion => "explodes",
        Failure::Vanishing => "vanishes",
        Failure::Collapse => "tokens collapse (rank collapse)",
        Failure::EntropyCollapse => "attention entropy collapses",
    }
}

/// Writes the map in letters, y upwards, and the edges.
pub fn phase_table(phase: &Phase, out: &mut dyn Write) -> io::Result<()> {
    let [x, y] = &phase.axes;
    writeln!(out, "{} upwards, {} to the right", y.name, x.name)?;
    letters_table(phase, out)?;
    for (letter, grade) in [("·", Grade::Healthy), ("+", Grade::TrainableWithCare)] {
        writeln!(out, "{letter}: {}", grade.words())?;
    }
    for region in &phase.regions {
        writeln!(out, "{}: {}", letter(region.failure), meaning(region.failure))?;
    }
    if phase.cells.iter().any(|cell| cell.outcome.is_err()) {
        writeln!(out, "×: nothing to predict; --format csv says why")?;
    }
    edges_table(phase, out)
}

fn letters_table(phase: &Phase, out: &mut dyn Write) -> io::Result<()> {
    let [columns, rows] = &phase.values;
    let label = rows.iter().map(|value| short(*value).len()).max().unwrap_or(0);
    let cell = 1 + phase.cells.iter().map(|cell| letters(cell).chars().count()).max().unwrap_or(0);
    let across = (cell * columns.len()).div_ceil(COLUMNS - label - 3);
    let upwards = rows.len().div_ceil(ROWS);
    for (row, value) in rows.iter().enumerate().step_by(upwards).rev() {
        write!(out, "{:>label$} │", short(*value))?;
        for cells in phase.cells[row * columns.len()..][..columns.len()].iter().step_by(across) {
            write!(out, "{:>cell$}", letters(cells))?;
        }
        writeln!(out)?;
    }
    let width = cell * columns.len().div_ceil(across);
    let first = short(columns[0]);
    let last = short(columns[(columns.len() - 1) / across * across]);
    writeln!(out, "{:label$} └{}", "", "─".repeat(width))?;
    let (before, rest) = (cell - 1, width.saturating_sub(first.len() + cell - 1));
    writeln!(out, "{:label$}  {:before$}{first}{last:>rest$}", "", "")?;
    if across.max(upwards) > 1 {
        writeln!(out, "(one column of {across} and one row of {upwards} shown; --format csv has all)")?;
    }
    Ok(())
}

fn letters(cell: &Cell) -> String {
    let Ok(point) = &cell.outcome else { return "×".to_owned() };
    let letters: String = failures(&point.verdict).map(letter).collect();
    match point.verdict.grade {
        Grade::Healthy => "·".to_owned(),
        Grade::TrainableWithCare => "+".to_owned(),
        Grade::NotTrainable => letters,
    }
}

/// Returns the failures of a verdict, each once, in the order of [`Failure::ALL`].
fn failures(verdict: &Verdict) -> impl Iterator<Item = Failure> {
    let found = verdict.failures();
    Failure::ALL.into_iter().filter(move |failure| found.iter().any(|(found, _)| found == failure))
}

fn edges_table(phase: &Phase, out: &mut dyn Write) -> io::Result<()> {
    let lines: Vec<(Failure, &[MapPoint])> =
        phase.regions.iter().flat_map(|region| region.edges.iter().map(|line| (region.failure, &line[..]))).collect();
    if lines.is_empty() {
        return writeln!(out, "\nNo edge: every cell fails in the same way, or none does.");
    }
    writeln!(out, "\nWhere failures begin, found by bisection:\n")?;
    let [x, y] = &phase.axes;
    let rows = lines.iter().flat_map(|(failure, line)| {
        let step = line.len().div_ceil(SHOWN);
        line.iter().step_by(step).enumerate().map(|(index, [x, y])| {
            let name = if index == 0 { failure.name() } else { "" };
            vec![name.to_owned(), short(*x), short(*y)]
        })
    });
    plain_table(&["edge", &x.name, &y.name], rows, out)?;
    if lines.iter().any(|(_, line)| line.len() > SHOWN) {
        writeln!(out, "(some vertices of each edge; --edges --format csv shows all)")?;
    }
    Ok(())
}

/// Returns one row per cell; numbers that do not exist are blank.
pub fn phase_rows(phase: &Phase) -> Rows {
    let columns = [
        "x",
        "y",
        "forward_depth",
        "backward_depth",
        "correlation_depth",
        "ln_forward",
        "ln_backward",
        "token_correlation",
        "attended_tokens",
        "failures",
        "grade",
        "verdict",
        "rule",
        "caveat",
    ];
    let rows = phase.cells.iter().map(|Cell { at: [x, y], outcome }| {
        let point = outcome.as_ref().ok();
        let numbers = numbers(point).map(Field::from);
        let [forward_depth, backward_depth, correlation_depth, forward, backward, correlation, attended] = numbers;
        let (failures, rule, caveats) = point.map_or_else(Default::default, |point| {
            let failures: Vec<&str> = failures(&point.verdict).map(Failure::name).collect();
            let caveats: Vec<String> = point.caveats.iter().map(Caveat::text).collect();
            let rule = point.verdict.worst().map_or(String::new(), |finding| finding.rule.clone());
            (failures.join(" "), rule, caveats.join("; "))
        });
        let verdict = match outcome {
            Ok(point) => point.verdict.headline.clone(),
            Err(error) => format!("not defined: {error}"),
        };
        [
            (*x).into(),
            (*y).into(),
            forward_depth,
            backward_depth,
            correlation_depth,
            forward,
            backward,
            correlation,
            attended,
            failures.into(),
            point.map_or("", |point| point.verdict.grade.name()).into(),
            verdict.into(),
            rule.into(),
            caveats.into(),
        ]
    });
    Rows::new(columns, rows)
}

/// Returns the numbers of a cell, in the order of its columns.
fn numbers(point: Option<&Point>) -> [Option<f64>; 7] {
    let Some(Point { scales, ln_growth: [forward, backward], token_correlation, attended, .. }) = point else {
        return [None; 7];
    };
    let DepthScales { forward: ahead, backward: back, correlation } = *scales;
    [ahead, back, correlation, Some(*forward), Some(*backward), *token_correlation, *attended]
        .map(|number| number.filter(|number| number.is_finite()))
}

/// Returns one row per vertex of every edge; the vertices of a line follow one another.
pub fn edges_rows(phase: &Phase) -> Rows {
    let rows = phase.regions.iter().flat_map(|region| {
        let name = region.failure.name();
        region.edges.iter().enumerate().flat_map(move |(index, line)| {
            line.iter().map(move |[x, y]| [name.into(), index.into(), (*x).into(), (*y).into()])
        })
    });
    Rows::new(["edge", "line", "x", "y"], rows)
}

/// Writes cells and edges as JSON.
pub fn phase_json(network: &str, scheme: &str, phase: &Phase, out: &mut dyn Write) -> io::Result<()> {
    let [x, y] = [0, 1].map(|index| {
        let Axis { name, is_log, .. } = &phase.axes[index];
        AxisJson { name, log: *is_log, values: &phase.values[index] }
    });
    let document = PhaseJson {
        schema_version: SCHEMA_VERSION,
        version: env!("CARGO_PKG_VERSION"),
        network,
        scheme,
        x,
        y,
        cells: phase.cells.iter().map(CellJson::of).collect(),
        edges: phase
            .regions
            .iter()
            .map(|region| EdgeJson { failure: region.failure.name(), lines: &region.edges })
            .collect(),
    };
    serde_json::to_writer_pretty(&mut *out, &document)?;
    writeln!(out)
}

#[derive(Serialize)]
struct PhaseJson<'a> {
    schema_version: u32,
    version: &'static str,
    network: &'a str,
    scheme: &'a str,
    x: AxisJson<'a>,
    y: AxisJson<'a>,
    cells: Vec<CellJson<'a>>,
    edges: Vec<EdgeJson<'a>>,
}

#[derive(Serialize)]
struct AxisJson<'a> {
    name: &'a str,
    log: bool,
    values: &'a [f64],
}

#[derive(Serialize)]
struct EdgeJson<'a> {
    failure: &'static str,
    lines: &'a [Vec<MapPoint>],
}

#[derive(Serialize)]
struct CellJson<'a> {
    x: f64,
    y: f64,
    forward_depth: Option<f64>,
    backward_depth: Option<f64>,
    correlation_depth: Option<f64>,
    ln_forward: Option<f64>,
    ln_backward: Option<f64>,
    token_correlation: Option<f64>,
    attended_tokens: Option<f64>,
    failures: Vec<&'static str>,
    findings: Option<&'a Verdict>,
    caveats: Vec<CaveatJson<'a>>,
    error: Option<String>,
}

impl<'a> CellJson<'a> {
    fn of(cell: &'a Cell) -> Self {
        let Cell { at: [x, y], outcome } = cell;
        let point = outcome.as_ref().ok();
        let [
            forward_depth,
            backward_depth,
            correlation_depth,
            ln_forward,
            ln_backward,
            token_correlation,
            attended_tokens,
        ] = numbers(point);
        Self {
            x: *x,
            y: *y,
            forward_depth,
            backward_depth,
            correlation_depth,
            ln_forward,
            ln_backward,
            token_correlation,
            attended_tokens,
            failures: point.map_or(Vec::new(), |point| failures(&point.verdict).map(Failure::name).collect()),
            findings: point.map(|point| &point.verdict),
            caveats: point.map_or(&[][..], |point| &point.caveats).iter().map(CaveatJson::of).collect(),
            error: outcome.as_ref().err().map(ToString::to_string),
        }
    }
}
