//! timm's vision transformers, and Meta's DINOv2, which has their names.

use super::{Modules, QKV, bare, layer_scale, norm, patches, rows};

pub(super) const TIMM: Modules = &[&[
    bare("cls_token", "embeddings.class_token", 3),
    bare("pos_embed", "embeddings.position", 3),
    patches("patch_embed.proj", &["embeddings.patches"]),
    norm("norm_pre", &["embeddings.norm"]),
    norm("blocks.*.norm1", &["blocks.*.attention.norm"]),
    rows("blocks.*.attn.qkv", QKV),
    norm("blocks.*.attn.q_norm", &["blocks.*.attention.heads.query_norm"]),
    norm("blocks.*.attn.k_norm", &["blocks.*.attention.heads.key_norm"]),
    rows("blocks.*.attn.proj", &["blocks.*.attention.output"]),
    layer_scale("blocks.*.ls1.gamma", "blocks.*.attention"),
    norm("blocks.*.norm2", &["blocks.*.ffn.norm"]),
    rows("blocks.*.mlp.fc1", &["blocks.*.ffn.in"]),
    rows("blocks.*.mlp.fc2", &["blocks.*.ffn.out"]),
    layer_scale("blocks.*.ls2.gamma", "blocks.*.ffn"),
    norm("norm", &["final_norm"]),
    // SwiGLU: gate and up in one matrix, in two, and under DINOv2's names.
    rows("blocks.*.mlp.fc1", &["blocks.*.ffn.gated.gate", "blocks.*.ffn.gated.up"]),
    rows("blocks.*.mlp.fc1_g", &["blocks.*.ffn.gated.gate"]),
    rows("blocks.*.mlp.fc1_x", &["blocks.*.ffn.gated.up"]),
    rows("blocks.*.mlp.w12", &["blocks.*.ffn.gated.gate", "blocks.*.ffn.gated.up"]),
    rows("blocks.*.mlp.w3", &["blocks.*.ffn.out"]),
]];
