//! Decoders with LayerNorm and sequential branches.

use super::{Module, Modules, QKV, columns, heads, norm, positions, rows, table};

pub(super) const STREAM: &[Module] = &[
    table("wte", "embeddings.token"),
    positions("wpe", "embeddings.position", 0),
    norm("h.*.ln_1", &["blocks.*.attention.norm"]),
    norm("h.*.ln_2", &["blocks.*.ffn.norm"]),
    norm("ln_f", &["final_norm"]),
];

pub(in crate::huggingface) const GPT2: Modules = &[
    STREAM,
    &[
        columns("h.*.attn.c_attn", QKV),
        columns("h.*.attn.c_proj", &["blocks.*.attention.output"]),
        columns("h.*.mlp.c_fc", &["blocks.*.ffn.in"]),
        columns("h.*.mlp.c_proj", &["blocks.*.ffn.out"]),
    ],
];

pub(in crate::huggingface) const BIGCODE: Modules =
    &[STREAM, MLP, &[heads("h.*.attn.c_attn", QKV), rows("h.*.attn.c_proj", &["blocks.*.attention.output"])]];

pub(in crate::huggingface) const GPT_NEO: Modules = &[
    STREAM,
    MLP,
    &[
        rows("h.*.attn.attention.q_proj", &["blocks.*.attention.heads.query"]),
        rows("h.*.attn.attention.k_proj", &["blocks.*.attention.heads.key"]),
        rows("h.*.attn.attention.v_proj", &["blocks.*.attention.heads.value"]),
        rows("h.*.attn.attention.out_proj", &["blocks.*.attention.output"]),
    ],
];

pub(super) const MLP: &[Module] =
    &[rows("h.*.mlp.c_fc", &["blocks.*.ffn.in"]), rows("h.*.mlp.c_proj", &["blocks.*.ffn.out"])];

/// Positions 0 and 1 of the table are never used.
pub(in crate::huggingface) const OPT: Modules = &[&[
    table("decoder.embed_tokens", "embeddings.token"),
    positions("decoder.embed_positions", "embeddings.position", 2),
    rows("decoder.project_in", &["embeddings.projection"]),
    rows("decoder.project_out", &["final_norm.projection"]),
    rows("decoder.layers.*.self_attn.q_proj", &["blocks.*.attention.heads.query"]),
    rows("decoder.layers.*.self_attn.k_proj", &["blocks.*.attention.heads.key"]),
    rows("decoder.layers.*.self_attn.v_proj", &["blocks.*.attention.heads.value"]),
    rows("decoder.layers.*.self_attn.out_proj", &["blocks.*.attention.output"]),
    rows("decoder.layers.*.fc1", &["blocks.*.ffn.in"]),
    rows("decoder.layers.*.fc2", &["blocks.*.ffn.out"]),
    norm("decoder.layers.*.self_attn_layer_norm", &["blocks.*.attention.norm", "blocks.*.attention_norm"]),
    norm("decoder.layers.*.final_layer_norm", &["blocks.*.ffn.norm", "blocks.*.ffn_norm"]),
    norm("decoder.final_layer_norm", &["final_norm", "final_norm.norm"]),
]];

pub(in crate::huggingface) const BLOOM: Modules = &[&[
    table("word_embeddings", "embeddings.token"),
    norm("word_embeddings_layernorm", &["embeddings.norm"]),
    heads("h.*.self_attention.query_key_value", QKV),
    rows("h.*.self_attention.dense", &["blocks.*.attention.output"]),
    rows("h.*.mlp.dense_h_to_4h", &["blocks.*.ffn.in"]),
    rows("h.*.mlp.dense_4h_to_h", &["blocks.*.ffn.out"]),
    norm("h.*.input_layernorm", &["blocks.*.attention.norm", "blocks.*.attention_norm"]),
    norm("h.*.post_attention_layernorm", &["blocks.*.ffn.norm", "blocks.*.ffn_norm"]),
    norm("ln_f", &["final_norm"]),
]];

pub(in crate::huggingface) const MPT: Modules = &[&[
    table("wte", "embeddings.token"),
    positions("wpe", "embeddings.position", 0),
    rows("blocks.*.attn.Wqkv", QKV),
    rows("blocks.*.attn.out_proj", &["blocks.*.attention.output"]),
    rows("blocks.*.ffn.up_proj", &["blocks.*.ffn.in"]),
    rows("blocks.*.ffn.down_proj", &["blocks.*.ffn.out"]),
    norm("blocks.*.norm_1", &["blocks.*.attention.norm"]),
    norm("blocks.*.norm_2", &["blocks.*.ffn.norm"]),
    norm("norm_f", &["final_norm"]),
]];

pub(in crate::huggingface) const OPENAI_GPT: Modules = &[&[
    table("tokens_embed", "embeddings.token"),
    positions("positions_embed", "embeddings.position", 0),
    columns("h.*.attn.c_attn", QKV),
    columns("h.*.attn.c_proj", &["blocks.*.attention.output"]),
    norm("h.*.ln_1", &["blocks.*.attention_norm"]),
    columns("h.*.mlp.c_fc", &["blocks.*.ffn.in"]),
    columns("h.*.mlp.c_proj", &["blocks.*.ffn.out"]),
    norm("h.*.ln_2", &["blocks.*.ffn_norm"]),
]];

/// BioGPT, and XGLM, whose positions are not parameters. Positions 0 and 1 of the table are never used.
pub(in crate::huggingface) const BIOGPT: Modules = &[&[
    table("embed_tokens", "embeddings.token"),
    positions("embed_positions", "embeddings.position", 2),
    rows("layers.*.self_attn.q_proj", &["blocks.*.attention.heads.query"]),
    rows("layers.*.self_attn.k_proj", &["blocks.*.attention.heads.key"]),
    rows("layers.*.self_attn.v_proj", &["blocks.*.attention.heads.value"]),
    rows("layers.*.self_attn.out_proj", &["blocks.*.attention.output"]),
    norm("layers.*.self_attn_layer_norm", &["blocks.*.attention.norm"]),
    rows("layers.*.fc1", &["blocks.*.ffn.in"]),
    rows("layers.*.fc2", &["blocks.*.ffn.out"]),
    norm("layers.*.final_layer_norm", &["blocks.*.ffn.norm"]),
    norm("layer_norm", &["final_norm"]),
]];
