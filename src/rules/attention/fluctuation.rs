//! How far the levels of attention stray in one network, in either token domain.
//!
//! # Formula
//!
//! Levels m of what tokens have in common, s of all (see [`Fluctuation`]). Averages keep what is common; an output has
//! the part f of its second moment from it, the mean cosine of the outputs:
//!
//! ```text
//! m' = m      s' = f m + (1 − f) s        of the values, their draws included
//! ```
//!
//! # Backward
//!
//! Value gradients are averages of the gradients at the output likewise. Queries and keys take the scale s of that
//! gradient, and their own draws 2/width; being of differences of keys and of values, (1 − c)², they are larger by
//! E (1 − ĉ)²/(1 − c)² = 1 + (p/(1 − p))² Var (m − s).
//!
//! # Assumptions
//!
//! Overlaps of softmax rows stray little, averaged over heads and rows.
//!
//! # Source
//!
//! Ours.

use nalgebra::{Matrix2, Vector2};
use sigprop_stack::Attention;

use crate::domain::{Concentration, Domain, Fluctuation, Gradient, Signal, levels_covariance};
use crate::moments::ln_correction;

/// Tokens that are copies have no differences to respond with.
const LARGEST_SHARED: f64 = 0.95;

/// What the backward pass needs.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Strayed {
    /// From the levels of the values to those of the output.
    pub(crate) map: Matrix2<f64>,
    /// p of the input.
    pub(crate) shared: f64,
    /// B of the input.
    pub(crate) levels: Matrix2<f64>,
}

/// Of the heads' `output`, from the `value`s.
pub(crate) fn forward(domain: &Domain, value: &Signal, output: &Signal) -> Fluctuation {
    value.fluctuation.mapped(averaging(domain.mean_cosine(output)))
}

/// The gradients at queries, keys and values, completed from that at the output.
pub(crate) fn backward(
    domain: &Domain,
    attention: &Attention,
    output: &Gradient,
    forward: &Strayed,
    [query, key, value]: [Gradient; 3],
) -> [Gradient; 3] {
    let response = forward.map.transpose() * output.response;
    let strayed = output.fluctuation.forked();
    let kv_width = (attention.n_kv_heads * attention.d_value) as f64;
    let averaged = strayed.mapped(averaging(domain.mean_cosine(&value)));
    let value = Gradient { fluctuation: averaged, concentration: fresh(kv_width), response, ..value };
    // Of differences of keys and of values.
    let alike = forward.shared.min(LARGEST_SHARED);
    let odds = alike / (1.0 - alike);
    let own = Vector2::new(1.0, -1.0) * 2.0 * odds;
    let scored_response = response + own;
    let apart = forward.levels[(0, 0)] - 2.0 * forward.levels[(0, 1)] + forward.levels[(1, 1)];
    let ln_gain = if domain.follows_levels() { ln_correction(odds * odds * apart) } else { 0.0 };
    let scored = |part: Gradient, heads: usize| {
        let width = (heads * attention.d_head) as f64;
        let concentration = fresh(width);
        let (shared, squares) = domain.shared_and_squares(&part, concentration.total);
        let drawn = levels_covariance(2.0, shared, 2.0 * squares) / width;
        let fluctuation = strayed.redrawn(Matrix2::new(0.0, 1.0, 0.0, 1.0), drawn);
        let tokens = part.tokens.iter().map(|token| token.scaled(ln_gain)).collect();
        Gradient { tokens, fluctuation, concentration, response: scored_response, ..part }
    };
    [scored(query, attention.n_heads), scored(key, attention.n_kv_heads), value]
}

/// From the levels of what is averaged to those of averages with this mean cosine.
fn averaging(cosine: f64) -> Matrix2<f64> {
    let common = cosine.clamp(0.0, 1.0);
    Matrix2::new(1.0, 0.0, common, 1.0 - common)
}

fn fresh(width: f64) -> Concentration {
    Concentration { inherited: 0.0, ..Concentration::fresh(width) }
}
