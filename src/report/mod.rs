//! Predictions and measurements as CSV, JSON, tables, pictures and reports.
//!
//! Formatters write into whatever they are given and know nothing of files or terminals; only
//! [`write_file`] touches the disk.

#[cfg(feature = "plot")]
mod chart;
mod compare;
mod csv;
#[cfg(feature = "plot")]
mod curve;
mod diff;
mod file;
#[cfg(feature = "plot")]
mod html;
mod inspection;
mod json;
mod phase;
#[cfg(feature = "plot")]
mod plot;
mod recommend;
mod suite;
mod summary;
mod table;
mod update;

pub use compare::{comparison_csv, comparison_json, comparison_tables};
pub use csv::{comparisons_csv, sites_csv, weights_csv};
#[cfg(feature = "plot")]
pub use curve::{Ink, prediction_curve, validation_curve};
pub use diff::{diff_csv, diff_json, diff_table};
pub use file::write_file;
#[cfg(feature = "plot")]
pub use html::{Drawn, Origin, ValidationDocument, comparison_html, prediction_html, validation_html};
pub use inspection::{InspectionDocument, deviations, inspection_csv, inspection_json, inspection_table};
pub use json::{PredictionDocument, prediction_json, validation_json};
pub use phase::{edges_csv, phase_csv, phase_json, phase_table};
#[cfg(feature = "plot")]
pub use plot::{comparison_svg, phase_svg, prediction_svg, validation_svg};
pub use recommend::{recommendation_csv, recommendation_json, recommendation_tables};
pub use suite::{suite_cells_csv, suite_lines_csv, suite_lines_json, suite_table};
pub use summary::{Observed, Run, summary_json};
pub use table::{plain_table, sites_table, summary_table, weights_table};
pub use update::{update_csv, update_table};

use sigprop_stack::Number;

use crate::agreement::Comparison;

/// Version of the JSON documents: changes when a field changes its meaning or goes.
pub const SCHEMA_VERSION: u32 = 1;

/// The ln column of a number; blank for zero, which has none.
fn ln(number: Option<Number>) -> Option<f64> {
    number.map(|number| number.ln_abs()).filter(|ln| ln.is_finite())
}

/// How many of the quantities are averages over positions; the others are of the first and the last one.
const AVERAGES: usize = 5;

/// The standard error of what was observed; one replicate has none.
fn std_error(row: &Comparison) -> Option<Number> {
    Some(row.std_error).filter(|_| row.replicates != Some(1))
}
