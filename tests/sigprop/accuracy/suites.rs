//! Tables of the suites.

use std::{
    fs::{self, File},
    path::Path,
    slice,
};

use rayon::prelude::*;
use sigprop::agreement::{Compared, Comparison, summarise};
use sigprop::suite::{Case, LARGEST_ERROR, Line, Predicted, Run, Suite, score};
use sigprop_stack::Quantity;

use super::page::Table;
use super::{path, percent, percentile};

/// A number of a suite counts as off if both |relative error| and |z| exceed these.
const OFF: (f64, f64) = (0.05, 5.0);

/// A suite as it is predicted now, with its measurements.
struct Measured {
    cases: Vec<Case>,
    predicted: Vec<Predicted>,
    run: Run,
}

impl Measured {
    /// Predicts the cases of these groups, or of all groups if none are given, and reads their measurements.
    fn new(suite: Suite, seed: u64, groups: &[&str], file: &Path) -> Self {
        let mut cases = suite.cases(false, seed);
        cases.retain(|case| groups.is_empty() || groups.contains(&case.group));
        let predict = |case: &Case| case.predict().expect("a prediction");
        let predicted = cases.par_iter().map(predict).collect::<Vec<_>>();
        let source = File::open(file).expect("a file of measurements");
        let run = Run::read(&cases, &predicted, source).unwrap_or_else(|error| panic!("{}: {error}", file.display()));
        Self { cases, predicted, run }
    }

    fn lines(&self) -> Vec<Line> {
        score(&self.cases, &self.predicted, slice::from_ref(&self.run), &self.run)
    }

    /// Cells that carry information. Cells that are predicted and measured as zero do not.
    fn cells(&self) -> impl Iterator<Item = &Comparison> {
        let is_told =
            |row: &&Comparison| !row.predicted.is_zero() || row.relative_error.is_none_or(|error| error != 0.0);
        self.run.0.iter().flatten().filter(is_told)
    }
}

/// Whole encoders, quantity by quantity. Only cells with a small standard error count.
#[test]
fn encoders() {
    let measured = Measured::new(Suite::Models, 0, &[], &path("models.csv"));
    let columns = [
        "quantity",
        "cells",
        "median error",
        "90 %",
        "99 %",
        "median standard error",
        "R² ln",
        "R² linear",
        "within 2 se",
    ];
    let mut table = Table::new(&columns);
    let quantities =
        [Quantity::Variance, Quantity::TokenCorrelation, Quantity::GradVariance, Quantity::GradTokenCorrelation];
    for quantity in quantities.map(Compared::Site).into_iter().chain([Compared::WeightGradient]) {
        let all: Vec<Comparison> = measured.cells().filter(|row| row.quantity == quantity).cloned().collect();
        let counted = all.iter().filter(|row| row.relative_std_error <= LARGEST_ERROR).cloned().collect::<Vec<_>>();
        let noise = percentile(counted.iter().map(|row| row.relative_std_error), 0.5);
        let [within, summary] = [&all, &counted].map(|rows| summarise(rows));
        let fit = &summary.quantities[0].1;
        let share = |share: Option<f64>| share.map_or(String::new(), |share| percent(share, 2));
        let r2 = |r2: Option<f64>| r2.map_or(String::new(), |r2| format!("{r2:.5}"));
        table.row(&[
            quantity.name().to_owned(),
            format!("{} of {}", counted.len(), all.len()),
            share(fit.p50),
            share(fit.p90),
            share(fit.p99),
            percent(noise, 2),
            r2(fit.r2_log),
            r2(fit.r2_linear),
            percent(within.quantities[0].1.share_z_below_2.expect("cells that vary"), 0),
        ]);
    }
    table.check("encoders");
}

/// Components compared with the published percentiles.
#[test]
fn components() {
    let measured = Measured::new(Suite::Components, 0, &[], &path("components.csv"));
    let columns = [
        "component",
        "quantity",
        "p50",
        "p90",
        "p99",
        "noise (median)",
        "published p50",
        "published p90",
        "published p99",
    ];
    let mut table = Table::new(&columns);
    for line in measured.lines() {
        let figures = [line.fit.p50, line.fit.p90, line.fit.p99, line.noise.map(|noise| noise[0])];
        let figures = figures.map(|share| format!("{:.2}", 100.0 * share.expect("cells")));
        // Rounded to the published digits.
        let published =
            line.published.expect("a published line").map(|share| ((share * 1e9).round() / 1e7).to_string());
        let names = [line.group, line.quantity.to_owned()];
        table.row(&names.into_iter().chain(figures).chain(published).collect::<Vec<_>>());
    }
    table.check("components");
}

/// Attention from flat to condensed rows.
#[test]
fn attention() {
    let measured = Measured::new(Suite::Attention, 0, &[], &path("attention.csv"));
    let mut table = Table::new(&["quantity", "p50", "p90", "largest", "noise (median)"]);
    for line in measured.lines().into_iter().filter(|line| line.noise.is_some()) {
        let figures = [line.fit.p50, line.fit.p90, line.fit.p99, line.noise.map(|noise| noise[0])];
        let figures = figures.map(|share| format!("{:.2}", 100.0 * share.expect("cells")));
        table.row(&[line.quantity.to_owned()].into_iter().chain(figures).collect::<Vec<_>>());
    }
    table.check("attention");
}

/// The seeds of the random networks that were measured.
fn seeds() -> Vec<u64> {
    let files = fs::read_dir(path("random")).expect("measurements of random networks");
    let stem = |file: fs::DirEntry| file.path().file_stem().and_then(|stem| stem.to_str()?.parse().ok());
    let mut seeds: Vec<u64> = files.map(|file| stem(file.expect("a file")).expect("a seed")).collect();
    seeds.sort_unstable();
    seeds
}

/// The table of randomly drawn networks of several seeds, for these kinds or for all if none are given.
fn random(seeds: &[u64], groups: &[&str]) -> Table {
    let of = |&seed| Measured::new(Suite::Random, seed, groups, &path(&format!("random/{seed}.csv")));
    let measured: Vec<Measured> = seeds.iter().map(of).collect();
    let mut table = Table::new(&["kind", "cells", "median error", "90 %", "off", "silent"]);
    let mut groups: Vec<&str> = measured[0].cases.iter().map(|case| case.group).collect();
    groups.dedup();
    for group in groups {
        let (mut errors, mut off, mut silent) = (Vec::new(), 0, 0);
        for suite in &measured {
            let cases = suite.cases.iter().zip(&suite.predicted).zip(&suite.run.0);
            for ((_, predicted), rows) in cases.filter(|((case, _), _)| case.group == group) {
                let varying = rows.iter().filter_map(|row| row.relative_error.zip(row.z));
                for (error, z) in varying {
                    let is_off = error.abs() > OFF.0 && z.abs() > OFF.1;
                    off += usize::from(is_off);
                    silent += usize::from(is_off && predicted.caveats == 0);
                    errors.push(error);
                }
            }
        }
        let [median, ninety] = [0.5, 0.9].map(|share| percent(percentile(errors.iter().copied(), share), 1));
        table.row(&[group.to_owned(), errors.len().to_string(), median, ninety, off.to_string(), silent.to_string()]);
    }
    table
}

/// Kinds whose predictions are fast.
const FAST: [&str; 4] = ["encoder", "causal", "vision", "mlp"];

#[test]
fn some_random_networks_of_one_seed() {
    random(&[1], &FAST).check_part("random, seed 1");
}

#[test]
#[cfg_attr(debug_assertions, ignore = "a minute of CPU time: networks with a decoder")]
fn random_networks_of_one_seed() {
    random(&[1], &[]).check("random, seed 1");
}

#[test]
#[ignore = "a minute of CPU time per seed"]
fn random_networks() {
    random(&seeds(), &[]).check("random");
}
