//! Multi-head softmax attention, one sequence and one query head at a time, shared by the threads.
//!
//! ```text
//! forward   r = scale · q kᵀ,  s = cap(r) + bias, −∞ where masked,  A = softmax(s, ς),  Ã = mask ∘ A,  y = Ã v
//! backward  dv = Ãᵀ dy,  dÃ = dy vᵀ,  dA = mask ∘ dÃ,  ds = A ∘ (dA − row sums of A ∘ dA),
//!           dr = cap'(r) ∘ ds,  dq = scale · dr k,  dk = scale · drᵀ q,  dς = −Σ_ab ds_ab
//! ```
//!
//! Scores with positions are added to r ([`super::disentangled`]). The logit ς of a sink is one more score in each
//! softmax, whose weight is dropped. The sum of the gradients at all scores of a row, the sink's included, is zero.
//! Query head h uses key and value head ⌊h · `n_kv_heads` / `n_heads`⌋, whose gradients add up. A and its mask are
//! computed again in the backward pass: n_heads · L² entries per sequence would be most of the memory of a deep stack.

use rayon::prelude::*;
use sigprop_stack::{Attention, PositionBias};

use super::disentangled::{Gradients, Positions};
use super::softmax;
use crate::{
    array::Array,
    matmul::{Threads, View, ViewMut, multiply, multiply_add},
    random::{Purpose, Random, Streams},
    scalar::{Scalar, sum},
    signal::Signal,
    statistics::Moments,
};

/// Returns the output and, if `observed`, the raw sums over the weights A of all heads. `parts` are query, key and
/// value.
pub(crate) fn forward<T: Scalar>(
    attention: &Attention,
    random: &Random,
    masks: &Streams,
    parts: &[Signal<T>],
    observed: bool,
) -> (Array<T>, Option<Moments>) {
    let [query, key, value] = states(parts);
    let (queries, keys) = (query.shape().seq_len, key.shape().seq_len);
    let scores = ScoreSoftmax::new(attention, random, masks, [query, key]);
    let d_value = attention.d_value;
    let mut heads = Array::unwritten(query.shape(), attention.n_heads * d_value);
    let outputs = heads.entries_mut().par_chunks_exact_mut(queries * d_value).enumerate();
    let moments = outputs.map_init(
        || vec![T::default(); queries * keys],
        |weights, (index, y)| {
            let place = HeadIndex::new(attention, index);
            scores.raw(&place, query, key, weights);
            scores.probabilities(&place, weights);
            let moments = observed.then(|| Moments::of_sequence(weights, keys));
            drop_weights(attention, masks, &place, weights);
            let v = head(value, place.sequence, place.kv_head, d_value);
            multiply(
                Threads::Alone,
                &mut ViewMut::new(y, queries, d_value, d_value),
                1.0,
                View::new(weights, queries, keys, keys),
                v,
            );
            moments
        },
    );
    let moments = total(moments.collect());
    (side_by_side(&heads, d_value), moments)
}

/// The gradients of attention.
pub(crate) struct Backward<T: Scalar> {
    /// Gradients of query, key and value.
    pub parts: Vec<Array<T>>,
    /// Gradient of the table of relative positions, one per sequence; empty gradients if there is no such table.
    pub bias: Vec<Vec<T>>,
    /// Gradients of the tensors of relative positions with scores of their own; empty without such positions.
    pub positions: Vec<Gradients<T>>,
    /// Gradient of the logits of sinks, one per sequence; empty gradients if there are no sinks.
    pub sink: Vec<Vec<T>>,
    /// Raw sums over dA of all heads; `None` if they are not observed.
    pub moments: Option<Moments>,
}

/// Returns the gradients and, if `observed`, the raw sums over dA, the gradient of the weights, of all heads.
pub(crate) fn backward<T: Scalar>(
    attention: &Attention,
    random: &Random,
    masks: &Streams,
    parts: &[Signal<T>],
    gradient: &Array<T>,
    observed: bool,
) -> Backward<T> {
    let [query, key, value] = states(parts);
    let (queries, keys) = (query.shape().seq_len, key.shape().seq_len);
    let scores = ScoreSoftmax::new(attention, random, masks, [query, key]);
    let (d_head, d_value) = (attention.d_head, attention.d_value);
    let group = attention.n_heads / attention.n_kv_heads;
    let [mut dq, mut dk, mut dv] = [query, key, value].map(|state| Array::unwritten(state.shape(), state.width()));
    // The query heads of a key head are one piece of work, because their gradients add up.
    let groups = dq.entries_mut().par_chunks_exact_mut(group * queries * d_head);
    let groups = groups.zip(dk.entries_mut().par_chunks_exact_mut(keys * d_head));
    let groups = groups.zip(dv.entries_mut().par_chunks_exact_mut(keys * d_value));
    let told = groups.enumerate().map_init(
        || [const { Vec::new() }; 4].map(|_: Vec<T>| vec![T::default(); queries * keys]),
        |[raw, weights, dropped, slopes], (index, ((dq, dk), dv))| {
            let (mut moments, mut bias) = (Vec::new(), vec![T::default(); scores.table.len()]);
            let mut sink = vec![T::default(); scores.sinks.len()];
            let mut images = [Vec::new(), Vec::new()];
            let (mut dk, mut dv) = (ViewMut::new(dk, keys, d_head, d_head), ViewMut::new(dv, keys, d_value, d_value));
            for (member, dq) in dq.chunks_exact_mut(queries * d_head).enumerate() {
                let add = if member == 0 { multiply } else { multiply_add };
                let place = HeadIndex::new(attention, index * group + member);
                let (sequence, kv_head) = (place.sequence, place.kv_head);
                let dy = head(gradient, sequence, place.head, d_value);
                scores.raw(&place, query, key, weights);
                if attention.softcap.is_some() {
                    raw.copy_from_slice(weights);
                }
                scores.probabilities(&place, weights);

                let averaging = if attention.dropout_rate > 0.0 {
                    dropped.copy_from_slice(weights);
                    drop_weights(attention, masks, &place, dropped);
                    &*dropped
                } else {
                    &*weights
                };
                add(Threads::Alone, &mut dv, 1.0, View::new(averaging, queries, keys, keys).transposed(), dy);

                let v = head(value, sequence, kv_head, d_value);
                multiply(Threads::Alone, &mut ViewMut::new(slopes, queries, keys, keys), 1.0, dy, v.transposed());
                drop_weights(attention, masks, &place, slopes);
                moments.push(observed.then(|| Moments::of_sequence(slopes, keys)));
                softmax::backward(weights, slopes, keys);
                scores.collect_bias(&place, slopes, &mut bias);
                if let Some(sink) = sink.get_mut(place.head) {
                    *sink = T::from_f64(-sum(slopes, slopes, |g, _| g));
                }
                scores.backward(raw, slopes);
                let dr = View::new(slopes, queries, keys, keys);
                let (q, k) = (head(query, sequence, place.head, d_head), head(key, sequence, kv_head, d_head));
                let mut dq = ViewMut::new(dq, queries, d_head, d_head);
                multiply(Threads::Alone, &mut dq, attention.scale, dr, k);
                add(Threads::Alone, &mut dk, attention.scale, dr.transposed(), q);
                if let Some(positions) = &scores.positions {
                    let heads = [place.head, kv_head];
                    let contents = [(q, queries), (k, keys)];
                    positions.backward(heads, contents, slopes, [&mut dq, &mut dk], &mut images);
                }
            }
            (total(moments), [bias, sink], images)
        },
    );
    let (mut moments, mut images) = (Vec::new(), [Vec::new(), Vec::new()]);
    let [mut bias, mut sink] =
        [&scores.table, &scores.sinks].map(|of| vec![vec![T::default(); of.len()]; query.shape().batch]);
    for (index, (of_moments, tensors, of_images)) in told.collect::<Vec<_>>().into_iter().enumerate() {
        moments.push(of_moments);
        images.iter_mut().zip(of_images).for_each(|(images, more)| images.extend(more));
        for (sums, more) in [&mut bias, &mut sink].into_iter().zip(tensors) {
            for (sum, more) in sums[index / attention.n_kv_heads].iter_mut().zip(more) {
                *sum += more;
            }
        }
    }
    let parts = vec![side_by_side(&dq, d_head), side_by_side(&dk, d_head), side_by_side(&dv, d_value)];
    let positions = scores.positions.as_ref().map(|positions| {
        let images = images.map(|heads| positions.images(query.shape().batch, &heads));
        positions.parameters(&images.map(|heads| heads.map(|heads| side_by_side(&heads, d_head))))
    });
    Backward { parts, bias, positions: positions.unwrap_or_default(), sink, moments: total(moments) }
}

/// Returns the sum of all `moments` that exist; `None` if there are none.
fn total(moments: Vec<Option<Moments>>) -> Option<Moments> {
    moments.into_iter().flatten().reduce(|sum, more| sum + more)
}

/// Turns the matrices of all heads, one after the other in each sequence, into tokens with one head after the other.
fn side_by_side<T: Scalar>(heads: &Array<T>, d_head: usize) -> Array<T> {
    let (seq_len, width) = (heads.shape().seq_len, heads.width());
    let mut output = Array::unwritten(heads.shape(), width);
    let rows = output.entries_mut().par_chunks_exact_mut(width).with_min_len(16);
    rows.enumerate().for_each(|(token, row)| {
        let (sequence, token) = (heads.sequence(token / seq_len), token % seq_len);
        let matrices = heads.entries()[sequence].chunks_exact(seq_len * d_head);
        for (y, matrix) in row.chunks_exact_mut(d_head).zip(matrices) {
            y.copy_from_slice(&matrix[token * d_head..(token + 1) * d_head]);
        }
    });
    output
}

/// One query head of one sequence.
struct HeadIndex {
    sequence: usize,
    head: usize,
    kv_head: usize,
    /// Number of this head among the heads of all sequences.
    index: usize,
}

impl HeadIndex {
    fn new(attention: &Attention, index: usize) -> Self {
        let head = index % attention.n_heads;
        let kv_head = head * attention.n_kv_heads / attention.n_heads;
        Self { sequence: index / attention.n_heads, head, kv_head, index }
    }
}

fn states<T: Scalar>(parts: &[Signal<T>]) -> [&Array<T>; 3] {
    let [query, key, value] = parts else { unreachable!("attention has three parts") };
    [query, key, value]
}

/// The computation of scores and their softmax from queries and keys.
struct ScoreSoftmax<'a, T: Scalar> {
    attention: &'a Attention,
    queries: usize,
    keys: usize,
    /// The table of relative positions, buckets × heads.
    table: Vec<T>,
    /// The logit ς of every head; empty if there are no sinks.
    sinks: Vec<T>,
    /// Scores of contents with relative positions, if there are some.
    positions: Option<Positions<'a, T>>,
}

impl<'a, T: Scalar> ScoreSoftmax<'a, T> {
    fn new(attention: &'a Attention, random: &'a Random, masks: &Streams, [query, key]: [&Array<T>; 2]) -> Self {
        let mut table = Vec::new();
        if let Some(PositionBias::Relative { table: tensor, buckets, .. }) = &attention.bias {
            table.resize(buckets * attention.n_heads, T::default());
            random.rows(Purpose::Weight, tensor, attention.n_heads, &mut table);
        }
        let mut sinks = Vec::new();
        if let Some(tensor) = &attention.sink {
            sinks.resize(attention.n_heads, T::default());
            random.rows(Purpose::Weight, tensor, 1, &mut sinks);
        }
        let positions = match &attention.bias {
            Some(PositionBias::Disentangled(positions)) => {
                // One mask for all heads of all sequences, after the masks of their weights.
                let index = query.shape().batch * attention.n_heads;
                let scale = (attention.d_head, attention.scale);
                Some(Positions::new(positions, random, (masks, index), scale))
            }
            Some(PositionBias::Alibi { .. } | PositionBias::Relative { .. }) | None => None,
        };
        let [queries, keys] = [query, key].map(|state| state.shape().seq_len);
        Self { attention, queries, keys, table, sinks, positions }
    }

    /// Computes the raw scores, scale · q kᵀ and those with positions.
    fn raw(&self, place: &HeadIndex, query: &Array<T>, key: &Array<T>, scores: &mut [T]) {
        let d_head = self.attention.d_head;
        let q = head(query, place.sequence, place.head, d_head);
        let k = head(key, place.sequence, place.kv_head, d_head);
        let mut products = ViewMut::new(scores, self.queries, self.keys, self.keys);
        multiply(Threads::Alone, &mut products, self.attention.scale, q, k.transposed());
        if let Some(positions) = &self.positions {
            positions.add([place.head, place.kv_head], [(q, self.queries), (k, self.keys)], scores);
        }
    }

    /// Turns raw scores r into the weights that softmax(cap(r) + bias, ς) gives to the visible keys.
    fn probabilities(&self, place: &HeadIndex, scores: &mut [T]) {
        if let Some(cap) = self.attention.softcap {
            let (cap, inverse) = (T::from_f64(cap), T::from_f64(1.0 / cap));
            for s in scores.iter_mut() {
                *s = cap * (*s * inverse).tanh();
            }
        }
        for (a, row) in scores.chunks_exact_mut(self.keys).enumerate() {
            match &self.attention.bias {
                None | Some(PositionBias::Disentangled(_)) => {}
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
        softmax::forward(scores, self.keys, self.sinks.get(place.head).copied());
    }

    /// Turns gradients at capped scores into gradients at `raw` scores.
    fn backward(&self, raw: &[T], gradients: &mut [T]) {
        let Some(cap) = self.attention.softcap else { return };
        let (one, inverse) = (T::from_f64(1.0), T::from_f64(1.0 / cap));
        for (g, &r) in gradients.iter_mut().zip(raw) {
            let t = (r * inverse).tanh();
            *g *= one - t * t;
        }
    }

    /// Adds the gradients of the scores to the gradient of the table of relative positions.
    fn collect_bias(&self, place: &HeadIndex, gradients: &[T], table: &mut [T]) {
        if table.is_empty() {
            return;
        }
        for (a, row) in gradients.chunks_exact(self.keys).enumerate() {
            for (b, &g) in row.iter().enumerate() {
                table[self.entry(place, a, b)] += g;
            }
        }
    }

    /// Returns the index, in the table of relative positions, of the bias for query a and key b.
    fn entry(&self, place: &HeadIndex, a: usize, b: usize) -> usize {
        let Some(PositionBias::Relative { buckets, max_distance, bidirectional, .. }) = &self.attention.bias else {
            unreachable!("only relative positions have a table")
        };
        let bucket = PositionBias::bucket(b as i64 - a as i64, *buckets, *max_distance, *bidirectional);
        bucket * self.attention.n_heads + place.head
    }
}

fn drop_weights<T: Scalar>(attention: &Attention, masks: &Streams, place: &HeadIndex, weights: &mut [T]) {
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

#[cfg(test)]
mod tests {
    use sigprop_stack::Mask;

    use super::*;
    use crate::array::Shape;

    fn plain(n_heads: usize, n_kv_heads: usize) -> Attention {
        Attention::plain(n_heads, n_kv_heads, 1, [const { Vec::new() }; 3])
    }

    fn array(seq_len: usize, entries: &[f64]) -> Signal<f64> {
        let mut array = Array::zeros(Shape { batch: 1, seq_len }, entries.len() / seq_len);
        array.entries_mut().copy_from_slice(entries);
        array.into()
    }

    fn output(attention: &Attention, parts: &[Signal<f64>]) -> Array<f64> {
        let random = Random::new(0, 0);
        forward(attention, &random, &random.streams(Purpose::Mask, "attention"), parts, false).0
    }

    /// A single token attends to itself: each query head outputs the value of its group.
    #[test]
    fn neighbouring_query_heads_share_a_value_head() {
        let parts = [array(1, &[1.0; 4]), array(1, &[1.0; 2]), array(1, &[10.0, 20.0])];
        assert_eq!(output(&plain(4, 2), &parts), *array(1, &[10.0, 10.0, 20.0, 20.0]));
    }

    /// If all scores are equal, the outputs are averages of the visible values.
    #[test]
    fn masks_hide_keys() {
        let parts = [array(3, &[0.0; 3]), array(3, &[0.0; 3]), array(3, &[6.0, 12.0, 24.0])];
        let masked = |mask| output(&Attention { mask, ..plain(1, 1) }, &parts);
        assert_eq!(masked(Mask::CAUSAL), *array(3, &[6.0, 9.0, 14.0]));
        assert_eq!(masked(Mask { before: Some(1), after: Some(0) }), *array(3, &[6.0, 9.0, 18.0]));
        assert_eq!(masked(Mask::FULL), *array(3, &[14.0, 14.0, 14.0]));
    }

    /// A slope of ln 2 halves the weight with every step: (1, 2, 4)/7 for the last of three tokens.
    #[test]
    fn alibi_by_hand() {
        let bias = Some(PositionBias::Alibi { slopes: vec![2f64.ln()] });
        let parts = [array(3, &[0.0; 3]), array(3, &[0.0; 3]), array(3, &[7.0, 14.0, 21.0])];
        let last = output(&Attention { mask: Mask::CAUSAL, bias, ..plain(1, 1) }, &parts).entries()[2];
        assert!((last - (7.0 + 28.0 + 84.0) / 7.0).abs() < 1e-12, "{last}");
    }
}
