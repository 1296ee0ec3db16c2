//! MiniMax-01 and MiniMax-M3.

use super::gemma::{CENTRED_PRE_NORMS, CENTRED_STREAM, QK_NORMS};
use super::llama::{ATTENTION, FUSED_GATED, GATED, STREAM};
use super::mixture::{FUSED, FUSED_ROUTED, MIXTRAL_EXPERTS};
use super::{Modules, norm, rows, state_heads};

/// MiniMax-01. Queries, keys and values of a head of lightning attention are one below the other.
pub(in crate::huggingface) const MINIMAX: Modules = &[
    STREAM,
    ATTENTION,
    MIXTRAL_EXPERTS,
    FUSED,
    &[
        norm("layers.*.input_layernorm", &["blocks.*.attention_norm", "blocks.*.recurrence_norm"]),
        norm("layers.*.post_attention_layernorm", &["blocks.*.ffn_norm"]),
        rows("layers.*.mlp.gate", &["blocks.*.ffn.experts.router"]),
        state_heads("layers.*.self_attn.qkv_proj", LIGHTNING),
        norm("layers.*.self_attn.norm", &["blocks.*.recurrence.gated.norm"]),
        rows("layers.*.self_attn.output_gate", &["blocks.*.recurrence.gated.gate"]),
        rows("layers.*.self_attn.out_proj", &["blocks.*.recurrence.output"]),
    ],
];

const LIGHTNING: &[&str] = &[
    "blocks.*.recurrence.gated.heads.query",
    "blocks.*.recurrence.gated.heads.key",
    "blocks.*.recurrence.gated.heads.value",
];

/// MiniMax-M3, whose norms store the gain minus 1. Checkpoints call some modules `block_sparse_moe`, and hold gates apart.
pub(in crate::huggingface) const MINIMAX_M3: Modules = &[
    CENTRED_STREAM,
    CENTRED_PRE_NORMS,
    QK_NORMS,
    ATTENTION,
    GATED,
    FUSED_GATED,
    FUSED_ROUTED,
    &[
        rows("layers.*.mlp.gate", &["blocks.*.ffn.experts.routed.router"]),
        rows("layers.*.block_sparse_moe.gate", &["blocks.*.ffn.experts.routed.router"]),
        rows("layers.*.block_sparse_moe.experts.*.w1", &["blocks.*.ffn.experts.routed.gated.gate"]),
        rows("layers.*.block_sparse_moe.experts.*.w3", &["blocks.*.ffn.experts.routed.gated.up"]),
        rows("layers.*.block_sparse_moe.experts.*.w2", &["blocks.*.ffn.experts.routed.out"]),
        rows("layers.*.mlp.shared_experts.gate_up_proj", SHARED_IN),
        rows("layers.*.mlp.shared_experts.down_proj", &["blocks.*.ffn.experts.shared.out"]),
        rows("layers.*.block_sparse_moe.shared_experts.gate_proj", &["blocks.*.ffn.experts.shared.gated.gate"]),
        rows("layers.*.block_sparse_moe.shared_experts.up_proj", &["blocks.*.ffn.experts.shared.gated.up"]),
        rows("layers.*.block_sparse_moe.shared_experts.down_proj", &["blocks.*.ffn.experts.shared.out"]),
    ],
];

const SHARED_IN: &[&str] = &["blocks.*.ffn.experts.shared.gated.gate", "blocks.*.ffn.experts.shared.gated.up"];
