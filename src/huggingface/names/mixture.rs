//! Decoders with rotary positions and mixtures of experts, some with shared experts that every token goes to.

use super::llama::{ATTENTION, GATED, PRE_NORMS, QK_NORMS, STREAM};
use super::{Columns, Module, Modules, bare, biased_norm, biased_router, expert_columns, experts, norm, rows, table};

pub(in crate::huggingface) const MIXTRAL: Modules = &[
    STREAM,
    PRE_NORMS,
    ATTENTION,
    QK_NORMS,
    MIXTRAL_EXPERTS,
    &[rows("layers.*.mlp.gate", &["blocks.*.ffn.experts.router"])],
    FUSED,
];

/// Router and experts as checkpoints of Mixtral name them.
pub(super) const MIXTRAL_EXPERTS: &[Module] = &[
    rows("layers.*.block_sparse_moe.gate", &["blocks.*.ffn.experts.router"]),
    rows("layers.*.block_sparse_moe.experts.*.w1", &["blocks.*.ffn.experts.gated.gate"]),
    rows("layers.*.block_sparse_moe.experts.*.w3", &["blocks.*.ffn.experts.gated.up"]),
    rows("layers.*.block_sparse_moe.experts.*.w2", &["blocks.*.ffn.experts.out"]),
];

/// Phi-3.5-MoE, whose LayerNorms have biases. Checkpoints call some modules `block_sparse_moe`.
pub(in crate::huggingface) const PHIMOE: Modules = &[
    ATTENTION,
    &[
        table("embed_tokens", "embeddings.token"),
        biased_norm("layers.*.input_layernorm", &["blocks.*.attention.norm"]),
        biased_norm("layers.*.post_attention_layernorm", &["blocks.*.ffn.norm"]),
        biased_norm("norm", &["final_norm"]),
        rows("layers.*.mlp.router", &["blocks.*.ffn.experts.router"]),
    ],
    MIXTRAL_EXPERTS,
    FUSED,
];

/// GPT-OSS: the columns of gate and up alternate in one weight of all experts, which multiplies from the right.
pub(in crate::huggingface) const GPT_OSS: Modules = &[
    STREAM,
    PRE_NORMS,
    ATTENTION,
    &[
        biased_router("layers.*.mlp.router", "blocks.*.ffn.experts.router"),
        expert_columns("layers.*.mlp.experts.gate_up_proj", FUSED_IN, Columns::Alternating),
        expert_columns("layers.*.mlp.experts.down_proj", &["blocks.*.ffn.experts.out"], Columns::Sequential),
    ],
];

/// OpenAI's filter for private data: GPT-OSS, but all columns of the gate come first.
pub(in crate::huggingface) const PRIVACY_FILTER: Modules = &[
    STREAM,
    PRE_NORMS,
    ATTENTION,
    &[
        biased_router("layers.*.mlp.router", "blocks.*.ffn.experts.router"),
        expert_columns("layers.*.mlp.experts.gate_up_proj", FUSED_IN, Columns::Sequential),
        expert_columns("layers.*.mlp.experts.down_proj", &["blocks.*.ffn.experts.out"], Columns::Sequential),
    ],
];

/// MiMo-V2-Flash, whose checkpoints and modules have different names for sinks.
pub(in crate::huggingface) const MIMO_V2: Modules = &[
    STREAM,
    PRE_NORMS,
    &[bare("layers.*.self_attn.attention_sink_bias", "blocks.*.attention.heads.sink", 1)],
    ATTENTION,
    GATED,
    ROUTERS,
    EXPERTS,
    FUSED,
];

/// Qwen's and OLMoE's mixtures.
pub(in crate::huggingface) const QWEN_MOE: Modules = &[
    STREAM,
    PRE_NORMS,
    ATTENTION,
    QK_NORMS,
    GATED,
    ROUTERS,
    EXPERTS,
    FUSED,
    ROUTED,
    FUSED_ROUTED,
    &[
        rows("layers.*.mlp.shared_expert.gate_proj", &["blocks.*.ffn.experts.shared.gated.gate"]),
        rows("layers.*.mlp.shared_expert.up_proj", &["blocks.*.ffn.experts.shared.gated.up"]),
        rows("layers.*.mlp.shared_expert.down_proj", &["blocks.*.ffn.experts.shared.out"]),
        rows("layers.*.mlp.shared_expert_gate", &["blocks.*.ffn.experts.shared.router"]),
    ],
];

/// The text part of Qwen3-VL-MoE, whose checkpoints hold all experts of a block together.
pub(in crate::huggingface) const QWEN3_VL_MOE: Modules = &[
    STREAM,
    PRE_NORMS,
    ATTENTION,
    QK_NORMS,
    GATED,
    FUSED,
    &[rows("layers.*.mlp.gate", &["blocks.*.ffn.experts.router"])],
];

/// GLM-4-MoE, dots.llm1, ERNIE 4.5: with or without shared experts.
pub(in crate::huggingface) const SHARED_EXPERTS: Modules = &[
    STREAM,
    PRE_NORMS,
    ATTENTION,
    QK_NORMS,
    GATED,
    ROUTERS,
    EXPERTS,
    FUSED,
    ROUTED,
    FUSED_ROUTED,
    &[
        rows("layers.*.mlp.shared_experts.gate_proj", &["blocks.*.ffn.experts.shared.gated.gate"]),
        rows("layers.*.mlp.shared_experts.up_proj", &["blocks.*.ffn.experts.shared.gated.up"]),
        rows("layers.*.mlp.shared_experts.down_proj", &["blocks.*.ffn.experts.shared.out"]),
    ],
];

/// Llama 4, whose experts are transposed.
pub(in crate::huggingface) const LLAMA4: Modules = &[
    STREAM,
    PRE_NORMS,
    ATTENTION,
    &[
        rows("layers.*.feed_forward.gate_proj", &["blocks.*.ffn.gated.gate"]),
        rows("layers.*.feed_forward.up_proj", &["blocks.*.ffn.gated.up"]),
        rows("layers.*.feed_forward.down_proj", &["blocks.*.ffn.out"]),
        rows("layers.*.feed_forward.router", &["blocks.*.ffn.experts.routed.router"]),
        expert_columns("layers.*.feed_forward.experts.gate_up_proj", FUSED_ROUTED_IN, Columns::Sequential),
        expert_columns(
            "layers.*.feed_forward.experts.down_proj",
            &["blocks.*.ffn.experts.routed.out"],
            Columns::Sequential,
        ),
        rows("layers.*.feed_forward.shared_expert.gate_proj", &["blocks.*.ffn.experts.shared.gated.gate"]),
        rows("layers.*.feed_forward.shared_expert.up_proj", &["blocks.*.ffn.experts.shared.gated.up"]),
        rows("layers.*.feed_forward.shared_expert.down_proj", &["blocks.*.ffn.experts.shared.out"]),
    ],
];

/// Hunyuan, whose norms of queries and keys have names of their own.
pub(in crate::huggingface) const HUNYUAN: Modules = &[
    STREAM,
    PRE_NORMS,
    ATTENTION,
    GATED,
    ROUTED,
    FUSED_ROUTED,
    &[
        norm("layers.*.self_attn.query_layernorm", &["blocks.*.attention.heads.query_norm"]),
        norm("layers.*.self_attn.key_layernorm", &["blocks.*.attention.heads.key_norm"]),
        rows("layers.*.mlp.gate.wg", &["blocks.*.ffn.experts.routed.router"]),
        rows("layers.*.mlp.shared_mlp.gate_proj", &["blocks.*.ffn.experts.shared.gated.gate"]),
        rows("layers.*.mlp.shared_mlp.up_proj", &["blocks.*.ffn.experts.shared.gated.up"]),
        rows("layers.*.mlp.shared_mlp.down_proj", &["blocks.*.ffn.experts.shared.out"]),
    ],
];

/// Granite's mixtures, with or without shared experts, or shared experts alone.
pub(in crate::huggingface) const GRANITE_MOE: Modules = &[
    STREAM,
    PRE_NORMS,
    ATTENTION,
    &[
        rows("layers.*.block_sparse_moe.router.layer", &["blocks.*.ffn.experts.router"]),
        rows("layers.*.block_sparse_moe.router", &["blocks.*.ffn.experts.router"]),
        rows("layers.*.block_sparse_moe.router.layer", &["blocks.*.ffn.experts.routed.router"]),
        rows("layers.*.block_sparse_moe.router", &["blocks.*.ffn.experts.routed.router"]),
        experts("layers.*.block_sparse_moe.input_linear.weight", FUSED_IN),
        experts("layers.*.block_sparse_moe.experts.gate_up_proj", FUSED_IN),
        experts("layers.*.block_sparse_moe.input_linear.weight", FUSED_ROUTED_IN),
        experts("layers.*.block_sparse_moe.experts.gate_up_proj", FUSED_ROUTED_IN),
        experts("layers.*.block_sparse_moe.output_linear.weight", &["blocks.*.ffn.experts.out"]),
        experts("layers.*.block_sparse_moe.experts.down_proj", &["blocks.*.ffn.experts.out"]),
        experts("layers.*.block_sparse_moe.output_linear.weight", &["blocks.*.ffn.experts.routed.out"]),
        experts("layers.*.block_sparse_moe.experts.down_proj", &["blocks.*.ffn.experts.routed.out"]),
        rows(
            "layers.*.shared_mlp.input_linear",
            &["blocks.*.ffn.experts.shared.gated.gate", "blocks.*.ffn.experts.shared.gated.up"],
        ),
        rows("layers.*.shared_mlp.output_linear", &["blocks.*.ffn.experts.shared.out"]),
        rows("layers.*.shared_mlp.input_linear", &["blocks.*.ffn.gated.gate", "blocks.*.ffn.gated.up"]),
        rows("layers.*.shared_mlp.output_linear", &["blocks.*.ffn.out"]),
    ],
];

/// Routers of experts without shared experts, and with them.
const ROUTERS: &[Module] = &[
    rows("layers.*.mlp.gate", &["blocks.*.ffn.experts.router"]),
    rows("layers.*.mlp.gate", &["blocks.*.ffn.experts.routed.router"]),
];

const EXPERTS: &[Module] = &[
    rows("layers.*.mlp.experts.*.gate_proj", &["blocks.*.ffn.experts.gated.gate"]),
    rows("layers.*.mlp.experts.*.up_proj", &["blocks.*.ffn.experts.gated.up"]),
    rows("layers.*.mlp.experts.*.down_proj", &["blocks.*.ffn.experts.out"]),
];

/// Experts next to shared experts.
pub(super) const ROUTED: &[Module] = &[
    rows("layers.*.mlp.experts.*.gate_proj", &["blocks.*.ffn.experts.routed.gated.gate"]),
    rows("layers.*.mlp.experts.*.up_proj", &["blocks.*.ffn.experts.routed.gated.up"]),
    rows("layers.*.mlp.experts.*.down_proj", &["blocks.*.ffn.experts.routed.out"]),
];

const FUSED_IN: &[&str] = &["blocks.*.ffn.experts.gated.gate", "blocks.*.ffn.experts.gated.up"];
pub(super) const FUSED_ROUTED_IN: &[&str] =
    &["blocks.*.ffn.experts.routed.gated.gate", "blocks.*.ffn.experts.routed.gated.up"];

/// Experts as modules of release 5 hold them. The release writes checkpoints with one tensor per expert.
pub(super) const FUSED: &[Module] = &[
    experts("layers.*.mlp.experts.gate_up_proj", FUSED_IN),
    experts("layers.*.mlp.experts.down_proj", &["blocks.*.ffn.experts.out"]),
];

pub(super) const FUSED_ROUTED: &[Module] = &[
    experts("layers.*.mlp.experts.gate_up_proj", FUSED_ROUTED_IN),
    experts("layers.*.mlp.experts.down_proj", &["blocks.*.ffn.experts.routed.out"]),
];
