//! Multi-head softmax attention, one sequence and one query head at a time.
//!
//! ```text
//! forward   s = scale · q kᵀ,  A = softmax(s),  Ã = mask ∘ A,  y = Ã v
//! backward  dv = Ãᵀ dy,  dÃ = dy vᵀ,  dA = mask ∘ dÃ,  ds = A ∘ (dA − row sums of A ∘ dA),
//!           dq = scale · ds k,  dk = scale · dsᵀ q
//! ```
//!
//! Query head h uses key and value head ⌊h · `n_kv_heads` / `n_heads`⌋, whose gradients add up. A
//! and its mask are made again in the backward pass: n_heads · L² entries per sequence would be
//! most of what a deep stack keeps.

use std::rc::Rc;

use sigprop_stack::Attention;

use super::softmax;
use crate::{
    array::Array,
    matmul::{View, ViewMut, multiply, multiply_add},
    random::{Streams, mask},
    scalar::Scalar,
};

/// `parts` are query, key and value; `observe` is shown A of every head.
pub(crate) fn forward<T: Scalar>(
    attention: &Attention,
    masks: &Streams,
    parts: &[Rc<Array<T>>],
    mut observe: impl FnMut(&[T]),
) -> Array<T> {
    let [query, key, value] = states(parts);
    let tokens = query.shape().seq_len;
    let mut output = Array::zeros(query.shape(), query.width());
    let mut weights = vec![T::default(); tokens * tokens];
    for place in places(attention, query) {
        probabilities(attention, &place, query, key, &mut weights);
        observe(&weights);
        drop_weights(attention, masks, &place, &mut weights);
        let mut y = head_mut(&mut output, &place, place.head);
        multiply(&mut y, 1.0, View::new(&weights, tokens, tokens, tokens), head(value, &place, place.kv_head));
    }
    output
}

/// Gradients of query, key and value; `observe` is shown dA of every head.
pub(crate) fn backward<T: Scalar>(
    attention: &Attention,
    masks: &Streams,
    parts: &[Rc<Array<T>>],
    gradient: &Array<T>,
    mut observe: impl FnMut(&[T]),
) -> Vec<Array<T>> {
    let [query, key, value] = states(parts);
    let tokens = query.shape().seq_len;
    let [mut dq, mut dk, mut dv] = [query, key, value].map(|state| Array::zeros(state.shape(), state.width()));
    let mut weights = vec![T::default(); tokens * tokens];
    let (mut dropped, mut slopes) = (weights.clone(), weights.clone());
    for place in places(attention, query) {
        let dy = head(gradient, &place, place.head);
        probabilities(attention, &place, query, key, &mut weights);

        dropped.copy_from_slice(&weights);
        drop_weights(attention, masks, &place, &mut dropped);
        let dropped = View::new(&dropped, tokens, tokens, tokens);
        multiply_add(&mut head_mut(&mut dv, &place, place.kv_head), 1.0, dropped.transposed(), dy);

        let v = head(value, &place, place.kv_head);
        multiply(&mut ViewMut::new(&mut slopes, tokens, tokens, tokens), 1.0, dy, v.transposed());
        drop_weights(attention, masks, &place, &mut slopes);
        observe(&slopes);
        softmax::backward(&weights, &mut slopes, tokens);
        let ds = View::new(&slopes, tokens, tokens, tokens);
        let (q, k) = (head(query, &place, place.head), head(key, &place, place.kv_head));
        multiply(&mut head_mut(&mut dq, &place, place.head), attention.scale, ds, k);
        multiply_add(&mut head_mut(&mut dk, &place, place.kv_head), attention.scale, ds.transposed(), q);
    }
    vec![dq, dk, dv]
}

/// One query head of one sequence.
struct Place {
    sequence: usize,
    head: usize,
    kv_head: usize,
    d_head: usize,
    /// Counts the heads of all sequences.
    index: usize,
}

fn places<T: Scalar>(attention: &Attention, query: &Array<T>) -> impl Iterator<Item = Place> + use<T> {
    let (n_heads, n_kv_heads, d_head) = (attention.n_heads, attention.n_kv_heads, attention.d_head);
    (0..query.shape().batch * n_heads).map(move |index| {
        let head = index % n_heads;
        Place { sequence: index / n_heads, head, kv_head: head * n_kv_heads / n_heads, d_head, index }
    })
}

fn states<T: Scalar>(parts: &[Rc<Array<T>>]) -> [&Array<T>; 3] {
    let [query, key, value] = parts else { unreachable!("attention has three parts") };
    [query, key, value]
}

/// softmax(scale · q kᵀ).
fn probabilities<T: Scalar>(attention: &Attention, place: &Place, query: &Array<T>, key: &Array<T>, weights: &mut [T]) {
    let tokens = query.shape().seq_len;
    let (q, k) = (head(query, place, place.head), head(key, place, place.kv_head));
    multiply(&mut ViewMut::new(weights, tokens, tokens, tokens), attention.scale, q, k.transposed());
    softmax::forward(weights, tokens);
}

fn drop_weights<T: Scalar>(attention: &Attention, masks: &Streams, place: &Place, weights: &mut [T]) {
    if attention.dropout_rate > 0.0 {
        mask(attention.dropout_rate, &mut masks.stream(place.index), weights);
    }
}

/// The columns of head `head` in the rows of the sequence.
fn head<'a, T: Scalar>(array: &'a Array<T>, place: &Place, head: usize) -> View<'a, T> {
    let (tokens, width) = (array.shape().seq_len, array.width());
    let entries = &array.entries()[array.sequence(place.sequence)];
    View::new(&entries[head * place.d_head..], tokens, place.d_head, width)
}

fn head_mut<'a, T: Scalar>(array: &'a mut Array<T>, place: &Place, head: usize) -> ViewMut<'a, T> {
    let (tokens, width, sequence) = (array.shape().seq_len, array.width(), array.sequence(place.sequence));
    let entries = &mut array.entries_mut()[sequence];
    ViewMut::new(&mut entries[head * place.d_head..], tokens, place.d_head, width)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        array::Shape,
        random::{Purpose, Random},
    };

    /// A single token attends to itself: each query head puts out the value of its group.
    #[test]
    fn neighbouring_query_heads_share_a_value_head() {
        let (query, key, value) = (Vec::new(), Vec::new(), Vec::new());
        let attention =
            Attention { n_heads: 4, n_kv_heads: 2, d_head: 1, scale: 1.0, dropout_rate: 0.0, query, key, value };
        let array = |entries: &[f64]| {
            let mut array = Array::zeros(Shape { batch: 1, seq_len: 1 }, entries.len());
            array.entries_mut().copy_from_slice(entries);
            Rc::new(array)
        };
        let parts = [array(&[1.0; 4]), array(&[1.0; 2]), array(&[10.0, 20.0])];
        let masks = Random::new(0, 0).streams(Purpose::Mask, "attention");
        let output = forward(&attention, &masks, &parts, |_| {});
        assert_eq!(output, *array(&[10.0, 10.0, 20.0, 20.0]));
    }
}
