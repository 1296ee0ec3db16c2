//! Multi-head softmax attention, one sequence and one query head at a time.
//!
//! ```text
//! forward   r = scale · q kᵀ,  s = cap(r) + bias, −∞ where masked,  A = softmax(s),  Ã = mask ∘ A,  y = Ã v
//! backward  dv = Ãᵀ dy,  dÃ = dy vᵀ,  dA = mask ∘ dÃ,  ds = A ∘ (dA − row sums of A ∘ dA),
//!           dr = cap'(r) ∘ ds,  dq = scale · dr k,  dk = scale · drᵀ q
//! ```
//!
//! Query head h uses key and value head ⌊h · `n_kv_heads` / `n_heads`⌋, whose gradients add up. A
//! and its mask are made again in the backward pass: n_heads · L² entries per sequence would be
//! most of what a deep stack keeps.

use std::rc::Rc;

use sigprop_stack::{Attention, PositionBias};

use super::softmax;
use crate::{
    array::Array,
    matmul::{View, ViewMut, multiply, multiply_add},
    random::{Random, Streams},
    scalar::Scalar,
};

/// `parts` are query, key and value; `observe` is shown A of every head.
pub(crate) fn forward<T: Scalar>(
    attention: &Attention,
    random: &Random,
    masks: &Streams,
    parts: &[Rc<Array<T>>],
    mut observe: impl FnMut(&[T]),
) -> Array<T> {
    let [query, key, value] = states(parts);
    let (queries, keys) = (query.shape().seq_len, key.shape().seq_len);
    let scores = Scores::new(attention, random, queries, keys);
    let mut output = Array::zeros(query.shape(), attention.n_heads * attention.d_value);
    let mut weights = vec![T::default(); queries * keys];
    for place in places(attention, query) {
        scores.raw(&place, query, key, &mut weights);
        scores.probabilities(&place, &mut weights);
        observe(&weights);
        drop_weights(attention, masks, &place, &mut weights);
        let mut y = head_mut(&mut output, place.sequence, place.head, attention.d_value);
        let v = head(value, place.sequence, place.kv_head, attention.d_value);
        multiply(&mut y, 1.0, View::new(&weights, queries, keys, keys), v);
    }
    output
}

/// What attention gives back.
pub(crate) struct Backward<T> {
    /// Gradients of query, key and value.
    pub parts: Vec<Array<T>>,
    /// Gradient of the table of relative positions, one per sequence, if there is one.
    pub bias: Vec<Vec<T>>,
}

/// `observe` is shown dA of every head.
pub(crate) fn backward<T: Scalar>(
    attention: &Attention,
    random: &Random,
    masks: &Streams,
    parts: &[Rc<Array<T>>],
    gradient: &Array<T>,
    mut observe: impl FnMut(&[T]),
) -> Backward<T> {
    let [query, key, value] = states(parts);
    let (queries, keys) = (query.shape().seq_len, key.shape().seq_len);
    let scores = Scores::new(attention, random, queries, keys);
    let [mut dq, mut dk, mut dv] = [query, key, value].map(|state| Array::zeros(state.shape(), state.width()));
    let mut bias = vec![vec![T::default(); scores.table.len()]; query.shape().batch];
    let mut raw = vec![T::default(); queries * keys];
    let (mut weights, mut dropped, mut slopes) = (raw.clone(), raw.clone(), raw.clone());
    let (d_head, d_value) = (attention.d_head, attention.d_value);
    for place in places(attention, query) {
        let (sequence, kv_head) = (place.sequence, place.kv_head);
        let dy = head(gradient, sequence, place.head, d_value);
        scores.raw(&place, query, key, &mut raw);
        weights.copy_from_slice(&raw);
        scores.probabilities(&place, &mut weights);

        dropped.copy_from_slice(&weights);
        drop_weights(attention, masks, &place, &mut dropped);
        let dropped = View::new(&dropped, queries, keys, keys);
        multiply_add(&mut head_mut(&mut dv, sequence, kv_head, d_value), 1.0, dropped.transposed(), dy);

        let v = head(value, sequence, kv_head, d_value);
        multiply(&mut ViewMut::new(&mut slopes, queries, keys, keys), 1.0, dy, v.transposed());
        drop_weights(attention, masks, &place, &mut slopes);
        observe(&slopes);
        softmax::backward(&weights, &mut slopes, keys);
        scores.collect_bias(&place, &slopes, &mut bias[sequence]);
        scores.backward(&raw, &mut slopes);
        let dr = View::new(&slopes, queries, keys, keys);
        let (q, k) = (head(query, sequence, place.head, d_head), head(key, sequence, kv_head, d_head));
        multiply(&mut head_mut(&mut dq, sequence, place.head, d_head), attention.scale, dr, k);
        multiply_add(&mut head_mut(&mut dk, sequence, kv_head, d_head), attention.scale, dr.transposed(), q);
    }
    Backward { parts: vec![dq, dk, dv], bias }
}

/// One query head of one sequence.
struct Place {
    sequence: usize,
    head: usize,
    kv_head: usize,
    /// Counts the heads of all sequences.
    index: usize,
}

fn places<T: Scalar>(attention: &Attention, query: &Array<T>) -> impl Iterator<Item = Place> + use<T> {
    let (n_heads, n_kv_heads) = (attention.n_heads, attention.n_kv_heads);
    (0..query.shape().batch * n_heads).map(move |index| {
        let head = index % n_heads;
        Place { sequence: index / n_heads, head, kv_head: head * n_kv_heads / n_heads, index }
    })
}

fn states<T: Scalar>(parts: &[Rc<Array<T>>]) -> [&Array<T>; 3] {
    let [query, key, value] = parts else { unreachable!("attention has three parts") };
    [query, key, value]
}

/// From queries and keys to what the softmax sees.
struct Scores<'a, T> {
    attention: &'a Attention,
    queries: usize,
    keys: usize,
    /// The table of relative positions, buckets × heads.
    table: Vec<T>,
}

impl<'a, T: Scalar> Scores<'a, T> {
    fn new(attention: &'a Attention, random: &Random, queries: usize, keys: usize) -> Self {
        let mut table = Vec::new();
        if let Some(PositionBias::Relative { table: tensor, buckets, .. }) = &attention.bias {
            table.resize(buckets * attention.n_heads, T::default());
            random.tensor(tensor, attention.n_heads, &mut table);
        }
        Self { attention, queries, keys, table }
    }

    /// scale · q kᵀ.
    fn raw(&self, place: &Place, query: &Array<T>, key: &Array<T>, scores: &mut [T]) {
        let d_head = self.attention.d_head;
        let q = head(query, place.sequence, place.head, d_head);
        let k = head(key, place.sequence, place.kv_head, d_head);
        let mut scores = ViewMut::new(scores, self.queries, self.keys, self.keys);
        multiply(&mut scores, self.attention.scale, q, k.transposed());
    }

    /// softmax(cap(r) + bias) over the keys in sight.
    fn probabilities(&self, place: &Place, scores: &mut [T]) {
        if let Some(cap) = self.attention.softcap {
            let (cap, inverse) = (T::from_f64(cap), T::from_f64(1.0 / cap));
            for s in scores.iter_mut() {
                *s = cap * (*s * inverse).tanh();
            }
        }
        for (a, row) in scores.chunks_exact_mut(self.keys).enumerate() {
            match &self.attention.bias {
                None => {}
                Some(PositionBias::Alibi { slopes }) => {
                    for (b, s) in row.iter_mut().enumerate() {
                        *s += T::from_f64(-slopes[place.head] * a.abs_diff(b) as f64);
                    }
                }
                Some(PositionBias::Relative { .. }) => {
                    for (b, s) in row.iter_mut().enumerate() {
                        *s += self.table[self.entry(place, a, b)];
                    }
                }
            }
            let seen = self.attention.mask.keys(a, self.keys);
            let hidden = T::from_f64(f64::NEG_INFINITY);
            row[..seen.start].fill(hidden);
            row[seen.end..].fill(hidden);
        }
        softmax::forward(scores, self.keys);
    }

    /// Turns gradients at capped scores into gradients at `raw` ones.
    fn backward(&self, raw: &[T], gradients: &mut [T]) {
        let Some(cap) = self.attention.softcap else { return };
        let (one, inverse) = (T::from_f64(1.0), T::from_f64(1.0 / cap));
        for (g, &r) in gradients.iter_mut().zip(raw) {
            let t = (r * inverse).tanh();
            *g *= one - t * t;
        }
    }

    /// Adds what reaches the table of relative positions.
    fn collect_bias(&self, place: &Place, gradients: &[T], table: &mut [T]) {
        if table.is_empty() {
            return;
        }
        for (a, row) in gradients.chunks_exact(self.keys).enumerate() {
            for (b, &g) in row.iter().enumerate() {
                table[self.entry(place, a, b)] += g;
            }
        }
    }

    /// Place in the table of the key b that query a sees.
    fn entry(&self, place: &Place, a: usize, b: usize) -> usize {
        let Some(PositionBias::Relative { buckets, max_distance, bidirectional, .. }) = &self.attention.bias else {
            unreachable!("only relative positions have a table")
        };
        let bucket = PositionBias::bucket(b as i64 - a as i64, *buckets, *max_distance, *bidirectional);
        bucket * self.attention.n_heads + place.head
    }
}

fn drop_weights<T: Scalar>(attention: &Attention, masks: &Streams, place: &Place, weights: &mut [T]) {
    if attention.dropout_rate > 0.0 {
        masks.mask(place.index, attention.dropout_rate, weights);
    }
}

/// The columns of a head of width `d_head` in the rows of a sequence.
fn head<T: Scalar>(array: &Array<T>, sequence: usize, head: usize, d_head: usize) -> View<'_, T> {
    let (tokens, width) = (array.shape().seq_len, array.width());
    let entries = &array.entries()[array.sequence(sequence)];
    View::new(&entries[head * d_head..], tokens, d_head, width)
}

fn head_mut<T: Scalar>(array: &mut Array<T>, sequence: usize, head: usize, d_head: usize) -> ViewMut<'_, T> {
    let (tokens, width, sequence) = (array.shape().seq_len, array.width(), array.sequence(sequence));
    let entries = &mut array.entries_mut()[sequence];
    ViewMut::new(&mut entries[head * d_head..], tokens, d_head, width)
}

#[cfg(test)]
mod tests {
    use sigprop_stack::Mask;

    use super::*;
    use crate::{array::Shape, random::Purpose};

    fn plain(n_heads: usize, n_kv_heads: usize) -> Attention {
        Attention::plain(n_heads, n_kv_heads, 1, [const { Vec::new() }; 3])
    }

    fn array(seq_len: usize, entries: &[f64]) -> Rc<Array<f64>> {
        let mut array = Array::zeros(Shape { batch: 1, seq_len }, entries.len() / seq_len);
        array.entries_mut().copy_from_slice(entries);
        Rc::new(array)
    }

    fn output(attention: &Attention, parts: &[Rc<Array<f64>>]) -> Array<f64> {
        let random = Random::new(0, 0);
        forward(attention, &random, &random.streams(Purpose::Mask, "attention"), parts, |_| {})
    }

    /// A single token attends to itself: each query head puts out the value of its group.
    #[test]
    fn neighbouring_query_heads_share_a_value_head() {
        let parts = [array(1, &[1.0; 4]), array(1, &[1.0; 2]), array(1, &[10.0, 20.0])];
        assert_eq!(output(&plain(4, 2), &parts), *array(1, &[10.0, 10.0, 20.0, 20.0]));
    }

    /// Equal scores: the averages of the values in sight.
    #[test]
    fn masks_hide_keys() {
        let parts = [array(3, &[0.0; 3]), array(3, &[0.0; 3]), array(3, &[6.0, 12.0, 24.0])];
        let masked = |mask| output(&Attention { mask, ..plain(1, 1) }, &parts);
        assert_eq!(masked(Mask::CAUSAL), *array(3, &[6.0, 9.0, 14.0]));
        assert_eq!(masked(Mask { before: Some(1), after: Some(0) }), *array(3, &[6.0, 9.0, 18.0]));
        assert_eq!(masked(Mask::FULL), *array(3, &[14.0, 14.0, 14.0]));
    }

    /// A slope of ln 2 halves the weight of every step: (1, 2, 4)/7 for the last of three tokens.
    #[test]
    fn alibi_by_hand() {
        let bias = Some(PositionBias::Alibi { slopes: vec![2f64.ln()] });
        let parts = [array(3, &[0.0; 3]), array(3, &[0.0; 3]), array(3, &[7.0, 14.0, 21.0])];
        let last = output(&Attention { mask: Mask::CAUSAL, bias, ..plain(1, 1) }, &parts).entries()[2];
        assert!((last - (7.0 + 28.0 + 84.0) / 7.0).abs() < 1e-12, "{last}");
    }
}
