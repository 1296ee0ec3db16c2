//! Architectures: the description of a network in flags, presets and MODEL files, and its checked form.
//!
//! An [`Architecture`] may leave fields open. [`Architecture::resolved`] fills them in from the others and checks all
//! of them, so that overriding one field also changes the defaults that depend on it.

mod checks;
mod effects;
mod error;
mod file;
mod parts;
mod recurrence;
mod resolved;
#[cfg(test)]
mod tests;
mod words;

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

pub use effects::ModelFile;
pub use error::ArchitectureError;
pub use file::Format;
pub use parts::{Disentangled, Experts, GlobalHeads, InitTable, Latent, Multipliers, Stem, TensorInit};
pub use recurrence::RecurrentMixer;
pub use resolved::Resolved;
pub use words::{
    Activation, DropPathSchedule, EmbeddingProjection, Head, Kind, Mixer, NormChoice, NormPlacement, Parallel,
    Positions, QkNorm, RecurrentForm,
};

/// Description of a network. Field names are the keys of MODEL files. `docs/model-files.md` is made of the comments at
/// the fields and has its sections in the order of the groups below. The default is a plain Pre-LN Transformer encoder.
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
    // Shape.
    /// Name of the network in outputs; by default its kind.
    pub name: Option<String>,
    /// Kind of network.
    pub kind: Kind,
    /// Number of blocks of a Transformer, of layers of an MLP.
    pub n_layers: usize,
    /// Width of the residual stream, and of every layer of an MLP.
    pub d_model: usize,
    /// Width inside the feed-forward network; by default 4 · `d_model`. Width inside a branch of two maps of an MLP; by
    /// default `d_model`.
    pub d_ff: Option<usize>,
    /// Activation of the feed-forward network, or of a layer of an MLP.
    pub activation: Activation,
    /// Number of tokens of a sequence; of an MLP, number of inputs in the batch.
    pub seq_len: usize,
    /// Number of token ids.
    pub vocab_size: usize,
    /// Biases of linear maps; three keys below replace it for parts of a block.
    pub biases: bool,
    /// Biases of queries, keys and values; by default `biases`.
    pub qkv_biases: Option<bool>,
    /// Bias of the attention output; by default `biases`.
    pub attention_output_bias: Option<bool>,
    /// Biases of the feed-forward network; by default `biases`.
    pub ffn_biases: Option<bool>,
    // Norms.
    /// Kind of norm; by default `layernorm` in Transformers and `none` in MLPs.
    pub norm: Option<NormChoice>,
    /// Number ε that norms add to the variance before they take the root.
    pub norm_eps: f64,
    /// Initial gain of every norm.
    pub norm_gain: f64,
    /// Places of the norms in a block.
    pub norm_placement: NormPlacement,
    /// Norm after the last block; by default there is one in Transformers, unless norms are placed post.
    pub final_norm: Option<bool>,
    /// Norm of the sum of embeddings.
    pub embedding_norm: bool,
    /// Norm at the start of the attention of block 0; networks without it often have an `embedding_norm`.
    pub first_norm: bool,
    /// Skip connections that start after the norm of a Pre-LN block.
    pub skip_from_norm: bool,
    /// Norm of queries and keys.
    pub qk_norm: QkNorm,
    /// Factor α on the entries inside the function of `dyt` and `derf`; by default 0.5.
    pub dyt_alpha: Option<f64>,
    /// Factor α of the norm at the start of attention; by default `dyt_alpha`.
    pub dyt_attention_alpha: Option<f64>,
    // Attention.
    /// Number of query heads; by default the largest divisor of `d_model` that leaves heads of 64 features or more.
    pub n_heads: Option<usize>,
    /// Number of key and value heads (grouped-query attention); by default as many as query heads.
    pub n_kv_heads: Option<usize>,
    /// Width of a head of queries, keys and values; by default `d_model` / `n_heads`.
    pub d_head: Option<usize>,
    /// Other heads in blocks without a window.
    pub global_heads: Option<GlobalHeads>,
    /// Width of a head of values; by default `d_head`.
    pub d_value: Option<usize>,
    /// Factor on values.
    pub value_scale: f64,
    /// Causal mask: a token attends to itself and to earlier tokens only.
    pub causal: bool,
    /// Number of tokens that a query attends to, itself included, one number per block: the last tokens under a causal
    /// mask, half of them on each side otherwise. 0: all tokens. Empty: all tokens in every block.
    pub windows: Vec<usize>,
    /// Factor on the scores q·k; by default 1/√`d_head`, or 1/√((1 + s)·`d_head`) with s kinds of `disentangled` scores.
    pub attention_scale: Option<f64>,
    /// True if the scores of block i are divided by i + 1.
    pub attention_scale_by_layer: bool,
    /// Soft cap c: scores s become c·tanh(s/c).
    pub attention_softcap: Option<f64>,
    /// Attention sinks, one answer per block: each head has a learned logit that takes part of the weight of every query.
    /// Empty: no block has sinks.
    pub attention_sinks: Vec<bool>,
    /// Gate on the outputs of the heads: the sigmoid of a linear map multiplies them (Qwen3-Next).
    pub attention_gate: bool,
    /// Multi-head latent attention (DeepSeek): queries and keys come from low-rank latents.
    pub latent: Option<Latent>,
    // Mixers.
    /// Mixer of tokens in every block, one word per block; empty: attention in all of them.
    pub mixers: Vec<Mixer>,
    /// Number of tokens that a short convolution reads: the present one and those before it.
    pub convolution_taps: usize,
    /// Biases of short convolutions and of the maps around them; by default `biases`.
    pub convolution_biases: Option<bool>,
    /// Recurrence of blocks with that mixer.
    pub recurrence: Option<RecurrentMixer>,
    /// Factors on parts of every block; by default all are 1.
    pub multipliers: Option<Multipliers>,
    // Positions.
    /// Representation of positions.
    pub positions: Positions,
    /// Number of features of a head that rotary positions rotate; by default all.
    pub rotary_dim: Option<usize>,
    /// Base of the frequencies of rotary positions.
    pub rotary_base: f64,
    /// Angles per position, in place of the powers of `rotary_base`.
    pub rotary_frequencies: Option<Vec<f64>>,
    /// Factor on the rotated features of queries and of keys (YaRN's attention factor).
    pub rotary_scale: f64,
    /// Rotation of queries and keys, one answer per block; empty: every block rotates.
    pub rotated: Vec<bool>,
    /// Base in blocks with a window; by default the one of all blocks.
    pub rotary_window_base: Option<f64>,
    /// Angles per position in blocks with a window, in place of the powers of `rotary_window_base`.
    pub rotary_window_frequencies: Option<Vec<f64>>,
    /// Factor on the rotated features in blocks with a window; by default `rotary_scale`.
    pub rotary_window_scale: Option<f64>,
    /// Factor on the slopes of ALiBi.
    pub alibi_scale: f64,
    /// Number of buckets of relative positions.
    pub relative_buckets: usize,
    /// Distance from which on relative positions share a bucket.
    pub relative_max_distance: usize,
    /// One table of relative positions, the one of block 0, for all blocks.
    pub relative_shared: bool,
    /// Scores of contents with embeddings of relative positions (DeBERTa).
    pub disentangled: Option<Disentangled>,
    // Embeddings.
    /// Factor on the token embedding.
    pub embedding_scale: f64,
    /// Width of the token embedding; by default `d_model`. An embedding of another width is projected.
    pub embedding_width: Option<usize>,
    /// Place of the projection of an embedding of another width.
    pub embedding_projection: EmbeddingProjection,
    /// Segment embeddings (BERT): a sequence has two segments, split at a random position.
    pub segments: bool,
    /// Number of rows of a table of token types, of which every token gets row 0; 0 leaves the table out.
    pub token_types: usize,
    /// Patches of an image or frames of audio in place of token ids.
    pub stem: Option<Stem>,
    // Feed-forward networks that are mixtures.
    /// Mixture of experts in place of the feed-forward network.
    pub experts: Option<Experts>,
    /// Indices of blocks that keep a plain feed-forward network where `experts` has a mixture.
    pub dense_blocks: Vec<usize>,
    // Blocks of different sizes.
    /// Number of key and value heads of every block, one number per block. 0: a block without attention. Empty:
    /// `n_kv_heads` in every block.
    pub block_kv_heads: Vec<usize>,
    /// Width inside the feed-forward network of every block, one number per block. 0: a block without one. Empty: `d_ff`
    /// in every block.
    pub block_d_ff: Vec<usize>,
    // Residual connections.
    /// Residual connections in an MLP, where the default is false; a Transformer always has them.
    pub residual: Option<bool>,
    /// Number of linear maps in a branch of an MLP with residual connections: 1, φ(W x), or 2, W₂ φ(W₁ x) of width
    /// `d_ff` inside, as ResNets and Transformers have.
    pub branch_depth: usize,
    /// Factor λ on the skip connection; by default the scheme's.
    pub skip_scale: Option<f64>,
    /// Factor β on the output of a branch; by default the scheme's.
    pub branch_scale: Option<f64>,
    /// Learned factors, one per feature, that start at `branch_scale` (LayerScale).
    pub layer_scale: bool,
    /// Arrangement of attention and feed-forward network.
    pub parallel: Parallel,
    /// Parameters of block 0 in all blocks (ALBERT): the network runs one block `n_layers` times.
    pub shared_blocks: bool,
    // Dropout.
    /// Probability that dropout zeroes an entry of the sum of embeddings or of the output of a branch; it acts with
    /// `--train`.
    pub dropout: f64,
    /// Probability that dropout zeroes an entry of the sum of embeddings; by default `dropout`. It acts with
    /// `--train`.
    pub embedding_dropout: Option<f64>,
    /// Probability that dropout zeroes an attention weight; it acts with `--train`.
    pub attention_dropout: f64,
    /// Probability that dropout zeroes an entry after the activation of the feed-forward network; it acts with
    /// `--train`.
    pub activation_dropout: f64,
    /// Probability that dropout zeroes an entry after the final norm; it acts with `--train`.
    pub final_dropout: f64,
    /// Probability that stochastic depth drops a whole branch; it acts with `--train`.
    pub drop_path: f64,
    /// Change of `drop_path` with depth.
    pub drop_path_schedule: DropPathSchedule,
    // Head.
    /// Output head after the last block.
    pub head: Head,
    /// Activation in the head of a masked language model, between a linear map and a norm; by default the head is one
    /// linear map.
    pub head_activation: Option<Activation>,
    /// Bias of the head.
    pub head_bias: bool,
    /// Factor on the logits.
    pub logit_scale: f64,
    /// Soft cap c: logits u become c·tanh(u/c).
    pub logit_softcap: Option<f64>,
    // Encoder and decoder.
    /// Decoder that reads the output of this encoder through cross-attention. Its keys are the keys of this page.
    pub decoder: Option<Box<Architecture>>,
    /// One table of token embeddings for encoder and decoder.
    pub shared_embedding: bool,
    // Initialisation.
    /// Initialisation scheme, as `--scheme` takes it; that flag replaces it. By default `xavier`.
    pub scheme: Option<String>,
    /// Distributions of single tensors, which replace those of the scheme. Names are those of `predict --weights` or of
    /// `--dump-stack`, `.weight` may be left out, and `*` stands for one part between dots; the entry with fewest `*`
    /// counts.
    pub init: BTreeMap<String, TensorInit>,
    /// Distribution of every tensor as a library initialises it; it acts with the scheme `hf` alone.
    pub hf_init: Option<InitTable>,
}

impl Default for Architecture {
    fn default() -> Self {
        Self {
            name: None,
            kind: Kind::Encoder,
            n_layers: 12,
            d_model: 1024,
            d_ff: None,
            activation: Activation::Gelu,
            seq_len: 256,
            vocab_size: 32_000,
            biases: true,
            qkv_biases: None,
            attention_output_bias: None,
            ffn_biases: None,
            norm: None,
            norm_eps: 1e-5,
            norm_gain: 1.0,
            norm_placement: NormPlacement::Pre,
            final_norm: None,
            embedding_norm: false,
            first_norm: true,
            skip_from_norm: false,
            qk_norm: QkNorm::None,
            dyt_alpha: None,
            dyt_attention_alpha: None,
            n_heads: None,
            n_kv_heads: None,
            d_head: None,
            global_heads: None,
            d_value: None,
            value_scale: 1.0,
            causal: false,
            windows: Vec::new(),
            attention_scale: None,
            attention_scale_by_layer: false,
            attention_softcap: None,
            attention_sinks: Vec::new(),
            attention_gate: false,
            latent: None,
            mixers: Vec::new(),
            convolution_taps: 3,
            convolution_biases: None,
            recurrence: None,
            multipliers: None,
            positions: Positions::Learned,
            rotary_dim: None,
            rotary_base: 10_000.0,
            rotary_frequencies: None,
            rotary_scale: 1.0,
            rotated: Vec::new(),
            rotary_window_base: None,
            rotary_window_frequencies: None,
            rotary_window_scale: None,
            alibi_scale: 1.0,
            relative_buckets: 32,
            relative_max_distance: 128,
            relative_shared: true,
            disentangled: None,
            embedding_scale: 1.0,
            embedding_width: None,
            embedding_projection: EmbeddingProjection::Token,
            segments: false,
            token_types: 0,
            stem: None,
            experts: None,
            dense_blocks: Vec::new(),
            block_kv_heads: Vec::new(),
            block_d_ff: Vec::new(),
            residual: None,
            branch_depth: 1,
            skip_scale: None,
            branch_scale: None,
            layer_scale: false,
            parallel: Parallel::None,
            shared_blocks: false,
            dropout: 0.0,
            embedding_dropout: None,
            attention_dropout: 0.0,
            activation_dropout: 0.0,
            final_dropout: 0.0,
            drop_path: 0.0,
            drop_path_schedule: DropPathSchedule::Constant,
            head: Head::None,
            head_activation: None,
            head_bias: false,
            logit_scale: 1.0,
            logit_softcap: None,
            decoder: None,
            shared_embedding: false,
            scheme: None,
            init: BTreeMap::new(),
            hf_init: None,
        }
    }
}

impl Architecture {
    /// A plain MLP, without norms and without residual connections.
    pub fn mlp() -> Self {
        Self { kind: Kind::Mlp, ..Self::default() }
    }

    /// Sets the number of blocks; patterns of one value per block are repeated.
    pub fn set_layers(&mut self, n_layers: usize) {
        self.n_layers = n_layers;
        for sizes in [&mut self.windows, &mut self.block_kv_heads, &mut self.block_d_ff] {
            *sizes = sizes.iter().copied().cycle().take(n_layers).collect();
        }
        for pattern in [&mut self.rotated, &mut self.attention_sinks] {
            *pattern = pattern.iter().copied().cycle().take(n_layers).collect();
        }
        self.mixers = self.mixers.iter().copied().cycle().take(n_layers).collect();
    }
}
