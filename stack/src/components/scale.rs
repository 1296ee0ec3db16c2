//! Multiplication by a number.

use serde::{Deserialize, Serialize};

/// y = `factor` · x.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Scale {
    /// What every entry is multiplied by.
    pub factor: f64,
}
