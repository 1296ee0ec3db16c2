//! The names of Meta's Llama, which llama2.c, gpt-fast, torchtitan and Mistral also use. Rows of queries and keys are
//! in another order than in transformers (rotary positions are interleaved), which changes no moment.

use super::{Modules, QKV, experts, norm, rows, table};

pub(super) const META: Modules = &[
    &[
        table("tok_embeddings", "embeddings.token"),
        norm("layers.*.attention_norm", &["blocks.*.attention.norm"]),
        rows("layers.*.attention.wq", &["blocks.*.attention.heads.query"]),
        rows("layers.*.attention.wk", &["blocks.*.attention.heads.key"]),
        rows("layers.*.attention.wv", &["blocks.*.attention.heads.value"]),
        rows("layers.*.attention.wo", &["blocks.*.attention.output"]),
        norm("layers.*.attention.q_norm", &["blocks.*.attention.heads.query_norm"]),
        norm("layers.*.attention.k_norm", &["blocks.*.attention.heads.key_norm"]),
        norm("layers.*.ffn_norm", &["blocks.*.ffn.norm"]),
        rows("layers.*.feed_forward.w1", &["blocks.*.ffn.gated.gate"]),
        rows("layers.*.feed_forward.w3", &["blocks.*.ffn.gated.up"]),
        rows("layers.*.feed_forward.w2", &["blocks.*.ffn.out"]),
        norm("norm", &["final_norm"]),
        rows("output", &["head"]),
    ],
    // gpt-fast, and newer releases of torchtitan.
    &[
        rows("layers.*.attention.wqkv", QKV),
        rows("layers.*.attention.qkv_linear.wq", &["blocks.*.attention.heads.query"]),
        rows("layers.*.attention.qkv_linear.wk", &["blocks.*.attention.heads.key"]),
        rows("layers.*.attention.qkv_linear.wv", &["blocks.*.attention.heads.value"]),
    ],
    // Mixtures: Mistral, torchtitan.
    &[
        rows("layers.*.feed_forward.gate", &["blocks.*.ffn.experts.router"]),
        rows("layers.*.feed_forward.experts.*.w1", &["blocks.*.ffn.experts.gated.gate"]),
        rows("layers.*.feed_forward.experts.*.w3", &["blocks.*.ffn.experts.gated.up"]),
        rows("layers.*.feed_forward.experts.*.w2", &["blocks.*.ffn.experts.out"]),
        rows("layers.*.moe.router.gate", &["blocks.*.ffn.experts.router"]),
        experts("layers.*.moe.experts.w1", &["blocks.*.ffn.experts.gated.gate"]),
        experts("layers.*.moe.experts.w3", &["blocks.*.ffn.experts.gated.up"]),
        experts("layers.*.moe.experts.w2", &["blocks.*.ffn.experts.out"]),
    ],
];
