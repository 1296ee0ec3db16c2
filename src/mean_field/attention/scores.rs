//! Scores s = cap(scale q·k): their variance, and the mean square slope of the cap.
//!
//! ```text
//! v = scale² d_head                       of raw scores, per E q² E k²
//!                                         of several parts: Σ of the shares of q² and k² over the share of features
//! cap(s) = softcap tanh(s/softcap)        v Var cap(s)/Var s in place of v; gradients times E cap'(s)²
//! learned bias(a − b)                     v + s_bias²/(E q² E k²) in place of v, as if it were correlated like scores
//! ```
//!
//! where v is the variance of a score over E q² E k²; E is the average over random weights and over features; q, k are
//! an entry of a query and an entry of a key; scale is the factor on q·k; d_head is the number of features of a head;
//! softcap is the bound of capped scores; bias(a − b) is a number that a table adds to the score of query a and key b;
//! s_bias² is the variance of an entry of a bias.
//!
//! Assumption: capped scores are Gaussian. Source: Gemma Team 2024 for the cap.

use sigprop_stack::{Attention, PositionBias};

use crate::mean_field::rotation::Rotation;
use crate::mean_field::signal::Signal;
use crate::quadrature::gaussian_nodes;

/// The variance of the scores of an attention, and the slope of their cap.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Scores {
    /// v, which is Var s over E q² E k². It multiplies kernels, whose `ln_unit` contains the units of queries and keys.
    pub(super) factor: f64,
    /// v in the units of both kernels: Var s over the product of the numbers `own` of queries and keys. This is v times
    /// e^(sum of both `ln_unit`).
    pub(crate) variance: f64,
    /// E cap'(s)², the mean square slope of the cap; 1 without a cap.
    pub(crate) slope: f64,
}

impl Scores {
    pub(crate) fn new(attention: &Attention, query: &Signal, key: &Signal) -> Self {
        let mean = |of: &Signal| {
            let positions = &of.kernel.positions;
            positions.sum(|node| of.kernel.own[node]) / positions.length
        };
        let raw = attention.scale * attention.scale * attention.d_head as f64 * shares(query, key).iter().sum::<f64>();
        let units = (query.kernel.ln_unit + key.kernel.ln_unit).clamp(-LARGEST_LN_UNIT, LARGEST_LN_UNIT).exp();
        let [kept, slope] = match attention.softcap {
            Some(cap) => capped((raw * units * mean(query) * mean(key)).sqrt() / cap),
            None => [1.0; 2],
        };
        let positions = match &attention.bias {
            Some(PositionBias::Relative { table, .. }) => table.init.variance(),
            Some(PositionBias::Alibi { .. } | PositionBias::Disentangled(_)) | None => 0.0,
        };
        let score = raw * kept * units * mean(query) * mean(key);
        let kept = if score > 0.0 { kept * (1.0 + positions / score) } else { kept };
        Self { factor: raw * kept, variance: raw * kept * units, slope }
    }
}

/// The contribution of each part of queries and keys to the variance of scores, relative to the total for parts with
/// equal second moments.
fn shares(query: &Signal, key: &Signal) -> Vec<f64> {
    let (Some(query), Some(key)) = (&query.parts, &key.parts) else { return vec![1.0] };
    query.iter().zip(key.iter()).map(|(q, k)| q.squares * k.squares / q.features).collect()
}

/// The rotation that scores depend on; `None` if nothing is rotated.
pub(crate) fn rotation(query: &Signal, key: &Signal) -> Option<Rotation> {
    match &query.parts {
        Some(parts) => {
            let rotations = parts.iter().map(|part| part.rotation.as_ref());
            Rotation::mixed(shares(query, key).into_iter().zip(rotations))
        }
        None => query.rotation.clone(),
    }
}

/// Largest ln of the product of the units of both kernels. For larger units, one key has all the weight of a row.
const LARGEST_LN_UNIT: f64 = 400.0;

/// Returns Var tanh(s)/Var s and E tanh'(s)² for s ~ N(0, `std`²).
fn capped(std: f64) -> [f64; 2] {
    if std < 1e-8 {
        return [1.0; 2];
    }
    let mut sums = [0.0; 2];
    for (z, weight) in gaussian_nodes(0.0, std) {
        let tanh = libm::tanh(std * z);
        sums[0] += weight * (tanh / std).powi(2);
        sums[1] += weight * (1.0 - tanh * tanh).powi(2);
    }
    sums
}
