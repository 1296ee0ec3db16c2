//! Some of the features of a signal.

use serde::{Deserialize, Serialize};

/// y = the features `start` … `start` + `width` − 1 of x.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Select {
    /// Index of the first feature.
    pub start: usize,
    /// Number of features.
    pub width: usize,
    /// Number of features of x.
    pub of: usize,
}
