//! `sigprop validate --suite`: many stacks, and the percentiles of all their errors.

use std::path::Path;
use std::sync::atomic::AtomicBool;

use clap::ValueEnum;
use sigprop::{
    agreement::Comparison,
    report::{RowFormat, suite_cells_rows, suite_lines_json, suite_lines_rows, suite_table},
    suite::{Case, Line, Look, Sample, Scores, Suite, score},
};
use sigprop_validate::{MeasureError, Measurement, Settings, Target, measure, measure_softmax};

use super::{
    Outcome,
    console::Console,
    folder::{claim, write_into},
    hint::did_you_mean,
    output::{Format, emit},
    sampling::cancellation,
};

/// Which suite.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum SuiteChoice {
    /// Components, over the grids of Kedia et al. (2024), beside their published errors.
    Components,
    /// Whole encoders.
    Models,
}

impl SuiteChoice {
    fn suite(self) -> Suite {
        match self {
            Self::Components => Suite::Components,
            Self::Models => Suite::Models,
        }
    }

    fn name(self) -> &'static str {
        match self {
            Self::Components => "components",
            Self::Models => "models",
        }
    }
}

/// How to run one.
pub(crate) struct SuiteRun<'a> {
    pub(crate) choice: SuiteChoice,
    /// All cases of the grids.
    pub(crate) full: bool,
    /// Of these groups; all if none.
    pub(crate) groups: &'a [String],
    pub(crate) seed: u64,
    /// Networks of a case at most.
    pub(crate) max_replicates: usize,
    pub(crate) threads: Option<usize>,
    /// Bytes.
    pub(crate) memory: f64,
    pub(crate) format: Format,
    pub(crate) output: Option<&'a Path>,
    /// Largest 99th percentile.
    pub(crate) max_error: Option<f64>,
}

impl SuiteRun<'_> {
    pub(crate) fn run(&self, console: Console) -> anyhow::Result<Outcome> {
        if let Some(folder) = self.output {
            claim(folder)?;
        }
        let mut cases = self.choice.suite().cases(self.full, self.seed);
        if let Some(unknown) = self.groups.iter().find(|&group| cases.iter().all(|case| case.group != group)) {
            let mut known: Vec<&str> = cases.iter().map(|case| case.group).collect();
            known.dedup();
            let hint = did_you_mean(unknown, known.iter().copied());
            anyhow::bail!("--group: expected one of {}, got {unknown}{hint}", known.join(", "));
        }
        cases.retain(|case| self.groups.is_empty() || self.groups.iter().any(|group| group == case.group));
        let cancelled = cancellation(console);
        let bar = console.progress("[{bar:30}] {pos}/{len} cases, {eta} left: {msg}", cases.len(), 0);
        let mut done: Vec<(&Case, Vec<Comparison>)> = Vec::new();
        let mut interrupted = false;
        for (index, case) in cases.iter().enumerate() {
            bar.set_message(case.group);
            match self.sampled(index, case, &cancelled) {
                Ok(comparisons) => done.push((case, comparisons)),
                Err(error) if matches!(error.downcast_ref(), Some(MeasureError::Cancelled)) => {
                    interrupted = true;
                    break;
                }
                Err(error) => return Err(error.context(format!("{} {}", case.group, case.name))),
            }
            bar.inc(1);
        }
        bar.finish_and_clear();
        let lines = lines(&done);
        self.write(&done, &lines)?;
        if interrupted {
            console.note(&format!("interrupted after {} of {} cases, which are reported", done.len(), cases.len()));
            return Ok(Outcome::Interrupted);
        }
        Ok(self.gate(&lines, console))
    }

    /// Every case has random numbers of its own.
    fn sampled(&self, index: usize, case: &Case, cancelled: &AtomicBool) -> anyhow::Result<Vec<Comparison>> {
        let predicted = case.predict()?;
        let seed = self.seed.wrapping_mul(1_000_003).wrapping_add(index as u64);
        let Measurement { table, replicates, .. } = match &case.sample {
            Sample::Softmax { scores: Scores { count, variance, correlation }, replicates } => {
                let replicates = self.max_replicates.min(*replicates);
                measure_softmax(*count, *variance, *correlation, replicates, seed, self.threads, cancelled)?
            }
            Sample::Stack { stack, std_error, replicates } => {
                let [replicates, most] = replicates.map(|count| count.min(self.max_replicates));
                let target = Target { std_error: *std_error, sites: case.look.sites(), replicates: most };
                let settings = Settings {
                    replicates,
                    seed,
                    threads: self.threads,
                    memory: self.memory,
                    weights: case.look == Look::Everything,
                    controls: true,
                    target: Some(target),
                    ..Settings::default()
                };
                measure(stack, &settings, &|_| {}, cancelled)?
            }
        };
        Ok(case.compare(&predicted, &table, replicates))
    }

    fn write(&self, done: &[(&Case, Vec<Comparison>)], lines: &[Line]) -> anyhow::Result<()> {
        let cells = || done.iter().map(|(case, rows)| (case.group, case.name.as_str(), rows.as_slice()));
        let name = self.choice.name();
        if let Some(folder) = self.output {
            write_into(folder, "cells.csv", |out| suite_cells_rows(cells()).write(RowFormat::Csv, out))?;
            write_into(folder, "report.csv", |out| suite_lines_rows(lines).write(RowFormat::Csv, out))?;
            write_into(folder, "summary.json", |out| suite_lines_json(name, self.seed, lines, out))?;
        }
        emit(None, |out| match self.format {
            Format::Table => {
                let most = done.iter().flat_map(|(_, rows)| rows).filter_map(|row| row.replicates).max().unwrap_or(0);
                let (count, seed) = (done.len(), self.seed);
                writeln!(out, "suite {name}: {count} cases, up to {most} networks each, seed {seed}\n")?;
                suite_table(lines, out)
            }
            Format::Rows(format) => suite_lines_rows(lines).write(format, out),
            Format::Json => suite_lines_json(name, self.seed, lines, out),
        })
    }

    fn gate(&self, lines: &[Line], console: Console) -> Outcome {
        let Some(limit) = self.max_error else { return Outcome::Done };
        let above: Vec<&Line> = lines.iter().filter(|line| line.fit.p99.is_none_or(|p99| p99 > limit)).collect();
        for line in &above {
            let found = line.fit.p99.map_or("there is none".to_owned(), |p99| format!("got {p99:.4}"));
            console.failed(&format!("p99 of {} {}: expected at most {limit}, {found}", line.group, line.quantity));
        }
        if above.is_empty() { Outcome::Done } else { Outcome::GateFailed }
    }
}

/// The lines of every group, and of all models together.
fn lines(done: &[(&Case, Vec<Comparison>)]) -> Vec<Line> {
    let of = |group: Option<&str>| -> Vec<Comparison> {
        let chosen = done.iter().filter(|(case, _)| group.is_none_or(|group| case.group == group));
        chosen.flat_map(|(_, rows)| rows).cloned().collect()
    };
    let mut groups: Vec<&str> = done.iter().map(|(case, _)| case.group).collect();
    groups.dedup();
    let mut lines: Vec<Line> = groups.iter().flat_map(|group| score(group, &of(Some(group)))).collect();
    if groups.len() > 1 && done.iter().all(|(case, _)| case.look == Look::Everything) {
        lines.extend(score("all", &of(None)));
    }
    lines
}
