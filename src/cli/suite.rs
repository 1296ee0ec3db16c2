//! `sigprop validate --suite`: many stacks, and the percentiles of all their errors.

mod sampled;

use std::{
    fs::File,
    path::{Path, PathBuf},
};

use crate::{
    report::{RowFormat, SuiteRuns, suite_cells_rows, suite_lines_json, suite_lines_rows, suite_table},
    suite::{Case, Line, Predicted, Run, Suite, pool, score},
};
use anyhow::{Context, ensure};
use clap::ValueEnum;
use sigprop_validate::{Identity, Shard};

use super::{
    Outcome,
    console::Console,
    folder::{ReportFolder, claim, files_in, write_into},
    hint::did_you_mean,
    output::Format,
};

/// The file of the results of a run, in the folder of its report.
const CELLS: &str = "cells.csv";

/// The file of the measurements of a run that has not ended, in the same folder.
const JOURNAL: &str = "cases.journal";

/// The suite to run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum SuiteChoice {
    /// Components, over the grids of Kedia et al. (2024), compared with their published errors.
    Components,
    /// Attention from flat to condensed, beyond those grids.
    Attention,
    /// Whole encoders.
    Models,
    /// Networks of all kinds, drawn at random.
    Random,
}

impl SuiteChoice {
    fn suite(self) -> Suite {
        match self {
            Self::Components => Suite::Components,
            Self::Attention => Suite::Attention,
            Self::Models => Suite::Models,
            Self::Random => Suite::Random,
        }
    }

    fn name(self) -> &'static str {
        match self {
            Self::Components => "components",
            Self::Attention => "attention",
            Self::Models => "models",
            Self::Random => "random",
        }
    }
}

/// How to run a suite.
pub(crate) struct SuiteRun<'a> {
    pub(crate) choice: SuiteChoice,
    /// True for all cases of the grids, false for a sample.
    pub(crate) full: bool,
    /// The groups of cases to run; all if empty.
    pub(crate) groups: &'a [String],
    /// The seeds, for one run each.
    pub(crate) seeds: &'a [u64],
    /// The files of earlier runs, used instead of sampling.
    pub(crate) observed: &'a [PathBuf],
    /// The largest number of networks of a case; `None` for the case's own number.
    pub(crate) max_replicates: Option<usize>,
    pub(crate) threads: Option<usize>,
    /// Memory for sampling, in bytes.
    pub(crate) memory: f64,
    pub(crate) format: Format,
    pub(crate) output: Option<ReportFolder<'a>>,
    /// The part of the cases to sample; `None` for all.
    pub(crate) shard: Option<Shard>,
    /// The largest allowed 99th percentile of the errors of a line; `None` for no limit.
    pub(crate) max_error: Option<f64>,
}

impl SuiteRun<'_> {
    pub(crate) fn run(&self, console: Console) -> anyhow::Result<Outcome> {
        ensure!(
            self.choice == SuiteChoice::Models || self.seeds.len() == 1,
            "--seeds: expected --suite models; for components and random networks every seed gives other networks"
        );
        if let Some(folder) = self.output {
            claim(folder.path)?;
        }
        let cases = self.cases()?;
        if let (Some(shard), Some(folder)) = (self.shard, self.output) {
            let sample = |journal: &mut _| self.sampled_shard(&cases, (journal, shard), console);
            return folder.run_shard((JOURNAL, "cases"), shard, &self.identity(), console, sample);
        }
        let predicted = cases.iter().map(|case| case.predict().with_context(|| title(case)));
        let predicted = predicted.collect::<anyhow::Result<Vec<Predicted>>>()?;
        let (mut journal, samples) = (None, self.observed.is_empty());
        let (origin, runs) = if samples {
            journal = self.output.map(|folder| folder.journal(JOURNAL, &self.identity(), console)).transpose()?;
            self.sampled((&cases, &predicted), journal.as_mut(), console)?
        } else {
            self.earlier(&cases, &predicted)?
        };
        let together = pool(&predicted, &runs);
        let lines = score(&cases, &predicted, &runs, &together);
        self.keep(self.output.map(|folder| folder.path), &origin, (&cases, &predicted, &together), &lines)?;
        self.tell(&origin, &together, &lines, console)?;
        let expected = cases.len() * self.seeds.len();
        let done: usize = runs.iter().map(count).sum();
        if samples && done < expected {
            let go_on = self.output.map(ReportFolder::go_on).unwrap_or_default();
            console.note(&format!("interrupted after {done} of {expected} cases, which are reported{go_on}"));
            return Ok(Outcome::Interrupted);
        }
        if let Some(journal) = journal {
            journal.remove()?;
        }
        Ok(self.gate(&lines, console))
    }

    /// Returns the cases of the groups.
    fn cases(&self) -> anyhow::Result<Vec<Case>> {
        let mut cases = self.choice.suite().cases(self.full, self.seeds[0]);
        if let Some(unknown) = self.groups.iter().find(|&group| cases.iter().all(|case| case.group != group)) {
            let mut known: Vec<&str> = cases.iter().map(|case| case.group).collect();
            known.dedup();
            let hint = did_you_mean(unknown, known.iter().copied());
            anyhow::bail!("--group: expected one of {}, got {unknown}{hint}", known.join(", "));
        }
        cases.retain(|case| self.groups.is_empty() || self.groups.iter().any(|group| group == case.group));
        Ok(cases)
    }

    /// Returns the settings that determine the measurements.
    fn identity(&self) -> Identity {
        vec![
            ("suite", self.choice.name().to_owned()),
            ("full", self.full.to_string()),
            ("groups", self.groups.join(" ")),
            ("seeds", self.seeds.iter().map(u64::to_string).collect::<Vec<_>>().join(" ")),
            ("max-replicates", self.max_replicates.map_or_else(|| "default".to_owned(), |most| most.to_string())),
        ]
    }

    /// Reads the results of earlier runs from their files and compares them with the current predictions.
    fn earlier(&self, cases: &[Case], predicted: &[Predicted]) -> anyhow::Result<(SuiteRuns, Vec<Run>)> {
        let (mut names, mut runs): (Vec<String>, Vec<Run>) = (Vec::new(), Vec::new());
        for path in self.observed {
            for file in files_in(path, CELLS)? {
                let name = file.display().to_string();
                let source = File::open(&file).with_context(|| format!("cannot read {name}"))?;
                let run = Run::read(cases, predicted, source).context(name.clone())?;
                ensure!(count(&run) > 0, "{name}: expected cells of the groups asked for, got none");
                if let Some(twice) = runs.iter().position(|known| *known == run) {
                    anyhow::bail!(
                        "--observed: expected runs with different seeds, got the same in {} and {name}",
                        names[twice]
                    );
                }
                names.push(name);
                runs.push(run);
            }
        }
        Ok((SuiteRuns::Files { observed: names }, runs))
    }

    /// Writes the report into `folder`, if there is one.
    fn keep(
        &self,
        folder: Option<&Path>,
        origin: &SuiteRuns,
        (cases, predicted, Run(cells)): (&[Case], &[Predicted], &Run),
        lines: &[Line],
    ) -> anyhow::Result<()> {
        let Some(folder) = folder else { return Ok(()) };
        let cells = cases.iter().zip(predicted).zip(cells);
        let cells = cells.map(|((case, told), rows)| (case.group, case.name.as_str(), told.caveats, rows.as_slice()));
        write_into(folder, CELLS, |out| suite_cells_rows(cells).write(RowFormat::Csv, out))?;
        write_into(folder, "report.csv", |out| suite_lines_rows(lines).write(RowFormat::Csv, out))?;
        write_into(folder, "summary.json", |out| suite_lines_json(self.choice.name(), origin, lines, out))
    }

    fn tell(&self, origin: &SuiteRuns, run: &Run, lines: &[Line], console: Console) -> anyhow::Result<()> {
        let name = self.choice.name();
        console.emit(None, |out| match self.format {
            Format::Table => {
                let most = run.0.iter().flatten().filter_map(|row| row.replicates).max().unwrap_or(0);
                writeln!(out, "suite {name}: {} cases, up to {most} networks each, {origin}\n", count(run))?;
                suite_table(origin, lines, out)
            }
            Format::Rows(format) => suite_lines_rows(lines).write(format, out),
            Format::Json => suite_lines_json(name, origin, lines, out),
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

/// Returns the number of cases of which the run has observations.
fn count(Run(cells): &Run) -> usize {
    cells.iter().filter(|rows| !rows.is_empty()).count()
}

fn title(case: &Case) -> String {
    format!("{} {}", case.group, case.name)
}
