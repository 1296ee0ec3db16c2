//! Scores of contents with relative positions, whose embeddings r have the keys κ and the queries χ.
//!
//! ```text
//! forward   r̂ = mask ∘ norm(r),  κ = W_κ r̂,  χ = W_χ r̂,  s_ab += scale (q_a·κ_δ + χ_δ·k_b),  δ = row(a − b)
//! backward  dq_a += scale Σ_δ D_aδ κ_δ,   dκ_δ = scale Σ_a D_aδ q_a      D_aδ = Σ ds_ab over the keys b with row δ
//!           dk_b += scale Σ_δ E_bδ χ_δ,   dχ_δ = scale Σ_b E_bδ k_b      E_bδ = Σ ds_ab over the queries a with row δ
//! ```
//!
//! where ds is the gradient of the scores.

use std::ops::Range;

use sigprop_stack::{Disentangled, Linear, Norm, Tensor};

use super::{linear, norm};
use crate::{
    array::{Array, Shape},
    matmul::{Threads, View, ViewMut, multiply, multiply_add},
    random::{Purpose, Random, Streams},
    scalar::Scalar,
};

/// The table of positions and its images.
pub(crate) struct Positions<'a, T: Scalar> {
    disentangled: &'a Disentangled,
    random: &'a Random,
    d_head: usize,
    scale: f64,
    /// Factors of dropout on the entries of the table; empty without dropout.
    mask: Vec<T>,
    /// The embeddings r, which the norm reads.
    table: Array<T>,
    /// The input of both maps.
    input: Array<T>,
    keys: Option<Array<T>>,
    queries: Option<Array<T>>,
}

/// Gradients of one tensor, one per sequence.
pub(crate) type Gradients<T> = (String, Vec<Vec<T>>);

impl<'a, T: Scalar> Positions<'a, T> {
    /// Samples the table and maps it; `mask` is the stream of the dropout masks, and its index.
    pub(crate) fn new(
        positions: &'a Disentangled,
        random: &'a Random,
        (masks, index): (&Streams, usize),
        (d_head, scale): (usize, f64),
    ) -> Self {
        let (shape, width) = (Shape { batch: 1, seq_len: 2 * positions.span }, positions.width());
        let mut table = Array::unwritten(shape, width);
        random.rows(Purpose::Weight, &positions.table, width, table.entries_mut());
        let mut input = match &positions.norm {
            Some(norm) => normed(positions, norm, random, &table),
            None => table.clone(),
        };
        let mut mask = Vec::new();
        if positions.dropout_rate > 0.0 {
            mask.resize(input.entries().len(), T::from_f64(1.0));
            masks.mask(index, positions.dropout_rate, &mut mask);
            multiply_entries(input.entries_mut(), &mask);
        }
        let image = |map: &Option<Linear>| map.as_ref().map(|map| linear::forward(map, random, &input));
        let [keys, queries] = [&positions.key, &positions.query].map(image);
        Self { disentangled: positions, random, d_head, scale, mask, table, input, keys, queries }
    }

    /// The rows of the table between `queries` and `keys`.
    fn rows(&self, queries: usize, keys: usize) -> Range<usize> {
        self.disentangled.row(1 - keys as i64)..self.disentangled.row(queries as i64 - 1) + 1
    }

    fn head<'i>(&self, images: &'i Array<T>, head: usize, rows: &Range<usize>) -> View<'i, T> {
        let start = rows.start * images.width() + head * self.d_head;
        View::new(&images.entries()[start..], rows.len(), self.d_head, images.width())
    }

    /// Calls `with` with the index of every score (a, b) and those of the entries (a, δ) and (b, δ).
    fn each(&self, queries: usize, keys: usize, rows: &Range<usize>, mut with: impl FnMut(usize, [usize; 2])) {
        for a in 0..queries {
            for b in 0..keys {
                let row = self.disentangled.row(a as i64 - b as i64) - rows.start;
                with(a * keys + b, [a * rows.len() + row, b * rows.len() + row]);
            }
        }
    }

    /// Adds the scores with positions of a head to its `scores`.
    pub(crate) fn add(
        &self,
        [head, kv_head]: [usize; 2],
        [(q, queries), (k, keys)]: [(View<T>, usize); 2],
        scores: &mut [T],
    ) {
        let rows = self.rows(queries, keys);
        for (images, head, contents, tokens, side) in
            [(&self.keys, kv_head, q, queries, 0), (&self.queries, head, k, keys, 1)]
        {
            let Some(images) = images else { continue };
            let mut products = vec![T::default(); tokens * rows.len()];
            let mut view = ViewMut::new(&mut products, tokens, rows.len(), rows.len());
            multiply(Threads::Alone, &mut view, self.scale, contents, self.head(images, head, &rows).transposed());
            self.each(queries, keys, &rows, |score, entries| scores[score] += products[entries[side]]);
        }
    }

    /// Adds the gradients of contents through the scores with positions, from the `gradients` of the scores. Adds those
    /// of κ to the first of `into`, and appends those of χ to the second, all rows of the table for one head.
    pub(crate) fn backward(
        &self,
        [head, kv_head]: [usize; 2],
        [(q, queries), (k, keys)]: [(View<T>, usize); 2],
        gradients: &[T],
        [dq, dk]: [&mut ViewMut<T>; 2],
        [of_keys, of_queries]: &mut [Vec<T>; 2],
    ) {
        let rows = self.rows(queries, keys);
        let sides = [(&self.keys, kv_head, q, queries, dq, 0), (&self.queries, head, k, keys, dk, 1)];
        let [at_keys, at_queries] = sides.map(|(images, head, contents, tokens, into, side)| {
            let Some(images) = images else { return Vec::new() };
            let mut sums = vec![T::default(); tokens * rows.len()];
            self.each(queries, keys, &rows, |score, entries| sums[entries[side]] += gradients[score]);
            let sums = View::new(&sums, tokens, rows.len(), rows.len());
            multiply_add(Threads::Alone, into, self.scale, sums, self.head(images, head, &rows));
            let mut of_images = vec![T::default(); 2 * self.disentangled.span * self.d_head];
            let seen = &mut of_images[rows.start * self.d_head..rows.end * self.d_head];
            let mut seen = ViewMut::new(seen, rows.len(), self.d_head, self.d_head);
            multiply(Threads::Alone, &mut seen, self.scale, sums.transposed(), contents);
            of_images
        });
        of_keys.resize(at_keys.len(), T::default());
        of_keys.iter_mut().zip(at_keys).for_each(|(sum, more)| *sum += more);
        of_queries.extend(at_queries);
    }

    /// Returns the gradients of κ or of χ of a batch as an array of one head after the other, from those of all heads;
    /// `None` if there are none.
    pub(crate) fn images(&self, batch: usize, heads: &[T]) -> Option<Array<T>> {
        let shape = Shape { batch, seq_len: 2 * self.disentangled.span };
        let width = heads.len() / shape.tokens();
        let mut images = (width > 0).then(|| Array::unwritten(shape, width))?;
        images.entries_mut().copy_from_slice(heads);
        Some(images)
    }

    /// Returns the gradients of all tensors of the positions, from the gradients of κ and of χ of every sequence.
    pub(crate) fn parameters(&self, images: &[Option<Array<T>>; 2]) -> Vec<Gradients<T>> {
        let mut gradients: Vec<Gradients<T>> = Vec::new();
        let mut at_input: Option<Array<T>> = None;
        for (map, gradient) in [&self.disentangled.key, &self.disentangled.query].into_iter().zip(images) {
            let (Some(map), Some(gradient)) = (map, gradient) else { continue };
            let of_weight = |dy| linear::weight_gradient(map, self.random, self.input.entries(), dy);
            gradients.push((map.weight.name.clone(), gradient.sequences().map(of_weight).collect()));
            if let Some(bias) = &map.bias {
                let of_bias = |dy| linear::bias_gradient(map, dy);
                gradients.push((bias.name.clone(), gradient.sequences().map(of_bias).collect()));
            }
            let through = linear::backward(map, self.random, gradient);
            at_input = Some(at_input.map_or(through.clone(), |sum| sum.zip(&through, |sum, more| sum + more)));
        }
        let Some(mut gradient) = at_input else { return gradients };
        gradient.sequences_mut().for_each(|sequence| multiply_entries(sequence, &self.mask));
        if let Some(norm) = &self.disentangled.norm {
            let of_gain = |dy| norm::gain_gradient(norm, self.table.width(), self.table.entries(), dy);
            gradients.push((self.disentangled.gain(), gradient.sequences().map(of_gain).collect()));
            gradient = self.before_norm(norm, gradient);
        }
        gradients.push((self.disentangled.table.name.clone(), gradient.sequences().map(<[T]>::to_vec).collect()));
        gradients
    }

    /// Returns the gradient of the table from the `gradient` after its norm, both of every sequence.
    fn before_norm(&self, norm: &Norm, mut gradient: Array<T>) -> Array<T> {
        let mut inputs = Array::unwritten(gradient.shape(), gradient.width());
        inputs.sequences_mut().for_each(|sequence| sequence.copy_from_slice(self.table.entries()));
        let gains = self.random.changed_gains(&self.disentangled.gain(), norm.gain, gradient.width());
        let Some(gains) = gains else { return norm::backward(norm, &inputs, &gradient) };
        gradient.multiply_rows(&gains);
        norm::backward(&Norm { gain: 1.0, ..*norm }, &inputs, &gradient)
    }
}

/// Returns the embeddings after their norm, with the gains and biases in use.
fn normed<T: Scalar>(positions: &Disentangled, norm: &Norm, random: &Random, table: &Array<T>) -> Array<T> {
    let mut output = match random.changed_gains(&positions.gain(), norm.gain, table.width()) {
        Some(gains) => {
            let mut output = norm::forward(&Norm { gain: 1.0, ..*norm }, table);
            output.multiply_rows(&gains);
            output
        }
        None => norm::forward(norm, table),
    };
    let bias = Tensor { name: positions.bias(), init: norm.bias };
    linear::add_bias(Some(&bias), 1, random, &mut output);
    output
}

/// Multiplies entries by the factors of a mask; an empty mask has factors of 1.
fn multiply_entries<T: Scalar>(entries: &mut [T], mask: &[T]) {
    entries.iter_mut().zip(mask).for_each(|(entry, &factor)| *entry *= factor);
}
