//! Decoders with rotary positions: Llama and its descendants.

use super::{Module, Modules, QKV, bare, biased_norm, centred_biased_norm, heads, norm, padded, rows, table};

pub(super) const STREAM: &[Module] = &[table("embed_tokens", "embeddings.token"), norm("norm", &["final_norm"])];

pub(super) const PRE_NORMS: &[Module] = &[
    norm("layers.*.input_layernorm", &["blocks.*.attention.norm"]),
    norm("layers.*.post_attention_layernorm", &["blocks.*.ffn.norm"]),
];

pub(super) const ATTENTION: &[Module] = &[
    rows("layers.*.self_attn.q_proj", &["blocks.*.attention.heads.query"]),
    rows("layers.*.self_attn.k_proj", &["blocks.*.attention.heads.key"]),
    rows("layers.*.self_attn.v_proj", &["blocks.*.attention.heads.value"]),
    rows("layers.*.self_attn.o_proj", &["blocks.*.attention.output"]),
    bare("layers.*.self_attn.sinks", "blocks.*.attention.heads.sink", 1),
];

pub(super) const QK_NORMS: &[Module] = &[
    norm("layers.*.self_attn.q_norm", &["blocks.*.attention.heads.query_norm"]),
    norm("layers.*.self_attn.k_norm", &["blocks.*.attention.heads.key_norm"]),
];

pub(super) const GATED: &[Module] = &[
    rows("layers.*.mlp.gate_proj", &["blocks.*.ffn.gated.gate"]),
    rows("layers.*.mlp.up_proj", &["blocks.*.ffn.gated.up"]),
    rows("layers.*.mlp.down_proj", &["blocks.*.ffn.out"]),
];

/// Gate and up are in one matrix, one below the other.
pub(super) const FUSED_GATED: &[Module] = &[
    rows("layers.*.mlp.gate_up_proj", &["blocks.*.ffn.gated.gate", "blocks.*.ffn.gated.up"]),
    rows("layers.*.mlp.down_proj", &["blocks.*.ffn.out"]),
];

const PLAIN: &[Module] =
    &[rows("layers.*.mlp.up_proj", &["blocks.*.ffn.in"]), rows("layers.*.mlp.down_proj", &["blocks.*.ffn.out"])];

pub(in crate::huggingface) const LLAMA: Modules = &[STREAM, PRE_NORMS, ATTENTION, QK_NORMS, GATED];

/// Mllama's text part, without the blocks that read images. Its table of embeddings has rows for ids of images.
pub(in crate::huggingface) const MLLAMA: Modules =
    &[&[padded("embed_tokens", "embeddings.token", 8), norm("norm", &["final_norm"])], PRE_NORMS, ATTENTION, GATED];

/// OLMo's LayerNorms have no parameters.
pub(in crate::huggingface) const OLMO: Modules = &[&[table("embed_tokens", "embeddings.token")], ATTENTION, GATED];

/// Norms on the outputs of branches.
pub(in crate::huggingface) const OLMO2: Modules = &[
    STREAM,
    ATTENTION,
    QK_NORMS,
    GATED,
    &[
        norm("layers.*.post_attention_layernorm", &["blocks.*.attention.output_norm"]),
        norm("layers.*.post_feedforward_layernorm", &["blocks.*.ffn.output_norm"]),
    ],
];

pub(in crate::huggingface) const PHI3: Modules = &[
    STREAM,
    PRE_NORMS,
    FUSED_GATED,
    &[rows("layers.*.self_attn.qkv_proj", QKV), rows("layers.*.self_attn.o_proj", &["blocks.*.attention.output"])],
];

/// Arcee has no gate.
pub(in crate::huggingface) const UNGATED: Modules = &[STREAM, PRE_NORMS, ATTENTION, PLAIN];

pub(in crate::huggingface) const APERTUS: Modules = &[
    STREAM,
    ATTENTION,
    QK_NORMS,
    PLAIN,
    &[
        norm("layers.*.attention_layernorm", &["blocks.*.attention.norm"]),
        norm("layers.*.feedforward_layernorm", &["blocks.*.ffn.norm"]),
    ],
];

/// Nemotron's LayerNorms store the gain minus 1.
pub(in crate::huggingface) const NEMOTRON: Modules = &[
    ATTENTION,
    PLAIN,
    &[
        table("embed_tokens", "embeddings.token"),
        centred_biased_norm("layers.*.input_layernorm", &["blocks.*.attention.norm"]),
        centred_biased_norm("layers.*.post_attention_layernorm", &["blocks.*.ffn.norm"]),
        centred_biased_norm("norm", &["final_norm"]),
    ],
];

pub(in crate::huggingface) const STARCODER2: Modules = &[
    ATTENTION,
    &[
        table("embed_tokens", "embeddings.token"),
        rows("layers.*.mlp.c_fc", &["blocks.*.ffn.in"]),
        rows("layers.*.mlp.c_proj", &["blocks.*.ffn.out"]),
        biased_norm("layers.*.input_layernorm", &["blocks.*.attention.norm"]),
        biased_norm("layers.*.post_attention_layernorm", &["blocks.*.ffn.norm"]),
        biased_norm("norm", &["final_norm"]),
    ],
];

/// nanochat's norms have no parameters.
pub(in crate::huggingface) const NANOCHAT: Modules = &[
    ATTENTION,
    &[
        table("embed_tokens", "embeddings.token"),
        rows("layers.*.mlp.fc1", &["blocks.*.ffn.in"]),
        rows("layers.*.mlp.fc2", &["blocks.*.ffn.out"]),
    ],
];

pub(in crate::huggingface) const BAICHUAN: Modules = &[
    STREAM,
    PRE_NORMS,
    GATED,
    &[rows("layers.*.self_attn.W_pack", QKV), rows("layers.*.self_attn.o_proj", &["blocks.*.attention.output"])],
];

/// The queries of a group, their key and their value are in one matrix, one below the other.
pub(in crate::huggingface) const INTERNLM2: Modules = &[&[
    table("tok_embeddings", "embeddings.token"),
    norm("layers.*.attention_norm", &["blocks.*.attention.norm"]),
    heads("layers.*.attention.wqkv", QKV),
    rows("layers.*.attention.wo", &["blocks.*.attention.output"]),
    norm("layers.*.ffn_norm", &["blocks.*.ffn.norm"]),
    rows("layers.*.feed_forward.w1", &["blocks.*.ffn.gated.gate"]),
    rows("layers.*.feed_forward.w3", &["blocks.*.ffn.gated.up"]),
    rows("layers.*.feed_forward.w2", &["blocks.*.ffn.out"]),
    norm("norm", &["final_norm"]),
]];
