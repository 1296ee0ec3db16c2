//! Parts of an architecture that few networks have.

use serde::{Deserialize, Serialize};
use sigprop_stack::{Init, Weighting};

/// Multi-head latent attention: queries, keys and values come from normalised low-rank latents; a head
/// of queries and keys is a part without position (`d_nope`) beside a rotated one (`d_rope`), whose key is
/// common to all heads.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Latent {
    /// Width of the latent of the queries; none: they come straight from the input.
    pub query_rank: Option<usize>,
    /// Width of the latent of keys and values.
    pub kv_rank: usize,
    /// Features of a head without position.
    pub d_nope: usize,
    /// Rotated features of a head.
    pub d_rope: usize,
    /// Width of a head of values.
    pub d_value: usize,
}

/// Mixture of experts.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Experts {
    /// How many experts there are.
    pub n_experts: usize,
    /// How many a token goes to.
    pub top_k: usize,
    /// Width of an expert.
    pub d_ff: usize,
    /// Width of the experts that every token goes to, all together; 0: none.
    pub shared_d_ff: usize,
    /// Whether the output of the shared experts is multiplied by a sigmoid of a score of the token.
    pub shared_gate: bool,
    /// From router scores to weights.
    pub weighting: Weighting,
    /// Whether the weights of the chosen experts are divided by their sum.
    pub normalised: bool,
    /// Factor on the sum of the chosen experts.
    pub scale: f64,
    /// Blocks at the beginning that have a plain feed-forward network.
    pub first_dense: usize,
    /// Of the others, the last of every so many blocks is a mixture; 1: all.
    pub every: usize,
}

/// What stands where ids are embedded. Its input is independent N(0, 1).
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "snake_case")]
pub enum Stem {
    /// `seq_len` counts the class token, if there is one: a linear map of every patch.
    Patches {
        /// Numbers of a patch: channels · side².
        patch_width: usize,
        /// Whether a learned token is put before the patches.
        class_token: bool,
        /// Whether another one follows it (DeiT).
        #[serde(default)]
        distillation_token: bool,
        /// Whether the projection has a bias.
        bias: bool,
        /// Whether the sum of patches and positions is normalised.
        norm: bool,
    },
    /// Two convolutions of width 3 over 2 · `seq_len` frames, the second of stride 2, each with GELU.
    Audio {
        /// Numbers of a frame.
        n_mels: usize,
    },
}

/// The distribution of every tensor of a network, biases being zero but for those of feed-forward networks.
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
}

fn zero() -> Init {
    Init::Zero
}

impl InitTable {
    /// The same distribution everywhere.
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
        }
    }
}
