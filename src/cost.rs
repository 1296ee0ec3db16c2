//! What a network costs: parameters, operations, memory.
//!
//! # Conventions
//!
//! * *Parameters*: every tensor once, equal names being one; gains of norms, and biases of
//!   LayerNorms where the architecture has biases; the head, if it has weights of its own.
//! * *FLOPs per token*: two per multiply-add of linear maps, attention scores and weighted values,
//!   the last two against all tokens, masked or not (4 · `seq_len` · width per block); experts as often
//!   as a token goes to them; the head's matrix, tied or not; a pooler sees one token of a sequence.
//!   Lookups, norms, rotations, activations and softmax count nothing. Backward is twice forward:
//!   gradients of inputs and of weights. Tokens are those of the stream that the gradient starts at; an
//!   encoder's work counts to the tokens of its decoder.
//! * *Activation memory*: what the backward pass of one sequence needs, two bytes per entry (bf16),
//!   an array that several operations need counted once: inputs of linear maps, norms and
//!   activations; factors of products; queries, keys, values, attention weights; for dropout a mask
//!   of one byte per entry, and dropped attention weights beside the plain ones. The head is left
//!   out. With all dropouts this is the count of Korthikanti et al. 2022, eq. 1:
//!   seq · width · (34 + 5 heads · seq/width) bytes per block.

use std::cell::Cell;
use std::collections::HashSet;
use std::convert::Infallible;
use std::rc::Rc;

use sigprop_stack::{
    Attention, Component, EmbeddingTerm, Fan, GradientSeed, Interpreter, Mixture, NormKind, PositionBias, Site, Source,
    Stack, Stream, Tensor, forward,
};

use crate::architecture::{Architecture, ArchitectureError, Head, Parallel, Resolved};

/// Bytes of an entry that is kept for the backward pass.
const BYTES: f64 = 2.0;

/// What a network costs.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Cost {
    /// Number of parameters.
    pub parameters: u64,
    /// Floating-point operations of a forward pass, per token.
    pub flops_forward_per_token: f64,
    /// Floating-point operations of a backward pass, per token.
    pub flops_backward_per_token: f64,
    /// Bytes kept between the forward and the backward pass of one sequence.
    pub activation_bytes: f64,
}

impl Cost {
    /// The cost of `stack`. The architecture it was assembled from, if there is one, says what a
    /// stack does not: whether LayerNorms have biases (otherwise they do) and which head follows
    /// (otherwise none).
    pub fn of(stack: &Stack, architecture: Option<&Architecture>) -> Result<Self, ArchitectureError> {
        let architecture = architecture.map(Architecture::resolved).transpose()?;
        let mut counter = Counter {
            norm_biases: architecture.as_ref().is_none_or(|architecture| architecture.biases),
            tensors: HashSet::new(),
            total: Count::default(),
            expert: Count::default(),
            seq_len: Vec::new(),
        };
        let Ok(()) = forward(stack, &mut counter);
        let tokens = counter.seq_len.get(stack.gradient.stream).copied().unwrap_or(1.0);
        let mut total = counter.total;
        if let Some(architecture) = &architecture {
            let last = architecture.decoder.as_deref().unwrap_or(architecture);
            let (parameters, flops) = head(last, tokens);
            total.parameters = total.parameters.saturating_add(parameters);
            total.flops += flops;
            let (parameters, bytes) = repeated_norms(architecture, tokens);
            total.parameters -= parameters;
            total.bytes -= bytes;
        }
        Ok(Self {
            parameters: total.parameters,
            flops_forward_per_token: total.flops / tokens,
            flops_backward_per_token: 2.0 * total.flops / tokens,
            activation_bytes: total.bytes,
        })
    }
}

/// Parameters and FLOPs of the head of a sequence of so many tokens.
fn head(architecture: &Resolved, tokens: f64) -> (u64, f64) {
    let width = architecture.embedding_width as u64;
    let logits = width * architecture.vocab_size as u64;
    match architecture.head {
        Head::None => (0, 0.0),
        Head::Tied => (0, 2.0 * logits as f64 * tokens),
        Head::Untied => (logits, 2.0 * logits as f64 * tokens),
        Head::Pooler => (width * width + width, 2.0 * (width * width) as f64),
    }
}

/// Parameters and bytes of norms that are one in the network and two in the stack: those that the branches
/// of parallel blocks share.
fn repeated_norms(architecture: &Resolved, tokens: f64) -> (u64, f64) {
    let Some(norm) = architecture.norm.filter(|_| architecture.parallel == Parallel::SharedNorm) else {
        return (0, 0.0);
    };
    let has_bias = norm.kind == NormKind::LayerNorm && architecture.biases;
    let entries = (architecture.n_layers * architecture.d_model) as u64;
    (entries * (1 + u64::from(has_bias)), BYTES * entries as f64 * tokens)
}

/// What has been counted.
#[derive(Clone, Copy, Default)]
struct Count {
    parameters: u64,
    flops: f64,
    bytes: f64,
}

/// Counts on its way forward.
struct Counter {
    norm_biases: bool,
    tensors: HashSet<String>,
    total: Count,
    /// Of the expert that is being walked.
    expert: Count,
    /// Tokens at the end of each stream.
    seq_len: Vec<f64>,
}

/// An array of all tokens; its clones are the same array.
#[derive(Clone)]
struct Array {
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

impl Counter {
    /// Where things at this site are counted.
    fn count(&mut self, at: &Site) -> &mut Count {
        if at.expert().is_some() { &mut self.expert } else { &mut self.total }
    }

    fn tensor(&mut self, at: &Site, tensor: &Tensor, rows: usize, columns: usize) {
        if self.tensors.insert(tensor.name.clone()) {
            self.add(at, (rows as u64).saturating_mul(columns as u64));
        }
    }

    fn add(&mut self, at: &Site, parameters: u64) {
        let count = self.count(at);
        count.parameters = count.parameters.saturating_add(parameters);
    }

    /// Keeps an array for the backward pass, once.
    fn keep(&mut self, at: &Site, array: &Array) {
        if !array.kept.replace(true) {
            self.count(at).bytes += BYTES * array.entries();
        }
    }

    /// The tables of an embedding.
    fn embedding(&mut self, at: &Site, term: &EmbeddingTerm, vocab_size: usize, output: &Array) {
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

    fn attention(&mut self, at: &Site, attention: &Attention, parts: &[Array]) -> Array {
        for state in parts {
            self.keep(at, state);
        }
        if let Some(PositionBias::Relative { table, buckets, .. }) = &attention.bias {
            self.tensor(at, table, *buckets, attention.n_heads);
        }
        let [queries, keys] = [0, 1].map(|part| parts.get(part).map_or(0, |states| states.seq_len));
        let weights = attention.n_heads as f64 * queries as f64 * keys as f64;
        // Plain weights; under dropout also its mask and what it leaves of them.
        let bytes = if attention.dropout_rate > 0.0 { 2.0 * BYTES + 1.0 } else { BYTES };
        let count = self.count(at);
        count.bytes += bytes * weights;
        count.flops += 2.0 * weights * (attention.d_head + attention.d_value) as f64;
        Array::new(queries, attention.n_heads * attention.d_value)
    }

    /// All experts have parameters; a token goes through the router and `top_k` of them.
    fn mixture(&mut self, at: &Site, mixture: &Mixture, input: &Array) -> Array {
        let Count { parameters, flops, bytes } = std::mem::take(&mut self.expert);
        self.add(at, parameters.saturating_mul(mixture.n_experts as u64));
        self.tensor(at, &mixture.router, mixture.n_experts, input.width);
        self.keep(at, input);
        let top_k = mixture.top_k as f64;
        let count = self.count(at);
        count.flops += top_k * flops + 2.0 * mixture.n_experts as f64 * input.entries();
        count.bytes += top_k * bytes;
        Array::new(input.seq_len, input.width)
    }
}

impl Interpreter for Counter {
    type Signal = Array;
    type Gradient = ();
    type Kept = ();
    type Error = Infallible;

    fn source(&mut self, at: &Site, stream: &Stream) -> Result<Array, Infallible> {
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

    fn apply(&mut self, at: &Site, component: &Component, input: Array) -> Result<(Array, ()), Infallible> {
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
                let has_bias = norm.kind == NormKind::LayerNorm && self.norm_biases;
                self.add(at, (width / norm.groups) as u64 * (1 + u64::from(has_bias)));
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
            Component::Embedding(term) => {
                self.embedding(at, term, 0, &input);
                Array::new(seq_len, width)
            }
            Component::Convolution(convolution) => {
                self.keep(at, &input);
                let fan_in = convolution.kernel * convolution.fan_in;
                self.tensor(at, &convolution.weight, convolution.fan_out, fan_in);
                if let Some(bias) = &convolution.bias {
                    self.tensor(at, bias, convolution.fan_out, 1);
                }
                let output = Array::new(convolution.output_len(seq_len), convolution.fan_out);
                self.count(at).flops += 2.0 * fan_in as f64 * output.entries();
                output
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

    fn fork(&mut self, _: &Site, input: &Array) -> Array {
        input.clone()
    }

    fn merge(&mut self, at: &Site, fan: Fan, input: Array, parts: Vec<Array>) -> Result<(Array, ()), Infallible> {
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

    fn accumulate(&mut self, (): (), (): ()) -> Result<(), Infallible> {
        Ok(())
    }

    /// All are alike.
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::architecture::Activation;
    use crate::assemble::{Input, Run, assemble};
    use crate::schemes::Scheme;

    fn cost(architecture: &Architecture, train: bool) -> Cost {
        let scheme = Scheme::parse("xavier").unwrap();
        let run = Run { train, ..Run::default() };
        let stack = assemble(architecture, &scheme, &Input::Zipf, &run).unwrap().stack;
        Cost::of(&stack, Some(architecture)).unwrap()
    }

    /// One block of width 8, 2 heads, 16 tokens, 100 ids.
    fn small() -> Architecture {
        let shape = Architecture { n_layers: 1, d_model: 8, n_heads: Some(2), seq_len: 16, ..Architecture::default() };
        Architecture { vocab_size: 100, ..shape }
    }

    #[test]
    fn an_encoder_by_hand() {
        let got = cost(&small(), false);
        // Tables 100·8 + 16·8; block 4(8·8 + 8), 8·32 + 32, 32·8 + 8; three norms of 2·8.
        assert_eq!(got.parameters, 800 + 128 + 288 + 288 + 264 + 48);
        // 2 (4·64 + 2·256) and 4·16·8.
        approx::assert_relative_eq!(got.flops_forward_per_token, 1536.0 + 512.0);
        approx::assert_relative_eq!(got.flops_backward_per_token, 2.0 * 2048.0);
        // Widths kept: norm 8, its output 8, q k v 24, heads 8; norm 8, its output 8, hidden 32 twice;
        // final norm 8. Attention weights 2·16·16.
        approx::assert_relative_eq!(got.activation_bytes, 2.0 * (16.0 * 136.0 + 512.0));
    }

    #[test]
    fn an_mlp_by_hand() {
        let architecture = Architecture { n_layers: 3, d_model: 8, seq_len: 1, ..Architecture::mlp() };
        let got = cost(&architecture, false);
        assert_eq!(got.parameters, 3 * 72);
        approx::assert_relative_eq!(got.flops_forward_per_token, 3.0 * 128.0);
        approx::assert_relative_eq!(got.activation_bytes, 3.0 * 2.0 * 16.0);
        let no_biases = Architecture { biases: false, ..architecture };
        assert_eq!(cost(&no_biases, false).parameters, 3 * 64);
    }

    #[test]
    fn a_gate_has_a_third_matrix_and_fewer_heads_have_smaller_ones() {
        let plain = cost(&small(), false);
        let gated = cost(&Architecture { activation: Activation::Swiglu, ..small() }, false);
        assert_eq!(gated.parameters - plain.parameters, 8 * 32 + 32);
        // Output of the gate's activation and of the linear branch.
        approx::assert_relative_eq!(gated.activation_bytes - plain.activation_bytes, 2.0 * 16.0 * 64.0);
        let grouped = cost(&Architecture { n_kv_heads: Some(1), ..small() }, false);
        assert_eq!(plain.parameters - grouped.parameters, 2 * (8 * 4 + 4));
    }

    #[test]
    fn heads_count() {
        let with = |head| cost(&Architecture { head, ..small() }, false);
        let none = with(Head::None);
        for (head, parameters, flops) in
            [(Head::Tied, 0, 1600.0), (Head::Untied, 800, 1600.0), (Head::Pooler, 72, 2.0 * 64.0 / 16.0)]
        {
            let got = with(head);
            assert_eq!(got.parameters - none.parameters, parameters);
            approx::assert_relative_eq!(got.flops_forward_per_token - none.flops_forward_per_token, flops);
        }
    }

    /// Korthikanti et al. 2022, eq. 1: seq · width · (34 + 5 heads · seq/width) bytes per block.
    #[test]
    fn activation_memory_of_a_block_in_training_is_the_published_one() {
        let (d_model, n_heads, seq_len) = (64, 4, 128);
        let of = |n_layers| {
            let shape = Architecture { n_layers, d_model, n_heads: Some(n_heads), seq_len, ..Architecture::default() };
            cost(&Architecture { dropout: 0.1, attention_dropout: 0.1, ..shape }, true).activation_bytes
        };
        approx::assert_relative_eq!(of(3) - of(2), 128.0 * 64.0 * (34.0 + 5.0 * 4.0 * 128.0 / 64.0));
    }
}
