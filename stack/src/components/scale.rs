//! Multiplication by a number.

use serde::{Deserialize, Serialize};

/// y = `factor` · x.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Scale {
    /// Factor on every entry.
    pub factor: f64,
}
