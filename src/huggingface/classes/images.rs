//! Parameters that classes have in addition to encoders of images, and of texts about images.

use super::{Task, Widths};
use crate::architecture::{Architecture, Stem};
use crate::huggingface::ImportError;
use crate::huggingface::keys::Keys;

/// Returns the number of parameters that a class has in addition to an encoder of images, or of texts about images.
pub(super) fn images(
    keys: &Keys,
    task: Task,
    architecture: &Architecture,
    widths: &Widths,
) -> Result<u64, ImportError> {
    let (norm, d_ff) = (2 * widths.d_model, architecture.d_ff.unwrap_or(4 * architecture.d_model) as u64);
    Ok(match keys.family() {
        "siglip_text_model" | "siglip2_text_model" => {
            widths.map(keys.size("projection_size", &["projection_size"], architecture.d_model)? as u64)
        }
        // A learned query, attention, a norm and a feed-forward network.
        "siglip_vision_model" | "siglip2_vision_model" if keys.flag("pooling head", &["vision_use_head"], true)? => {
            let ffn = widths.map(d_ff) + d_ff * widths.d_model + widths.d_model;
            widths.d_model + 4 * widths.dense() + norm + ffn
        }
        "deit" => match task {
            Task::Sequence => widths.labels(),
            Task::Distilled => 2 * widths.labels(),
            _ => widths.dense(),
        },
        // Labels depend on the class token and on the mean of the patches.
        "dinov2" => {
            let mask = if keys.flag("mask token", &["use_mask_token"], true)? { widths.d_model } else { 0 };
            let labels = if task == Task::Sequence { widths.labels() + widths.d_model * widths.labels } else { 0 };
            mask + labels
        }
        // The mask token.
        "dinov3_vit" => widths.d_model,
        "beit" => {
            let pooler = if architecture.final_norm == Some(false) { norm } else { 0 };
            let labels = if task == Task::Sequence { widths.labels() } else { 0 };
            let mask = if keys.flag("mask token", &["use_mask_token"], false)? { widths.d_model } else { 0 };
            pooler + labels + mask
        }
        "vit_mae" if task == Task::PreTraining => masked_decoder(keys, architecture, widths)?,
        _ => 0,
    })
}

/// Returns the number of parameters of ViT-MAE's decoder, which fills in the hidden patches.
fn masked_decoder(keys: &Keys, architecture: &Architecture, widths: &Widths) -> Result<u64, ImportError> {
    let width = keys.size("width of the decoder", &["decoder_hidden_size"], 512)? as u64;
    let layers = keys.size("n_layers of the decoder", &["decoder_num_hidden_layers"], 8)? as u64;
    let d_ff = keys.size("d_ff of the decoder", &["decoder_intermediate_size"], 2048)? as u64;
    let Some(Stem::Patches { patch_width, .. }) = architecture.stem else { return Ok(0) };
    let (patch, tokens) = (patch_width as u64, architecture.seq_len as u64);
    let inner = Widths { d_model: width, ..*widths };
    let biases = if architecture.qkv_biases == Some(false) { 3 * width } else { 0 };
    let layer = 4 * inner.dense() - biases + inner.map(d_ff) + d_ff * width + width + 4 * width;
    // In between: the mask token, the positions and the last norm.
    Ok(widths.map(width) + width + tokens * width + layers * layer + 2 * width + inner.map(patch))
}
