//! Decoders with other mixers of tokens than attention.

use super::{Module, Modules, experts, norm, rows, table, taps};

/// LFM2, with and without experts. The map before the convolution has its gate, the gate after it and its values, one
/// below the other.
pub(in crate::huggingface) const LFM2: Modules = &[
    &[
        table("embed_tokens", "embeddings.token"),
        norm("embedding_norm", &["final_norm"]),
        norm("layers.*.operator_norm", &["blocks.*.attention.norm", "blocks.*.convolution.norm"]),
        norm("layers.*.ffn_norm", &["blocks.*.ffn.norm"]),
        rows("layers.*.self_attn.q_proj", &["blocks.*.attention.heads.query"]),
        rows("layers.*.self_attn.k_proj", &["blocks.*.attention.heads.key"]),
        rows("layers.*.self_attn.v_proj", &["blocks.*.attention.heads.value"]),
        rows("layers.*.self_attn.out_proj", &["blocks.*.attention.output"]),
        norm("layers.*.self_attn.q_layernorm", &["blocks.*.attention.heads.query_norm"]),
        norm("layers.*.self_attn.k_layernorm", &["blocks.*.attention.heads.key_norm"]),
        rows("layers.*.conv.in_proj", SHORT_CONVOLUTION),
        taps("layers.*.conv.conv", &["blocks.*.convolution.gated.taps"]),
        rows("layers.*.conv.out_proj", &["blocks.*.convolution.output"]),
        rows("layers.*.feed_forward.w1", &["blocks.*.ffn.gated.gate"]),
        rows("layers.*.feed_forward.w3", &["blocks.*.ffn.gated.up"]),
        rows("layers.*.feed_forward.w2", &["blocks.*.ffn.out"]),
    ],
    LFM2_EXPERTS,
];

const SHORT_CONVOLUTION: &[&str] = &[
    "blocks.*.convolution.gated.input.gate",
    "blocks.*.convolution.gated.gate",
    "blocks.*.convolution.gated.input.value",
];

const LFM2_EXPERTS: &[Module] = &[
    rows("layers.*.feed_forward.gate", &["blocks.*.ffn.experts.router"]),
    rows("layers.*.feed_forward.experts.*.w1", &["blocks.*.ffn.experts.gated.gate"]),
    rows("layers.*.feed_forward.experts.*.w3", &["blocks.*.ffn.experts.gated.up"]),
    rows("layers.*.feed_forward.experts.*.w2", &["blocks.*.ffn.experts.out"]),
    experts(
        "layers.*.feed_forward.experts.gate_up_proj",
        &["blocks.*.ffn.experts.gated.gate", "blocks.*.ffn.experts.gated.up"],
    ),
    experts("layers.*.feed_forward.experts.down_proj", &["blocks.*.ffn.experts.out"]),
];
