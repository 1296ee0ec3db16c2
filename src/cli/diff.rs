//! `sigprop diff`: the differences between two reports.

use std::path::PathBuf;

use crate::{
    diff::{Diff, Report},
    numerals::short,
    report::{diff_json, diff_rows, diff_table},
};
use clap::Args;

use super::{
    Outcome,
    console::Console,
    output::{DataArguments, Format},
    parse,
};

/// Compare two reports of `predict --format json`, or of `inspect --format json`: the changes of numbers and verdict.
#[derive(Args, Debug)]
#[command(after_help = "\
Differences are sorted by size: |ln(second/first)| of variances,
|second − first| of correlations, and standard deviations for means.

Examples:
  sigprop predict gpt2 --format json -o before.json
  sigprop predict gpt2 --scheme xavier --format json -o after.json
  sigprop diff before.json after.json
  sigprop diff before.json after.json --max-difference 1%
With --max-difference the exit status is 1 if a number differs by more.")]
pub(crate) struct Arguments {
    /// First report.
    #[arg(value_name = "A.json")]
    first: PathBuf,

    /// Second report.
    #[arg(value_name = "B.json")]
    second: PathBuf,

    #[command(flatten)]
    data: DataArguments,

    /// Exit with status 1 if a difference is larger, or if a site or quantity is in only one report.
    #[arg(long, value_name = "SHARE", value_parser = parse::error, allow_negative_numbers = true, help_heading = "Gates")]
    max_difference: Option<f64>,
}

impl Arguments {
    pub(crate) fn run(self, console: Console) -> anyhow::Result<Outcome> {
        let diff = Diff::of(&Report::read(&self.first)?, &Report::read(&self.second)?);
        console.emit(self.data.output.as_ref(), |out| match self.data.format() {
            Format::Table => diff_table(&diff, out),
            Format::Rows(format) => diff_rows(&diff).write(format, out),
            Format::Json => diff_json(&diff, out),
        })?;
        let Some(limit) = self.max_difference else { return Ok(Outcome::Done) };
        let mut outcome = Outcome::Done;
        if let Some(largest) = diff.largest().filter(|largest| largest.size > limit) {
            let (site, quantity) = (&largest.site, largest.quantity.name());
            let (size, limit) = (short(largest.size), short(limit));
            console.failed(&format!("{site}: {quantity} differs by {size}, more than --max-difference {limit}"));
            outcome = Outcome::GateFailed;
        }
        if let Some(alone) = diff.only_first.first().or(diff.only_second.first()) {
            console.failed(&format!("{alone}: in one report alone"));
            outcome = Outcome::GateFailed;
        }
        Ok(outcome)
    }
}
