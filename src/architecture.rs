//! Architectures: what flags, presets and MODEL files say about a network, and its checked form.
//!
//! An [`Architecture`] may leave fields open; [`Architecture::resolved`] fills them in from the
//! others and checks all of them, so that overriding one field moves the defaults that depend on it.

mod checks;
mod error;
mod file;
mod parts;
mod resolved;
#[cfg(test)]
mod tests;
mod words;

use serde::{Deserialize, Serialize};

pub use error::ArchitectureError;
pub use file::Format;
pub use parts::{Experts, InitTable, Latent, Stem};
pub use resolved::Resolved;
pub use words::{
    Activation, DropPathSchedule, EmbeddingProjection, Head, Kind, NormChoice, NormPlacement, Parallel, Positions,
    QkNorm,
};

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
    /// Factor on the entries that `dyt` and `derf` take in place of norms; by default 0.5.
    pub dyt_alpha: Option<f64>,
    /// The same at the start of attention; by default `dyt_alpha`.
    pub dyt_attention_alpha: Option<f64>,
    /// Where blocks normalise.
    pub norm_placement: NormPlacement,
    /// Whether a norm follows the last block; by default in encoders unless norms are
    /// placed post.
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
    /// Whether it is the same in all blocks or grows with depth.
    pub drop_path_schedule: DropPathSchedule,
    /// Whether tokens see only themselves and those before them.
    pub causal: bool,
    /// How many tokens a query sees, itself included, on each side it looks to; one number per block, 0 for
    /// all. Empty: all, in every block.
    pub windows: Vec<usize>,
    /// Width of a head of queries and keys, and of values; by default the width over the heads.
    pub d_head: Option<usize>,
    /// Factor on q·k; by default 1/√`d_head`.
    pub attention_scale: Option<f64>,
    /// Whether block i divides its scores by i + 1.
    pub attention_scale_by_layer: bool,
    /// Scores s become c·tanh(s/c).
    pub attention_softcap: Option<f64>,
    /// Whether queries and keys are normalised, per head or whole.
    pub qk_norm: QkNorm,
    /// Queries and keys from low-rank latents (multi-head latent attention).
    pub latent: Option<Latent>,
    /// Biases of queries, keys and values; by default `biases`.
    pub qkv_biases: Option<bool>,
    /// Bias of the attention output; by default `biases`.
    pub attention_output_bias: Option<bool>,
    /// Biases of the feed-forward network; by default `biases`.
    pub ffn_biases: Option<bool>,
    /// Whether attention and feed-forward network work side by side.
    pub parallel: Parallel,
    /// Value of every gain of a norm.
    pub norm_gain: f64,
    /// Whether the skip connection starts behind the norm of a Pre-LN block.
    pub skip_from_norm: bool,
    /// Whether block 0 normalises the input of its attention; false: the embedding norm does.
    pub first_norm: bool,
    /// Mixture of experts in place of the feed-forward network.
    pub experts: Option<Experts>,
    /// Blocks that have a plain feed-forward network although `experts` has a mixture there.
    pub dense_blocks: Vec<usize>,
    /// Factor on the token embedding.
    pub embedding_scale: f64,
    /// Width of the token embedding; by default that of the stream. Another one is projected.
    pub embedding_width: Option<usize>,
    /// Where an embedding of another width is projected.
    pub embedding_projection: EmbeddingProjection,
    /// Rows of a table of token types of which every token gets row 0; 0: no such table.
    pub token_types: usize,
    /// Features of a head that rotary positions rotate; by default all.
    pub rotary_dim: Option<usize>,
    /// Base of the frequencies of rotary positions.
    pub rotary_base: f64,
    /// Base in blocks with a window; by default the same.
    pub rotary_window_base: Option<f64>,
    /// Angles per position, in place of the powers of `rotary_base`.
    pub rotary_frequencies: Option<Vec<f64>>,
    /// The same in blocks with a window, in place of the powers of `rotary_window_base`.
    pub rotary_window_frequencies: Option<Vec<f64>>,
    /// Factor on the rotated features of queries and of keys (YaRN's attention factor).
    pub rotary_scale: f64,
    /// The same in blocks with a window; by default `rotary_scale`.
    pub rotary_window_scale: Option<f64>,
    /// Which blocks rotate queries and keys; empty: all.
    pub rotated: Vec<bool>,
    /// Factor on the slopes of ALiBi.
    pub alibi_scale: f64,
    /// Buckets of relative positions.
    pub relative_buckets: usize,
    /// Distance from which on relative positions share a bucket.
    pub relative_max_distance: usize,
    /// Whether block 0's table of relative positions serves all blocks.
    pub relative_shared: bool,
    /// What stands where ids are embedded: patches of an image, or frames of audio.
    pub stem: Option<Stem>,
    /// Probability of zeroing an entry of the embedding sum, in training; by default `dropout`.
    pub embedding_dropout: Option<f64>,
    /// Probability of zeroing an entry behind the activation, in training.
    pub activation_dropout: f64,
    /// Probability of zeroing an entry behind the final norm, in training.
    pub final_dropout: f64,
    /// A decoder that reads the output of this encoder through cross-attention; its own fields are those
    /// of an architecture.
    pub decoder: Option<Box<Architecture>>,
    /// Whether the decoder embeds with the encoder's table.
    pub shared_embedding: bool,
    /// The distribution of every tensor, for the scheme `hf`.
    pub init: Option<InitTable>,
    /// Whether an MLP has residual connections; encoders always have.
    pub residual: Option<bool>,
    /// Factor on the skip connection; by default the scheme's.
    pub skip_scale: Option<f64>,
    /// Factor on the output of a branch; by default the scheme's.
    pub branch_scale: Option<f64>,
    /// Whether this factor is a parameter per feature that starts there (LayerScale).
    pub layer_scale: bool,
    /// What follows the last block.
    pub head: Head,
    /// Activation of a linear map with a norm behind it between the last block and a head over the vocabulary, as
    /// masked language models have; by default the head reads the last block.
    pub head_activation: Option<Activation>,
    /// Whether the head has a bias.
    pub head_bias: bool,
    /// Factor on the logits.
    pub logit_scale: f64,
    /// Logits u become c·tanh(u/c).
    pub logit_softcap: Option<f64>,
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
            dyt_alpha: None,
            dyt_attention_alpha: None,
            norm_placement: NormPlacement::Pre,
            final_norm: None,
            positions: Positions::Learned,
            segments: false,
            embedding_norm: false,
            biases: true,
            dropout: 0.0,
            attention_dropout: 0.0,
            drop_path: 0.0,
            drop_path_schedule: DropPathSchedule::Constant,
            causal: false,
            windows: Vec::new(),
            d_head: None,
            attention_scale: None,
            attention_scale_by_layer: false,
            attention_softcap: None,
            qk_norm: QkNorm::None,
            latent: None,
            qkv_biases: None,
            attention_output_bias: None,
            ffn_biases: None,
            parallel: Parallel::None,
            norm_gain: 1.0,
            skip_from_norm: false,
            first_norm: true,
            experts: None,
            dense_blocks: Vec::new(),
            embedding_scale: 1.0,
            embedding_width: None,
            embedding_projection: EmbeddingProjection::Token,
            token_types: 0,
            rotary_dim: None,
            rotary_base: 10_000.0,
            rotary_window_base: None,
            rotary_frequencies: None,
            rotary_window_frequencies: None,
            rotary_scale: 1.0,
            rotary_window_scale: None,
            rotated: Vec::new(),
            alibi_scale: 1.0,
            relative_buckets: 32,
            relative_max_distance: 128,
            relative_shared: true,
            stem: None,
            embedding_dropout: None,
            activation_dropout: 0.0,
            final_dropout: 0.0,
            decoder: None,
            shared_embedding: false,
            init: None,
            residual: None,
            skip_scale: None,
            branch_scale: None,
            layer_scale: false,
            head: Head::None,
            head_activation: None,
            head_bias: false,
            logit_scale: 1.0,
            logit_softcap: None,
        }
    }
}

impl Architecture {
    /// A plain MLP: no norm, no residual connections unless asked for.
    pub fn mlp() -> Self {
        Self { kind: Kind::Mlp, ..Self::default() }
    }

    /// Sets the number of blocks; a pattern of local and global ones, or of rotated ones, goes on.
    pub fn set_layers(&mut self, n_layers: usize) {
        self.n_layers = n_layers;
        self.windows = self.windows.iter().copied().cycle().take(n_layers).collect();
        self.rotated = self.rotated.iter().copied().cycle().take(n_layers).collect();
    }
}
