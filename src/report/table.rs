//! Tables for people: 80 columns, with a selection of blocks if there are many.

use std::{
    collections::BTreeSet,
    io::{self, Write},
};

use comfy_table::{CellAlignment, ContentArrangement, LineStyle, Table, TableStyle};
use sigprop_stack::{Number, Quantity, SiteTable};

use super::AVERAGES;
use crate::{
    agreement::{Compared, Fit, Summary},
    numerals::{grouped, short},
};

/// The largest number of rows that are shown without a selection.
const MAX_ROWS: usize = 40;

/// The style of a table: a line between header and rows, and no other lines.
const STYLE: TableStyle = TableStyle::new().header_separator(LineStyle::none().fill('─').junction('─'));

/// Writes the moments of the sites, averaged over positions.
pub fn sites_table(table: &SiteTable, out: &mut dyn Write) -> io::Result<()> {
    let header = ["site", "mean", "variance", "±", "token corr", "grad var", "±", "grad corr"];
    let rows = table.sites.iter().map(|row| {
        let cells = |quantity| match quantity {
            Quantity::Variance => vec![blank_or(row.value(quantity)), band(row.value(Quantity::LnVarianceStd))],
            Quantity::GradVariance => vec![blank_or(row.value(quantity)), band(row.value(Quantity::LnGradVarianceStd))],
            _ => vec![blank_or(row.value(quantity))],
        };
        let site = std::iter::once(row.site.clone());
        (row.layer, site.chain(Quantity::ALL[..AVERAGES].iter().copied().flat_map(cells)).collect())
    });
    selected_table(&header, rows.collect(), out)?;
    if table.sites.iter().any(|row| row.value(Quantity::LnVarianceStd).is_some()) {
        writeln!(out, "(±: standard deviation across random initialisations)")?;
    }
    Ok(())
}

/// Returns the standard deviation `std` of a logarithm as a percentage, or as the factor e^`std` if it is large. Blank
/// for `None`.
fn band(std: Option<Number>) -> String {
    /// The largest std that is given as a percentage. Beyond it, e^std and e^−std differ clearly from 1 ± std.
    const LARGEST_PERCENTAGE: f64 = 0.3;
    match std.map(|std| std.value()) {
        None => String::new(),
        Some(std) if std < 5e-4 => "0 %".to_owned(),
        Some(std) if std < LARGEST_PERCENTAGE => format!("{:.1} %", 100.0 * std),
        Some(std) => format!("×{:.2}", std.exp()),
    }
}

/// Writes the weight tensors and their gradients.
pub fn weights_table(table: &SiteTable, out: &mut dyn Write) -> io::Result<()> {
    let header = ["tensor", "weight var", "grad second moment"];
    let rows = table
        .weights
        .iter()
        .map(|row| (row.layer, vec![row.tensor.clone(), short(row.variance), short(row.grad_second_moment.value)]));
    selected_table(&header, rows.collect(), out)
}

/// Writes one row per quantity: R², percentiles of |relative error|, z-scores, and ln of the range of observed values.
pub fn summary_table(summary: &Summary, out: &mut dyn Write) -> io::Result<()> {
    let header = ["quantity", "n", "R² ln", "R² lin", "p50", "p90", "p99", "|z|<2", "range"];
    let pooled = std::iter::once(("variances, pooled", &summary.pooled));
    let rows =
        summary.quantities.iter().map(|(quantity, fit)| (title(*quantity), fit)).chain(pooled).map(|(name, fit)| {
            let Fit { count, r2_log, r2_linear, p50, p90, p99, share_z_below_2, ln_range, .. } = fit;
            let mut cells = vec![name.to_owned(), count.to_string()];
            cells.extend([r2_log, r2_linear].map(|r2| r2.map_or(String::new(), r_squared)));
            cells.extend([p50, p90, p99, share_z_below_2].map(|share| share.map_or(String::new(), percent)));
            cells.push(ln_range.map_or(String::new(), |range| format!("{range:.2}")));
            cells
        });
    plain_table(&header, rows, out)?;
    writeln!(out, "(p50 to p99: percentiles of |relative error|; range: ln of largest over")?;
    writeln!(out, " smallest observed value; a constant has no R², a narrow range a noisy one)")
}

/// Writes a table with the first column aligned to the left and the others to the right.
pub fn plain_table(
    header: &[&str],
    rows: impl IntoIterator<Item = Vec<String>>,
    out: &mut dyn Write,
) -> io::Result<()> {
    let mut table = Table::new();
    table.load_style(STYLE).set_content_arrangement(ContentArrangement::Disabled);
    table.set_header(header.to_vec());
    table.add_rows(rows);
    for (index, column) in table.column_iter_mut().enumerate() {
        column.set_padding((u16::from(index > 0), 0));
        column.set_cell_alignment(if index == 0 { CellAlignment::Left } else { CellAlignment::Right });
    }
    for line in table.lines() {
        writeln!(out, "{}", line.trim_end())?;
    }
    Ok(())
}

/// Writes a table of `rows`, each given with its layer. If there are many, only a selection of layers is shown, with a
/// note of how many rows are hidden.
pub(super) fn selected_table(header: &[&str], rows: Vec<(i64, Vec<String>)>, out: &mut dyn Write) -> io::Result<()> {
    let total = rows.len();
    if total <= MAX_ROWS {
        return plain_table(header, rows.into_iter().map(|(_, cells)| cells), out);
    }
    let layers: BTreeSet<i64> = rows.iter().map(|&(layer, _)| layer).collect();
    let chosen = selection(&layers);
    let mut kept = Vec::new();
    let mut hidden = 0;
    let mut in_gap = false;
    for (layer, cells) in rows {
        if chosen.contains(&layer) {
            kept.push(cells);
        } else {
            hidden += 1;
            if !in_gap {
                kept.push(vec!["…".to_owned()]);
            }
        }
        in_gap = !chosen.contains(&layer);
    }
    plain_table(header, kept, out)?;
    if hidden > 0 {
        let (hidden, total) = (grouped(hidden), grouped(total as u64));
        writeln!(out, "({hidden} of {total} rows hidden; --format csv shows all)")?;
    }
    Ok(())
}

/// Returns the layers to show: the first four, the last three, and 3, 7, 15, …, where the number of blocks passed
/// doubles.
fn selection(layers: &BTreeSet<i64>) -> BTreeSet<i64> {
    let (first, last) = (layers.iter().take(4), layers.iter().rev().take(3));
    let doublings = (2..62).map(|power| (1_i64 << power) - 1);
    let mut chosen: BTreeSet<i64> = first.chain(last).copied().collect();
    chosen.extend(doublings.filter(|layer| layers.contains(layer)));
    chosen
}

fn blank_or(number: Option<Number>) -> String {
    number.map(short).unwrap_or_default()
}

fn title(quantity: Compared) -> &'static str {
    match quantity {
        Compared::Site(Quantity::TokenCorrelation) => "token corr",
        Compared::Site(Quantity::GradTokenCorrelation) => "grad corr",
        Compared::GradCrossProduct => "grad cross prod",
        Compared::WeightGradient => "weight gradient",
        Compared::Site(_) | Compared::SecondMoment | Compared::CrossProduct => quantity.name(),
    }
}

/// Formats R² with enough digits to distinguish 0.9999 from 0.99999.
fn r_squared(value: f64) -> String {
    if value > -10.0 { format!("{value:.5}") } else { short(value) }
}

fn percent(share: f64) -> String {
    let percent = 100.0 * share;
    if percent < 0.01 && percent > 0.0 {
        "<0.01%".to_owned()
    } else if percent < 10.0 {
        format!("{percent:.2}%")
    } else if percent < 1e4 {
        format!("{percent:.0}%")
    } else {
        short(share)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use sigprop_stack::{Cell, SiteRow};

    fn table(n_blocks: i64) -> SiteTable {
        let row = |layer: i64| SiteRow {
            layer,
            site: if layer < 0 { "embeddings".to_owned() } else { format!("blocks.{layer}") },
            is_stream_site: true,
            cells: [Some(Cell::exact(-1.2345e-7)); Quantity::ALL.len()],
        };
        SiteTable { sites: (-1..n_blocks).map(row).collect(), weights: Vec::new() }
    }

    fn shown(n_blocks: i64) -> String {
        let mut out = Vec::new();
        sites_table(&table(n_blocks), &mut out).expect("a vector takes everything");
        String::from_utf8(out).expect("text")
    }

    #[test]
    fn the_summary_fits_a_terminal() {
        let worst = Fit {
            count: 999,
            r2_log: Some(0.99981),
            r2_linear: Some(-123_456.0),
            p50: Some(1e-9),
            p90: Some(0.021),
            p99: Some(f64::INFINITY),
            share_z_below_2: Some(1.0),
            off: 999,
            ln_range: Some(112.9),
        };
        let quantities = Compared::ALL.map(|quantity| (quantity, worst.clone())).to_vec();
        let mut out = Vec::new();
        summary_table(&Summary { quantities, pooled: worst }, &mut out).expect("a vector takes everything");
        let text = String::from_utf8(out).expect("text");
        assert!(text.contains(" 999  0.99981  -123456  <0.01%  2.10%  inf   100%  112.90"), "{text}");
        assert!(text.lines().all(|line| line.chars().count() <= 80), "{text}");
    }

    #[test]
    fn short_stacks_are_shown_whole() {
        let text = shown(12);
        assert_eq!(text.lines().count(), 2 + 13 + 1, "{text}");
        assert!(!text.contains("hidden"));
    }

    #[test]
    fn long_stacks_show_a_selection() {
        let text = shown(768);
        let expected = [-1, 0, 1, 2, 3, 7, 15, 31, 63, 127, 255, 511, 765, 766, 767];
        for layer in expected.into_iter().skip(1) {
            assert!(text.contains(&format!("blocks.{layer} ")), "{text}");
        }
        assert!(
            text.contains(&format!("({} of 769 rows hidden; --format csv shows all)", 769 - expected.len())),
            "{text}"
        );
        assert!(text.lines().all(|line| line.chars().count() <= 80), "{text}");
    }
}
