//! Gemma, whose norms store the gain minus 1, GLM and GLM-4.

use super::llama::{ATTENTION, FUSED_GATED, GATED, PRE_NORMS, STREAM};
use super::{Module, Modules, centred_norm, norm, table};

const CENTRED_STREAM: &[Module] = &[table("embed_tokens", "embeddings.token"), centred_norm("norm", &["final_norm"])];

pub(in crate::huggingface) const GEMMA: Modules = &[
    CENTRED_STREAM,
    ATTENTION,
    GATED,
    &[
        centred_norm("layers.*.input_layernorm", &["blocks.*.attention.norm"]),
        centred_norm("layers.*.post_attention_layernorm", &["blocks.*.ffn.norm"]),
    ],
];

/// Gemma 2 and 3: norms at both ends of a branch.
pub(in crate::huggingface) const GEMMA2: Modules = &[
    QK_NORMS,
    CENTRED_STREAM,
    ATTENTION,
    GATED,
    &[
        centred_norm("layers.*.input_layernorm", &["blocks.*.attention.norm"]),
        centred_norm("layers.*.post_attention_layernorm", &["blocks.*.attention.output_norm"]),
        centred_norm("layers.*.pre_feedforward_layernorm", &["blocks.*.ffn.norm"]),
        centred_norm("layers.*.post_feedforward_layernorm", &["blocks.*.ffn.output_norm"]),
    ],
];

const QK_NORMS: &[Module] = &[
    centred_norm("layers.*.self_attn.q_norm", &["blocks.*.attention.heads.query_norm"]),
    centred_norm("layers.*.self_attn.k_norm", &["blocks.*.attention.heads.key_norm"]),
];

pub(in crate::huggingface) const GLM: Modules = &[STREAM, PRE_NORMS, ATTENTION, FUSED_GATED];

pub(in crate::huggingface) const GLM4: Modules = &[
    STREAM,
    ATTENTION,
    FUSED_GATED,
    &[
        norm("layers.*.input_layernorm", &["blocks.*.attention.norm"]),
        norm("layers.*.post_self_attn_layernorm", &["blocks.*.attention.output_norm"]),
        norm("layers.*.post_attention_layernorm", &["blocks.*.ffn.norm"]),
        norm("layers.*.post_mlp_layernorm", &["blocks.*.ffn.output_norm"]),
    ],
];
