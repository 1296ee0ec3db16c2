//! Encoders of images, and CLIP's text tower.

use sigprop_stack::Init;

use super::super::init::{base, base_std, normal};
use super::super::names::Axes;
use super::super::{ImportError, Version};
use super::{Keys, Standard, WIDTH, activation};
use crate::architecture::{Activation, Architecture, DropPathSchedule, InitTable, Positions, Stem};

/// ViT: patches and a class token. I-JEPA has no class token.
pub(super) fn vit(keys: &Keys) -> Result<Architecture, ImportError> {
    image_encoder(keys, 3072, 16, 1e-12)
}

/// ViT-MAE's encoder, with all patches: training hides most of them. Class token and positions start at zero; releases
/// before 5 sampled them.
pub(super) fn vit_mae(keys: &Keys) -> Result<Architecture, ImportError> {
    let plain = image_encoder(keys, 3072, 16, 1e-12)?;
    let hidden = keys.number("share of hidden patches", &["mask_ratio"], 0.75)?;
    keys.note("tokens", plain.seq_len, format!("all patches and the class token, in place of {}", 1.0 - hidden));
    Ok(zero_tokens(plain))
}

/// MSN: ViT whose class token and positions start at zero.
pub(super) fn vit_msn(keys: &Keys) -> Result<Architecture, ImportError> {
    Ok(zero_tokens(image_encoder(keys, 3072, 16, 1e-6)?))
}

/// DeiT: ViT with a distillation token; class token, distillation token and positions start at zero.
pub(super) fn deit(keys: &Keys) -> Result<Architecture, ImportError> {
    Ok(zero_tokens(image_encoder(keys, 3072, 16, 1e-12)?))
}

/// BEiT: ViT with LayerScale and without biases of keys. Class token, positions and relative positions start at zero.
pub(super) fn beit(keys: &Keys) -> Result<Architecture, ImportError> {
    let plain = zero_tokens(image_encoder(keys, 3072, 16, 1e-12)?);
    let absolute = keys.flag("learned positions", &["use_absolute_position_embeddings"], false)?;
    relative_positions(keys, &plain)?;
    keys.same(&["use_mask_token", "pool_scales"]);
    let scale = keys.number("branch_scale", &["layer_scale_init_value"], 0.1)?;
    Ok(Architecture {
        positions: if absolute { Positions::Learned } else { Positions::None },
        final_norm: Some(!keys.flag("mean of the patches", &["use_mean_pooling"], true)?),
        drop_path: keys.rate("drop_path", &["drop_path_rate"], 0.1)?,
        drop_path_schedule: DropPathSchedule::Linear,
        branch_scale: Some(if scale > 0.0 { scale } else { 1.0 }),
        layer_scale: scale > 0.0,
        ..plain
    })
}

/// Reads the shapes of the tables of relative positions. A table has entries for the offsets of two patches, and for
/// pairs with the class token: patch and class token, class token and patch, class token and itself.
fn relative_positions(keys: &Keys, architecture: &Architecture) -> Result<(), ImportError> {
    let across = (architecture.seq_len - 1).isqrt();
    let table = [(2 * across).saturating_sub(1).pow(2) + 3, architecture.n_heads.unwrap_or(1)];
    let own = keys.flag("relative positions", &["use_relative_position_bias"], false)?;
    let shared = keys.flag("shared relative positions", &["use_shared_relative_position_bias"], false)?;
    let (relative_positions, shared_relative_positions) = (own.then_some(table), shared.then_some(table));
    keys.axes.set(Axes { relative_positions, shared_relative_positions, ..keys.axes.get() });
    Ok(())
}

/// Returns the architecture with class token and positions that start at zero.
fn zero_tokens(architecture: Architecture) -> Architecture {
    let init = architecture.hf_init.map(|init| InitTable { class_token: Init::Zero, position: Init::Zero, ..init });
    Architecture { hf_init: init, ..architecture }
}

/// DINOv2: ViT with LayerScale. The largest model has SwiGLU with two thirds of the width, rounded up to a multiple of
/// eight.
pub(super) fn dinov2(keys: &Keys) -> Result<Architecture, ImportError> {
    let width = keys.unnoted_size(WIDTH, 768)?;
    let wide = width * keys.size("d_ff over d_model", &["mlp_ratio"], 4)?;
    let gated = keys.flag("gated", &["use_swiglu_ffn"], false)?;
    let d_ff = if gated { (2 * wide / 3).next_multiple_of(8) } else { wide };
    let plain = image_encoder(keys, d_ff, 14, 1e-6)?;
    // The key concerns only the output of a model that is used as a backbone.
    keys.raw("apply_layernorm");
    Ok(Architecture {
        activation: if gated { Activation::Swiglu } else { plain.activation },
        // No key of the config sets this width directly.
        d_ff: Some(d_ff),
        dropout: 0.0,
        embedding_dropout: Some(plain.dropout),
        drop_path: keys.rate("drop_path", &["drop_path_rate"], 0.0)?,
        branch_scale: Some(keys.number("branch_scale", &["layerscale_value"], 1.0)?),
        layer_scale: true,
        ..plain
    })
}

/// DINOv3: DINOv2 with registers, and with rotations in place of learned positions.
pub(super) fn dinov3(keys: &Keys) -> Result<Architecture, ImportError> {
    let sizes = Standard { layers: 12, width: 384, heads: 6, ffn: 1536, vocab: 1, positions: 512 };
    let (patches, patch_width) = patches(keys, 16)?;
    let registers = keys.count("registers", &["num_register_tokens"], 0)?;
    let gated = keys.flag("gated", &["use_gated_mlp"], false)?;
    let biases = [("query_bias", true), ("key_bias", false), ("value_bias", true)];
    let [query, key, value] = biases.map(|(name, default)| keys.flag(name, &[name], default));
    let (query, key, value) = (query?, key?, value?);
    if key || query != value {
        let got = serde_json::json!({ "query_bias": query, "key_bias": key, "value_bias": value });
        let expected = "biases of queries and values, or none, and no biases of keys";
        return Err(ImportError::value("key_bias", expected, &got, ""));
    }
    let theta = keys.number("rotary_base", &["rope_theta"], 100.0)?;
    keys.warn(format!(
        "rope_theta = {theta}: queries and keys of patches are rotated by row and column; the prediction leaves this out, \
         which changes attention only as far as patches are correlated"
    ));
    // Keys of other encoders of images, and of the augmentation of places in training.
    keys.same(&["hidden_dropout_prob", "attention_probs_dropout_prob", "qkv_bias", "pos_embed_rescale"]);
    keys.same(&["apply_layernorm"]);
    let stem =
        Stem::Patches { patch_width, class_token: true, distillation_token: false, registers, bias: true, norm: false };
    Ok(Architecture {
        seq_len: 1 + registers + patches,
        activation: activation(keys, &["hidden_act"], "gelu", gated)?,
        norm_eps: keys.number("norm_eps", &["layer_norm_eps"], 1e-5)?,
        qkv_biases: Some(value),
        attention_output_bias: Some(keys.flag("attention_output_bias", &["proj_bias"], true)?),
        ffn_biases: Some(keys.flag("ffn_biases", &["mlp_bias"], true)?),
        positions: Positions::None,
        attention_dropout: keys.rate("attention_dropout", &["attention_dropout"], 0.0)?,
        drop_path: keys.rate("drop_path", &["drop_path_rate"], 0.0)?,
        branch_scale: Some(keys.number("branch_scale", &["layerscale_value"], 1.0)?),
        layer_scale: true,
        stem: Some(stem),
        hf_init: Some(base(keys, 0.02)?),
        ..sizes.read(keys)?
    })
}

/// Reads the properties that ViT and its descendants share, with the given defaults.
fn image_encoder(keys: &Keys, ffn: usize, patch: usize, eps: f64) -> Result<Architecture, ImportError> {
    let sizes = Standard { layers: 12, width: 768, heads: 12, ffn, vocab: 1, positions: 512 };
    let (patches, patch_width) = patches(keys, patch)?;
    let (class_token, distillation_token) = (keys.family() != "ijepa", keys.family() == "deit");
    Ok(Architecture {
        activation: activation(keys, &["hidden_act"], "gelu", false)?,
        norm_eps: keys.number("norm_eps", &["layer_norm_eps"], eps)?,
        qkv_biases: Some(keys.flag("qkv_biases", &["qkv_bias"], true)?),
        dropout: keys.rate("dropout", &["hidden_dropout_prob"], 0.0)?,
        attention_dropout: keys.rate("attention_dropout", &["attention_probs_dropout_prob"], 0.0)?,
        stem: Some(Stem::Patches {
            patch_width,
            class_token,
            distillation_token,
            registers: 0,
            bias: true,
            norm: false,
        }),
        hf_init: Some(base(keys, 0.02)?),
        ..Architecture {
            seq_len: patches + usize::from(class_token) + usize::from(distillation_token),
            ..sizes.read(keys)?
        }
    })
}

/// CLIP's text tower: causal, with a final norm.
pub(super) fn clip_text(keys: &Keys) -> Result<Architecture, ImportError> {
    let sizes = Standard { layers: 12, width: 512, heads: 8, ffn: 2048, vocab: 49408, positions: 77 };
    Ok(Architecture { causal: true, ..clip(keys, sizes)? })
}

/// CLIP's image tower: a norm on the embeddings, none after the last block.
pub(super) fn clip_vision(keys: &Keys) -> Result<Architecture, ImportError> {
    let sizes = Standard { layers: 12, width: 768, heads: 12, ffn: 3072, vocab: 1, positions: 512 };
    let (patches, patch_width) = patches(keys, 32)?;
    let stem = Stem::Patches {
        patch_width,
        class_token: true,
        distillation_token: false,
        registers: 0,
        bias: false,
        norm: true,
    };
    Ok(Architecture { seq_len: patches + 1, stem: Some(stem), final_norm: Some(false), ..clip(keys, sizes)? })
}

/// SigLIP's text tower: no causal mask.
pub(super) fn siglip_text(keys: &Keys) -> Result<Architecture, ImportError> {
    siglip(keys, Standard { layers: 12, width: 768, heads: 12, ffn: 3072, vocab: 32_000, positions: 64 })
}

/// SigLIP's image tower: patches without a class token.
pub(super) fn siglip_vision(keys: &Keys) -> Result<Architecture, ImportError> {
    let sizes = Standard { layers: 12, width: 768, heads: 12, ffn: 3072, vocab: 1, positions: 512 };
    let (patches, patch_width) = if keys.family() == "siglip2_vision_model" {
        let side = keys.size("side of a patch", &["patch_size"], 16)?.min(1024);
        let channels = keys.size("channels", &["num_channels"], 3)?.min(1024);
        (keys.size("patches", &["num_patches"], 256)?, channels * side * side)
    } else {
        patches(keys, 16)?
    };
    let plain = siglip(keys, sizes)?;
    let stem = Stem::Patches {
        patch_width,
        class_token: false,
        distillation_token: false,
        registers: 0,
        bias: true,
        norm: false,
    };
    let init = InitTable {
        stem: lecun(keys.options.version, patch_width),
        ..plain.hf_init.unwrap_or_else(|| InitTable::everywhere(Init::Zero))
    };
    Ok(Architecture { seq_len: patches, stem: Some(stem), hf_init: Some(init), ..plain })
}

/// Reads the properties that both towers share. Weights are sampled as in flax.
fn siglip(keys: &Keys, sizes: Standard) -> Result<Architecture, ImportError> {
    let plain = sizes.read(keys)?;
    let (width, d_ff) = (plain.d_model, plain.d_ff.unwrap_or(4 * plain.d_model));
    let xavier = |fans: usize| Init::Uniform { bound: (6.0 / fans as f64).sqrt() };
    let embedding = normal((width as f64).powf(-0.5));
    let (square, ffn) = (xavier(2 * width), xavier(width + d_ff));
    let init = InitTable {
        token: embedding,
        position: embedding,
        ffn_in: ffn,
        ffn_out: ffn,
        ffn_bias: normal(1e-6),
        ..InitTable::everywhere(square)
    };
    Ok(Architecture {
        activation: activation(keys, &["hidden_act"], "gelu_pytorch_tanh", false)?,
        norm_eps: keys.number("norm_eps", &["layer_norm_eps"], 1e-6)?,
        attention_dropout: keys.rate("attention_dropout", &["attention_dropout"], 0.0)?,
        hf_init: Some(init),
        ..plain
    })
}

/// Returns N(0, 1/fan-in), widened to compensate for a cut at two standard deviations. Only release 4.57 makes this
/// cut.
fn lecun(version: Version, fan_in: usize) -> Init {
    let cut = Init::TruncatedNormal { std: 1.0, cutoff: 2.0 };
    let drawn = if version == Version::V4 { cut } else { normal(1.0) };
    drawn.scaled((fan_in as f64).powf(-0.5) / cut.std())
}

/// Reads the properties that both towers share, and CLIP's initialisation.
fn clip(keys: &Keys, sizes: Standard) -> Result<Architecture, ImportError> {
    let plain = sizes.read(keys)?;
    let factor = keys.number("init factor", &["initializer_factor"], 1.0)?;
    let range = base_std(keys, 0.02)?;
    let width = plain.d_model as f64;
    let depth = (2.0 * plain.n_layers as f64).powf(-0.5);
    let std = |std: f64| normal((std * factor).abs().min(1e6));
    let inner = std(width.powf(-0.5) * depth);
    // Text embeddings do not depend on initializer_range.
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
        hf_init: Some(init),
        ..plain
    })
}

/// Returns the number of patches, and the number of values in each.
fn patches(keys: &Keys, patch: usize) -> Result<(usize, usize), ImportError> {
    let image = keys.size("side of the image", &["image_size"], 224)?;
    let patch = keys.size("side of a patch", &["patch_size"], patch)?;
    let channels = keys.size("channels", &["num_channels"], 3)?;
    let across = image / patch;
    if across == 0 || across > 1024 || patch > 1024 || channels > 1024 {
        let got = serde_json::json!({ "image_size": image, "patch_size": patch, "num_channels": channels });
        return Err(ImportError::value("patch_size", "a side that fits into the image, up to 1024 times", &got, ""));
    }
    keys.axes.set(Axes { patch: Some([channels, patch]), ..keys.axes.get() });
    Ok((across * across, channels * patch * patch))
}
