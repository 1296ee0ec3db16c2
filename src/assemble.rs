//! Architecture and scheme to stack: the one place where numbers are written.
//!
//! A stream's body is `embeddings`, `blocks.0` …, `final_norm` (only if there is one).
//!
//! ```text
//! pre block   attention: x + [norm, heads, output, dropout]   ffn: x + [norm, in, activation, out, dropout]
//! post block  attention, attention_norm, ffn, ffn_norm        gated ffn: (gate, activation) ∘ up, out
//! MLP block   [norm], linear, activation, [dropout]; with residual connections inside `layer`
//! ```
//!
//! Dropout and stochastic depth are there only in training.

mod embeddings;
#[cfg(test)]
mod tests;

use sigprop_stack::{GradientSeed, Stack, Stream};

use crate::architecture::{Architecture, ArchitectureError, Kind, Positions, Resolved};
use crate::predict::{Caveat, ForwardWalk, PredictError};
use crate::recipe::Blocks;
use crate::schemes::{Scheme, SchemeError};
use embeddings::Reads;

/// What the network reads.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub enum Input {
    /// Token ids with probabilities ∝ 1/rank.
    #[default]
    Zipf,
    /// All token ids equally likely.
    Uniform,
    /// Token ids from a power law, two positions having the same one with this probability.
    TokenRepeat(f64),
    /// The site `embeddings` itself is Gaussian, with this correlation between tokens and the
    /// variance that embeddings have under the scheme.
    Correlation(f64),
}

/// How the network runs.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Run {
    /// Whether dropout and stochastic depth are on.
    pub train: bool,
    /// Correlation between the gradients of two tokens at the end of the stream.
    pub grad_correlation: f64,
}

/// A stack, and what in it is not quite what was asked for.
#[derive(Clone, Debug, PartialEq)]
pub struct Assembled {
    /// The network.
    pub stack: Stack,
    /// What is computed as if it were something else.
    pub caveats: Vec<Caveat>,
}

/// Why there is no stack.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum AssembleError {
    /// The architecture does not hold together.
    #[error(transparent)]
    Architecture(#[from] ArchitectureError),
    /// The scheme does not fit it.
    #[error(transparent)]
    Scheme(#[from] SchemeError),
    /// The signal cannot be followed.
    #[error(transparent)]
    Predict(#[from] PredictError),
    /// A number of the input or of the run that is out of range.
    #[error("{field} must be {expected}, got {got}")]
    Input {
        /// Name of the number.
        field: &'static str,
        /// What it must be.
        expected: String,
        /// What it is.
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
    let architecture = architecture.resolved()?;
    correlation("grad_correlation", run.grad_correlation)?;
    let recipe = scheme.recipe();
    let reads = Reads::new(&architecture, input)?;
    let (source, embeddings) = reads.enter(&architecture, recipe, run.train)?;
    let entrance = || {
        let (source, embeddings) = reads.enter(&architecture, recipe, true)?;
        let mut walk = ForwardWalk::new(&source, architecture.seq_len);
        walk.through(&[embeddings])?;
        Ok(walk)
    };
    let projections = recipe.projections(&architecture, &entrance)?;
    let blocks = Blocks::new(&architecture, recipe.residual(&architecture), run.train);

    let mut body = Vec::with_capacity(architecture.n_layers + 2);
    body.push(embeddings);
    body.extend((0..architecture.n_layers).map(|index| blocks.block(index, &projections)));
    if architecture.final_norm {
        body.extend(blocks.norm("final_norm"));
    }
    let stack = Stack {
        name: architecture.name.clone(),
        seq_len: architecture.seq_len,
        streams: vec![Stream { name: architecture.kind.name().to_owned(), source, body }],
        gradient: GradientSeed { stream: 0, correlation: run.grad_correlation },
    };
    Ok(Assembled { stack, caveats: caveats(&architecture, recipe.caveat(&architecture)) })
}

/// What is computed as if it were something else.
fn caveats(architecture: &Resolved, scheme: Option<String>) -> Vec<Caveat> {
    let encoder = architecture.kind == Kind::Encoder;
    let positions = match architecture.positions {
        Positions::Rotary => Some("rotary positions are treated as none: tokens count as exchangeable"),
        Positions::Alibi => Some("ALiBi is treated as none: tokens count as exchangeable"),
        // The predictor says what it thinks of sinusoids.
        Positions::None | Positions::Learned | Positions::Sinusoidal => None,
    };
    let decoder = architecture.decoder.then_some("computed as bidirectional: this decoder's causal mask is left out");
    let attention = positions.into_iter().chain(decoder).filter(|_| encoder).map(|text| Caveat {
        site: "blocks.0.attention.heads".to_owned(),
        sites: architecture.n_layers,
        text: text.to_owned(),
    });
    let scheme = scheme.map(|text| Caveat { site: "blocks.0".to_owned(), sites: architecture.n_layers, text });
    attention.chain(scheme).collect()
}

fn correlation(field: &'static str, got: f64) -> Result<(), AssembleError> {
    if (0.0..=1.0).contains(&got) {
        return Ok(());
    }
    Err(AssembleError::Input { field, expected: "in [0, 1]".to_owned(), got: got.to_string() })
}
