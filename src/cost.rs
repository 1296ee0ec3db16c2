//! What a network costs: parameters, operations, memory.
//!
//! # Conventions
//!
//! * *Parameters*: every tensor once, equal names being one; gains of norms, and biases of
//!   LayerNorms where the architecture has biases; the head, if it has weights of its own.
//! * *FLOPs per token*: two per multiply-add of linear maps, attention scores and weighted values,
//!   the last two against all `seq_len` tokens (4 · `seq_len` · width per block); the head's matrix,
//!   tied or not; a pooler sees one token of a sequence. Lookups, norms, activations and softmax
//!   count nothing. Backward is twice forward: gradients of inputs and of weights.
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
    Component, EmbeddingTerm, Fan, GradientSeed, Interpreter, NormKind, Site, Source, Stack, Tensor, forward,
};

use crate::architecture::{Architecture, ArchitectureError, Head, Resolved};

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
            seq_len: stack.seq_len as f64,
            norm_biases: architecture.as_ref().is_none_or(|architecture| architecture.biases),
            tensors: HashSet::new(),
            parameters: 0,
            flops: 0.0,
            bytes: 0.0,
        };
        let Ok(()) = forward(stack, &mut counter);
        let (head_parameters, head_flops) = architecture.as_ref().map_or((0, 0.0), head);
        let flops = counter.flops + head_flops;
        Ok(Self {
            parameters: counter.parameters.saturating_add(head_parameters),
            flops_forward_per_token: flops,
            flops_backward_per_token: 2.0 * flops,
            activation_bytes: counter.bytes,
        })
    }
}

/// Parameters and FLOPs per token of the head.
fn head(architecture: &Resolved) -> (u64, f64) {
    let width = architecture.d_model as u64;
    let logits = width * architecture.vocab_size as u64;
    match architecture.head {
        Head::None => (0, 0.0),
        Head::Tied => (0, 2.0 * logits as f64),
        Head::Untied => (logits, 2.0 * logits as f64),
        Head::Pooler => (width * width + width, 2.0 * (width * width) as f64 / architecture.seq_len as f64),
    }
}

/// Counts on its way forward.
struct Counter {
    seq_len: f64,
    norm_biases: bool,
    tensors: HashSet<String>,
    parameters: u64,
    flops: f64,
    bytes: f64,
}

/// An array of one token; its clones are the same array.
#[derive(Clone)]
struct Array {
    width: usize,
    kept: Rc<Cell<bool>>,
}

impl Array {
    fn new(width: usize) -> Self {
        Self { width, kept: Rc::new(Cell::new(false)) }
    }
}

impl Counter {
    fn tensor(&mut self, tensor: &Tensor, rows: usize, columns: usize) {
        if self.tensors.insert(tensor.name.clone()) {
            self.add((rows as u64).saturating_mul(columns as u64));
        }
    }

    fn add(&mut self, parameters: u64) {
        self.parameters = self.parameters.saturating_add(parameters);
    }

    /// Keeps an array for the backward pass, once.
    fn keep(&mut self, array: &Array) {
        if !array.kept.replace(true) {
            self.bytes += BYTES * self.seq_len * array.width as f64;
        }
    }
}

impl Interpreter for Counter {
    type Signal = Array;
    type Gradient = ();
    type Kept = ();
    type Error = Infallible;

    fn source(&mut self, _: &Site, source: &Source) -> Result<Array, Infallible> {
        if let Source::Embedding(embedding) = source {
            for term in &embedding.terms {
                match term {
                    EmbeddingTerm::Token { table } => self.tensor(table, embedding.ids.vocab_size, embedding.width),
                    EmbeddingTerm::LearnedPosition { table } => {
                        self.tensor(table, self.seq_len as usize, embedding.width);
                    }
                    EmbeddingTerm::Segment { table } => self.tensor(table, 2, embedding.width),
                    EmbeddingTerm::SinusoidalPosition { .. } => {}
                }
            }
        }
        Ok(Array::new(source.width()))
    }

    fn source_backward(&mut self, _: &Site, _: &Source, (): ()) -> Result<(), Infallible> {
        Ok(())
    }

    fn seed(&mut self, _: &Site, _: &GradientSeed, _: &Array) -> Result<(), Infallible> {
        Ok(())
    }

    fn apply(&mut self, _: &Site, component: &Component, input: Array) -> Result<(Array, ()), Infallible> {
        let width = match component {
            Component::Linear(linear) => {
                self.keep(&input);
                self.tensor(&linear.weight, linear.fan_out, linear.fan_in);
                if let Some(bias) = &linear.bias {
                    self.tensor(bias, linear.fan_out, 1);
                }
                self.flops += 2.0 * linear.fan_in as f64 * linear.fan_out as f64;
                linear.fan_out
            }
            Component::Norm(norm) => {
                self.keep(&input);
                let has_bias = norm.kind == NormKind::LayerNorm && self.norm_biases;
                self.add(input.width as u64 * (1 + u64::from(has_bias)));
                input.width
            }
            Component::Activation(_) => {
                self.keep(&input);
                input.width
            }
            Component::Dropout(_) => {
                self.bytes += self.seq_len * input.width as f64;
                input.width
            }
        };
        Ok((Array::new(width), ()))
    }

    fn apply_backward(&mut self, _: &Site, _: &Component, (): (), (): ()) -> Result<(), Infallible> {
        Ok(())
    }

    fn fork(&mut self, _: &Site, input: &Array) -> Array {
        input.clone()
    }

    fn merge(&mut self, _: &Site, fan: Fan, input: Array, parts: Vec<Array>) -> Result<(Array, ()), Infallible> {
        let width = match fan {
            Fan::Sum(_) => input.width,
            Fan::Product(_) => {
                parts.iter().for_each(|factor| self.keep(factor));
                parts.first().map_or(input.width, |factor| factor.width)
            }
            Fan::Attention(attention) => {
                parts.iter().for_each(|state| self.keep(state));
                let width = attention.n_heads * attention.d_head;
                let weights = attention.n_heads as f64 * self.seq_len * self.seq_len;
                // Plain weights; under dropout also its mask and what it leaves of them.
                let bytes = if attention.dropout_rate > 0.0 { 2.0 * BYTES + 1.0 } else { BYTES };
                self.bytes += bytes * weights;
                self.flops += 4.0 * self.seq_len * width as f64;
                width
            }
        };
        Ok((Array::new(width), ()))
    }

    fn split(&mut self, _: &Site, _: Fan, (): &mut (), (): ()) -> Result<Vec<()>, Infallible> {
        Ok(Vec::new())
    }

    fn join(&mut self, _: &Site, _: Fan, (): (), _: Vec<()>) -> Result<(), Infallible> {
        Ok(())
    }

    fn observe(&mut self, _: &Site, _: &Array) {}

    fn observe_gradient(&mut self, _: &Site, (): &()) {}
}
