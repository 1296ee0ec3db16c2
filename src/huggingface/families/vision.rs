//! Encoders of images, and CLIP's text tower.

use super::super::ImportError;
use super::super::init::{base, base_std, normal};
use super::super::names::Axes;
use super::{Keys, Standard, activation};
use crate::architecture::{Activation, Architecture, InitTable, Stem};

/// ViT: patches and a class token.
pub(super) fn vit(keys: &Keys) -> Result<Architecture, ImportError> {
    image_encoder(keys, 3072, 16, 1e-12)
}

/// DINOv2: ViT with LayerScale; its largest has SwiGLU with two thirds of the width, rounded up to eights.
pub(super) fn dinov2(keys: &Keys) -> Result<Architecture, ImportError> {
    let width = keys.size("d_model", &["hidden_size"], 768)?;
    let wide = width * keys.size("d_ff over d_model", &["mlp_ratio"], 4)?;
    let gated = keys.flag("gated", &["use_swiglu_ffn"], false)?;
    let d_ff = if gated { (2 * wide / 3).next_multiple_of(8) } else { wide };
    let plain = image_encoder(keys, d_ff, 14, 1e-6)?;
    // Of what a backbone hands on.
    keys.raw("apply_layernorm");
    Ok(Architecture {
        activation: if gated { Activation::Swiglu } else { plain.activation },
        // The library has no other key for it.
        d_ff: Some(d_ff),
        dropout: 0.0,
        embedding_dropout: Some(plain.dropout),
        drop_path: keys.rate("drop_path", &["drop_path_rate"], 0.0)?,
        branch_scale: Some(keys.number("branch_scale", &["layerscale_value"], 1.0)?),
        layer_scale: true,
        ..plain
    })
}

/// What ViT and DINOv2 have in common but for defaults.
fn image_encoder(keys: &Keys, ffn: usize, patch: usize, eps: f64) -> Result<Architecture, ImportError> {
    let sizes = Standard { layers: 12, width: 768, heads: 12, ffn, vocab: 1, positions: 512 };
    let (patches, stem) = patches(keys, patch, true, false)?;
    Ok(Architecture {
        activation: activation(keys, &["hidden_act"], "gelu", false)?,
        norm_eps: keys.number("norm_eps", &["layer_norm_eps"], eps)?,
        qkv_biases: Some(keys.flag("qkv_biases", &["qkv_bias"], true)?),
        dropout: keys.rate("dropout", &["hidden_dropout_prob"], 0.0)?,
        attention_dropout: keys.rate("attention_dropout", &["attention_probs_dropout_prob"], 0.0)?,
        stem: Some(stem),
        init: Some(base(keys, 0.02)?),
        ..Architecture { seq_len: patches + 1, ..sizes.read(keys)? }
    })
}

/// CLIP's text tower: causal, with a final norm.
pub(super) fn clip_text(keys: &Keys) -> Result<Architecture, ImportError> {
    let sizes = Standard { layers: 12, width: 512, heads: 8, ffn: 2048, vocab: 49408, positions: 77 };
    Ok(Architecture { causal: true, ..clip(keys, sizes)? })
}

/// CLIP's image tower: a norm on the embeddings, none behind the last block.
pub(super) fn clip_vision(keys: &Keys) -> Result<Architecture, ImportError> {
    let sizes = Standard { layers: 12, width: 768, heads: 12, ffn: 3072, vocab: 1, positions: 512 };
    let (patches, stem) = patches(keys, 32, false, true)?;
    let plain = clip(keys, sizes)?;
    Ok(Architecture { seq_len: patches + 1, stem: Some(stem), final_norm: Some(false), ..plain })
}

/// What both towers have in common, and how CLIP draws weights.
fn clip(keys: &Keys, sizes: Standard) -> Result<Architecture, ImportError> {
    let plain = sizes.read(keys)?;
    let factor = keys.number("init factor", &["initializer_factor"], 1.0)?;
    let range = base_std(keys, 0.02)?;
    let width = plain.d_model as f64;
    let depth = (2.0 * plain.n_layers as f64).powf(-0.5);
    let std = |std: f64| normal((std * factor).abs().min(1e6));
    let inner = std(width.powf(-0.5) * depth);
    // Text embeddings do not look at initializer_range.
    let embedding = if keys.family() == "clip_vision_model" { range } else { 0.02 };
    let init = InitTable {
        query: inner,
        key: inner,
        value: inner,
        attention_output: std(width.powf(-0.5)),
        ffn_in: std((2.0 * width).powf(-0.5)),
        ffn_out: inner,
        class_token: std(width.powf(-0.5)),
        ..InitTable::everywhere(std(embedding))
    };
    Ok(Architecture {
        activation: activation(keys, &["hidden_act"], "quick_gelu", false)?,
        norm_eps: keys.number("norm_eps", &["layer_norm_eps"], 1e-5)?,
        dropout: keys.rate("dropout", &["dropout"], 0.0)?,
        attention_dropout: keys.rate("attention_dropout", &["attention_dropout"], 0.0)?,
        init: Some(init),
        ..plain
    })
}

/// Number of patches, and what turns them into tokens.
fn patches(keys: &Keys, patch: usize, bias: bool, norm: bool) -> Result<(usize, Stem), ImportError> {
    let image = keys.size("side of the image", &["image_size"], 224)?;
    let patch = keys.size("side of a patch", &["patch_size"], patch)?;
    let channels = keys.size("channels", &["num_channels"], 3)?;
    let across = image / patch;
    if across == 0 || across > 1024 || patch > 1024 || channels > 1024 {
        let got = serde_json::json!({ "image_size": image, "patch_size": patch, "num_channels": channels });
        return Err(ImportError::value("patch_size", "a side that fits into the image, up to 1024 times", &got, ""));
    }
    keys.axes.set(Axes { patch: Some([channels, patch]), ..keys.axes.get() });
    let stem = Stem::Patches { patch_width: channels * patch * patch, class_token: true, bias, norm };
    Ok((across * across, stem))
}
