//! Encoder–decoders.

use super::{Module, Modules, centred_norm, frames, norm, positions, rows, table, unbiased};
use crate::architecture::Architecture;

/// The table of embeddings has three names.
pub(in crate::huggingface) const T5: Modules = &[&[
    table("shared", "encoder.embeddings.token"),
    table("encoder.embed_tokens", "encoder.embeddings.token"),
    table("decoder.embed_tokens", "encoder.embeddings.token"),
    table("encoder.block.0.layer.0.SelfAttention.relative_attention_bias", "encoder.relative_bias"),
    table(
        "encoder.block.*.layer.0.SelfAttention.relative_attention_bias",
        "encoder.blocks.*.attention.heads.relative_bias",
    ),
    rows("encoder.block.*.layer.0.SelfAttention.q", &["encoder.blocks.*.attention.heads.query"]),
    rows("encoder.block.*.layer.0.SelfAttention.k", &["encoder.blocks.*.attention.heads.key"]),
    rows("encoder.block.*.layer.0.SelfAttention.v", &["encoder.blocks.*.attention.heads.value"]),
    rows("encoder.block.*.layer.0.SelfAttention.o", &["encoder.blocks.*.attention.output"]),
    norm("encoder.block.*.layer.0.layer_norm", &["encoder.blocks.*.attention.norm"]),
    rows("encoder.block.*.layer.1.DenseReluDense.wi", &["encoder.blocks.*.ffn.in"]),
    rows("encoder.block.*.layer.1.DenseReluDense.wi_0", &["encoder.blocks.*.ffn.gated.gate"]),
    rows("encoder.block.*.layer.1.DenseReluDense.wi_1", &["encoder.blocks.*.ffn.gated.up"]),
    rows("encoder.block.*.layer.1.DenseReluDense.wo", &["encoder.blocks.*.ffn.out"]),
    norm("encoder.block.*.layer.1.layer_norm", &["encoder.blocks.*.ffn.norm"]),
    norm("encoder.final_layer_norm", &["encoder.final_norm"]),
    table("decoder.block.0.layer.0.SelfAttention.relative_attention_bias", "decoder.relative_bias"),
    table(
        "decoder.block.*.layer.0.SelfAttention.relative_attention_bias",
        "decoder.blocks.*.attention.heads.relative_bias",
    ),
    rows("decoder.block.*.layer.0.SelfAttention.q", &["decoder.blocks.*.attention.heads.query"]),
    rows("decoder.block.*.layer.0.SelfAttention.k", &["decoder.blocks.*.attention.heads.key"]),
    rows("decoder.block.*.layer.0.SelfAttention.v", &["decoder.blocks.*.attention.heads.value"]),
    rows("decoder.block.*.layer.0.SelfAttention.o", &["decoder.blocks.*.attention.output"]),
    norm("decoder.block.*.layer.0.layer_norm", &["decoder.blocks.*.attention.norm"]),
    rows("decoder.block.*.layer.1.EncDecAttention.q", &["decoder.blocks.*.cross_attention.heads.query"]),
    rows("decoder.block.*.layer.1.EncDecAttention.k", &["decoder.blocks.*.cross_attention.heads.key"]),
    rows("decoder.block.*.layer.1.EncDecAttention.v", &["decoder.blocks.*.cross_attention.heads.value"]),
    rows("decoder.block.*.layer.1.EncDecAttention.o", &["decoder.blocks.*.cross_attention.output"]),
    norm("decoder.block.*.layer.1.layer_norm", &["decoder.blocks.*.cross_attention.norm"]),
    rows("decoder.block.*.layer.2.DenseReluDense.wi", &["decoder.blocks.*.ffn.in"]),
    rows("decoder.block.*.layer.2.DenseReluDense.wi_0", &["decoder.blocks.*.ffn.gated.gate"]),
    rows("decoder.block.*.layer.2.DenseReluDense.wi_1", &["decoder.blocks.*.ffn.gated.up"]),
    rows("decoder.block.*.layer.2.DenseReluDense.wo", &["decoder.blocks.*.ffn.out"]),
    norm("decoder.block.*.layer.2.layer_norm", &["decoder.blocks.*.ffn.norm"]),
    norm("decoder.final_layer_norm", &["decoder.final_norm"]),
]];

/// The norms store the gain minus 1.
pub(in crate::huggingface) const T5GEMMA: Modules = &[&[
    table("encoder.embed_tokens", "encoder.embeddings.token"),
    rows("encoder.layers.*.self_attn.q_proj", &["encoder.blocks.*.attention.heads.query"]),
    rows("encoder.layers.*.self_attn.k_proj", &["encoder.blocks.*.attention.heads.key"]),
    rows("encoder.layers.*.self_attn.v_proj", &["encoder.blocks.*.attention.heads.value"]),
    rows("encoder.layers.*.self_attn.o_proj", &["encoder.blocks.*.attention.output"]),
    centred_norm("encoder.layers.*.pre_self_attn_layernorm", &["encoder.blocks.*.attention.norm"]),
    centred_norm("encoder.layers.*.post_self_attn_layernorm", &["encoder.blocks.*.attention.output_norm"]),
    rows("encoder.layers.*.mlp.gate_proj", &["encoder.blocks.*.ffn.gated.gate"]),
    rows("encoder.layers.*.mlp.up_proj", &["encoder.blocks.*.ffn.gated.up"]),
    rows("encoder.layers.*.mlp.down_proj", &["encoder.blocks.*.ffn.out"]),
    centred_norm("encoder.layers.*.pre_feedforward_layernorm", &["encoder.blocks.*.ffn.norm"]),
    centred_norm("encoder.layers.*.post_feedforward_layernorm", &["encoder.blocks.*.ffn.output_norm"]),
    centred_norm("encoder.norm", &["encoder.final_norm"]),
    table("decoder.embed_tokens", "decoder.embeddings.token"),
    rows("decoder.layers.*.self_attn.q_proj", &["decoder.blocks.*.attention.heads.query"]),
    rows("decoder.layers.*.self_attn.k_proj", &["decoder.blocks.*.attention.heads.key"]),
    rows("decoder.layers.*.self_attn.v_proj", &["decoder.blocks.*.attention.heads.value"]),
    rows("decoder.layers.*.self_attn.o_proj", &["decoder.blocks.*.attention.output"]),
    centred_norm("decoder.layers.*.pre_self_attn_layernorm", &["decoder.blocks.*.attention.norm"]),
    centred_norm("decoder.layers.*.post_self_attn_layernorm", &["decoder.blocks.*.attention.output_norm"]),
    rows("decoder.layers.*.cross_attn.q_proj", &["decoder.blocks.*.cross_attention.heads.query"]),
    rows("decoder.layers.*.cross_attn.k_proj", &["decoder.blocks.*.cross_attention.heads.key"]),
    rows("decoder.layers.*.cross_attn.v_proj", &["decoder.blocks.*.cross_attention.heads.value"]),
    rows("decoder.layers.*.cross_attn.o_proj", &["decoder.blocks.*.cross_attention.output"]),
    centred_norm("decoder.layers.*.pre_cross_attn_layernorm", &["decoder.blocks.*.cross_attention.norm"]),
    centred_norm("decoder.layers.*.post_cross_attn_layernorm", &["decoder.blocks.*.cross_attention.output_norm"]),
    rows("decoder.layers.*.mlp.gate_proj", &["decoder.blocks.*.ffn.gated.gate"]),
    rows("decoder.layers.*.mlp.up_proj", &["decoder.blocks.*.ffn.gated.up"]),
    rows("decoder.layers.*.mlp.down_proj", &["decoder.blocks.*.ffn.out"]),
    centred_norm("decoder.layers.*.pre_feedforward_layernorm", &["decoder.blocks.*.ffn.norm"]),
    centred_norm("decoder.layers.*.post_feedforward_layernorm", &["decoder.blocks.*.ffn.output_norm"]),
    centred_norm("decoder.norm", &["decoder.final_norm"]),
]];

/// Modules that BART and Whisper share, without key projections.
const LAYERS: &[Module] = &[
    rows("encoder.layers.*.self_attn.q_proj", &["encoder.blocks.*.attention.heads.query"]),
    rows("encoder.layers.*.self_attn.v_proj", &["encoder.blocks.*.attention.heads.value"]),
    rows("encoder.layers.*.self_attn.out_proj", &["encoder.blocks.*.attention.output"]),
    norm(
        "encoder.layers.*.self_attn_layer_norm",
        &["encoder.blocks.*.attention.norm", "encoder.blocks.*.attention_norm"],
    ),
    rows("encoder.layers.*.fc1", &["encoder.blocks.*.ffn.in"]),
    rows("encoder.layers.*.fc2", &["encoder.blocks.*.ffn.out"]),
    norm("encoder.layers.*.final_layer_norm", &["encoder.blocks.*.ffn.norm", "encoder.blocks.*.ffn_norm"]),
    norm("encoder.layer_norm", &["encoder.final_norm"]),
    rows("decoder.layers.*.self_attn.q_proj", &["decoder.blocks.*.attention.heads.query"]),
    rows("decoder.layers.*.self_attn.v_proj", &["decoder.blocks.*.attention.heads.value"]),
    rows("decoder.layers.*.self_attn.out_proj", &["decoder.blocks.*.attention.output"]),
    norm(
        "decoder.layers.*.self_attn_layer_norm",
        &["decoder.blocks.*.attention.norm", "decoder.blocks.*.attention_norm"],
    ),
    rows("decoder.layers.*.encoder_attn.q_proj", &["decoder.blocks.*.cross_attention.heads.query"]),
    rows("decoder.layers.*.encoder_attn.v_proj", &["decoder.blocks.*.cross_attention.heads.value"]),
    rows("decoder.layers.*.encoder_attn.out_proj", &["decoder.blocks.*.cross_attention.output"]),
    norm(
        "decoder.layers.*.encoder_attn_layer_norm",
        &["decoder.blocks.*.cross_attention.norm", "decoder.blocks.*.cross_attention_norm"],
    ),
    rows("decoder.layers.*.fc1", &["decoder.blocks.*.ffn.in"]),
    rows("decoder.layers.*.fc2", &["decoder.blocks.*.ffn.out"]),
    norm("decoder.layers.*.final_layer_norm", &["decoder.blocks.*.ffn.norm", "decoder.blocks.*.ffn_norm"]),
    norm("decoder.layer_norm", &["decoder.final_norm"]),
];

/// Positions 0 and 1 of the tables are never used.
pub(in crate::huggingface) const BART: Modules = &[
    LAYERS,
    KEYS,
    SHARED,
    &[
        positions("encoder.embed_positions", "encoder.embeddings.position", 2),
        positions("decoder.embed_positions", "decoder.embeddings.position", 2),
        norm("encoder.layernorm_embedding", &["encoder.embeddings.norm"]),
        norm("decoder.layernorm_embedding", &["decoder.embeddings.norm"]),
    ],
];

pub(in crate::huggingface) const BLENDERBOT: Modules = &[
    LAYERS,
    KEYS,
    SHARED,
    &[
        positions("encoder.embed_positions", "encoder.embeddings.position", 0),
        positions("decoder.embed_positions", "decoder.embeddings.position", 0),
    ],
];

/// Returns the modules of Marian, with one table of embeddings or one for each language.
pub(in crate::huggingface) fn marian(architecture: &Architecture) -> Modules {
    const APART: Modules = &[
        LAYERS,
        KEYS,
        &[
            table("encoder.embed_tokens", "encoder.embeddings.token"),
            table("decoder.embed_tokens", "decoder.embeddings.token"),
        ],
    ];
    if architecture.shared_embedding { BART } else { APART }
}

/// One table of embeddings under three names.
const SHARED: &[Module] = &[
    table("shared", "encoder.embeddings.token"),
    table("encoder.embed_tokens", "encoder.embeddings.token"),
    table("decoder.embed_tokens", "encoder.embeddings.token"),
];

const KEYS: &[Module] = &[
    rows("encoder.layers.*.self_attn.k_proj", &["encoder.blocks.*.attention.heads.key"]),
    rows("decoder.layers.*.self_attn.k_proj", &["decoder.blocks.*.attention.heads.key"]),
    rows("decoder.layers.*.encoder_attn.k_proj", &["decoder.blocks.*.cross_attention.heads.key"]),
];

/// Whisper: key projections have no biases.
pub(in crate::huggingface) const WHISPER: Modules = &[
    LAYERS,
    &[
        frames("encoder.conv1", &["encoder.embeddings.conv1"]),
        frames("encoder.conv2", &["encoder.embeddings.conv2"]),
        table("decoder.embed_tokens", "decoder.embeddings.token"),
        positions("decoder.embed_positions", "decoder.embeddings.position", 0),
        unbiased("encoder.layers.*.self_attn.k_proj", &["encoder.blocks.*.attention.heads.key"]),
        unbiased("decoder.layers.*.self_attn.k_proj", &["decoder.blocks.*.attention.heads.key"]),
        unbiased("decoder.layers.*.encoder_attn.k_proj", &["decoder.blocks.*.cross_attention.heads.key"]),
    ],
];
