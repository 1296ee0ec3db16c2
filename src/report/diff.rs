//! The differences between two reports, the largest first.

use std::io::{self, Write};

use serde::Serialize;

use super::{Rows, SCHEMA_VERSION, plain_table};
use crate::{
    diff::{Diff, Difference},
    numerals::short,
};

/// The largest number of rows of the table.
const SHOWN: usize = 20;

/// Writes a table of the largest differences.
pub fn diff_table(diff: &Diff, out: &mut dyn Write) -> io::Result<()> {
    let number = |value: Option<f64>| value.map(short).unwrap_or_default();
    let differing = || diff.differences.iter().filter(|row| row.size > 0.0);
    if differing().next().is_some() {
        let rows = differing().take(SHOWN).map(|row| {
            let Difference { site, quantity, first, second, .. } = row;
            vec![site.clone(), quantity.name().to_owned(), number(*first), number(*second), change(row)]
        });
        plain_table(&["site", "quantity", "first", "second", "change"], rows, out)?;
    }
    let (count, all) = (differing().count(), diff.differences.len());
    let shown =
        if count > SHOWN { format!("; the {SHOWN} largest are shown, --format csv lists all") } else { String::new() };
    writeln!(out, "{count} of {all} numbers differ{shown}")?;
    for (title, names) in [("Only in the first", &diff.only_first), ("Only in the second", &diff.only_second)] {
        if !names.is_empty() {
            writeln!(out, "{title}: {}", names.join(", "))?;
        }
    }
    let [first, second] = &diff.headlines;
    let headline = if first == second { format!("{first}, in both") } else { format!("{first} → {second}") };
    writeln!(out, "Verdict: {headline}")?;
    diff.lost.iter().try_for_each(|text| writeln!(out, "  − {text}"))?;
    diff.gained.iter().try_for_each(|text| writeln!(out, "  + {text}"))
}

fn change(row: &Difference) -> String {
    if row.is_ratio {
        format!("×{}", short(sigprop_stack::Number::from_ln(row.change)))
    } else {
        format!("{:+.4}", row.change)
    }
}

/// Returns all differences, one per row. `change` is ln(second/first) for positive quantities and second − first for
/// others.
pub fn diff_rows(diff: &Diff) -> Rows {
    let rows = diff.differences.iter().map(|Difference { site, quantity, first, second, change, size, .. }| {
        [
            site.as_str().into(),
            quantity.name().into(),
            (*first).into(),
            (*second).into(),
            (*change).into(),
            (*size).into(),
        ]
    });
    Rows::new(["site", "quantity", "first", "second", "change", "size"], rows)
}

/// Writes all differences as JSON. Changes from or to zero, which are infinite, are null.
pub fn diff_json(diff: &Diff, out: &mut dyn Write) -> io::Result<()> {
    let document = DiffJson {
        schema_version: SCHEMA_VERSION,
        version: env!("CARGO_PKG_VERSION"),
        differences: diff.differences.iter().map(DifferenceJson::of).collect(),
        only_first: &diff.only_first,
        only_second: &diff.only_second,
        headlines: &diff.headlines,
        lost: &diff.lost,
        gained: &diff.gained,
    };
    serde_json::to_writer_pretty(&mut *out, &document)?;
    writeln!(out)
}

#[derive(Serialize)]
struct DiffJson<'a> {
    schema_version: u32,
    version: &'static str,
    differences: Vec<DifferenceJson<'a>>,
    only_first: &'a [String],
    only_second: &'a [String],
    headlines: &'a [String; 2],
    lost: &'a [String],
    gained: &'a [String],
}

#[derive(Serialize)]
struct DifferenceJson<'a> {
    site: &'a str,
    quantity: &'static str,
    first: Option<f64>,
    second: Option<f64>,
    change: f64,
    size: f64,
}

impl<'a> DifferenceJson<'a> {
    fn of(row: &'a Difference) -> Self {
        let Difference { site, quantity, first, second, change, size, .. } = row;
        Self { site, quantity: quantity.name(), first: *first, second: *second, change: *change, size: *size }
    }
}
