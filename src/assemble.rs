//! Assembles a stack from an architecture and a scheme: the only place where numbers are written.
//!
//! A stream's body is `embeddings`, `blocks.0` …, `final_norm` (only if something follows the last block).
//!
//! ```text
//! pre block        attention: x + [norm, heads, output, dropout]   ffn: x + [norm, in, activation, out, dropout]
//! post block       attention, attention_norm, ffn, ffn_norm        gated ffn: (gate, activation) ∘ up, out
//! sandwich block   x + [norm, …, output_norm]                      reordered: x + [heads, …, output_norm]
//! sub block        x + [norm, heads, inner_norm, output]           mixture: experts in place of in … out
//! parallel block   x + [attention: [norm, …]] + [ffn: [norm, …]]   decoder: attention, cross_attention, ffn
//! MLP block        [norm], linear, activation, [dropout]; with residual connections inside `layer`
//! of two maps      x + [norm, in, activation, out, dropout]
//! ```
//!
//! Dropout and stochastic depth are there only in training. An encoder and a decoder are two streams of these names;
//! the names of their tensors then begin with the name of the stream.

mod by_role;
mod embeddings;
mod head;
mod input;
mod learning_rates;
mod outline;
mod single;
mod stream_builder;
#[cfg(test)]
mod tests;

use std::collections::BTreeSet;

use sigprop_stack::{GradientSeed, Stack, StackError};

use crate::architecture::{Architecture, ArchitectureError, Head, Resolved};
use crate::caveat::{Caveat, Condition};
use crate::predict::{PredictError, Theory};
use crate::schemes::{Scheme, SchemeError};
pub(crate) use by_role::Parts;
pub use by_role::initialise;
#[cfg(test)]
pub(crate) use by_role::tests::with_roles;
use by_role::write;
pub(crate) use head::token_table;
use input::Reads;
use learning_rates::{is_in_block, learning_rates};
pub(crate) use outline::outline;
use stream_builder::StreamBuilder;

/// The input of a network.
#[derive(Clone, Debug, Default, PartialEq)]
pub enum Input {
    /// Token ids with probabilities ∝ 1/rank; patches or frames for a network with a stem, vectors for an MLP.
    #[default]
    Zipf,
    /// All token ids equally likely.
    Uniform,
    /// Token ids from a power law. Two positions have the same id with this probability.
    TokenRepeat(f64),
    /// Given ids. The length of their sequences replaces `seq_len` of the architecture.
    Tokens {
        /// Equally likely sequences, all of one length.
        sequences: Vec<Vec<u32>>,
    },
    /// The site `embeddings` itself is Gaussian, with this correlation between tokens and the
    /// variance that embeddings have under the scheme.
    Correlation(f64),
}

/// The name of a stream of an encoder–decoder.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StreamName {
    /// The stream that cross-attention reads.
    Encoder,
    /// The stream with the cross-attention.
    Decoder,
}

/// The mode in which the network runs.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Run {
    /// True if dropout and stochastic depth are on.
    pub train: bool,
    /// Correlation between the gradients of two tokens at the end of the stream.
    pub grad_correlation: f64,
    /// The input of a decoder; `None` for the distribution of the encoder's input.
    pub decoder_input: Option<Input>,
    /// The stream at whose end the gradient starts; `None` for the last stream.
    pub loss_at: Option<StreamName>,
}

/// A stack, with reasons for caution about it.
#[derive(Clone, Debug, PartialEq)]
pub struct Assembled {
    /// The network.
    pub stack: Stack,
    /// Caveats, such as a scheme that is not meant for the architecture.
    pub caveats: Vec<Caveat>,
}

/// The reason why there is no stack.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum AssembleError {
    /// The architecture is not valid.
    #[error(transparent)]
    Architecture(#[from] ArchitectureError),
    /// The scheme is not defined for the architecture.
    #[error(transparent)]
    Scheme(#[from] SchemeError),
    /// A prediction that is needed to assemble the network fails: the signal cannot be followed.
    #[error(transparent)]
    Predict(#[from] PredictError),
    /// The assembled stack is invalid: a width does not fit, or a number is out of range.
    #[error(transparent)]
    Stack(#[from] StackError),
    /// A scheme is to initialise a stack that does not say which map has which role.
    #[error(
        "roles: expected the role of every map in a stack that a scheme initialises, got none; add the key \"roles\" to \
         its file (docs/formats.md), or predict the distributions that it has, without a scheme"
    )]
    NoRoles,
    /// An entry of `init` names no tensor.
    #[error("init: no tensor is called {entry:?}; nearest: {hint} (docs/model-files.md)")]
    NoTensor {
        /// The name in the entry.
        entry: String,
        /// The most similar name of a tensor, or the names of all tensors.
        hint: String,
    },
    /// A number of the input or of the run is out of range.
    #[error("{field} must be {expected}, got {got}")]
    Input {
        /// Name of the number.
        field: &'static str,
        /// The expected value, in words.
        expected: String,
        /// The given value.
        got: String,
    },
}

/// Writes the numbers of `scheme` into a stack of the shape of `architecture`.
///
/// ```
/// use sigprop::architecture::Architecture;
/// use sigprop::assemble::{Input, Run, assemble};
/// use sigprop::schemes::Scheme;
///
/// let scheme = Scheme::parse("xavier")?;
/// let assembled = assemble(&Architecture::default(), &scheme, &Input::default(), &Run::default())?;
/// let names: Vec<&str> = assembled.stack.streams[0].body.iter().map(|node| node.name.as_str()).collect();
/// assert_eq!((names[0], names[1], names[13]), ("embeddings", "blocks.0", "final_norm"));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub fn assemble(
    architecture: &Architecture,
    scheme: &Scheme,
    input: &Input,
    run: &Run,
) -> Result<Assembled, AssembleError> {
    assemble_in(Theory::default(), architecture, scheme, input, run)
}

/// Assembles as [`assemble`] does, but schemes that follow the signal do so in the given theory.
///
/// # Errors
///
/// The errors of [`assemble`], and [`PredictError::NotFollowed`] within.
pub(crate) fn assemble_in(
    theory: Theory,
    architecture: &Architecture,
    scheme: &Scheme,
    input: &Input,
    run: &Run,
) -> Result<Assembled, AssembleError> {
    let encoder = architecture.resolved()?;
    correlation("grad_correlation", run.grad_correlation)?;
    let gradient = GradientSeed { stream: gradient_stream(&encoder, run)?, correlation: run.grad_correlation };
    let recipe = scheme.recipe();
    let sides = match &encoder.decoder {
        None => vec![(encoder.kind.name(), "", &encoder, input)],
        Some(decoder) => vec![
            ("encoder", "encoder.", &encoder, input),
            ("decoder", "decoder.", &**decoder, decoder_input(input, run)?),
        ],
    };
    let mut streams = Vec::with_capacity(sides.len());
    let mut token = None;
    for (name, prefix, side, input) in sides {
        let reads = Reads::new(side, input)?;
        let architecture = Resolved { seq_len: reads.seq_len().unwrap_or(side.seq_len), ..side.clone() };
        recipe.fits(&architecture)?;
        let side = StreamBuilder { architecture: &architecture, recipe, prefix, token: token.take(), theory };
        token = encoder.shared_embedding.then(|| side.token());
        streams.push(side.stream(name, &reads, run.train)?);
    }
    let caveat = recipe.caveat(&encoder).map(|why| {
        let site = if streams.len() > 1 { "encoder.blocks.0" } else { "blocks.0" };
        Caveat::of(site, encoder.n_layers, Condition::Scheme(why))
    });
    let mut stack = Stack::new(encoder.name.clone(), streams, gradient);
    let solved = recipe.solved(&stack, &is_in_block)?;
    write(&mut stack, &solved);
    let idle = write_head(&mut stack, scheme, &encoder, last(&encoder).head)?;
    if let Some(entry) = idle.first() {
        return Err(single::unmatched(&mut stack, entry));
    }
    Ok(Assembled { stack, caveats: caveat.into_iter().collect() })
}

/// Replaces the head of a stack that was assembled from `architecture` and `scheme` by another kind. The head becomes
/// `None` if the gradient does not start at the end of the last stream, or if there is no table of tokens to tie it to.
pub fn set_head(
    stack: &mut Stack,
    architecture: &Architecture,
    scheme: &Scheme,
    kind: Head,
) -> Result<(), AssembleError> {
    write_head(stack, scheme, &architecture.resolved()?, kind)?;
    Ok(())
}

/// Adds a head after the stack and replaces distributions of single tensors. Returns the entries that match no tensor.
fn write_head<'a>(
    stack: &mut Stack,
    scheme: &Scheme,
    encoder: &'a Resolved,
    kind: Head,
) -> Result<BTreeSet<&'a str>, AssembleError> {
    let is_last = stack.gradient.stream + 1 == stack.streams.len();
    let prefix = if encoder.decoder.is_some() { "decoder." } else { "" };
    let theory = Theory::default();
    let side = StreamBuilder { architecture: last(encoder), recipe: scheme.recipe(), prefix, token: None, theory };
    stack.head = side.head(stack, kind).filter(|_| is_last);
    stack.learning_rates = learning_rates(stack, scheme, encoder)?;
    Ok(single::replace(stack, &encoder.init))
}

/// The architecture of the last stream: the decoder's if there is a decoder, else that of `encoder`.
fn last(encoder: &Resolved) -> &Resolved {
    encoder.decoder.as_deref().unwrap_or(encoder)
}

/// The index of the stream at whose end the gradient starts.
fn gradient_stream(encoder: &Resolved, run: &Run) -> Result<usize, AssembleError> {
    match (&encoder.decoder, run.loss_at) {
        (None, None | Some(StreamName::Encoder)) | (Some(_), Some(StreamName::Encoder)) => Ok(0),
        (Some(_), None | Some(StreamName::Decoder)) => Ok(1),
        (None, Some(StreamName::Decoder)) => Err(AssembleError::Input {
            field: "the stream of the loss",
            expected: "the encoder of a network without a decoder".to_owned(),
            got: "the decoder".to_owned(),
        }),
    }
}

/// The input of the decoder: that of the run if it sets one, else the encoder's `input`. It is an error if tokens are
/// given for the encoder alone.
fn decoder_input<'a>(input: &'a Input, run: &'a Run) -> Result<&'a Input, AssembleError> {
    match (&run.decoder_input, input) {
        (Some(own), _) => Ok(own),
        (None, Input::Zipf | Input::Uniform | Input::TokenRepeat(_) | Input::Correlation(_)) => Ok(input),
        (None, Input::Tokens { .. }) => Err(AssembleError::Input {
            field: "the decoder's input",
            expected: "given together with the tokens of the encoder".to_owned(),
            got: "nothing".to_owned(),
        }),
    }
}

fn correlation(field: &'static str, got: f64) -> Result<(), AssembleError> {
    if (0.0..=1.0).contains(&got) {
        return Ok(());
    }
    Err(AssembleError::Input { field, expected: "in [0, 1]".to_owned(), got: got.to_string() })
}
