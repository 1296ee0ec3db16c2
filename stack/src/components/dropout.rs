//! Independent zeroing of entries.

use serde::{Deserialize, Serialize};

/// Every entry is zeroed with probability `rate`; survivors are multiplied by 1/(1 − `rate`).
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Dropout {
    /// Probability of zeroing, in [0, 1).
    pub rate: f64,
}
