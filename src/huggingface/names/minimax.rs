//! MiniMax-M3.

use super::gemma::{CENTRED_PRE_NORMS, CENTRED_STREAM, QK_NORMS};
use super::llama::{ATTENTION, FUSED_GATED, GATED};
use super::mixture::FUSED_ROUTED;
use super::{Modules, rows};

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
