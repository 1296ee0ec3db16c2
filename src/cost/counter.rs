//! An interpreter that counts parameters, operations and memory in a forward pass through a stack.

use std::borrow::Cow;
use std::cell::Cell;
use std::convert::Infallible;
use std::rc::Rc;

use foldhash::{HashMap, HashMapExt};
use sigprop_stack::{
    Attention, Component, Disentangled, EmbeddingTerm, Fan, GradientSeed, Interpreter, Mixture, PositionBias,
    Recurrence, Site, Source, Stack, Stream, Tensor, forward,
};

/// Bytes of an entry that is kept for the backward pass.
pub(super) const BYTES: f64 = 2.0;

/// The numbers of parameters, operations and bytes.
#[derive(Clone, Copy, Default)]
pub(super) struct Count {
    pub(super) parameters: u64,
    /// Floating-point operations of a forward pass over one sequence.
    pub(super) flops: f64,
    pub(super) bytes: f64,
}

/// An interpreter of stacks that counts, and its counts so far.
pub(super) struct Counter<'s> {
    norm_biases: bool,
    /// Number of entries of every tensor by its name, summed over all experts.
    pub(super) tensors: HashMap<Cow<'s, str>, u64>,
    /// Names of the tensors of the expert that is being traversed.
    in_expert: Vec<Cow<'s, str>>,
    total: Count,
    /// The count of the expert that is being traversed.
    expert: Count,
    /// Number of tokens at the end of each stream.
    seq_len: Vec<f64>,
}

/// An array with a vector per token. Clones refer to the same array, so that its memory is counted once.
#[derive(Clone)]
pub(super) struct Array {
    seq_len: usize,
    width: usize,
    kept: Rc<Cell<bool>>,
}

impl Array {
    fn new(seq_len: usize, width: usize) -> Self {
        Self { seq_len, width, kept: Rc::new(Cell::new(false)) }
    }

    fn entries(&self) -> f64 {
        self.seq_len as f64 * self.width as f64
    }
}

impl<'s> Counter<'s> {
    /// Counts parameters, operations and bytes in a forward pass through a stack.
    pub(super) fn through(stack: &'s Stack, norm_biases: bool) -> Self {
        let mut counter = Self {
            norm_biases,
            tensors: HashMap::new(),
            in_expert: Vec::new(),
            total: Count::default(),
            expert: Count::default(),
            seq_len: Vec::new(),
        };
        let Ok(_) = forward(stack, &mut counter);
        counter
    }

    /// Returns the counts for one sequence, and the number of tokens at the end of the stream where the gradient
    /// starts.
    pub(super) fn of(stack: &'s Stack, norm_biases: bool) -> (Count, f64) {
        let counter = Self::through(stack, norm_biases);
        let tokens = counter.seq_len.get(stack.gradient.stream).copied().unwrap_or(1.0);
        (counter.total, tokens)
    }

    /// Returns the count to which a site adds: the count of the current expert inside a mixture, otherwise the total.
    fn count(&mut self, at: &Site) -> &mut Count {
        if at.expert().is_some() { &mut self.expert } else { &mut self.total }
    }

    fn tensor(&mut self, at: &Site, tensor: &'s Tensor, rows: usize, columns: usize) {
        let entries = (rows as u64).saturating_mul(columns as u64);
        if self.note(at, Cow::Borrowed(&tensor.name), entries) {
            self.add(at, entries);
        }
    }

    /// Records the size of a tensor; returns true if it is recorded for the first time.
    fn note(&mut self, at: &Site, name: Cow<'s, str>, entries: u64) -> bool {
        if at.expert().is_some() && !self.tensors.contains_key(&name) {
            self.in_expert.push(name.clone());
        }
        self.tensors.insert(name, entries).is_none()
    }

    fn add(&mut self, at: &Site, parameters: u64) {
        let count = self.count(at);
        count.parameters = count.parameters.saturating_add(parameters);
    }

    /// Counts the memory of an array that is kept for the backward pass, unless it is already counted.
    fn keep(&mut self, at: &Site, array: &Array) {
        if !array.kept.replace(true) {
            self.count(at).bytes += BYTES * array.entries();
        }
    }

    /// Counts the tables of an embedding.
    fn embedding(&mut self, at: &Site, term: &'s EmbeddingTerm, vocab_size: usize, output: &Array) {
        let rows = match term {
            EmbeddingTerm::Token { .. } => vocab_size,
            EmbeddingTerm::LearnedPosition { .. } => output.seq_len,
            EmbeddingTerm::Constant { rows, .. } => *rows,
            EmbeddingTerm::Segment { .. } => 2,
            EmbeddingTerm::SinusoidalPosition { .. } => 0,
        };
        if let Some(table) = term.table() {
            self.tensor(at, table, rows, output.width);
        }
    }

    fn attention(&mut self, at: &Site, attention: &'s Attention, parts: &[Array]) -> Array {
        for state in parts {
            self.keep(at, state);
        }
        if let Some(PositionBias::Relative { table, buckets, .. }) = &attention.bias {
            self.tensor(at, table, *buckets, attention.n_heads);
        }
        if let Some(PositionBias::Disentangled(positions)) = &attention.bias {
            self.positions(at, attention, positions, parts);
        }
        if let Some(sink) = &attention.sink {
            self.tensor(at, sink, attention.n_heads, 1);
        }
        let [queries, keys] = [0, 1].map(|part| parts.get(part).map_or(0, |states| states.seq_len));
        let weights = attention.n_heads as f64 * queries as f64 * keys as f64;
        // Without dropout only the attention weights are kept; with it also the mask and the dropped weights.
        let bytes = if attention.dropout_rate > 0.0 { 2.0 * BYTES + 1.0 } else { BYTES };
        let count = self.count(at);
        count.bytes += bytes * weights;
        count.flops += 2.0 * weights * (attention.d_head + attention.d_value) as f64;
        Array::new(queries, attention.n_heads * attention.d_value)
    }

    /// Counts the table of relative positions, its maps, and the products of contents with the rows of the table.
    fn positions(&mut self, at: &Site, attention: &Attention, positions: &'s Disentangled, parts: &[Array]) {
        let (rows, width) = (2 * positions.span, positions.width());
        self.tensor(at, &positions.table, rows, width);
        let biases = u64::from(positions.norm.is_some_and(|norm| norm.kind.has_biases()) && self.norm_biases);
        if positions.norm.is_some() && self.note(at, Cow::Owned(positions.gain()), width as u64) {
            self.add(at, width as u64 * (1 + biases));
        }
        for map in positions.maps() {
            self.tensor(at, &map.weight, map.fan_out, width);
            map.bias.iter().for_each(|bias| self.tensor(at, bias, map.fan_out, 1));
            self.count(at).flops += 2.0 * (rows * width * map.fan_out) as f64;
        }
        let tokens = parts.first().map_or(0, |queries| queries.seq_len);
        let products = (positions.maps().count() * attention.n_heads * attention.d_head * tokens * rows) as f64;
        self.count(at).flops += 2.0 * products;
    }

    /// A position updates and reads the states of all heads. Only the outputs of the chains are kept, because states can
    /// be computed again.
    fn recurrence(&mut self, at: &Site, recurrence: &'s Recurrence, parts: &[Array]) -> Array {
        for part in parts {
            self.keep(at, part);
        }
        let Recurrence { n_heads, d_key, d_value, .. } = *recurrence;
        for (name, [rows, columns]) in recurrence.parameters() {
            let entries = (rows * columns) as u64;
            self.note(at, Cow::Owned(at.parameter(name)), entries);
            self.add(at, entries);
        }
        let seq_len = parts.first().map_or(0, |query| query.seq_len);
        let passes = if recurrence.delta { 8.0 } else { 5.0 };
        self.count(at).flops += passes * (seq_len * n_heads) as f64 * (d_key * d_value) as f64;
        Array::new(seq_len, n_heads * d_value)
    }

    /// All experts add parameters, but a token passes only the router and `top_k` experts.
    fn mixture(&mut self, at: &Site, mixture: &'s Mixture, input: &Array) -> Array {
        let Count { parameters, flops, bytes } = std::mem::take(&mut self.expert);
        self.add(at, parameters.saturating_mul(mixture.n_experts as u64));
        for name in std::mem::take(&mut self.in_expert) {
            self.tensors.entry(name).and_modify(|entries| *entries = entries.saturating_mul(mixture.n_experts as u64));
        }
        self.tensor(at, &mixture.router, mixture.n_experts, input.width);
        self.keep(at, input);
        let top_k = mixture.top_k as f64;
        let count = self.count(at);
        count.flops += top_k * flops + 2.0 * mixture.n_experts as f64 * input.entries();
        count.bytes += top_k * bytes;
        Array::new(input.seq_len, input.width)
    }
}

impl<'s> Interpreter<'s> for Counter<'s> {
    type Signal = Array;
    type Gradient = ();
    type Kept = ();
    type Error = Infallible;

    fn source(&mut self, at: &Site, stream: &'s Stream) -> Result<Array, Infallible> {
        let output = Array::new(stream.seq_len, stream.source.width());
        if let Source::Embedding(embedding) = &stream.source {
            for term in &embedding.terms {
                self.embedding(at, term, embedding.ids.vocab_size(), &output);
            }
        }
        self.seq_len.push(0.0);
        Ok(output)
    }

    fn source_backward(&mut self, _: &Site, _: &Stream, (): ()) -> Result<(), Infallible> {
        Ok(())
    }

    fn seed(&mut self, _: &Site, _: &GradientSeed, _: &Array) -> Result<(), Infallible> {
        Ok(())
    }

    fn apply(&mut self, at: &Site, component: &'s Component, input: Array) -> Result<(Array, ()), Infallible> {
        let Array { seq_len, width, .. } = input;
        let output = match component {
            Component::Linear(linear) => {
                self.keep(at, &input);
                self.tensor(at, &linear.weight, linear.fan_out, linear.fan_in);
                if let Some(bias) = &linear.bias {
                    self.tensor(at, bias, linear.fan_out, 1);
                }
                self.count(at).flops += 2.0 * input.entries() * linear.fan_out as f64;
                Array::new(seq_len, linear.fan_out)
            }
            Component::Norm(norm) => {
                self.keep(at, &input);
                let has_bias = norm.kind.has_biases() && self.norm_biases;
                let gains = (width / norm.groups) as u64;
                self.note(at, Cow::Owned(at.gain()), gains);
                self.add(at, gains * (1 + u64::from(has_bias)) + u64::from(norm.kind.pointwise().is_some()));
                Array::new(seq_len, width)
            }
            Component::Activation(_) => {
                self.keep(at, &input);
                Array::new(seq_len, width)
            }
            Component::Dropout(_) => {
                self.count(at).bytes += input.entries();
                Array::new(seq_len, width)
            }
            Component::Scale(_) | Component::Rotary(_) => Array::new(seq_len, width),
            Component::Select(select) => Array::new(seq_len, select.width),
            Component::Embedding(term) => {
                self.embedding(at, term, 0, &input);
                Array::new(seq_len, width)
            }
            Component::Convolution(convolution) => {
                self.keep(at, &input);
                let fan_in = convolution.window();
                self.tensor(at, &convolution.weight, convolution.fan_out, fan_in);
                if let Some(bias) = &convolution.bias {
                    self.tensor(at, bias, convolution.fan_out, 1);
                }
                let output = Array::new(convolution.output_len(seq_len), convolution.fan_out);
                self.count(at).flops += 2.0 * fan_in as f64 * output.entries();
                output
            }
            Component::Pool(pool) => {
                self.keep(at, &input);
                Array::new(pool.sliding().windows(seq_len), width)
            }
            Component::Prepend(prepend) => {
                self.tensor(at, &prepend.token, 1, width);
                Array::new(seq_len + 1, width)
            }
        };
        Ok((output, ()))
    }

    fn apply_backward(&mut self, _: &Site, _: &Component, (): (), (): ()) -> Result<(), Infallible> {
        Ok(())
    }

    fn fork(&mut self, _: &Site, _: Fan, input: &Array, _: usize) -> Array {
        input.clone()
    }

    fn merge(&mut self, at: &Site, fan: Fan<'s>, input: Array, parts: Vec<Array>) -> Result<(Array, ()), Infallible> {
        let output = match fan {
            Fan::Sum(_) => Array::new(input.seq_len, parts.first().map_or(input.width, |branch| branch.width)),
            Fan::Product(_) => {
                for factor in &parts {
                    self.keep(at, factor);
                }
                Array::new(input.seq_len, parts.first().map_or(input.width, |factor| factor.width))
            }
            Fan::Concat(concat) => {
                let copies = |shared| if shared { concat.n_heads } else { 1 };
                let widths = concat.parts.iter().zip(&parts).map(|(part, array)| copies(part.shared) * array.width);
                Array::new(input.seq_len, widths.sum())
            }
            Fan::Attention(attention) => self.attention(at, attention, &parts),
            Fan::Recurrence(recurrence) => self.recurrence(at, recurrence, &parts),
            Fan::Mixture(mixture) => self.mixture(at, mixture, &input),
        };
        Ok((output, ()))
    }

    fn split(&mut self, _: &Site, _: Fan, (): &mut (), (): ()) -> Result<Vec<()>, Infallible> {
        Ok(Vec::new())
    }

    fn join(&mut self, _: &Site, _: Fan, (): (), _: Vec<()>) -> Result<(), Infallible> {
        Ok(())
    }

    fn arrive(&mut self, _: Option<()>, (): ()) -> Result<(), Infallible> {
        Ok(())
    }

    /// Only one expert is traversed, because all have the same cost.
    fn experts(&self, _: &Mixture) -> usize {
        1
    }

    fn observe(&mut self, at: &Site, output: &Array) {
        if let Some(seq_len) = self.seq_len.last_mut().filter(|_| at.is_stream_site()) {
            *seq_len = output.seq_len as f64;
        }
    }

    fn observe_gradient(&mut self, _: &Site, (): &()) {}
}
