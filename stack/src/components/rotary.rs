//! Rotary position embedding of queries and keys.

use serde::{Deserialize, Serialize};

/// Features i and i + n of every head, i < n = number of frequencies, are rotated by position · `frequencies`\[i\]; the
/// other features stay as they are.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Rotary {
    /// Features are cut into heads of this width.
    pub d_head: usize,
    /// The angle per position of every rotated pair of features; at most `d_head`/2 angles.
    pub frequencies: Vec<f64>,
}

impl Rotary {
    /// A rotation with the usual frequencies `base`^(−2i/`rotary_dim`) of the first `rotary_dim` features of a head.
    pub fn new(d_head: usize, rotary_dim: usize, base: f64) -> Self {
        let frequency = |i: usize| base.powf(-2.0 * i as f64 / rotary_dim as f64);
        Self { d_head, frequencies: (0..rotary_dim / 2).map(frequency).collect() }
    }
}
