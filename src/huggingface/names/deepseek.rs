//! DeepSeek-V2 and V3: latents, and heads whose parts follow one after the other.

use super::llama::{GATED, PRE_NORMS, STREAM};
use super::mixture::{FUSED_ROUTED, ROUTED};
use super::{Module, Modules, heads, norm, rows};
use crate::architecture::Architecture;

const QUERY: &[&str] = &["blocks.*.attention.heads.query.nope", "blocks.*.attention.heads.query.rope"];

/// Returns the modules of DeepSeek, whose queries come from a latent or directly from the stream.
pub(in crate::huggingface) fn deepseek(architecture: &Architecture) -> Modules {
    match architecture.latent.and_then(|latent| latent.query_rank) {
        Some(_) => &[STREAM, PRE_NORMS, GATED, LATENT_QUERIES, LAYERS, ROUTED, FUSED_ROUTED],
        None => &[STREAM, PRE_NORMS, GATED, QUERIES, LAYERS, ROUTED, FUSED_ROUTED],
    }
}

const QUERIES: &[Module] = &[heads("layers.*.self_attn.q_proj", QUERY)];

const LATENT_QUERIES: &[Module] = &[
    rows("layers.*.self_attn.q_a_proj", &["blocks.*.attention.heads.query_down"]),
    norm("layers.*.self_attn.q_a_layernorm", &["blocks.*.attention.heads.query_down_norm"]),
    heads("layers.*.self_attn.q_b_proj", QUERY),
];

const LAYERS: &[Module] = &[
    rows(
        "layers.*.self_attn.kv_a_proj_with_mqa",
        &["blocks.*.attention.heads.kv_down", "blocks.*.attention.heads.key.rope"],
    ),
    norm(
        "layers.*.self_attn.kv_a_layernorm",
        &["blocks.*.attention.heads.key.down_norm", "blocks.*.attention.heads.value_down_norm"],
    ),
    heads("layers.*.self_attn.kv_b_proj", &["blocks.*.attention.heads.key.nope", "blocks.*.attention.heads.value"]),
    rows("layers.*.self_attn.o_proj", &["blocks.*.attention.output"]),
    rows("layers.*.mlp.gate", &["blocks.*.ffn.experts.routed.router"]),
    rows("layers.*.mlp.shared_experts.gate_proj", &["blocks.*.ffn.experts.shared.gated.gate"]),
    rows("layers.*.mlp.shared_experts.up_proj", &["blocks.*.ffn.experts.shared.gated.up"]),
    rows("layers.*.mlp.shared_experts.down_proj", &["blocks.*.ffn.experts.shared.out"]),
];
