//! Judges if tokens become copies of each other.
//!
//! # Rule
//!
//! Attention cannot choose between copies, and averages the remaining differences. Where nothing attends, differences
//! are lost in the way gradients are, in blocks that vanish: similar inputs alone are a warning.
//!
//! # Source
//!
//! Dong et al. 2021 (arXiv 2103.03404): attention without skip connections has rank one after a few blocks; Noci et al.
//! 2022 (arXiv 2206.03126): it then passes no gradient to queries and keys.

use sigprop_stack::{Quantity, SiteRow};

use super::{Finding, Kind, Profile, Severity, from_block};
use crate::numerals::short;

/// Tokens above this correlation after the last block are copies of each other.
const COLLAPSED: f64 = 0.99;

/// Tokens above this correlation after the last block are nearly copies.
const NEARLY_COLLAPSED: f64 = 0.9;

/// Judges the correlation between tokens; `attends` is true if the network has attention. `None` if the correlation is
/// unknown.
pub(super) fn judge(profile: &Profile, attends: bool) -> Option<Finding> {
    let correlation = |row: &SiteRow| row.value(Quantity::TokenCorrelation).map(|cell| cell.value());
    let (first, last) = (correlation(profile.rows.first()?)?, correlation(profile.rows.last()?)?);
    let since = |limit: f64| {
        let below = profile.rows.iter().rposition(|row| correlation(row).is_some_and(|r| r <= limit));
        profile.rows[below.map_or(0, |index| index + 1)].layer
    };
    let change = format!("token correlation {} → {}", short(first), short(last));
    Some(if last > COLLAPSED && attends {
        let block = since(COLLAPSED);
        let text = format!("tokens collapse: {change}, above {COLLAPSED} {}", from_block(block));
        let rule = above(COLLAPSED);
        Finding { kind: Kind::Collapse, severity: Severity::Failure, text, rule, block: Some(block), value: last }
    } else if last > NEARLY_COLLAPSED {
        let block = since(NEARLY_COLLAPSED);
        let text = format!("tokens nearly collapse: {change}, above {NEARLY_COLLAPSED} {}", from_block(block));
        let rule = above(NEARLY_COLLAPSED);
        Finding { kind: Kind::Collapse, severity: Severity::Warning, text, rule, block: Some(block), value: last }
    } else {
        let text = format!("tokens stay distinct: {change}");
        let rule = format!("token correlation after the last block at most {NEARLY_COLLAPSED}");
        Finding { kind: Kind::Distinct, severity: Severity::Fine, text, rule, block: None, value: last }
    })
}

fn above(limit: f64) -> String {
    format!("token correlation after the last block above {limit}")
}
