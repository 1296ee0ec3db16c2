//! Encoders of images, and CLIP's text tower.

use super::{
    Module, Modules, bare, layer_scale, norm, patches, positions, relative_positions, rows, table, tokens, unbiased,
};
use crate::architecture::Architecture;

pub(in crate::huggingface) const VIT: Modules = &[
    VIT_EMBEDDINGS,
    &[rows("encoder.layer.*.attention.attention.key", &["blocks.*.attention.heads.key"])],
    VIT_STORED,
    &[rows("layers.*.attention.k_proj", &["blocks.*.attention.heads.key"])],
    VIT_LIVE,
];

/// BEiT's keys have no biases, and its relative positions start at zero.
pub(in crate::huggingface) const BEIT: Modules = &[
    VIT_EMBEDDINGS,
    &[
        unbiased("encoder.layer.*.attention.attention.key", &["blocks.*.attention.heads.key"]),
        layer_scale("encoder.layer.*.lambda_1", "blocks.*.attention"),
        layer_scale("encoder.layer.*.lambda_2", "blocks.*.ffn"),
        relative_positions(
            "encoder.layer.*.attention.attention.relative_position_bias.relative_position_bias_table",
            "blocks.*.attention",
        ),
        relative_positions("encoder.relative_position_bias.relative_position_bias_table", "attention"),
    ],
    VIT_STORED,
    &[
        unbiased("layers.*.attention.k_proj", &["blocks.*.attention.heads.key"]),
        layer_scale("layers.*.lambda_1", "blocks.*.attention"),
        layer_scale("layers.*.lambda_2", "blocks.*.ffn"),
        relative_positions("layers.*.relative_position_bias.relative_position_bias_table", "blocks.*.attention"),
        relative_positions("shared_position_bias.relative_position_bias_table", "attention"),
    ],
    VIT_LIVE,
];

const VIT_EMBEDDINGS: &[Module] = &[
    bare("embeddings.cls_token", "embeddings.class_token", 3),
    bare("embeddings.distillation_token", "embeddings.distillation_token", 3),
    bare("embeddings.position_embeddings", "embeddings.position", 3),
    patches("embeddings.patch_embeddings.projection", &["embeddings.patches"]),
    norm("layernorm", &["final_norm"]),
];

const VIT_STORED: &[Module] = &[
    rows("encoder.layer.*.attention.attention.query", &["blocks.*.attention.heads.query"]),
    rows("encoder.layer.*.attention.attention.value", &["blocks.*.attention.heads.value"]),
    rows("encoder.layer.*.attention.output.dense", &["blocks.*.attention.output"]),
    rows("encoder.layer.*.intermediate.dense", &["blocks.*.ffn.in"]),
    rows("encoder.layer.*.output.dense", &["blocks.*.ffn.out"]),
    norm("encoder.layer.*.layernorm_before", &["blocks.*.attention.norm"]),
    norm("encoder.layer.*.layernorm_after", &["blocks.*.ffn.norm"]),
];

/// The names of modules in a model of release 5. Its checkpoints have the other names.
const VIT_LIVE: &[Module] = &[
    rows("layers.*.attention.q_proj", &["blocks.*.attention.heads.query"]),
    rows("layers.*.attention.v_proj", &["blocks.*.attention.heads.value"]),
    rows("layers.*.attention.o_proj", &["blocks.*.attention.output"]),
    rows("layers.*.mlp.fc1", &["blocks.*.ffn.in"]),
    rows("layers.*.mlp.fc2", &["blocks.*.ffn.out"]),
    norm("layers.*.layernorm_before", &["blocks.*.attention.norm"]),
    norm("layers.*.layernorm_after", &["blocks.*.ffn.norm"]),
];

/// Returns the modules of DINOv2; SwiGLU has names of its own.
pub(in crate::huggingface) fn dinov2(architecture: &Architecture) -> Modules {
    const PLAIN: Modules = &[DINOV2_BOTH, DINOV2_PLAIN, DINOV2_STORED, DINOV2_LIVE];
    const GATED: Modules = &[DINOV2_BOTH, DINOV2_STORED, DINOV2_GATED_STORED, DINOV2_LIVE, DINOV2_GATED_LIVE];
    if architecture.activation.is_gated() { GATED } else { PLAIN }
}

const DINOV2_PLAIN: &[Module] =
    &[rows("encoder.layer.*.mlp.fc1", &["blocks.*.ffn.in"]), rows("encoder.layer.*.mlp.fc2", &["blocks.*.ffn.out"])];

const DINOV2_GATED_STORED: &[Module] = &[
    rows("encoder.layer.*.mlp.weights_in", &["blocks.*.ffn.gated.gate", "blocks.*.ffn.gated.up"]),
    rows("encoder.layer.*.mlp.weights_out", &["blocks.*.ffn.out"]),
];

const DINOV2_GATED_LIVE: &[Module] = &[
    rows("encoder.layer.*.mlp.gate_proj", &["blocks.*.ffn.gated.gate"]),
    rows("encoder.layer.*.mlp.up_proj", &["blocks.*.ffn.gated.up"]),
    rows("encoder.layer.*.mlp.down_proj", &["blocks.*.ffn.out"]),
];

const DINOV2_BOTH: &[Module] = &[
    bare("embeddings.cls_token", "embeddings.class_token", 3),
    bare("embeddings.position_embeddings", "embeddings.position", 3),
    patches("embeddings.patch_embeddings.projection", &["embeddings.patches"]),
    norm("encoder.layer.*.norm1", &["blocks.*.attention.norm"]),
    layer_scale("encoder.layer.*.layer_scale1.lambda1", "blocks.*.attention"),
    norm("encoder.layer.*.norm2", &["blocks.*.ffn.norm"]),
    layer_scale("encoder.layer.*.layer_scale2.lambda1", "blocks.*.ffn"),
    norm("layernorm", &["final_norm"]),
];

const DINOV2_STORED: &[Module] = &[
    rows("encoder.layer.*.attention.attention.query", &["blocks.*.attention.heads.query"]),
    rows("encoder.layer.*.attention.attention.key", &["blocks.*.attention.heads.key"]),
    rows("encoder.layer.*.attention.attention.value", &["blocks.*.attention.heads.value"]),
    rows("encoder.layer.*.attention.output.dense", &["blocks.*.attention.output"]),
];

const DINOV2_LIVE: &[Module] = &[
    rows("encoder.layer.*.attention.q_proj", &["blocks.*.attention.heads.query"]),
    rows("encoder.layer.*.attention.k_proj", &["blocks.*.attention.heads.key"]),
    rows("encoder.layer.*.attention.v_proj", &["blocks.*.attention.heads.value"]),
    rows("encoder.layer.*.attention.o_proj", &["blocks.*.attention.output"]),
];

/// Returns the modules of DINOv3. Its keys have no biases.
pub(in crate::huggingface) fn dinov3(architecture: &Architecture) -> Modules {
    const PLAIN: Modules = &[DINOV3_STORED, DINOV3_PLAIN_STORED, DINOV3_LIVE, DINOV3_PLAIN_LIVE];
    const GATED: Modules = &[DINOV3_STORED, DINOV3_GATED_STORED, DINOV3_LIVE, DINOV3_GATED_LIVE];
    if architecture.activation.is_gated() { GATED } else { PLAIN }
}

const DINOV3_STORED: &[Module] = &[
    bare("embeddings.cls_token", "embeddings.class_token", 3),
    tokens("embeddings.register_tokens", "embeddings.register_"),
    patches("embeddings.patch_embeddings", &["embeddings.patches"]),
    norm("layer.*.norm1", &["blocks.*.attention.norm"]),
    rows("layer.*.attention.q_proj", &["blocks.*.attention.heads.query"]),
    unbiased("layer.*.attention.k_proj", &["blocks.*.attention.heads.key"]),
    rows("layer.*.attention.v_proj", &["blocks.*.attention.heads.value"]),
    rows("layer.*.attention.o_proj", &["blocks.*.attention.output"]),
    layer_scale("layer.*.layer_scale1.lambda1", "blocks.*.attention"),
    norm("layer.*.norm2", &["blocks.*.ffn.norm"]),
    layer_scale("layer.*.layer_scale2.lambda1", "blocks.*.ffn"),
    norm("norm", &["final_norm"]),
];

const DINOV3_PLAIN_STORED: &[Module] =
    &[rows("layer.*.mlp.up_proj", &["blocks.*.ffn.in"]), rows("layer.*.mlp.down_proj", &["blocks.*.ffn.out"])];

const DINOV3_GATED_STORED: &[Module] = &[
    rows("layer.*.mlp.gate_proj", &["blocks.*.ffn.gated.gate"]),
    rows("layer.*.mlp.up_proj", &["blocks.*.ffn.gated.up"]),
    rows("layer.*.mlp.down_proj", &["blocks.*.ffn.out"]),
];

const DINOV3_LIVE: &[Module] = &[
    norm("model.layer.*.norm1", &["blocks.*.attention.norm"]),
    rows("model.layer.*.attention.q_proj", &["blocks.*.attention.heads.query"]),
    unbiased("model.layer.*.attention.k_proj", &["blocks.*.attention.heads.key"]),
    rows("model.layer.*.attention.v_proj", &["blocks.*.attention.heads.value"]),
    rows("model.layer.*.attention.o_proj", &["blocks.*.attention.output"]),
    layer_scale("model.layer.*.layer_scale1.lambda1", "blocks.*.attention"),
    norm("model.layer.*.norm2", &["blocks.*.ffn.norm"]),
    layer_scale("model.layer.*.layer_scale2.lambda1", "blocks.*.ffn"),
];

const DINOV3_PLAIN_LIVE: &[Module] = &[
    rows("model.layer.*.mlp.up_proj", &["blocks.*.ffn.in"]),
    rows("model.layer.*.mlp.down_proj", &["blocks.*.ffn.out"]),
];

const DINOV3_GATED_LIVE: &[Module] = &[
    rows("model.layer.*.mlp.gate_proj", &["blocks.*.ffn.gated.gate"]),
    rows("model.layer.*.mlp.up_proj", &["blocks.*.ffn.gated.up"]),
    rows("model.layer.*.mlp.down_proj", &["blocks.*.ffn.out"]),
];

const LAYERS: &[Module] = &[
    rows("encoder.layers.*.self_attn.q_proj", &["blocks.*.attention.heads.query"]),
    rows("encoder.layers.*.self_attn.k_proj", &["blocks.*.attention.heads.key"]),
    rows("encoder.layers.*.self_attn.v_proj", &["blocks.*.attention.heads.value"]),
    rows("encoder.layers.*.self_attn.out_proj", &["blocks.*.attention.output"]),
    rows("encoder.layers.*.mlp.fc1", &["blocks.*.ffn.in"]),
    rows("encoder.layers.*.mlp.fc2", &["blocks.*.ffn.out"]),
    norm("encoder.layers.*.layer_norm1", &["blocks.*.attention.norm"]),
    norm("encoder.layers.*.layer_norm2", &["blocks.*.ffn.norm"]),
];

pub(in crate::huggingface) const CLIP_TEXT: Modules = &[
    LAYERS,
    &[
        table("embeddings.token_embedding", "embeddings.token"),
        positions("embeddings.position_embedding", "embeddings.position", 0),
        norm("final_layer_norm", &["final_norm"]),
    ],
];

/// The library's spelling is `pre_layrnorm`. The norm after its last block acts on the class token alone.
pub(in crate::huggingface) const CLIP_VISION: Modules = &[
    LAYERS,
    &[
        bare("embeddings.class_embedding", "embeddings.class_token", 1),
        table("embeddings.position_embedding", "embeddings.position"),
        patches("embeddings.patch_embedding", &["embeddings.patches"]),
        norm("pre_layrnorm", &["embeddings.norm"]),
    ],
];

/// The stream does not include the attention head that pools the output of the last block.
pub(in crate::huggingface) const SIGLIP_VISION: Modules = &[
    LAYERS,
    &[
        table("embeddings.position_embedding", "embeddings.position"),
        patches("embeddings.patch_embedding", &["embeddings.patches"]),
        norm("post_layernorm", &["final_norm"]),
    ],
];

/// SigLIP 2's patches are flattened before the stem.
pub(in crate::huggingface) const SIGLIP2_VISION: Modules = &[
    LAYERS,
    &[
        table("embeddings.position_embedding", "embeddings.position"),
        rows("embeddings.patch_embedding", &["embeddings.patches"]),
        norm("post_layernorm", &["final_norm"]),
    ],
];
