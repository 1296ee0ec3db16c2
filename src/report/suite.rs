//! What a suite found: lines of percentiles, and every cell.

use std::io::{self, Write};

use serde::Serialize;

use super::csv::{comparison_fields, float, write_rows};
use super::{SCHEMA_VERSION, plain_table};
use crate::agreement::Comparison;
use crate::suite::{Line, PRINTED_ZERO};

const LINE_COLUMNS: [&str; 15] = [
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
];

const CELL_COLUMNS: [&str; 10] =
    ["group", "case", "site", "quantity", "predicted", "observed", "std_error", "replicates", "relative_error", "z"];

/// Percentiles for people: ours, those of the noise, those published.
pub fn suite_table(lines: &[Line], out: &mut dyn Write) -> io::Result<()> {
    let header = ["", "cells", "p50", "p90", "p99", "noise", "published", "", "R² ln", "R² lin", "|z|<2"];
    let percent = |share: Option<f64>| share.map_or(String::new(), |share| format!("{:.2}%", 100.0 * share));
    let rows = lines.iter().map(|line| {
        let fit = &line.fit;
        let published = line.published.map_or(String::new(), |all| {
            all.map(|share| if share < PRINTED_ZERO { "0".to_owned() } else { format!("{:.1}", 100.0 * share) })
                .join(" / ")
        });
        let verdict = line.beats_published.map_or("", |beats| if beats { "better" } else { "WORSE" });
        let r2 = |r2: Option<f64>| r2.map_or(String::new(), |r2| format!("{r2:.5}"));
        vec![
            format!("{} {}", line.group, line.quantity),
            fit.count.to_string(),
            percent(fit.p50),
            percent(fit.p90),
            percent(fit.p99),
            percent(line.noise.map(|noise| noise[0])),
            published,
            verdict.to_owned(),
            r2(fit.r2_log),
            r2(fit.r2_linear),
            fit.share_z_below_2.map_or(String::new(), |share| format!("{:.0}%", 100.0 * share)),
        ]
    });
    plain_table(&header, rows, out)?;
    writeln!(
        out,
        "(percentiles of |relative error|, p99 of fewer than 100 cells is the largest; noise: median standard"
    )?;
    writeln!(out, " error of what was sampled; published: percent, of Kedia et al. 2024, sampling error included)")
}

/// One row per group and quantity; shares, not percent.
pub fn suite_lines_csv(lines: &[Line], out: &mut dyn Write) -> io::Result<()> {
    write_rows(out, &LINE_COLUMNS, |writer| {
        for line in lines {
            let fit = &line.fit;
            let mut fields = vec![line.group.clone(), line.quantity.to_owned(), fit.count.to_string()];
            fields.extend([fit.p50, fit.p90, fit.p99].map(float));
            for percentiles in [line.noise, line.published] {
                fields.extend((0..3).map(|i| float(percentiles.map(|all| all[i]))));
            }
            fields.extend([fit.r2_log, fit.r2_linear, fit.share_z_below_2].map(float));
            writer.write_record(&fields)?;
        }
        Ok(())
    })
}

/// The lines as one document.
pub fn suite_lines_json(suite: &str, seed: u64, lines: &[Line], out: &mut dyn Write) -> io::Result<()> {
    #[derive(Serialize)]
    struct Document<'a> {
        schema_version: u32,
        version: &'static str,
        suite: &'a str,
        seed: u64,
        lines: &'a [Line],
    }
    let document = Document { schema_version: SCHEMA_VERSION, version: env!("CARGO_PKG_VERSION"), suite, seed, lines };
    serde_json::to_writer_pretty(&mut *out, &document)?;
    writeln!(out)
}

/// Every cell of every case, given as group, name and comparisons.
pub fn suite_cells_csv<'a>(
    cases: impl IntoIterator<Item = (&'a str, &'a str, &'a [Comparison])>,
    out: &mut dyn Write,
) -> io::Result<()> {
    write_rows(out, &CELL_COLUMNS, |writer| {
        for (group, name, comparisons) in cases {
            for row in comparisons {
                let mut fields = vec![group.to_owned(), name.to_owned()];
                fields.extend(comparison_fields(row).into_iter().skip(1));
                writer.write_record(&fields)?;
            }
        }
        Ok(())
    })
}
