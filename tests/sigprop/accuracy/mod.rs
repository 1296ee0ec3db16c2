//! The tables of `docs/accuracy.md`, computed again from the measurements in `data/measured/`.
//!
//! `SIGPROP_ACCURACY=write cargo test --release accuracy -- --include-ignored` writes them anew. Without it, a table
//! that differs from its page by more than rounding fails.

mod commands;
mod measured;
pub(crate) mod page;
mod pairs;
mod suites;

use std::path::PathBuf;

/// The path of a file of measurements.
fn path(name: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("data/measured").join(name)
}

/// The percentile of absolute values by nearest rank: the smallest one that at least a `share` of them do not exceed.
pub(crate) fn percentile(sizes: impl Iterator<Item = f64>, share: f64) -> f64 {
    let mut sizes: Vec<f64> = sizes.map(f64::abs).filter(|size| !size.is_nan()).collect();
    sizes.sort_by(f64::total_cmp);
    let rank = (share * sizes.len() as f64).ceil() as usize;
    sizes.get(rank.saturating_sub(1)).copied().unwrap_or(f64::NAN)
}

/// Formats a share in percent, with this number of decimals.
pub(crate) fn percent(share: f64, decimals: usize) -> String {
    format!("{:.decimals$} %", 100.0 * share)
}
