//! Judges the fixed point of the variance map of a chain of equal layers.
//!
//! # Rule
//!
//! If the only fixed point of the map repels, no variance is kept: it leaves the fixed point by a factor per layer that
//! itself grows. `src/predict/variance_map.rs` has the map and its source.

use super::{Finding, Kind, Profile, Severity, factor};
use crate::predict::Repeller;
use sigprop_stack::Quantity;

/// Judges a repelling fixed point, for a stream with this profile.
pub(super) fn judge(repeller: &Repeller, profile: &Profile<'_>) -> Option<Finding> {
    let variance = |row: Option<&&sigprop_stack::SiteRow>| row?.value(Quantity::Variance).map(crate::numerals::short);
    let (start, end) = (variance(profile.rows.first())?, variance(profile.rows.last())?);
    Some(Finding {
        kind: Kind::Repels,
        severity: Severity::Notice,
        text: format!(
            "no variance is stable: the fixed point {} before activations repels (slope {:.3}, χ = {}); the variance goes \
             from {start} to {end}",
            factor(repeller.ln_variance),
            repeller.slope,
            factor(repeller.ln_susceptibility)
        ),
        rule: "the variance map of a layer has a fixed point of slope above 1 and none of slope below 1".to_owned(),
        block: None,
        value: repeller.ln_variance,
    })
}
