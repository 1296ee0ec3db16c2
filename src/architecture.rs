//! Architectures: what flags, presets and MODEL files say about a network, and its checked form.
//!
//! An [`Architecture`] may leave fields open; [`Architecture::resolved`] fills them in from the
//! others and checks all of them, so that overriding one field moves the defaults that depend on it.

mod error;
mod file;
mod resolved;
mod words;

use serde::{Deserialize, Serialize};

pub use error::ArchitectureError;
pub use file::Format;
pub use resolved::{Placement, Resolved};
pub use words::{Activation, Head, Kind, NormChoice, NormPlacement, Positions};

/// A network as it is described. Field names are the keys of MODEL files; the default is a plain
/// Pre-LN Transformer encoder.
///
/// ```
/// use sigprop::architecture::Architecture;
///
/// let plain = Architecture { d_model: 256, ..Architecture::default() };
/// let resolved = plain.resolved()?;
/// assert_eq!((resolved.n_heads, resolved.d_ff), (4, 1024));
/// # Ok::<(), sigprop::architecture::ArchitectureError>(())
/// ```
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
#[expect(clippy::struct_excessive_bools, reason = "independent properties, each a key of its own")]
pub struct Architecture {
    /// What the network is called; by default its kind.
    pub name: Option<String>,
    /// The initialisation scheme it brings, as the text of [`crate::schemes::Scheme::parse`].
    pub scheme: Option<String>,
    /// Encoder or MLP.
    pub kind: Kind,
    /// Number of blocks; of an MLP, of linear layers.
    pub n_layers: usize,
    /// Width of the stream.
    pub d_model: usize,
    /// Query heads; by default the largest divisor of the width that leaves heads of 64 or more.
    pub n_heads: Option<usize>,
    /// Key and value heads; by default as many as query heads.
    pub n_kv_heads: Option<usize>,
    /// Width of the feed-forward network; by default four times the width.
    pub d_ff: Option<usize>,
    /// Tokens of a sequence.
    pub seq_len: usize,
    /// Number of different token ids.
    pub vocab_size: usize,
    /// Activation of the feed-forward network.
    pub activation: Activation,
    /// Which norm; by default LayerNorm in encoders, none in MLPs.
    pub norm: Option<NormChoice>,
    /// What norms add under the root.
    pub norm_eps: f64,
    /// Where blocks normalise.
    pub norm_placement: NormPlacement,
    /// Whether a norm follows the last block; by default only in Pre-LN encoders.
    pub final_norm: Option<bool>,
    /// How tokens know where they are.
    pub positions: Positions,
    /// Whether segment embeddings are added.
    pub segments: bool,
    /// Whether the sum of embeddings is normalised.
    pub embedding_norm: bool,
    /// Whether linear maps and LayerNorms have biases.
    pub biases: bool,
    /// Probability of zeroing an entry of the embedding sum or of a branch output, in training.
    pub dropout: f64,
    /// Probability of zeroing an attention weight, in training.
    pub attention_dropout: f64,
    /// Probability of dropping a whole branch, in training.
    pub drop_path: f64,
    /// Whether tokens see only those before them; not supported yet.
    pub causal: bool,
    /// Whether the model is a decoder; computed as bidirectional, with a caveat.
    pub decoder: bool,
    /// Whether an MLP has residual connections; encoders always have.
    pub residual: Option<bool>,
    /// Factor on the skip connection; by default the scheme's.
    pub skip_scale: Option<f64>,
    /// Factor on the output of a branch; by default the scheme's.
    pub branch_scale: Option<f64>,
    /// What follows the last block, for the cost.
    pub head: Head,
}

impl Default for Architecture {
    fn default() -> Self {
        Self {
            name: None,
            scheme: None,
            kind: Kind::Encoder,
            n_layers: 12,
            d_model: 1024,
            n_heads: None,
            n_kv_heads: None,
            d_ff: None,
            seq_len: 256,
            vocab_size: 32_000,
            activation: Activation::Gelu,
            norm: None,
            norm_eps: 1e-5,
            norm_placement: NormPlacement::Pre,
            final_norm: None,
            positions: Positions::Learned,
            segments: false,
            embedding_norm: false,
            biases: true,
            dropout: 0.0,
            attention_dropout: 0.0,
            drop_path: 0.0,
            causal: false,
            decoder: false,
            residual: None,
            skip_scale: None,
            branch_scale: None,
            head: Head::None,
        }
    }
}

impl Architecture {
    /// A plain MLP: no norm, no residual connections unless asked for.
    pub fn mlp() -> Self {
        Self { kind: Kind::Mlp, ..Self::default() }
    }
}
