//! Recurrent mixers: state-space models and the gated delta rule.

use serde::{Deserialize, Serialize};
use sigprop_stack::{Rates, StepBias};

use super::{NormPlacement, RecurrentForm};

/// Recurrence in place of attention, with a state per head of size `d_key` × `d_value`.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RecurrentMixer {
    /// Form of the block around the recurrence.
    pub form: RecurrentForm,
    /// Number of heads of values, each with a state of its own.
    pub n_heads: usize,
    /// Number of heads of queries and keys, which heads of values share.
    pub n_key_heads: usize,
    /// Width of a head of queries and keys; of state-space models, the size of the state.
    pub d_key: usize,
    /// Width of a head of values.
    pub d_value: usize,
    /// Number of tokens that the short convolutions of queries, keys and values read.
    pub taps: usize,
    /// Biases of the short convolutions.
    pub tap_biases: bool,
    /// Biases of the linear maps from the stream and to it.
    pub biases: bool,
    /// Rates of the decay.
    pub rates: Rates,
    /// Biases of the steps of the decay.
    pub step_bias: StepBias,
    /// Largest strength of a write with the delta rule.
    pub strength: f64,
    /// Number of groups of features of the norm next to the gate; 0: no norm.
    pub norm_groups: usize,
    /// Number ε of the norm next to the gate, and of norms of latents; by default the `norm_eps` of all norms.
    pub norm_eps: Option<f64>,
    /// Places of the norms in blocks with this mixer; by default the `norm_placement` of all blocks.
    pub block_norms: Option<NormPlacement>,
    /// Width of the latent of the steps; of the form `mamba1` alone.
    pub step_rank: usize,
    /// Norms of queries, keys and the latent of the steps; of the form `mamba1` alone.
    pub latent_norms: bool,
}

impl RecurrentMixer {
    /// Width of the values of all heads.
    pub fn width(&self) -> usize {
        self.n_heads * self.d_value
    }
}
