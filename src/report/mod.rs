//! Predictions and measurements as tables, rows (CSV, JSON lines, Markdown), JSON, pictures and reports.
//! `docs/formats.md` describes every field.
//!
//! Formatters write into any writer and know nothing of files or terminals; only `write_file` and `remove_leftovers`
//! (feature `files`) touch the disk.

#[cfg(feature = "plot")]
mod chart;
mod compare;
#[cfg(feature = "plot")]
mod curve;
mod diff;
#[cfg(feature = "files")]
mod file;
#[cfg(feature = "plot")]
mod html;
mod inspection;
mod json;
mod models;
mod numbers;
mod phase;
#[cfg(feature = "plot")]
mod plot;
mod recommend;
mod rows;
mod schemes;
mod sites;
mod suite;
mod summary;
mod table;
mod update;

pub use compare::{comparison_json, comparison_rows, comparison_tables};
#[cfg(feature = "plot")]
pub use curve::{Ink, prediction_curve, validation_curve};
pub use diff::{diff_json, diff_rows, diff_table};
#[cfg(feature = "files")]
pub use file::{remove_leftovers, write_file};
#[cfg(feature = "plot")]
pub use html::{Drawn, Origin, comparison_html, prediction_html, validation_html};
pub use inspection::{InspectionDocument, inspection_json, inspection_rows, inspection_table};
pub use json::{PredictionDocument, ValidationDocument, prediction_json, validation_json};
pub use models::{PresetCost, models_json, models_rows};
pub use phase::{edges_rows, phase_json, phase_rows, phase_table};
#[cfg(feature = "plot")]
pub use plot::Picture;
pub use recommend::{recommendation_json, recommendation_rows, recommendation_tables};
pub use rows::{Field, RowFormat, Rows};
pub use schemes::{scheme_usage, schemes_json, schemes_rows};
pub use sites::{comparisons_rows, sites_rows, weights_rows};
pub use suite::{SuiteRuns, suite_cells_rows, suite_lines_json, suite_lines_rows, suite_table};
pub use summary::{Observed, Run, summary_json};
pub use table::{plain_table, sites_table, summary_table, weights_table};
pub use update::{update_rows, update_table};

use sigprop_stack::Number;

use crate::agreement::Comparison;

/// Version of the JSON documents. It changes when a field changes its meaning or is removed.
pub const SCHEMA_VERSION: u32 = 1;

/// Returns ln of the absolute value of `number`, for the columns of logarithms. `None` for zero, which has no
/// logarithm, or without a number.
fn ln(number: Option<Number>) -> Option<f64> {
    number.map(|number| number.ln_abs()).filter(|ln| ln.is_finite())
}

/// The number of quantities that are averages over positions. They are the first ones in `Quantity::ALL`.
const AVERAGES: usize = 5;

/// Returns the standard error of the observed number; `None` for a single replicate.
fn std_error(row: &Comparison) -> Option<Number> {
    Some(row.std_error).filter(|_| row.replicates != Some(1))
}
