//! The results of a suite: lines of percentiles, and every cell.

use std::{
    fmt,
    io::{self, Write},
};

use serde::Serialize;

use super::sites::{COMPARISON_COLUMNS, comparison_fields};
use super::{Field, Rows, SCHEMA_VERSION, plain_table};
use crate::agreement::Comparison;
use crate::suite::{LARGEST_ERROR, Line, PRINTED_ZERO};

/// The source of the observations of a suite.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(untagged)]
pub enum SuiteRuns {
    /// One run.
    Seed {
        /// Its seed.
        seed: u64,
    },
    /// Several runs.
    Seeds {
        /// Their seeds.
        seeds: Vec<u64>,
    },
    /// Earlier runs.
    Files {
        /// Paths of the files in which these runs wrote their results, one row per cell.
        observed: Vec<String>,
    },
}

impl SuiteRuns {
    fn are_several(&self) -> bool {
        match self {
            Self::Seed { .. } => false,
            Self::Seeds { seeds } => seeds.len() > 1,
            Self::Files { observed } => observed.len() > 1,
        }
    }
}

impl fmt::Display for SuiteRuns {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Seed { seed } => write!(f, "seed {seed}"),
            Self::Seeds { seeds } => {
                write!(f, "seeds {}", seeds.iter().map(u64::to_string).collect::<Vec<_>>().join(", "))
            }
            Self::Files { observed } => write!(f, "observed in {}", observed.join(", ")),
        }
    }
}

/// Writes a table of percentiles, one row per line: of the errors of the prediction, of the noise and of the published
/// errors. For several runs the last column is the range, over the runs, of the share with |z| < 2.
pub fn suite_table(runs: &SuiteRuns, lines: &[Line], out: &mut dyn Write) -> io::Result<()> {
    let several = runs.are_several();
    let mut header =
        vec!["", "cells", "p50", "p90", "p99", "noise", "published", "", "R² ln", "R² lin", "|z|<2", "off", "silent"];
    header.extend(several.then_some("per run"));
    let percent = |share: Option<f64>| share.map_or(String::new(), |share| format!("{:.2}%", 100.0 * share));
    let rows = lines.iter().map(|line| {
        let fit = &line.fit;
        let published = line.published.map_or(String::new(), |all| {
            all.map(|share| if share < PRINTED_ZERO { "0".to_owned() } else { format!("{:.1}", 100.0 * share) })
                .join(" / ")
        });
        let verdict = line.beats_published.map_or("", |beats| if beats { "better" } else { "WORSE" });
        let r2 = |r2: Option<f64>| r2.map_or(String::new(), |r2| format!("{r2:.5}"));
        let cells = if several { format!("{} of {}", fit.count, line.of) } else { fit.count.to_string() };
        let range = |[low, high]: [f64; 2]| format!("{:.0} to {:.0}%", 100.0 * low, 100.0 * high);
        let mut row = vec![
            format!("{} {}", line.group, line.quantity),
            cells,
            percent(fit.p50),
            percent(fit.p90),
            percent(fit.p99),
            percent(line.noise.map(|noise| noise[0])),
            published,
            verdict.to_owned(),
            r2(fit.r2_log),
            r2(fit.r2_linear),
            fit.share_z_below_2.map_or(String::new(), |share| format!("{:.0}%", 100.0 * share)),
            fit.off.to_string(),
            line.silent.to_string(),
        ];
        row.extend(several.then(|| line.share_z_below_2_of_runs.map_or(String::new(), range)));
        row
    });
    plain_table(&header, rows, out)?;
    writeln!(
        out,
        "(percentiles of |relative error|, p99 of fewer than 100 cells is the largest; noise: median standard"
    )?;
    writeln!(out, " error of the samples; published: percent, of Kedia et al. 2024, sampling error included;")?;
    writeln!(
        out,
        " off: cells more than 5% and five standard errors off; silent: of these, in cases without a caveat)"
    )?;
    if several {
        let error = 100.0 * LARGEST_ERROR;
        writeln!(
            out,
            "(percentiles and R² are of cells with a standard error of at most {error}%; |z|<2 and off are of all)"
        )?;
    }
    Ok(())
}

/// Returns one row per group and quantity, with shares instead of percent.
pub fn suite_lines_rows(lines: &[Line]) -> Rows {
    let columns = [
        "group",
        "quantity",
        "cells",
        "p50",
        "p90",
        "p99",
        "noise_p50",
        "noise_p90",
        "noise_p99",
        "published_p50",
        "published_p90",
        "published_p99",
        "r2_log",
        "r2_linear",
        "share_z_below_2",
        "off",
        "of",
        "lowest_share_z_below_2",
        "highest_share_z_below_2",
        "silent",
    ];
    let rows = lines.iter().map(
        |Line { group, quantity, fit, of, share_z_below_2_of_runs: range, noise, published, silent, .. }| {
            let percentile = |all: &Option<[f64; 3]>, index: usize| Field::from(all.map(|all| all[index]));
            [
                group.as_str().into(),
                (*quantity).into(),
                fit.count.into(),
                fit.p50.into(),
                fit.p90.into(),
                fit.p99.into(),
                percentile(noise, 0),
                percentile(noise, 1),
                percentile(noise, 2),
                percentile(published, 0),
                percentile(published, 1),
                percentile(published, 2),
                fit.r2_log.into(),
                fit.r2_linear.into(),
                fit.share_z_below_2.into(),
                fit.off.into(),
                (*of).into(),
                range.map(|[low, _]| low).into(),
                range.map(|[_, high]| high).into(),
                (*silent).into(),
            ]
        },
    );
    Rows::new(columns, rows)
}

/// Writes the lines of all groups and quantities as one JSON document.
pub fn suite_lines_json(suite: &str, runs: &SuiteRuns, lines: &[Line], out: &mut dyn Write) -> io::Result<()> {
    #[derive(Serialize)]
    struct Document<'a> {
        schema_version: u32,
        version: &'static str,
        suite: &'a str,
        #[serde(flatten)]
        runs: &'a SuiteRuns,
        lines: &'a [Line],
    }
    let document = Document { schema_version: SCHEMA_VERSION, version: env!("CARGO_PKG_VERSION"), suite, runs, lines };
    serde_json::to_writer_pretty(&mut *out, &document)?;
    writeln!(out)
}

/// Returns one row per cell of every case. A case is given as group, name, number of caveats and comparisons.
pub fn suite_cells_rows<'a>(cases: impl IntoIterator<Item = (&'a str, &'a str, usize, &'a [Comparison])>) -> Rows {
    let [site, quantity, predicted, observed, std_error, replicates, relative_error, z] = COMPARISON_COLUMNS;
    let columns =
        ["group", "case", site, quantity, predicted, observed, std_error, replicates, relative_error, z, "caveats"];
    let rows = cases.into_iter().flat_map(|(group, name, caveats, comparisons)| {
        comparisons.iter().map(move |row| {
            let [site, quantity, predicted, observed, std_error, replicates, relative_error, z] =
                comparison_fields(row);
            let (group, name) = (group.into(), name.into());
            let caveats = caveats.into();
            [group, name, site, quantity, predicted, observed, std_error, replicates, relative_error, z, caveats]
        })
    });
    Rows::new(columns, rows)
}
