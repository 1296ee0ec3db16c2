//! Decoders with recurrences.

use super::llama::{ATTENTION, GATED, PRE_NORMS, QK_NORMS, STREAM};
use super::mixture::{FUSED_ROUTED, GRANITE_MOE, ROUTED};
use super::{Module, Modules, bare, centred_norm, experts, norm, query_heads, rows, state_heads, table, taps};

const QUERY: &str = "blocks.*.recurrence.gated.heads.query";
const KEY: &str = "blocks.*.recurrence.gated.heads.key";
const VALUE: &str = "blocks.*.recurrence.gated.heads.value";
const GATE: &str = "blocks.*.recurrence.gated.gate";
const STEP: &str = "blocks.*.recurrence.gated.heads.step";
const STRENGTH: &str = "blocks.*.recurrence.gated.heads.strength";
const LOG_RATE: &str = "blocks.*.recurrence.gated.heads.log_rate";
const STEP_BIAS: &str = "blocks.*.recurrence.gated.heads.step_bias";
const SKIP: &str = "blocks.*.recurrence.gated.heads.skip";
const OUTPUT: &str = "blocks.*.recurrence.output";

const QUERY_KEY_VALUE_TAPS: &[&str] = &[
    "blocks.*.recurrence.gated.heads.query_taps",
    "blocks.*.recurrence.gated.heads.key_taps",
    "blocks.*.recurrence.gated.heads.value_taps",
];
const STATE_SPACE_TAPS: &[&str] = &[
    "blocks.*.recurrence.gated.heads.value_taps",
    "blocks.*.recurrence.gated.heads.key_taps",
    "blocks.*.recurrence.gated.heads.query_taps",
];

/// Qwen3-Next and Qwen3.5. Queries and gates of an attention head are in one matrix, one below the other.
pub(in crate::huggingface) const QWEN3_NEXT: Modules = &[
    GATED,
    ROUTED,
    FUSED_ROUTED,
    &[
        table("embed_tokens", "embeddings.token"),
        centred_norm("norm", &["final_norm"]),
        centred_norm("layers.*.input_layernorm", &["blocks.*.attention.norm", "blocks.*.recurrence.norm"]),
        centred_norm("layers.*.post_attention_layernorm", &["blocks.*.ffn.norm"]),
        query_heads("layers.*.self_attn.q_proj", &["blocks.*.attention.heads.query", "blocks.*.attention.gate"]),
        rows("layers.*.self_attn.k_proj", &["blocks.*.attention.heads.key"]),
        rows("layers.*.self_attn.v_proj", &["blocks.*.attention.heads.value"]),
        rows("layers.*.self_attn.o_proj", &["blocks.*.attention.output"]),
        centred_norm("layers.*.self_attn.q_norm", &["blocks.*.attention.gated.heads.query_norm"]),
        centred_norm("layers.*.self_attn.k_norm", &["blocks.*.attention.gated.heads.key_norm"]),
        rows("layers.*.mlp.gate", &["blocks.*.ffn.experts.routed.router"]),
        rows("layers.*.mlp.shared_expert.gate_proj", &["blocks.*.ffn.experts.shared.gated.gate"]),
        rows("layers.*.mlp.shared_expert.up_proj", &["blocks.*.ffn.experts.shared.gated.up"]),
        rows("layers.*.mlp.shared_expert.down_proj", &["blocks.*.ffn.experts.shared.out"]),
        rows("layers.*.mlp.shared_expert_gate", &["blocks.*.ffn.experts.shared.router"]),
        taps("layers.*.linear_attn.conv1d", QUERY_KEY_VALUE_TAPS),
        bare("layers.*.linear_attn.A_log", LOG_RATE, 1),
        bare("layers.*.linear_attn.dt_bias", STEP_BIAS, 1),
        norm("layers.*.linear_attn.norm", &["blocks.*.recurrence.gated.norm"]),
        rows("layers.*.linear_attn.out_proj", &[OUTPUT]),
    ],
    QWEN3_NEXT_MAPS,
];

const QWEN3_NEXT_MAPS: &[Module] = &[
    state_heads("layers.*.linear_attn.in_proj_qkvz", &[QUERY, KEY, VALUE, GATE]),
    state_heads("layers.*.linear_attn.in_proj_ba", &[STRENGTH, STEP]),
];

/// Qwen3.5 has separate maps where Qwen3-Next has all heads in one.
pub(in crate::huggingface) const QWEN3_5: Modules = &[
    QWEN3_NEXT[0],
    QWEN3_NEXT[1],
    QWEN3_NEXT[2],
    QWEN3_NEXT[3],
    &[
        rows("layers.*.linear_attn.in_proj_qkv", &[QUERY, KEY, VALUE]),
        rows("layers.*.linear_attn.in_proj_z", &[GATE]),
        rows("layers.*.linear_attn.in_proj_b", &[STRENGTH]),
        rows("layers.*.linear_attn.in_proj_a", &[STEP]),
    ],
];

/// OLMo hybrid, whose norms are at other places in blocks with attention. Older checkpoints have names of their own for
/// norms and taps.
pub(in crate::huggingface) const OLMO_HYBRID: Modules = &[
    STREAM,
    ATTENTION,
    QK_NORMS,
    GATED,
    &[
        norm("layers.*.input_layernorm", &["blocks.*.recurrence.norm"]),
        norm("layers.*.post_attention_layernorm", &["blocks.*.attention.output_norm", "blocks.*.ffn.norm"]),
        norm("layers.*.post_feedforward_layernorm", &["blocks.*.ffn.output_norm"]),
        rows("layers.*.linear_attn.q_proj", &[QUERY]),
        rows("layers.*.linear_attn.k_proj", &[KEY]),
        rows("layers.*.linear_attn.v_proj", &[VALUE]),
        rows("layers.*.linear_attn.g_proj", &[GATE]),
        rows("layers.*.linear_attn.a_proj", &[STEP]),
        rows("layers.*.linear_attn.b_proj", &[STRENGTH]),
        taps("layers.*.linear_attn.conv1d", QUERY_KEY_VALUE_TAPS),
        bare("layers.*.linear_attn.A_log", LOG_RATE, 1),
        bare("layers.*.linear_attn.dt_bias", STEP_BIAS, 1),
        norm("layers.*.linear_attn.o_norm", &["blocks.*.recurrence.gated.norm"]),
        rows("layers.*.linear_attn.o_proj", &[OUTPUT]),
        norm("layers.*.attention_layer_norm", &["blocks.*.recurrence.norm"]),
        norm("layers.*.feedforward_layer_norm", &["blocks.*.ffn.norm"]),
        taps("layers.*.linear_attn.q_conv1d", &["blocks.*.recurrence.gated.heads.query_taps"]),
        taps("layers.*.linear_attn.k_conv1d", &["blocks.*.recurrence.gated.heads.key_taps"]),
        taps("layers.*.linear_attn.v_conv1d", &["blocks.*.recurrence.gated.heads.value_taps"]),
    ],
];

/// The parameters of Mamba-2 in a module called `mamba`.
const HYBRID: &[Module] = &[
    norm("layers.*.input_layernorm", &["blocks.*.recurrence.norm"]),
    rows("layers.*.mamba.in_proj", &[GATE, VALUE, KEY, QUERY, STEP]),
    taps("layers.*.mamba.conv1d", STATE_SPACE_TAPS),
    bare("layers.*.mamba.A_log", LOG_RATE, 1),
    bare("layers.*.mamba.D", SKIP, 1),
    bare("layers.*.mamba.dt_bias", STEP_BIAS, 1),
    norm("layers.*.mamba.norm", &["blocks.*.recurrence.gated_norm"]),
    rows("layers.*.mamba.out_proj", &[OUTPUT]),
];

pub(in crate::huggingface) const GRANITE_HYBRID: Modules =
    &[GRANITE_MOE[0], GRANITE_MOE[1], GRANITE_MOE[2], GRANITE_MOE[3], HYBRID];

const FEED_FORWARD: &[Module] = &[
    norm("layers.*.pre_ff_layernorm", &["blocks.*.ffn.norm"]),
    rows("layers.*.feed_forward.gate_proj", &["blocks.*.ffn.gated.gate"]),
    rows("layers.*.feed_forward.up_proj", &["blocks.*.ffn.gated.up"]),
    rows("layers.*.feed_forward.down_proj", &["blocks.*.ffn.out"]),
];

const FINAL_LAYERNORM: &[Module] =
    &[table("embed_tokens", "embeddings.token"), norm("final_layernorm", &["final_norm"])];

pub(in crate::huggingface) const BAMBA: Modules = &[FINAL_LAYERNORM, PRE_NORMS, ATTENTION, FEED_FORWARD, HYBRID];

pub(in crate::huggingface) const FALCON_H1: Modules = &[
    FINAL_LAYERNORM,
    ATTENTION,
    FEED_FORWARD,
    &[
        norm("layers.*.input_layernorm", &["blocks.*.mixer.norm"]),
        rows("layers.*.mamba.in_proj", &[GATE, VALUE, KEY, QUERY, STEP]),
        taps("layers.*.mamba.conv1d", STATE_SPACE_TAPS),
        bare("layers.*.mamba.A_log", "blocks.*.mixer.parts.recurrence.gated.heads.log_rate", 1),
        bare("layers.*.mamba.D", "blocks.*.mixer.parts.recurrence.gated.heads.skip", 1),
        bare("layers.*.mamba.dt_bias", "blocks.*.mixer.parts.recurrence.gated.heads.step_bias", 1),
        norm("layers.*.mamba.norm", &["blocks.*.mixer.parts.recurrence.gated_norm"]),
        rows("layers.*.mamba.out_proj", &[OUTPUT]),
    ],
];

pub(in crate::huggingface) const JAMBA: Modules = &[
    FINAL_LAYERNORM,
    PRE_NORMS,
    ATTENTION,
    FEED_FORWARD,
    &[
        norm("layers.*.input_layernorm", &["blocks.*.recurrence.norm"]),
        rows("layers.*.feed_forward.router", &["blocks.*.ffn.experts.router"]),
        rows("layers.*.feed_forward.experts.*.gate_proj", &["blocks.*.ffn.experts.gated.gate"]),
        rows("layers.*.feed_forward.experts.*.up_proj", &["blocks.*.ffn.experts.gated.up"]),
        rows("layers.*.feed_forward.experts.*.down_proj", &["blocks.*.ffn.experts.out"]),
        experts(
            "layers.*.feed_forward.experts.gate_up_proj",
            &["blocks.*.ffn.experts.gated.gate", "blocks.*.ffn.experts.gated.up"],
        ),
        experts("layers.*.feed_forward.experts.down_proj", &["blocks.*.ffn.experts.out"]),
        rows("layers.*.mamba.in_proj", &["blocks.*.recurrence.gated.input", GATE]),
        taps("layers.*.mamba.conv1d", &["blocks.*.recurrence.gated.input_taps"]),
        rows("layers.*.mamba.x_proj", &["blocks.*.recurrence.gated.heads.step_down", KEY, QUERY]),
        rows("layers.*.mamba.dt_proj", &[STEP]),
        bare("layers.*.mamba.dt_proj.bias", STEP_BIAS, 1),
        bare("layers.*.mamba.A_log", LOG_RATE, 2),
        bare("layers.*.mamba.D", SKIP, 1),
        norm("layers.*.mamba.dt_layernorm", &["blocks.*.recurrence.gated.heads.step_down_norm"]),
        norm("layers.*.mamba.b_layernorm", &["blocks.*.recurrence.gated.heads.key_norm"]),
        norm("layers.*.mamba.c_layernorm", &["blocks.*.recurrence.gated.heads.query_norm"]),
        rows("layers.*.mamba.out_proj", &[OUTPUT]),
    ],
];

/// A stream of blocks with one branch each, called `mixer`.
const SINGLE: &[Module] = &[
    table("embeddings", "embeddings.token"),
    norm("norm_f", &["final_norm"]),
    norm("layers.*.norm", &["blocks.*.recurrence.norm", "blocks.*.attention.norm", "blocks.*.ffn.norm"]),
    bare("layers.*.mixer.A_log", LOG_RATE, 2),
    bare("layers.*.mixer.D", SKIP, 1),
    rows("layers.*.mixer.out_proj", &[OUTPUT]),
];

pub(in crate::huggingface) const MAMBA: Modules = &[
    SINGLE,
    &[
        rows("layers.*.mixer.in_proj", &["blocks.*.recurrence.gated.input", GATE]),
        taps("layers.*.mixer.conv1d", &["blocks.*.recurrence.gated.input_taps"]),
        rows("layers.*.mixer.x_proj", &["blocks.*.recurrence.gated.heads.step_down", KEY, QUERY]),
        rows("layers.*.mixer.dt_proj", &[STEP]),
        bare("layers.*.mixer.dt_proj.bias", STEP_BIAS, 1),
    ],
];

/// Mamba-2 and Nemotron-H.
pub(in crate::huggingface) const MAMBA2: Modules = &[
    SINGLE,
    &[
        rows("layers.*.mixer.in_proj", &[GATE, VALUE, KEY, QUERY, STEP]),
        taps("layers.*.mixer.conv1d", STATE_SPACE_TAPS),
        bare("layers.*.mixer.dt_bias", STEP_BIAS, 1),
        norm("layers.*.mixer.norm", &["blocks.*.recurrence.gated_norm"]),
        rows("layers.*.mixer.q_proj", &["blocks.*.attention.heads.query"]),
        rows("layers.*.mixer.k_proj", &["blocks.*.attention.heads.key"]),
        rows("layers.*.mixer.v_proj", &["blocks.*.attention.heads.value"]),
        rows("layers.*.mixer.o_proj", &["blocks.*.attention.output"]),
        rows("layers.*.mixer.up_proj", &["blocks.*.ffn.in"]),
        rows("layers.*.mixer.down_proj", &["blocks.*.ffn.out"]),
        rows("layers.*.mixer.gate", &["blocks.*.ffn.experts.routed.router"]),
        rows("layers.*.mixer.experts.*.up_proj", &["blocks.*.ffn.experts.routed.in"]),
        rows("layers.*.mixer.experts.*.down_proj", &["blocks.*.ffn.experts.routed.out"]),
        experts("layers.*.mixer.experts.up_proj", &["blocks.*.ffn.experts.routed.in"]),
        experts("layers.*.mixer.experts.down_proj", &["blocks.*.ffn.experts.routed.out"]),
        rows("layers.*.mixer.shared_experts.up_proj", &["blocks.*.ffn.experts.shared.in"]),
        rows("layers.*.mixer.shared_experts.down_proj", &["blocks.*.ffn.experts.shared.out"]),
    ],
];
