//! Decoders whose attention and feed-forward network are parallel. A norm that both share is two norms of the network,
//! and is listed as the norm of attention.

use crate::architecture::{Architecture, Parallel};

use super::llama::{ATTENTION, GATED, QK_NORMS};
use super::{Module, Modules, QKV, biased_norm, heads, norm, rows, shards, table};

pub(in crate::huggingface) const GPTJ: Modules = &[
    GPTJ_STREAM,
    &[
        rows("h.*.attn.q_proj", &["blocks.*.attention.heads.query"]),
        rows("h.*.attn.k_proj", &["blocks.*.attention.heads.key"]),
        rows("h.*.attn.v_proj", &["blocks.*.attention.heads.value"]),
    ],
];

/// CodeGen, whose queries, values and keys are in one matrix, cut as for the four devices it was trained on.
pub(in crate::huggingface) const CODEGEN: Modules = &[
    GPTJ_STREAM,
    &[shards(
        "h.*.attn.qkv_proj",
        &["blocks.*.attention.heads.query", "blocks.*.attention.heads.value", "blocks.*.attention.heads.key"],
    )],
];

const GPTJ_STREAM: &[Module] = &[
    table("wte", "embeddings.token"),
    rows("h.*.attn.out_proj", &["blocks.*.attention.output"]),
    rows("h.*.mlp.fc_in", &["blocks.*.ffn.in"]),
    rows("h.*.mlp.fc_out", &["blocks.*.ffn.out"]),
    norm("h.*.ln_1", &["blocks.*.attention.norm"]),
    norm("ln_f", &["final_norm"]),
];

pub(in crate::huggingface) const NEOX: Modules = &[&[
    table("embed_in", "embeddings.token"),
    heads("layers.*.attention.query_key_value", QKV),
    rows("layers.*.attention.dense", &["blocks.*.attention.output"]),
    rows("layers.*.mlp.dense_h_to_4h", &["blocks.*.ffn.in"]),
    rows("layers.*.mlp.dense_4h_to_h", &["blocks.*.ffn.out"]),
    norm("layers.*.input_layernorm", &["blocks.*.attention.norm"]),
    norm("layers.*.post_attention_layernorm", &["blocks.*.ffn.norm"]),
    norm("final_layer_norm", &["final_norm"]),
]];

/// Returns the modules of Falcon; the names of norms depend on the layout.
pub(in crate::huggingface) fn falcon(architecture: &Architecture) -> Modules {
    match architecture.parallel {
        Parallel::OwnNorms => &[FALCON, FALCON_OWN_NORMS],
        Parallel::None | Parallel::SharedNorm => &[FALCON, FALCON_NORMS],
    }
}

const FALCON: &[Module] = &[
    table("word_embeddings", "embeddings.token"),
    heads("h.*.self_attention.query_key_value", QKV),
    rows("h.*.self_attention.dense", &["blocks.*.attention.output"]),
    rows("h.*.mlp.dense_h_to_4h", &["blocks.*.ffn.in"]),
    rows("h.*.mlp.dense_4h_to_h", &["blocks.*.ffn.out"]),
    biased_norm("ln_f", &["final_norm"]),
];

const FALCON_OWN_NORMS: &[Module] =
    &[biased_norm("h.*.ln_attn", &["blocks.*.attention.norm"]), biased_norm("h.*.ln_mlp", &["blocks.*.ffn.norm"])];

const FALCON_NORMS: &[Module] = &[
    biased_norm("h.*.input_layernorm", &["blocks.*.attention.norm"]),
    biased_norm("h.*.post_attention_layernorm", &["blocks.*.ffn.norm"]),
];

pub(in crate::huggingface) const PHI: Modules = &[&[
    table("embed_tokens", "embeddings.token"),
    rows("layers.*.self_attn.q_proj", &["blocks.*.attention.heads.query"]),
    rows("layers.*.self_attn.k_proj", &["blocks.*.attention.heads.key"]),
    rows("layers.*.self_attn.v_proj", &["blocks.*.attention.heads.value"]),
    rows("layers.*.self_attn.dense", &["blocks.*.attention.output"]),
    norm("layers.*.self_attn.q_layernorm", &["blocks.*.attention.heads.query_norm"]),
    norm("layers.*.self_attn.k_layernorm", &["blocks.*.attention.heads.key_norm"]),
    rows("layers.*.mlp.fc1", &["blocks.*.ffn.in"]),
    rows("layers.*.mlp.fc2", &["blocks.*.ffn.out"]),
    norm("layers.*.input_layernorm", &["blocks.*.attention.norm"]),
    norm("final_layernorm", &["final_norm"]),
]];

pub(in crate::huggingface) const COHERE: Modules = &[
    ATTENTION,
    GATED,
    QK_NORMS,
    &[
        table("embed_tokens", "embeddings.token"),
        norm("layers.*.input_layernorm", &["blocks.*.attention.norm"]),
        norm("norm", &["final_norm"]),
    ],
];

const STABLELM_STREAM: &[Module] = &[table("embed_tokens", "embeddings.token"), biased_norm("norm", &["final_norm"])];

pub(in crate::huggingface) const STABLELM: Modules = &[
    STABLELM_STREAM,
    ATTENTION,
    GATED,
    &[
        biased_norm("layers.*.input_layernorm", &["blocks.*.attention.norm"]),
        biased_norm("layers.*.post_attention_layernorm", &["blocks.*.ffn.norm"]),
    ],
];
