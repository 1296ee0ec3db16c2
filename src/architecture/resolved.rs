//! The checked form of an architecture: every field filled in, every number in range.

use std::collections::BTreeMap;

use sigprop_stack::{Init, Norm, NormKind};

use super::{
    Activation, Architecture, ArchitectureError, Disentangled, DropPathSchedule, EmbeddingProjection, Experts,
    GlobalHeads, Head, InitTable, Kind, Latent, Mixer, Multipliers, NormChoice, NormPlacement, Parallel, Positions,
    QkNorm, RecurrentMixer, Stem,
};

/// An architecture with every field filled in and checked; fields as in [`Architecture`].
#[derive(Clone, Debug, PartialEq)]
#[expect(missing_docs, reason = "documented at the fields of Architecture")]
#[expect(clippy::struct_excessive_bools, reason = "independent properties of a network")]
pub struct Resolved {
    pub name: String,
    pub kind: Kind,
    pub n_layers: usize,
    pub d_model: usize,
    pub n_heads: usize,
    pub n_kv_heads: usize,
    /// Width of a head of queries and keys.
    pub d_head: usize,
    /// Width of a head of values.
    pub d_value: usize,
    pub global_heads: Option<GlobalHeads>,
    pub d_ff: usize,
    pub seq_len: usize,
    pub vocab_size: usize,
    pub activation: Activation,
    /// `None` if there are no norms.
    pub norm: Option<Norm>,
    /// The norm at the start of attention, which may have an alpha of its own.
    pub attention_norm: Option<Norm>,
    pub norm_placement: NormPlacement,
    pub final_norm: bool,
    pub skip_from_norm: bool,
    pub first_norm: bool,
    pub parallel: Parallel,
    pub shared_blocks: bool,
    pub positions: Positions,
    pub rotary_dim: usize,
    pub rotary_base: f64,
    pub rotary_window_base: Option<f64>,
    pub rotary_frequencies: Option<Vec<f64>>,
    pub rotary_window_frequencies: Option<Vec<f64>>,
    pub rotary_scale: f64,
    pub rotary_window_scale: f64,
    /// Empty, or one value per block.
    pub rotated: Vec<bool>,
    pub alibi_scale: f64,
    pub relative_buckets: usize,
    pub relative_max_distance: usize,
    pub relative_shared: bool,
    pub disentangled: Option<Disentangled>,
    pub segments: bool,
    pub token_types: usize,
    pub embedding_norm: bool,
    pub embedding_scale: f64,
    pub embedding_width: usize,
    pub embedding_projection: EmbeddingProjection,
    pub stem: Option<Stem>,
    pub biases: bool,
    pub qkv_biases: bool,
    pub attention_output_bias: bool,
    pub ffn_biases: bool,
    pub dropout: f64,
    pub embedding_dropout: f64,
    pub attention_dropout: f64,
    pub activation_dropout: f64,
    pub final_dropout: f64,
    pub drop_path: f64,
    pub drop_path_schedule: DropPathSchedule,
    pub causal: bool,
    /// Empty, or one value per block.
    pub windows: Vec<usize>,
    pub attention_scale: f64,
    pub attention_scale_by_layer: bool,
    pub attention_softcap: Option<f64>,
    /// Empty, or one value per block.
    pub attention_sinks: Vec<bool>,
    pub value_scale: f64,
    pub qk_norm: QkNorm,
    pub attention_gate: bool,
    pub latent: Option<Latent>,
    /// Empty, or one value per block.
    pub mixers: Vec<Mixer>,
    pub convolution_taps: usize,
    pub convolution_biases: bool,
    pub recurrence: Option<RecurrentMixer>,
    /// Factors on parts of every block.
    pub multipliers: Multipliers,
    pub experts: Option<Experts>,
    pub dense_blocks: Vec<usize>,
    /// Empty, or one value per block.
    pub block_kv_heads: Vec<usize>,
    /// Empty, or one value per block.
    pub block_d_ff: Vec<usize>,
    /// The width of the memory that the cross-attention of a decoder reads; `None` for other networks.
    pub memory_width: Option<usize>,
    pub decoder: Option<Box<Resolved>>,
    pub shared_embedding: bool,
    pub init: BTreeMap<String, Init>,
    pub hf_init: Option<InitTable>,
    pub residual: bool,
    pub branch_depth: usize,
    pub skip_scale: Option<f64>,
    pub branch_scale: Option<f64>,
    pub layer_scale: bool,
    pub head: Head,
    pub head_activation: Option<Activation>,
    pub head_bias: bool,
    pub logit_scale: f64,
    pub logit_softcap: Option<f64>,
}

impl Resolved {
    /// Number of residual connections.
    pub fn residual_sublayers(&self) -> usize {
        self.residuals_before(self.n_layers)
    }

    /// Number of residual connections before block `index`.
    pub(crate) fn residuals_before(&self, index: usize) -> usize {
        (0..index).map(|block| self.residuals_of(block)).sum()
    }

    /// Number of residual connections of block `index`: two per block of an encoder, three per block of a decoder with
    /// cross-attention, one per layer of an MLP with residual connections. A block without a mixer or without a
    /// feed-forward network has one fewer.
    pub fn residuals_of(&self, index: usize) -> usize {
        let branches = [self.mixer_of(index) != Mixer::None, self.memory_width.is_some(), self.has_feed_forward(index)];
        match self.kind {
            Kind::Encoder => branches.into_iter().map(usize::from).sum(),
            Kind::Mlp => usize::from(self.residual),
        }
    }

    /// Number of key and value heads of block `index`; 0 if it has no attention.
    pub(crate) fn kv_heads_of(&self, index: usize) -> usize {
        self.block_kv_heads.get(index).copied().unwrap_or(self.n_kv_heads)
    }

    /// Width inside the feed-forward network of block `index`; 0 if it has none.
    pub(crate) fn d_ff_of(&self, index: usize) -> usize {
        self.block_d_ff.get(index).copied().unwrap_or(self.d_ff)
    }

    /// Returns true if block `index` has a feed-forward network.
    pub fn has_feed_forward(&self, index: usize) -> bool {
        self.d_ff_of(index) > 0
    }

    /// Probability of dropping a branch of block `index`.
    pub fn drop_path_of(&self, index: usize) -> f64 {
        match self.drop_path_schedule {
            DropPathSchedule::Constant => self.drop_path,
            DropPathSchedule::Linear => self.drop_path * (index + 1) as f64 / self.n_layers as f64,
        }
    }

    /// The mixer of tokens in block `index`.
    pub fn mixer_of(&self, index: usize) -> Mixer {
        let usual = if self.kv_heads_of(index) > 0 { Mixer::Attention } else { Mixer::None };
        self.mixers.get(index).copied().unwrap_or(usual)
    }

    /// The experts of block `index`; `None` if it has a plain feed-forward network.
    pub fn experts_of(&self, index: usize) -> Option<&Experts> {
        self.experts.as_ref().filter(|experts| {
            let sparse = (index + 1).checked_sub(experts.first_dense);
            let is_sparse = sparse.is_some_and(|sparse| sparse > 0 && sparse.is_multiple_of(experts.every));
            is_sparse && !self.dense_blocks.contains(&index)
        })
    }

    /// Width at the end of the stream, after everything that follows the last block.
    pub fn output_width(&self) -> usize {
        match self.embedding_projection {
            EmbeddingProjection::Token => self.embedding_width,
            EmbeddingProjection::Sum => self.d_model,
        }
    }

    /// Number of embeddings that are added to the embedding of a token or patch.
    pub fn added_embeddings(&self) -> usize {
        let positions =
            matches!(self.positions, Positions::Learned | Positions::LearnedRelative | Positions::Sinusoidal);
        [positions, self.segments, self.token_types > 0].into_iter().map(usize::from).sum()
    }
}

impl Architecture {
    /// Returns 1/√(`d_head` · the number of scores that are added up).
    fn default_attention_scale(&self, d_head: usize) -> f64 {
        let scores = 1 + self.disentangled.map_or(0, Disentangled::scores);
        ((scores * d_head) as f64).powf(-0.5)
    }

    /// Fills in the open fields and checks everything.
    pub fn resolved(&self) -> Result<Resolved, ArchitectureError> {
        self.check()?;
        let n_heads = self.heads();
        let (d_head, d_value) = self.head_widths();
        let norm = self.norm();
        Ok(Resolved {
            name: self.name.clone().unwrap_or_else(|| self.kind.name().to_owned()),
            kind: self.kind,
            n_layers: self.n_layers,
            d_model: self.d_model,
            n_heads,
            n_kv_heads: self.n_kv_heads.unwrap_or(n_heads),
            d_head,
            d_value,
            global_heads: self.global_heads,
            d_ff: self.d_ff.unwrap_or(match self.kind {
                Kind::Encoder => 4 * self.d_model,
                Kind::Mlp => self.d_model,
            }),
            seq_len: self.seq_len,
            vocab_size: self.vocab_size,
            activation: self.activation,
            norm,
            attention_norm: self.norm_with(self.dyt_attention_alpha.or(self.dyt_alpha)),
            norm_placement: self.norm_placement,
            final_norm: self.final_norm.unwrap_or(match self.kind {
                Kind::Encoder => norm.is_some() && self.norm_placement != NormPlacement::Post,
                Kind::Mlp => false,
            }),
            skip_from_norm: self.skip_from_norm,
            first_norm: self.first_norm,
            parallel: self.parallel,
            shared_blocks: self.shared_blocks,
            positions: self.positions,
            rotary_dim: self.rotary_dim.unwrap_or(self.rotated_width() / 2 * 2),
            rotary_base: self.rotary_base,
            rotary_window_base: self.rotary_window_base,
            rotary_frequencies: self.rotary_frequencies.clone(),
            rotary_window_frequencies: self.rotary_window_frequencies.clone(),
            rotary_scale: self.rotary_scale,
            rotary_window_scale: self.rotary_window_scale.unwrap_or(self.rotary_scale),
            rotated: self.rotated.clone(),
            alibi_scale: self.alibi_scale,
            relative_buckets: self.relative_buckets,
            relative_max_distance: self.relative_max_distance,
            relative_shared: self.relative_shared,
            disentangled: self.disentangled,
            segments: self.segments,
            token_types: self.token_types,
            embedding_norm: self.embedding_norm,
            embedding_scale: self.embedding_scale,
            embedding_width: self.embedding_width.unwrap_or(self.d_model),
            embedding_projection: self.embedding_projection,
            stem: self.stem,
            biases: self.biases,
            qkv_biases: self.qkv_biases.unwrap_or(self.biases),
            attention_output_bias: self.attention_output_bias.unwrap_or(self.biases),
            ffn_biases: self.ffn_biases.unwrap_or(self.biases),
            dropout: self.dropout,
            embedding_dropout: self.embedding_dropout.unwrap_or(self.dropout),
            attention_dropout: self.attention_dropout,
            activation_dropout: self.activation_dropout,
            final_dropout: self.final_dropout,
            drop_path: self.drop_path,
            drop_path_schedule: self.drop_path_schedule,
            causal: self.causal,
            windows: self.windows.clone(),
            attention_scale: self.attention_scale.unwrap_or_else(|| self.default_attention_scale(d_head)),
            attention_scale_by_layer: self.attention_scale_by_layer,
            attention_softcap: self.attention_softcap,
            attention_sinks: self.attention_sinks.clone(),
            value_scale: self.value_scale,
            qk_norm: self.qk_norm,
            attention_gate: self.attention_gate,
            latent: self.latent,
            mixers: self.mixers.clone(),
            convolution_taps: self.convolution_taps,
            convolution_biases: self.convolution_biases.unwrap_or(self.biases),
            recurrence: self.recurrence,
            multipliers: self.multipliers.unwrap_or_default(),
            experts: self.experts,
            dense_blocks: self.dense_blocks.clone(),
            block_kv_heads: self.block_kv_heads.clone(),
            block_d_ff: self.block_d_ff.clone(),
            memory_width: None,
            decoder: self.resolved_decoder()?.map(Box::new),
            shared_embedding: self.shared_embedding,
            init: self.init.iter().map(|(name, tensor)| (name.clone(), tensor.distribution())).collect(),
            hf_init: self.hf_init,
            residual: self.has_residual(),
            branch_depth: self.branch_depth,
            skip_scale: self.skip_scale,
            branch_scale: self.branch_scale,
            layer_scale: self.layer_scale,
            head: self.head,
            head_activation: self.head_activation,
            head_bias: self.head_bias,
            logit_scale: self.logit_scale,
            logit_softcap: self.logit_softcap,
        })
    }

    /// The decoder, if there is one. It reads the output of the encoder, and has the encoder's `hf_init` unless it has
    /// its own.
    fn resolved_decoder(&self) -> Result<Option<Resolved>, ArchitectureError> {
        let Some(decoder) = &self.decoder else { return Ok(None) };
        let mut resolved = decoder.resolved()?;
        resolved.memory_width = Some(self.output_width());
        resolved.hf_init = resolved.hf_init.or(self.hf_init);
        Ok(Some(resolved))
    }

    pub(super) fn heads(&self) -> usize {
        self.n_heads.unwrap_or_else(|| default_heads(self.d_model))
    }

    /// Width at the end of the stream, after everything that follows the last block.
    pub(super) fn output_width(&self) -> usize {
        match self.embedding_projection {
            EmbeddingProjection::Token => self.embedding_width.unwrap_or(self.d_model),
            EmbeddingProjection::Sum => self.d_model,
        }
    }

    /// Widths of a head of queries and keys, and of values.
    pub(super) fn head_widths(&self) -> (usize, usize) {
        if let Some(latent) = self.latent {
            return (latent.d_nope + latent.d_rope, latent.d_value);
        }
        let width = self.d_head.unwrap_or(self.d_model / self.heads());
        (width, self.d_value.unwrap_or(width))
    }

    /// Number of features of a head that can be rotated.
    pub(super) fn rotated_width(&self) -> usize {
        self.latent.map_or_else(|| self.head_widths().0, |latent| latent.d_rope)
    }

    pub(super) fn norm(&self) -> Option<Norm> {
        self.norm_with(self.dyt_alpha)
    }

    fn norm_with(&self, alpha: Option<f64>) -> Option<Norm> {
        // The default is that of Zhu et al. 2025 and Chen et al. 2025.
        let alpha = alpha.unwrap_or(0.5);
        let default = match self.kind {
            Kind::Encoder => NormChoice::Layernorm,
            Kind::Mlp => NormChoice::None,
        };
        let kind = match self.norm.unwrap_or(default) {
            NormChoice::Layernorm => NormKind::LayerNorm,
            NormChoice::Rmsnorm => NormKind::RmsNorm,
            NormChoice::Batchnorm => NormKind::BatchNorm { training: false },
            NormChoice::Dyt => NormKind::Dyt { alpha },
            NormChoice::Derf => NormKind::Derf { alpha },
            NormChoice::None => return None,
        };
        let eps = if kind.pointwise().is_some() { 0.0 } else { self.norm_eps };
        Some(Norm { kind, eps, gain: self.norm_gain, bias: Init::Zero, groups: 1 })
    }

    pub(super) fn has_residual(&self) -> bool {
        self.residual.unwrap_or(self.kind == Kind::Encoder)
    }
}

/// The largest divisor of `width` that leaves heads of 64 or more.
fn default_heads(width: usize) -> usize {
    let most = (width / 64).max(1);
    (1..=most).rev().find(|heads| width.is_multiple_of(*heads)).expect("1 divides every width")
}
