//! CSV: one row per site, weight tensor or comparison. Numbers beyond f64 are decimal text, what
//! does not exist is blank.

use std::io::{self, Write};

use csv::{Error, ErrorKind, Writer};
use sigprop_stack::{Number, Quantity, SiteTable};

use super::{AVERAGES, ln, std_error};
use crate::agreement::Comparison;

/// Columns of [`sites_csv`].
const SITE_COLUMNS: [&str; 15] = [
    "layer",
    "site",
    "mean",
    "variance",
    "token_correlation",
    "grad_variance",
    "grad_token_correlation",
    "ln_variance",
    "ln_grad_variance",
    "variance_first",
    "variance_last",
    "grad_variance_first",
    "grad_variance_last",
    "ln_variance_std",
    "ln_grad_variance_std",
];

/// Columns of [`weights_csv`].
const WEIGHT_COLUMNS: [&str; 4] = ["layer", "tensor", "weight_variance", "weight_grad_second_moment"];

/// Columns of [`comparisons_csv`].
const COMPARISON_COLUMNS: [&str; 9] =
    ["layer", "site", "quantity", "predicted", "observed", "std_error", "replicates", "relative_error", "z"];

/// All moments of all sites, in order of depth.
pub fn sites_csv(table: &SiteTable, out: &mut dyn Write) -> io::Result<()> {
    write_rows(out, &SITE_COLUMNS, |writer| {
        let (averages, others) = Quantity::ALL.split_at(AVERAGES);
        for row in &table.sites {
            writer.write_field(row.layer.to_string())?;
            writer.write_field(&row.site)?;
            for &quantity in averages {
                writer.write_field(text(row.value(quantity)))?;
            }
            for quantity in [Quantity::Variance, Quantity::GradVariance] {
                writer.write_field(float(ln(row.value(quantity))))?;
            }
            for &quantity in others {
                writer.write_field(text(row.value(quantity)))?;
            }
            writer.write_record(None::<&[u8]>)?;
        }
        Ok(())
    })
}

/// All weight tensors with the gradient that reaches them from one sequence.
pub fn weights_csv(table: &SiteTable, out: &mut dyn Write) -> io::Result<()> {
    write_rows(out, &WEIGHT_COLUMNS, |writer| {
        for row in &table.weights {
            let gradient = text(Some(row.grad_second_moment.value));
            writer.write_record([&row.layer.to_string(), &row.tensor, &row.variance.to_string(), &gradient])?;
        }
        Ok(())
    })
}

/// All comparisons with a measurement; one replicate has no standard error.
pub fn comparisons_csv(comparisons: &[Comparison], out: &mut dyn Write) -> io::Result<()> {
    write_rows(out, &COMPARISON_COLUMNS, |writer| {
        for row in comparisons {
            writer.write_record(comparison_fields(row))?;
        }
        Ok(())
    })
}

/// The fields of one comparison, in the order of its columns.
pub(super) fn comparison_fields(row: &Comparison) -> [String; 9] {
    [
        row.layer.to_string(),
        row.site.clone(),
        row.quantity.name().to_owned(),
        text(Some(row.predicted)),
        text(Some(row.observed)),
        text(std_error(row)),
        row.replicates.map_or(String::new(), |count| count.to_string()),
        float(row.relative_error),
        float(row.z),
    ]
}

type CsvWriter<'w> = Writer<&'w mut dyn Write>;

pub(super) fn write_rows(
    out: &mut dyn Write,
    columns: &[&str],
    rows: impl FnOnce(&mut CsvWriter) -> Result<(), Error>,
) -> io::Result<()> {
    let mut writer = Writer::from_writer(out);
    writer.write_record(columns).and_then(|()| rows(&mut writer)).map_err(into_io)?;
    writer.flush()
}

/// The error of the stream below, so that a closed pipe stays recognisable.
fn into_io(error: Error) -> io::Error {
    match error.into_kind() {
        ErrorKind::Io(error) => error,
        kind => io::Error::other(format!("{kind:?}")),
    }
}

pub(super) fn text(number: Option<Number>) -> String {
    number.filter(Number::is_finite).map(|number| number.to_string()).unwrap_or_default()
}

pub(super) fn float(value: Option<f64>) -> String {
    value.map(|value| value.to_string()).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::agreement::compare;
    use sigprop_stack::{Cell, SiteRow, WeightRow};

    fn table(variance: Number) -> SiteTable {
        let cell = |value: f64| Some(Cell::exact(value));
        let averages = [cell(0.0), Some(Cell::exact(variance)), None, cell(2.0), None];
        let others = [cell(1.0), cell(2.0), cell(4.0), None, cell(0.5), None];
        let cells = *averages.iter().chain(&others).copied().collect::<Vec<_>>().as_array().expect("all cells");
        SiteTable {
            sites: vec![SiteRow { layer: -1, site: "embeddings".to_owned(), is_stream_site: true, cells }],
            weights: vec![WeightRow {
                layer: 0,
                tensor: "a, b".to_owned(),
                variance: 0.25,
                grad_second_moment: Cell::exact(2.0),
            }],
        }
    }

    fn written(write: impl FnOnce(&mut dyn Write) -> io::Result<()>) -> String {
        let mut out = Vec::new();
        write(&mut out).expect("a vector takes everything");
        String::from_utf8(out).expect("CSV is text")
    }

    #[test]
    fn sites_follow_the_contract() {
        assert_eq!(
            written(|out| sites_csv(&table(1.0.into()), out)),
            "layer,site,mean,variance,token_correlation,grad_variance,grad_token_correlation,\
             ln_variance,ln_grad_variance,variance_first,variance_last,grad_variance_first,grad_variance_last,\
             ln_variance_std,ln_grad_variance_std\n\
             -1,embeddings,0,1,,2,,0,0.6931471805599453,1,2,4,,0.5,\n"
        );
    }

    #[test]
    fn numbers_beyond_f64_are_text_and_zero_has_no_logarithm() {
        let large = Number::from_ln(1e4 * std::f64::consts::LN_10);
        let rows = written(|out| sites_csv(&table(large), out));
        assert!(rows.contains("-1,embeddings,0,1e10000,,2,,23025.8509299"), "{rows}");
        let rows = written(|out| sites_csv(&table(Number::ZERO), out));
        assert!(rows.contains("-1,embeddings,0,0,,2,,,0.69"), "{rows}");
    }

    #[test]
    fn weights_follow_the_contract() {
        assert_eq!(
            written(|out| weights_csv(&table(1.0.into()), out)),
            "layer,tensor,weight_variance,weight_grad_second_moment\n0,\"a, b\",0.25,2\n"
        );
    }

    #[test]
    fn comparisons_follow_the_contract() {
        let comparisons = compare(&table(1.0.into()), &table(0.5.into()), 1);
        let rows = written(|out| comparisons_csv(&comparisons, out));
        let expected = "layer,site,quantity,predicted,observed,std_error,replicates,relative_error,z\n\
                        -1,embeddings,mean,0,0,,1,0,\n\
                        -1,embeddings,variance,1,0.5,,1,1,\n";
        assert!(rows.starts_with(expected), "{rows}");
    }
}
