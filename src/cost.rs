//! The cost of a network: parameters, operations, memory.
//!
//! # Conventions
//!
//! * *Parameters*: every tensor once, where equal names are one tensor; gains of norms, and biases of LayerNorms where
//!   the architecture has biases; the head, if it has weights of its own. For a config they are the parameters of the
//!   library's class (`huggingface/classes.rs`).
//! * *FLOPs per token*: two per multiply-add of linear maps, attention scores and weighted values, the last two against
//!   all tokens, masked or not (4 · `seq_len` · width per block); experts as often as a token goes to them; the head's
//!   matrix, tied or not; a pooler reads one token of a sequence. Lookups, norms, rotations, activations and softmax
//!   count nothing. Backward is twice forward: gradients of inputs and of weights. Tokens are those of the stream at
//!   which the gradient starts; an encoder's work counts to the tokens of its decoder.
//! * *Activation memory*: the arrays that the backward pass of one sequence needs, at two bytes per entry (bf16). An
//!   array that several operations need is counted once: inputs of linear maps, norms and activations; factors of
//!   products; queries, keys, values, attention weights; for dropout a mask of one byte per entry, and dropped
//!   attention weights in addition to the plain ones. The head is left out. With all dropouts this is the count of
//!   Korthikanti et al. 2022, eq. 1: seq · width · (34 + 5 heads · seq/width) bytes per block.

mod counter;
#[cfg(test)]
mod tests;

use std::collections::HashMap;

use sigprop_stack::{Stack, StackError, parameters};

use crate::architecture::{Architecture, ArchitectureError, Head, Parallel, Resolved};
use crate::huggingface::Names;
use counter::{BYTES, Count, Counter};

/// The cost of a network.
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
    /// Returns this cost with the parameters counted as in the model class of a library, if `names` are the names of
    /// this library.
    pub fn with_names(self, stack: &Stack, names: &Names) -> Result<Self, StackError> {
        Ok(Self { parameters: names.count(&parameters(stack)?).unwrap_or(self.parameters), ..self })
    }

    /// The cost of `stack`. The architecture from which it was assembled, if there is one, adds two facts that a stack
    /// does not contain: whether LayerNorms have biases (otherwise they do) and which head follows (otherwise none).
    pub fn of(stack: &Stack, architecture: Option<&Architecture>) -> Result<Self, ArchitectureError> {
        let architecture = architecture.map(Architecture::resolved).transpose()?;
        let norm_biases = architecture.as_ref().is_none_or(|architecture| architecture.biases);
        let (mut total, tokens) = Counter::of(stack, norm_biases);
        if let Some(architecture) = &architecture {
            let last = architecture.decoder.as_deref().unwrap_or(architecture);
            let (parameters, flops) = head(last, tokens);
            total.parameters = total.parameters.saturating_add(parameters);
            total.flops += flops;
            total.parameters = total.parameters.saturating_add(layer_scales(architecture));
            let repeated = repeated(architecture, tokens);
            total.parameters -= repeated.parameters;
            total.flops -= repeated.flops;
            total.bytes -= repeated.bytes;
        }
        Ok(Self {
            parameters: total.parameters,
            flops_forward_per_token: total.flops / tokens,
            flops_backward_per_token: 2.0 * total.flops / tokens,
            activation_bytes: total.bytes,
        })
    }
}

/// The number of entries of every tensor by its name, summed over all experts of a mixture. Gains of norms are named
/// after their site.
pub fn tensor_entries(stack: &Stack) -> HashMap<String, u64> {
    Counter::through(stack, false).tensors.into_iter().map(|(name, entries)| (name.into_owned(), entries)).collect()
}

/// Parameters of the head, and its FLOPs for a sequence of `tokens` tokens.
fn head(architecture: &Resolved, tokens: f64) -> (u64, f64) {
    let width = architecture.output_width() as u64;
    let logits = width * architecture.vocab_size as u64;
    match architecture.head {
        Head::None => (0, 0.0),
        Head::Tied => (0, 2.0 * logits as f64 * tokens),
        Head::Untied => (logits, 2.0 * logits as f64 * tokens),
        Head::Pooler => (width * width + width, 2.0 * (width * width) as f64),
    }
}

/// The number of learned factors on branches (LayerScale), in all streams.
fn layer_scales(architecture: &Resolved) -> u64 {
    let own = if architecture.layer_scale { architecture.residual_sublayers() * architecture.d_model } else { 0 };
    own as u64 + architecture.decoder.as_deref().map_or(0, layer_scales)
}

/// The cost of the parts that exist once in a network of `tokens` tokens but twice in its stack: the norm that the
/// branches of parallel blocks share, and the latent of keys and values.
fn repeated(architecture: &Resolved, tokens: f64) -> Count {
    let blocks = architecture.n_layers;
    let mut count = Count::default();
    if let Some(norm) = architecture.norm.filter(|_| architecture.parallel == Parallel::SharedNorm) {
        let has_bias = norm.kind.has_biases() && architecture.biases;
        let entries = blocks * architecture.d_model;
        let alphas = if norm.kind.pointwise().is_some() { blocks as u64 } else { 0 };
        count.parameters += entries as u64 * (1 + u64::from(has_bias)) + alphas;
        count.bytes += BYTES * entries as f64 * tokens;
    }
    if let Some(latent) = architecture.latent {
        let entries = blocks * latent.kv_rank;
        count.parameters += entries as u64;
        count.flops += 2.0 * (architecture.d_model * entries) as f64 * tokens;
        // The latent is kept twice: before and after its norm.
        count.bytes += 2.0 * BYTES * entries as f64 * tokens;
    }
    count
}
