//! Gemma 1 to 3, whose norms store the gain minus 1, Gemma 4, GLM and GLM-4.

use super::llama::{self, ATTENTION, FUSED_GATED, GATED, PRE_NORMS, STREAM};
use super::mixture::FUSED_ROUTED_IN;
use super::{Module, Modules, centred_norm, experts, norm, rows, table};

pub(super) const CENTRED_STREAM: &[Module] =
    &[table("embed_tokens", "embeddings.token"), centred_norm("norm", &["final_norm"])];

pub(in crate::huggingface) const GEMMA: Modules = &[CENTRED_STREAM, ATTENTION, GATED, CENTRED_PRE_NORMS];

pub(super) const CENTRED_PRE_NORMS: &[Module] = &[
    centred_norm("layers.*.input_layernorm", &["blocks.*.attention.norm"]),
    centred_norm("layers.*.post_attention_layernorm", &["blocks.*.ffn.norm"]),
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

/// Gemma 4: experts next to the feed-forward network, each between norms of its own.
pub(in crate::huggingface) const GEMMA4: Modules = &[
    STREAM,
    ATTENTION,
    llama::QK_NORMS,
    GATED,
    &[
        norm("layers.*.input_layernorm", &["blocks.*.attention.norm"]),
        norm("layers.*.post_attention_layernorm", &["blocks.*.attention.output_norm"]),
        norm("layers.*.pre_feedforward_layernorm", &["blocks.*.ffn.norm", "blocks.*.ffn.experts.shared.norm"]),
        norm("layers.*.post_feedforward_layernorm", &["blocks.*.ffn.output_norm"]),
        norm("layers.*.post_feedforward_layernorm_1", &["blocks.*.ffn.experts.shared.output_norm"]),
        norm("layers.*.pre_feedforward_layernorm_2", &["blocks.*.ffn.experts.routed.norm"]),
        norm("layers.*.post_feedforward_layernorm_2", &["blocks.*.ffn.experts.routed.output_norm"]),
        rows("layers.*.mlp.gate_proj", &["blocks.*.ffn.experts.shared.gated.gate"]),
        rows("layers.*.mlp.up_proj", &["blocks.*.ffn.experts.shared.gated.up"]),
        rows("layers.*.mlp.down_proj", &["blocks.*.ffn.experts.shared.out"]),
        rows("layers.*.router.proj", &["blocks.*.ffn.experts.routed.router"]),
        experts("layers.*.experts.gate_up_proj", FUSED_ROUTED_IN),
        experts("layers.*.experts.down_proj", &["blocks.*.ffn.experts.routed.out"]),
    ],
];

pub(super) const QK_NORMS: &[Module] = &[
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
