//! Encoders of text.

use super::llama::GATED;
use super::{Module, Modules, QKV, gamma_norm, norm, positions, rows, table, unbiased};

pub(in crate::huggingface) const BERT: Modules = &[
    TABLES,
    EMBEDDINGS_NORM,
    MAPS,
    &[
        rows("embeddings_project", &["embeddings.projection"]),
        norm("encoder.layer.*.attention.output.LayerNorm", &["blocks.*.attention_norm"]),
        norm("encoder.layer.*.output.LayerNorm", &["blocks.*.ffn_norm"]),
    ],
];

/// All blocks have the parameters of one layer.
pub(in crate::huggingface) const ALBERT: Modules = &[
    TABLES,
    EMBEDDINGS_NORM,
    &[
        rows("encoder.embedding_hidden_mapping_in", &["embeddings.projection"]),
        rows("encoder.albert_layer_groups.0.albert_layers.0.attention.query", &["blocks.*.attention.heads.query"]),
        rows("encoder.albert_layer_groups.0.albert_layers.0.attention.key", &["blocks.*.attention.heads.key"]),
        rows("encoder.albert_layer_groups.0.albert_layers.0.attention.value", &["blocks.*.attention.heads.value"]),
        rows("encoder.albert_layer_groups.0.albert_layers.0.attention.dense", &["blocks.*.attention.output"]),
        norm("encoder.albert_layer_groups.0.albert_layers.0.attention.LayerNorm", &["blocks.*.attention_norm"]),
        rows("encoder.albert_layer_groups.0.albert_layers.0.ffn", &["blocks.*.ffn.in"]),
        rows("encoder.albert_layer_groups.0.albert_layers.0.ffn_output", &["blocks.*.ffn.out"]),
        norm("encoder.albert_layer_groups.0.albert_layers.0.full_layer_layer_norm", &["blocks.*.ffn_norm"]),
    ],
];

pub(in crate::huggingface) const MEGATRON_BERT: Modules = &[
    TABLES,
    EMBEDDINGS_NORM,
    MAPS,
    &[
        norm("encoder.layer.*.attention.ln", &["blocks.*.attention.norm"]),
        norm("encoder.layer.*.ln", &["blocks.*.ffn.norm"]),
        norm("encoder.ln", &["final_norm"]),
    ],
];

pub(in crate::huggingface) const ROBERTA_PRE: Modules = &[
    TABLES,
    EMBEDDINGS_NORM,
    MAPS,
    &[
        norm("encoder.layer.*.attention.LayerNorm", &["blocks.*.attention.norm"]),
        norm("encoder.layer.*.intermediate.LayerNorm", &["blocks.*.ffn.norm"]),
        norm("LayerNorm", &["final_norm"]),
    ],
];

pub(in crate::huggingface) const XLM_ROBERTA_XL: Modules = &[
    TABLES,
    EMBEDDINGS_NORM,
    MAPS,
    &[
        norm("encoder.layer.*.attention.self_attn_layer_norm", &["blocks.*.attention.norm"]),
        norm("encoder.layer.*.LayerNorm", &["blocks.*.ffn.norm"]),
        norm("encoder.LayerNorm", &["final_norm"]),
    ],
];

/// Norms of blocks are written as `gamma` and `beta`, which are read as `weight` and `bias`.
pub(in crate::huggingface) const ESM: Modules = &[
    TABLES,
    MAPS,
    &[
        norm("embeddings.layer_norm", &["embeddings.norm"]),
        norm("encoder.layer.*.attention.LayerNorm", &["blocks.*.attention.norm"]),
        norm("encoder.layer.*.LayerNorm", &["blocks.*.ffn.norm"]),
        norm("encoder.emb_layer_norm_after", &["final_norm"]),
        gamma_norm("encoder.layer.*.attention.LayerNorm", &["blocks.*.attention.norm"]),
        gamma_norm("encoder.layer.*.LayerNorm", &["blocks.*.ffn.norm"]),
    ],
];

pub(in crate::huggingface) const MPNET: Modules = &[
    TABLES,
    EMBEDDINGS_NORM,
    &[
        table("encoder.relative_attention_bias", "relative_bias"),
        rows("encoder.layer.*.attention.attn.q", &["blocks.*.attention.heads.query"]),
        rows("encoder.layer.*.attention.attn.k", &["blocks.*.attention.heads.key"]),
        rows("encoder.layer.*.attention.attn.v", &["blocks.*.attention.heads.value"]),
        rows("encoder.layer.*.attention.attn.o", &["blocks.*.attention.output"]),
        norm("encoder.layer.*.attention.LayerNorm", &["blocks.*.attention_norm"]),
        rows("encoder.layer.*.intermediate.dense", &["blocks.*.ffn.in"]),
        rows("encoder.layer.*.output.dense", &["blocks.*.ffn.out"]),
        norm("encoder.layer.*.output.LayerNorm", &["blocks.*.ffn_norm"]),
    ],
];

pub(in crate::huggingface) const DEBERTA_V2: Modules = &[
    TABLES,
    EMBEDDINGS_NORM,
    &[
        table("encoder.rel_embeddings", "relative_embedding"),
        norm("encoder.LayerNorm", &["relative_embedding.norm"]),
        rows("encoder.layer.*.attention.self.query_proj", &["blocks.*.attention.heads.query"]),
        rows("encoder.layer.*.attention.self.key_proj", &["blocks.*.attention.heads.key"]),
        rows("encoder.layer.*.attention.self.value_proj", &["blocks.*.attention.heads.value"]),
        rows("encoder.layer.*.attention.self.pos_key_proj", &["blocks.*.attention.heads.position_key"]),
        rows("encoder.layer.*.attention.self.pos_query_proj", &["blocks.*.attention.heads.position_query"]),
        rows("encoder.layer.*.attention.output.dense", &["blocks.*.attention.output"]),
        norm("encoder.layer.*.attention.output.LayerNorm", &["blocks.*.attention_norm"]),
        rows("encoder.layer.*.intermediate.dense", &["blocks.*.ffn.in"]),
        rows("encoder.layer.*.output.dense", &["blocks.*.ffn.out"]),
        norm("encoder.layer.*.output.LayerNorm", &["blocks.*.ffn_norm"]),
    ],
];

pub(in crate::huggingface) const NOMIC_BERT: Modules = &[
    TABLES,
    &[
        norm("emb_ln", &["embeddings.norm"]),
        rows("encoder.layers.*.attn.Wqkv", QKV),
        rows("encoder.layers.*.attn.out_proj", &["blocks.*.attention.output"]),
        norm("encoder.layers.*.norm1", &["blocks.*.attention_norm"]),
        rows("encoder.layers.*.mlp.fc11", &["blocks.*.ffn.gated.up"]),
        rows("encoder.layers.*.mlp.fc12", &["blocks.*.ffn.gated.gate"]),
        rows("encoder.layers.*.mlp.fc2", &["blocks.*.ffn.out"]),
        norm("encoder.layers.*.norm2", &["blocks.*.ffn_norm"]),
    ],
    EMBEDDINGS_NORM,
    GATED_LIVE,
    GATED,
];

/// Gate and up have no biases.
pub(in crate::huggingface) const GTE: Modules = &[
    TABLES,
    EMBEDDINGS_NORM,
    &[
        rows("encoder.layer.*.attention.qkv_proj", QKV),
        rows("encoder.layer.*.attention.o_proj", &["blocks.*.attention.output"]),
        norm("encoder.layer.*.attn_ln", &["blocks.*.attention_norm"]),
        unbiased("encoder.layer.*.mlp.up_gate_proj", &["blocks.*.ffn.gated.up", "blocks.*.ffn.gated.gate"]),
        rows("encoder.layer.*.mlp.down_proj", &["blocks.*.ffn.out"]),
        norm("encoder.layer.*.mlp_ln", &["blocks.*.ffn_norm"]),
        unbiased("layers.*.mlp.gate_proj", &["blocks.*.ffn.gated.gate"]),
        unbiased("layers.*.mlp.up_proj", &["blocks.*.ffn.gated.up"]),
        rows("layers.*.mlp.down_proj", &["blocks.*.ffn.out"]),
    ],
    GATED_LIVE,
];

/// The names of modules in a model of release 5. Its checkpoints have the other names.
const GATED_LIVE: &[Module] = &[
    rows("layers.*.self_attn.q_proj", &["blocks.*.attention.heads.query"]),
    rows("layers.*.self_attn.k_proj", &["blocks.*.attention.heads.key"]),
    rows("layers.*.self_attn.v_proj", &["blocks.*.attention.heads.value"]),
    rows("layers.*.self_attn.o_proj", &["blocks.*.attention.output"]),
    norm("layers.*.post_attention_layernorm", &["blocks.*.attention_norm"]),
    norm("layers.*.post_mlp_layernorm", &["blocks.*.ffn_norm"]),
];

const TABLES: &[Module] = &[
    table("embeddings.word_embeddings", "embeddings.token"),
    positions("embeddings.position_embeddings", "embeddings.position", 0),
    table("embeddings.token_type_embeddings", "embeddings.token_type"),
];

const EMBEDDINGS_NORM: &[Module] = &[norm("embeddings.LayerNorm", &["embeddings.norm"])];

const MAPS: &[Module] = &[
    rows("encoder.layer.*.attention.self.query", &["blocks.*.attention.heads.query"]),
    rows("encoder.layer.*.attention.self.key", &["blocks.*.attention.heads.key"]),
    rows("encoder.layer.*.attention.self.value", &["blocks.*.attention.heads.value"]),
    rows("encoder.layer.*.attention.output.dense", &["blocks.*.attention.output"]),
    rows("encoder.layer.*.intermediate.dense", &["blocks.*.ffn.in"]),
    rows("encoder.layer.*.output.dense", &["blocks.*.ffn.out"]),
];

pub(in crate::huggingface) const DISTILBERT: Modules = &[&[
    table("embeddings.word_embeddings", "embeddings.token"),
    positions("embeddings.position_embeddings", "embeddings.position", 0),
    norm("embeddings.LayerNorm", &["embeddings.norm"]),
    rows("transformer.layer.*.attention.q_lin", &["blocks.*.attention.heads.query"]),
    rows("transformer.layer.*.attention.k_lin", &["blocks.*.attention.heads.key"]),
    rows("transformer.layer.*.attention.v_lin", &["blocks.*.attention.heads.value"]),
    rows("transformer.layer.*.attention.out_lin", &["blocks.*.attention.output"]),
    norm("transformer.layer.*.sa_layer_norm", &["blocks.*.attention_norm"]),
    rows("transformer.layer.*.ffn.lin1", &["blocks.*.ffn.in"]),
    rows("transformer.layer.*.ffn.lin2", &["blocks.*.ffn.out"]),
    norm("transformer.layer.*.output_layer_norm", &["blocks.*.ffn_norm"]),
]];

pub(in crate::huggingface) const MODERNBERT: Modules = &[&[
    table("embeddings.tok_embeddings", "embeddings.token"),
    norm("embeddings.norm", &["embeddings.norm"]),
    norm("layers.*.attn_norm", &["blocks.*.attention.norm"]),
    rows("layers.*.attn.Wqkv", QKV),
    rows("layers.*.attn.Wo", &["blocks.*.attention.output"]),
    norm("layers.*.mlp_norm", &["blocks.*.ffn.norm"]),
    rows("layers.*.mlp.Wi", &["blocks.*.ffn.gated.gate", "blocks.*.ffn.gated.up"]),
    rows("layers.*.mlp.Wo", &["blocks.*.ffn.out"]),
    norm("final_norm", &["final_norm"]),
]];
