//! Encoders of text.

use super::llama::{ATTENTION, GATED};
use super::{Module, Modules, QKV, norm, positions, rows, table};

pub(in crate::huggingface) const BERT: Modules = &[
    EMBEDDINGS,
    MAPS,
    &[
        rows("embeddings_project", &["embeddings.projection"]),
        norm("encoder.layer.*.attention.output.LayerNorm", &["blocks.*.attention_norm"]),
        norm("encoder.layer.*.output.LayerNorm", &["blocks.*.ffn_norm"]),
    ],
];

pub(in crate::huggingface) const MEGATRON_BERT: Modules = &[
    EMBEDDINGS,
    MAPS,
    &[
        norm("encoder.layer.*.attention.ln", &["blocks.*.attention.norm"]),
        norm("encoder.layer.*.ln", &["blocks.*.ffn.norm"]),
        norm("encoder.ln", &["final_norm"]),
    ],
];

pub(in crate::huggingface) const ROBERTA_PRE: Modules = &[
    EMBEDDINGS,
    MAPS,
    &[
        norm("encoder.layer.*.attention.LayerNorm", &["blocks.*.attention.norm"]),
        norm("encoder.layer.*.intermediate.LayerNorm", &["blocks.*.ffn.norm"]),
        norm("LayerNorm", &["final_norm"]),
    ],
];

pub(in crate::huggingface) const XLM_ROBERTA_XL: Modules = &[
    EMBEDDINGS,
    MAPS,
    &[
        norm("encoder.layer.*.attention.self_attn_layer_norm", &["blocks.*.attention.norm"]),
        norm("encoder.layer.*.LayerNorm", &["blocks.*.ffn.norm"]),
        norm("encoder.LayerNorm", &["final_norm"]),
    ],
];

pub(in crate::huggingface) const ESM: Modules = &[
    EMBEDDINGS,
    MAPS,
    &[
        norm("embeddings.layer_norm", &["embeddings.norm"]),
        norm("encoder.layer.*.attention.LayerNorm", &["blocks.*.attention.norm"]),
        norm("encoder.layer.*.LayerNorm", &["blocks.*.ffn.norm"]),
        norm("encoder.emb_layer_norm_after", &["final_norm"]),
    ],
];

pub(in crate::huggingface) const MPNET: Modules = &[
    EMBEDDINGS,
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

pub(in crate::huggingface) const NOMIC_BERT: Modules = &[
    EMBEDDINGS,
    ATTENTION,
    GATED,
    &[
        norm("layers.*.post_attention_layernorm", &["blocks.*.attention_norm"]),
        norm("layers.*.post_mlp_layernorm", &["blocks.*.ffn_norm"]),
    ],
];

const EMBEDDINGS: &[Module] = &[
    table("embeddings.word_embeddings", "embeddings.token"),
    positions("embeddings.position_embeddings", "embeddings.position", 0),
    table("embeddings.token_type_embeddings", "embeddings.token_type"),
    norm("embeddings.LayerNorm", &["embeddings.norm"]),
];

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
