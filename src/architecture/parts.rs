//! Parts of an architecture that few networks have.

use serde::{Deserialize, Serialize};
use sigprop_stack::{Init, Multiplied, Weighting};

/// Multi-head latent attention: queries, keys and values come from normalised low-rank latents. A head of queries and
/// keys has a part without position (`d_nope`) and a rotated part (`d_rope`), whose key is common to all heads.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Latent {
    /// Width of the latent of the queries; by default queries come straight from the input.
    pub query_rank: Option<usize>,
    /// Width of the latent of keys and values.
    pub kv_rank: usize,
    /// Number of features of a head without position.
    pub d_nope: usize,
    /// Number of rotated features of a head.
    pub d_rope: usize,
    /// Width of a head of values.
    pub d_value: usize,
}

/// Heads of blocks whose queries attend to all tokens, if they differ from the heads of blocks with a window (Gemma 4).
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct GlobalHeads {
    /// Number of key and value heads.
    pub n_kv_heads: usize,
    /// Width of a head.
    pub d_head: usize,
    /// True if one map computes keys and values.
    pub shared_values: bool,
}

/// Scores of contents with embeddings of relative positions (DeBERTa), in attention to all tokens.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[expect(clippy::struct_excessive_bools, reason = "four independent switches of the architecture")]
pub struct Disentangled {
    /// Number of rows of the table of embeddings on each side of a query.
    pub span: usize,
    /// Distance from which on all keys share the last row; rows beyond `span` / 2 then hold several distances each. By
    /// default every row holds one distance.
    #[serde(default)]
    pub max_distance: Option<usize>,
    /// True if embeddings have a norm, of the kind of the blocks.
    #[serde(default)]
    pub norm: bool,
    /// True if queries have scores with positions.
    #[serde(default = "yes")]
    pub keys: bool,
    /// True if keys have scores with positions.
    #[serde(default = "yes")]
    pub queries: bool,
    /// True if positions have the maps of contents to queries and keys, false if they have maps of their own.
    #[serde(default = "yes")]
    pub shared_maps: bool,
}

fn yes() -> bool {
    true
}

impl Disentangled {
    /// The number of scores with positions, 1 or 2.
    pub(crate) fn scores(self) -> usize {
        usize::from(self.keys) + usize::from(self.queries)
    }
}

/// Factors on parts of a block (Falcon-H1); each is 1 by default.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Multipliers {
    /// Factor on the linear map to the gate of the feed-forward network.
    pub ffn_gate: f64,
    /// Factor on the output of the feed-forward network.
    pub ffn_output: f64,
    /// Factor on the output of attention.
    pub attention_output: f64,
    /// Factor on the output of the recurrence.
    pub recurrence_output: f64,
    /// Factor on the linear map to the gate of the recurrence.
    pub recurrence_gate: f64,
    /// Factor on the linear map to the values of the recurrence.
    pub recurrence_value: f64,
    /// Factor on the linear map to the keys of the recurrence.
    pub recurrence_key: f64,
    /// Factor on the linear map to the queries of the recurrence.
    pub recurrence_query: f64,
    /// Factor on the linear map to the steps of the recurrence.
    pub recurrence_step: f64,
}

impl Default for Multipliers {
    fn default() -> Self {
        Self {
            ffn_gate: 1.0,
            ffn_output: 1.0,
            attention_output: 1.0,
            recurrence_output: 1.0,
            recurrence_gate: 1.0,
            recurrence_value: 1.0,
            recurrence_key: 1.0,
            recurrence_query: 1.0,
            recurrence_step: 1.0,
        }
    }
}

/// Mixture of experts in place of the feed-forward network.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Experts {
    /// Number of experts.
    pub n_experts: usize,
    /// Number of experts that a token goes to.
    pub top_k: usize,
    /// Width of an expert.
    pub d_ff: usize,
    /// Width of the experts that every token goes to, all together; 0 leaves them out.
    pub shared_d_ff: usize,
    /// Gate of the shared experts: a sigmoid of a score of the token multiplies their output.
    pub shared_gate: bool,
    /// Map from router scores to weights of experts.
    pub weighting: Weighting,
    /// Place where weights act.
    #[serde(default)]
    pub weights_multiply: Multiplied,
    /// True if the weights of the chosen experts are divided by their sum.
    pub normalised: bool,
    /// Factor on the scores of the router.
    #[serde(default = "one")]
    pub router_scale: f64,
    /// Norms around the chosen experts and around the shared experts, in place of one norm before both (Gemma 4).
    #[serde(default)]
    pub own_norms: bool,
    /// Factor on the weighted sum of the chosen experts.
    pub scale: f64,
    /// Number of blocks at the beginning that have a plain feed-forward network.
    pub first_dense: usize,
    /// Distance between mixtures in the other blocks: the last of every so many blocks is a mixture; 1: all are.
    pub every: usize,
}

/// Entrance of a network that reads no token ids. Its input is independent N(0, 1).
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "snake_case")]
pub enum Stem {
    /// Linear map of every patch of an image; `seq_len` counts patches and learned tokens.
    Patches {
        /// Count of the numbers in a patch: channels · side².
        patch_width: usize,
        /// Learned token before the patches (ViT).
        class_token: bool,
        /// Second learned token, after the class token (DeiT).
        #[serde(default)]
        distillation_token: bool,
        /// Number of learned tokens between these tokens and the patches (registers).
        #[serde(default)]
        registers: usize,
        /// Bias of the projection of patches.
        bias: bool,
        /// Norm of the sum of patches and positions.
        norm: bool,
    },
    /// Two convolutions of width 3 over 2 · `seq_len` frames, the second of stride 2, each followed by GELU (Whisper).
    Audio {
        /// Count of the numbers in a frame.
        n_mels: usize,
    },
}

/// Distribution of every tensor of a network. Biases are zero, except those of feed-forward networks.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct InitTable {
    /// Token embedding.
    pub token: Init,
    /// Learned positions.
    pub position: Init,
    /// Token types and segments.
    pub segment: Init,
    /// Class token.
    pub class_token: Init,
    /// Projections from and to the width of the token embedding, and the map before a head.
    pub projection: Init,
    /// Head over the vocabulary; by default as `projection`.
    pub head: Option<Init>,
    /// Patch projection and convolutions.
    pub stem: Init,
    /// Queries.
    pub query: Init,
    /// Keys.
    pub key: Init,
    /// Values.
    pub value: Init,
    /// Attention output.
    pub attention_output: Init,
    /// Feed-forward input, gate and up.
    pub ffn_in: Init,
    /// Feed-forward output.
    pub ffn_out: Init,
    /// Biases of a feed-forward network.
    #[serde(default = "zero")]
    pub ffn_bias: Init,
    /// Router of a mixture of experts.
    pub router: Init,
    /// Output of an expert.
    pub expert_out: Init,
    /// Relative positions.
    pub relative: Init,
    /// Attention sinks.
    #[serde(default = "zero")]
    pub sink: Init,
    /// Taps of short convolutions; by default as `value`.
    #[serde(default)]
    pub taps: Option<Init>,
    /// Maps to the steps of a recurrence; by default as `value`.
    #[serde(default)]
    pub step: Option<Init>,
    /// Output of a recurrence; by default as `attention_output`.
    #[serde(default)]
    pub recurrence_output: Option<Init>,
}

/// Distribution of a single tensor on top of a scheme: normal, normal and cut off, or uniform.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TensorInit {
    /// Standard deviation of a normal distribution; 0: every entry is zero.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub std: Option<f64>,
    /// Cut of the normal distribution, in units of `std`, which is the one before the cut; by default there is none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cutoff: Option<f64>,
    /// Bound b of a uniform distribution on [−b, b], in place of `std`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub uniform: Option<f64>,
}

impl TensorInit {
    /// Returns the distribution that these settings describe. They must have been validated.
    pub(super) fn distribution(self) -> Init {
        match (self.std, self.cutoff, self.uniform) {
            (Some(std), _, _) if std <= 0.0 => Init::Zero,
            (Some(std), Some(cutoff), _) => Init::TruncatedNormal { std, cutoff },
            (Some(std), None, _) => Init::Normal { std },
            (None, _, Some(bound)) if bound > 0.0 => Init::Uniform { bound },
            (None, _, _) => Init::Zero,
        }
    }
}

fn zero() -> Init {
    Init::Zero
}

fn one() -> f64 {
    1.0
}

impl InitTable {
    /// Returns a table with this distribution for every tensor; biases are zero.
    pub fn everywhere(init: Init) -> Self {
        Self {
            token: init,
            position: init,
            segment: init,
            class_token: init,
            projection: init,
            head: None,
            stem: init,
            query: init,
            key: init,
            value: init,
            attention_output: init,
            ffn_in: init,
            ffn_out: init,
            ffn_bias: Init::Zero,
            router: init,
            expert_out: init,
            relative: init,
            sink: init,
            taps: None,
            step: None,
            recurrence_output: None,
        }
    }
}
