//! Sites, weight tensors and comparisons as rows.

use sigprop_stack::{Quantity, SiteRow, SiteTable};

use super::{Field, Rows, ln, std_error};
use crate::agreement::Comparison;

/// Columns of [`sites_rows`].
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

/// Columns of a [`Comparison`]. They follow the columns that locate it, such as the layer.
pub(super) const COMPARISON_COLUMNS: [&str; 8] =
    ["site", "quantity", "predicted", "observed", "std_error", "replicates", "relative_error", "z"];

/// Returns all moments of all sites, in order of depth.
pub fn sites_rows(table: &SiteTable) -> Rows {
    let fields = |row: &SiteRow| {
        let value = |quantity| Field::from(row.value(quantity));
        let logarithm = |quantity| Field::from(ln(row.value(quantity)));
        [
            row.layer.into(),
            row.site.as_str().into(),
            value(Quantity::Mean),
            value(Quantity::Variance),
            value(Quantity::TokenCorrelation),
            value(Quantity::GradVariance),
            value(Quantity::GradTokenCorrelation),
            logarithm(Quantity::Variance),
            logarithm(Quantity::GradVariance),
            value(Quantity::VarianceFirst),
            value(Quantity::VarianceLast),
            value(Quantity::GradVarianceFirst),
            value(Quantity::GradVarianceLast),
            value(Quantity::LnVarianceStd),
            value(Quantity::LnGradVarianceStd),
        ]
    };
    Rows::new(SITE_COLUMNS, table.sites.iter().map(fields))
}

/// Returns all weight tensors with the gradient that reaches them from one sequence.
pub fn weights_rows(table: &SiteTable) -> Rows {
    let rows = table.weights.iter().map(|row| {
        [row.layer.into(), row.tensor.as_str().into(), row.variance.into(), row.grad_second_moment.value.into()]
    });
    Rows::new(["layer", "tensor", "weight_variance", "weight_grad_second_moment"], rows)
}

/// Returns all comparisons with a measurement; one replicate has no standard error.
pub fn comparisons_rows(comparisons: &[Comparison]) -> Rows {
    let [site, quantity, predicted, observed, std_error, replicates, relative_error, z] = COMPARISON_COLUMNS;
    let columns = ["layer", site, quantity, predicted, observed, std_error, replicates, relative_error, z];
    let rows = comparisons.iter().map(|row| {
        let [site, quantity, predicted, observed, std_error, replicates, relative_error, z] = comparison_fields(row);
        [row.layer.into(), site, quantity, predicted, observed, std_error, replicates, relative_error, z]
    });
    Rows::new(columns, rows)
}

/// Returns the fields of one comparison, in the order of its columns.
pub(super) fn comparison_fields(row: &Comparison) -> [Field; 8] {
    [
        row.site.as_str().into(),
        row.quantity.name().into(),
        row.predicted.into(),
        row.observed.into(),
        std_error(row).into(),
        row.replicates.into(),
        row.relative_error.into(),
        row.z.into(),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{agreement::compare, report::RowFormat};
    use sigprop_stack::{Cell, Number, WeightRow};

    fn table(variance: Number) -> SiteTable {
        let cell = |value: f64| Some(Cell::exact(value));
        let averages = [cell(0.0), Some(Cell::exact(variance)), None, cell(2.0), None];
        let others = [cell(1.0), cell(2.0), cell(4.0), None, cell(0.5), None];
        let cells = averages.iter().chain(&others).copied().collect::<Vec<_>>().try_into().expect("all cells");
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

    fn written(rows: &Rows) -> String {
        let mut out = Vec::new();
        rows.write(RowFormat::Csv, &mut out).expect("a vector takes everything");
        String::from_utf8(out).expect("CSV is text")
    }

    #[test]
    fn sites_follow_the_contract() {
        assert_eq!(
            written(&sites_rows(&table(1.0.into()))),
            "layer,site,mean,variance,token_correlation,grad_variance,grad_token_correlation,\
             ln_variance,ln_grad_variance,variance_first,variance_last,grad_variance_first,grad_variance_last,\
             ln_variance_std,ln_grad_variance_std\n\
             -1,embeddings,0,1,,2,,0,0.6931471805599453,1,2,4,,0.5,\n"
        );
    }

    #[test]
    fn numbers_beyond_f64_are_text_and_zero_has_no_logarithm() {
        let large = Number::from_ln(1e4 * std::f64::consts::LN_10);
        let rows = written(&sites_rows(&table(large)));
        assert!(rows.contains("-1,embeddings,0,1e10000,,2,,23025.8509299"), "{rows}");
        let rows = written(&sites_rows(&table(Number::ZERO)));
        assert!(rows.contains("-1,embeddings,0,0,,2,,,0.69"), "{rows}");
    }

    #[test]
    fn weights_follow_the_contract() {
        assert_eq!(
            written(&weights_rows(&table(1.0.into()))),
            "layer,tensor,weight_variance,weight_grad_second_moment\n0,\"a, b\",0.25,2\n"
        );
    }

    #[test]
    fn comparisons_follow_the_contract() {
        let comparisons = compare(&table(1.0.into()), &table(0.5.into()), 1);
        let rows = written(&comparisons_rows(&comparisons));
        let expected = "layer,site,quantity,predicted,observed,std_error,replicates,relative_error,z\n\
                        -1,embeddings,mean,0,0,,1,0,\n\
                        -1,embeddings,variance,1,0.5,,1,1,\n";
        assert!(rows.starts_with(expected), "{rows}");
    }
}
