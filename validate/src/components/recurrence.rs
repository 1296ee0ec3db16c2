//! A linear recurrence over positions with a matrix S per head as its state. The threads share the heads.
//!
//! ```text
//! gates     dt = softplus(a + b),  α = e^(−A dt),  η = 1, dt or factor · σ(strength); with a fixed decay α = e^(−rate)
//! forward   P = diag(α_t) S_(t−1),  u = v − [delta] Pᵀ k,  S_t = P + η k uᵀ,  y = scale S_tᵀ q + D v
//! backward  G is the gradient at S_t, to which position t adds scale · q dyᵀ:
//!           dq = scale · S_t dy,  dη = kᵀ G u,  du = η Gᵀ k,  dk = η G u − [delta] P du,  dv = du + D dy,  dD = v·dy;
//!           G ← G − [delta] k duᵀ is the gradient at P,  dα = row sums of G ∘ S_(t−1);
//!           G ← diag(α_t) G is passed on to position t − 1
//! ```
//!
//! Head h uses query and key head ⌊h · `n_key_heads` / `n_heads`⌋, whose gradients add up. States are not kept: the
//! backward pass computes them again, between every √L-th of them. Gradients of ln A and of b are not reported.

mod head;
mod parameters;

use rayon::prelude::*;
use sigprop_stack::Recurrence;

use crate::{array::Array, random::Random, scalar::Scalar, signal::Signal};

use head::{Head, HeadGradient, add_multiple, row, row_mut};
use parameters::Parameters;

/// Number of heads whose gradients are in memory at a time, before they are added up in order.
const HEADS: usize = 64;

/// Returns the output. `parts` are query, key, value and, where they exist, step and strength; `site` is the path of the
/// site that owns the parameters.
pub(crate) fn forward<T: Scalar>(
    recurrence: &Recurrence,
    random: &Random,
    site: &str,
    parts: &[Signal<T>],
) -> Array<T> {
    let parts = arrays(parts);
    let parameters = Parameters::new(recurrence, random, site);
    let mut output = Array::zeros(parts[0].shape(), recurrence.n_heads * recurrence.d_value);
    let places = Place::all(recurrence, output.shape().batch);
    let heads: Vec<Vec<T>> =
        places.par_iter().map(|place| Head::new(recurrence, &parameters, &parts, place).outputs()).collect();
    for (place, y) in places.iter().zip(heads) {
        add_columns(&mut output, place.sequence, place.head, &y);
    }
    output
}

/// The gradients of a recurrence.
pub(crate) struct Backward<T: Scalar> {
    /// Gradients of the parts.
    pub parts: Vec<Array<T>>,
    /// Gradient of D, one per sequence.
    pub skips: Vec<Vec<T>>,
}

pub(crate) fn backward<T: Scalar>(
    recurrence: &Recurrence,
    random: &Random,
    site: &str,
    parts: &[Signal<T>],
    gradient: &Array<T>,
) -> Backward<T> {
    let parts = arrays(parts);
    let parameters = Parameters::new(recurrence, random, site);
    let mut sums: Vec<Array<T>> = parts.iter().map(|part| Array::zeros(part.shape(), part.width())).collect();
    let mut skips = vec![Vec::with_capacity(recurrence.n_heads); gradient.shape().batch];
    for places in Place::all(recurrence, gradient.shape().batch).chunks(HEADS) {
        let of_head = |place: &Place| {
            let dy = columns(gradient, place.sequence, place.head, recurrence.d_value);
            Head::new(recurrence, &parameters, &parts, place).backward(&dy)
        };
        let gradients: Vec<HeadGradient<T>> = places.par_iter().map(of_head).collect();
        for (&Place { sequence, head, key_head }, of_head) in places.iter().zip(gradients) {
            let of_parts = sums.iter_mut().zip([key_head, key_head, head, head, head]);
            for ((sum, head), entries) in of_parts.zip(&of_head.parts) {
                add_columns(sum, sequence, head, entries);
            }
            skips[sequence].push(of_head.skip);
        }
    }
    Backward { parts: sums, skips }
}

/// Number of entries that the backward pass needs besides the gradients of its parts, for sequences of this length.
pub(crate) fn temporary_entries(recurrence: &Recurrence, seq_len: usize) -> usize {
    let Recurrence { d_key, d_value, .. } = *recurrence;
    let states = (2 * seq_len.isqrt() + 3) * d_key * d_value;
    let of_head = seq_len * (6 * d_key + 3 * d_value);
    HEADS.min(recurrence.n_heads) * of_head + states
}

/// A head of a sequence.
struct Place {
    sequence: usize,
    head: usize,
    /// The head of queries and keys that it uses.
    key_head: usize,
}

impl Place {
    /// Lists the heads of every sequence.
    fn all(recurrence: &Recurrence, batch: usize) -> Vec<Self> {
        let n_heads = recurrence.n_heads;
        let place = |index| {
            let head = index % n_heads;
            Self { sequence: index / n_heads, head, key_head: head * recurrence.n_key_heads / n_heads }
        };
        (0..batch * n_heads).map(place).collect()
    }
}

fn arrays<T: Scalar>(parts: &[Signal<T>]) -> Vec<&Array<T>> {
    parts.iter().map(|part| &**part).collect()
}

/// Returns the columns of head `head`, of this width, in the rows of a sequence.
fn columns<T: Scalar>(array: &Array<T>, sequence: usize, head: usize, width: usize) -> Vec<T> {
    let rows = array.entries()[array.sequence(sequence)].chunks_exact(array.width());
    rows.flat_map(|entries| row(entries, head, width)).copied().collect()
}

/// Adds to the columns of head `head` in the rows of a sequence; `head` times the width of its rows come before them.
fn add_columns<T: Scalar>(sum: &mut Array<T>, sequence: usize, head: usize, entries: &[T]) {
    let (columns, width) = (entries.len() / sum.shape().seq_len, sum.width());
    let range = sum.sequence(sequence);
    let rows = sum.entries_mut()[range].chunks_exact_mut(width);
    for (sum, entries) in rows.zip(entries.chunks_exact(columns)) {
        add_multiple(row_mut(sum, head, columns), T::from_f64(1.0), entries);
    }
}

#[cfg(test)]
mod tests {
    use sigprop_stack::{Decay, Rates, StepBias, Stepped, Write};

    use super::*;
    use crate::array::Shape;

    /// One head, whose keys and values have this width, without decay.
    fn plain(d_key: usize, d_value: usize) -> Recurrence {
        Recurrence {
            n_heads: 1,
            n_key_heads: 1,
            d_key,
            d_value,
            scale: 1.0,
            decay: Decay::Fixed { rates: vec![0.0] },
            write: Write::One,
            delta: false,
            skip: None,
            query: Vec::new(),
            key: Vec::new(),
            value: Vec::new(),
        }
    }

    fn outputs(recurrence: &Recurrence, parts: &[&[f64]]) -> Vec<f64> {
        let array = |entries: &&[f64]| {
            let mut array = Array::zeros(Shape { batch: 1, seq_len: 3 }, entries.len() / 3);
            array.entries_mut().copy_from_slice(entries);
            Signal::from(array)
        };
        let parts: Vec<Signal<f64>> = parts.iter().map(array).collect();
        forward(recurrence, &Random::new(0, 0), "mixer", &parts).entries().to_vec()
    }

    fn assert_close(got: &[f64], expected: &[f64]) {
        assert_eq!(got.len(), expected.len());
        for (x, y) in got.iter().zip(expected) {
            assert!((x - y).abs() < 1e-12, "expected {expected:?}, got {got:?}");
        }
    }

    /// Three tokens of one feature by hand: S = 10, 10/2 + 20, (10/4 + 20/2) + 30 · 2 with the decay 1/2.
    #[test]
    fn states_decay_and_gather() {
        let halved =
            Recurrence { scale: 2.0, skip: Some(0.5), decay: Decay::Fixed { rates: vec![2.0f64.ln()] }, ..plain(1, 1) };
        let got = outputs(&halved, &[&[1.0, 1.0, -1.0], &[1.0, 1.0, 2.0], &[10.0, 20.0, 30.0]]);
        assert_close(&got, &[20.0 + 5.0, 50.0 + 10.0, -145.0 + 15.0]);
    }

    /// Without decay and erasing, y_t = Σ_(b ≤ t) (q_t·k_b) v_b.
    #[test]
    fn linear_attention() {
        let (queries, keys) = ([1.0, 2.0, 0.0, 1.0, 3.0, -1.0], [1.0, 0.0, 2.0, 1.0, 0.0, 1.0]);
        let got = outputs(&plain(2, 1), &[&queries, &keys, &[10.0, 100.0, 1000.0]]);
        assert_close(&got, &[10.0, 100.0, 30.0 + 500.0 - 1000.0]);
    }

    /// The delta rule with keys of length 1 replaces the value of a key, and leaves those of orthogonal keys.
    #[test]
    fn the_delta_rule_replaces_values() {
        let delta = Recurrence { delta: true, ..plain(2, 1) };
        let keys = [0.6, 0.8, -0.8, 0.6, 0.6, 0.8];
        assert_close(&outputs(&delta, &[&keys, &keys, &[5.0, 7.0, 9.0]]), &[5.0, 7.0, 9.0]);
        // The query at the end is the other key.
        let queries = [0.6, 0.8, 0.6, 0.8, -0.8, 0.6];
        assert_close(&outputs(&delta, &[&queries, &keys, &[5.0, 7.0, 9.0]]), &[5.0, 5.0, 7.0]);
    }

    /// A step without input decays by e^(−A dt) and writes dt, where dt is ln 2 for a bias of 0; rates are 1, 2, 3.
    #[test]
    fn steps_decay_and_write() {
        let (bias, rates) = (StepBias::Value(0.0), Rates::Counted);
        let stepped = Stepped { step: Vec::new(), step_per_channel: false, bias, rates, rate_per_channel: true };
        let one = Recurrence { write: Write::Step, decay: Decay::Stepped(stepped), ..plain(3, 1) };
        let channels = [1.0, 1.0, 1.0];
        let (first, last) = ([channels, [0.0; 3], [0.0; 3]].concat(), [[0.0; 3], [0.0; 3], channels].concat());
        let got = outputs(&one, &[&last, &first, &[8.0; 3], &[0.0; 3]]);
        let two_steps = 0.25 + 0.0625 + 0.015_625;
        assert_close(&got, &[0.0, 0.0, 8.0 * 2.0f64.ln() * two_steps]);
    }
}
