//! Decoders with other mixers of tokens than attention in some or all blocks.

use serde_json::Value;
use sigprop_stack::Weighting;

use super::super::ImportError;
use super::super::rotary::Rotation;
use super::Keys;
use super::llama::Defaults;
use super::mixture::Mixture;
use crate::architecture::{Architecture, Mixer, QkNorm};

/// LFM2, with a short convolution in place of attention in some blocks, and LFM2-MoE, with experts.
pub(super) fn lfm2(keys: &Keys) -> Result<Architecture, ImportError> {
    let has_experts = keys.family() == "lfm2_moe";
    let sizes = if has_experts {
        Defaults::new(32, 2048, 32, 7168, 65536, 128_000)
    } else {
        Defaults::new(32, 2560, 32, 12288, 65536, 128_000)
    };
    let rotation = Rotation::new(1.0, 1e6);
    let defaults = Defaults { kv_heads: Some(8), eps: 1e-5, rotation, tied: true, ..sizes };
    let mut architecture = defaults.read(keys)?;
    architecture.qk_norm = QkNorm::Head;
    architecture.convolution_taps = keys.size("convolution_taps", &["conv_L_cache"], 3)?;
    architecture.convolution_biases = Some(keys.flag("convolution_biases", &["conv_bias"], false)?);
    architecture.mixers = layers(keys, architecture.n_layers)?;
    if has_experts {
        let mixture = Mixture {
            d_ff: Some(1792),
            weighting: Weighting::Sigmoid,
            normalised: Some(true),
            scale: Some(1.0),
            first_dense: Some(2),
            ..Mixture::new(32, 4)
        };
        architecture.experts = Some(mixture.read(keys, &architecture)?);
        keys.same(&["use_expert_bias"]);
    } else {
        architecture.d_ff = Some(adjusted_d_ff(keys, architecture.d_ff.unwrap_or(1))?);
    }
    Ok(architecture)
}

/// Returns the width of the feed-forward network of LFM2: two thirds of the width in the config, times a factor, rounded
/// up, unless the config has the width itself.
fn adjusted_d_ff(keys: &Keys, width: usize) -> Result<usize, ImportError> {
    let width = keys.unnoted_size(&["block_ff_dim"], width)?;
    if !keys.flag("adjusted d_ff", &["block_auto_adjust_ff_dim"], true)? {
        return Ok(width);
    }
    let multiple = keys.size("d_ff is a multiple of", &["block_multiple_of"], 256)?;
    let factor = keys.number("factor on d_ff", &["block_ffn_dim_multiplier"], 1.0)?;
    let adjusted = ((factor * (2 * width / 3) as f64) as usize).next_multiple_of(multiple);
    keys.note("d_ff", adjusted, "block_auto_adjust_ff_dim");
    Ok(adjusted)
}

/// Returns the mixer of every block.
fn layers(keys: &Keys, n_layers: usize) -> Result<Vec<Mixer>, ImportError> {
    let attends = keys.raw("full_attn_idxs").and_then(Value::as_array);
    let Some(value) = keys.raw("layer_types") else {
        let mixer = |index: usize| match attends {
            Some(attends) if !attends.contains(&Value::from(index)) => Mixer::Convolution,
            Some(_) | None => Mixer::Attention,
        };
        return Ok((0..n_layers).map(mixer).collect());
    };
    let read = |kind: &Value| match kind.as_str() {
        Some("full_attention") => Some(Mixer::Attention),
        Some("conv") => Some(Mixer::Convolution),
        _ => None,
    };
    let mixers = value.as_array().and_then(|kinds| kinds.iter().map(read).collect::<Option<Vec<Mixer>>>());
    let Some(mixers) = mixers.filter(|mixers| mixers.len() == n_layers) else {
        return Err(ImportError::value("layer_types", "full_attention or conv per layer", value, ""));
    };
    keys.note(
        "blocks with a convolution",
        mixers.iter().filter(|mixer| **mixer == Mixer::Convolution).count(),
        "layer_types",
    );
    Ok(mixers)
}
