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
                for factor in &parts {
                    self.keep(factor);
                }
                parts.first().map_or(input.width, |factor| factor.width)
            }
            Fan::Attention(attention) => {
                for state in &parts {
                    self.keep(state);
                }
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
