//! `torch.nn.TransformerEncoder`, `TransformerDecoder` and `Transformer`. Queries, keys and values are one parameter,
//! `in_proj_weight`, without a module of its own. Norms before and after branches have the same names.

use super::{Module, Modules, QKV, norm, rows, underscored};

/// The modules of an encoder, or of a decoder without memory.
pub(super) const ENCODER: Modules = &[&[
    underscored("layers.*.self_attn.in_proj", QKV),
    rows("layers.*.self_attn.out_proj", &["blocks.*.attention.output"]),
    rows("layers.*.linear1", &["blocks.*.ffn.in"]),
    rows("layers.*.linear2", &["blocks.*.ffn.out"]),
    norm("layers.*.norm1", &["blocks.*.attention.norm", "blocks.*.attention_norm"]),
    norm("layers.*.norm2", &["blocks.*.ffn.norm", "blocks.*.ffn_norm"]),
    norm("norm", &["final_norm"]),
]];

/// The decoder of an encoder–decoder whose encoder is elsewhere.
pub(super) const DECODER: Modules = &[&[
    underscored("layers.*.self_attn.in_proj", SELF),
    rows("layers.*.self_attn.out_proj", &["decoder.blocks.*.attention.output"]),
    underscored("layers.*.multihead_attn.in_proj", CROSS),
    rows("layers.*.multihead_attn.out_proj", &["decoder.blocks.*.cross_attention.output"]),
    rows("layers.*.linear1", &["decoder.blocks.*.ffn.in"]),
    rows("layers.*.linear2", &["decoder.blocks.*.ffn.out"]),
    norm("layers.*.norm1", SELF_NORM),
    norm("layers.*.norm2", CROSS_NORM),
    norm("layers.*.norm3", FFN_NORM),
    norm("norm", &["decoder.final_norm"]),
]];

pub(super) const BOTH: Modules = &[ENCODER_SIDE, DECODER_SIDE];

const ENCODER_SIDE: &[Module] = &[
    underscored(
        "encoder.layers.*.self_attn.in_proj",
        &[
            "encoder.blocks.*.attention.heads.query",
            "encoder.blocks.*.attention.heads.key",
            "encoder.blocks.*.attention.heads.value",
        ],
    ),
    rows("encoder.layers.*.self_attn.out_proj", &["encoder.blocks.*.attention.output"]),
    rows("encoder.layers.*.linear1", &["encoder.blocks.*.ffn.in"]),
    rows("encoder.layers.*.linear2", &["encoder.blocks.*.ffn.out"]),
    norm("encoder.layers.*.norm1", &["encoder.blocks.*.attention.norm", "encoder.blocks.*.attention_norm"]),
    norm("encoder.layers.*.norm2", &["encoder.blocks.*.ffn.norm", "encoder.blocks.*.ffn_norm"]),
    norm("encoder.norm", &["encoder.final_norm"]),
];

const DECODER_SIDE: &[Module] = &[
    underscored("decoder.layers.*.self_attn.in_proj", SELF),
    rows("decoder.layers.*.self_attn.out_proj", &["decoder.blocks.*.attention.output"]),
    underscored("decoder.layers.*.multihead_attn.in_proj", CROSS),
    rows("decoder.layers.*.multihead_attn.out_proj", &["decoder.blocks.*.cross_attention.output"]),
    rows("decoder.layers.*.linear1", &["decoder.blocks.*.ffn.in"]),
    rows("decoder.layers.*.linear2", &["decoder.blocks.*.ffn.out"]),
    norm("decoder.layers.*.norm1", SELF_NORM),
    norm("decoder.layers.*.norm2", CROSS_NORM),
    norm("decoder.layers.*.norm3", FFN_NORM),
    norm("decoder.norm", &["decoder.final_norm"]),
];

const SELF: &[&str] = &[
    "decoder.blocks.*.attention.heads.query",
    "decoder.blocks.*.attention.heads.key",
    "decoder.blocks.*.attention.heads.value",
];

const CROSS: &[&str] = &[
    "decoder.blocks.*.cross_attention.heads.query",
    "decoder.blocks.*.cross_attention.heads.key",
    "decoder.blocks.*.cross_attention.heads.value",
];

const SELF_NORM: &[&str] = &["decoder.blocks.*.attention.norm", "decoder.blocks.*.attention_norm"];
const CROSS_NORM: &[&str] = &["decoder.blocks.*.cross_attention.norm", "decoder.blocks.*.cross_attention_norm"];
const FFN_NORM: &[&str] = &["decoder.blocks.*.ffn.norm", "decoder.blocks.*.ffn_norm"];
