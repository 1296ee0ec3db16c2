//! Decoders with rotary positions and no biases: Llama and its descendants.

use serde_json::Value;
use sigprop_stack::Init;

use super::super::ImportError;
use super::super::init::base;
use super::super::rotary::{Rotation, WindowRotation, rotary};
use super::{Keys, Standard, activation, biases, head_width, kv_heads, layer_types, multipliers, tied};
use crate::architecture::{Activation, Architecture, NormChoice, NormPlacement, QkNorm};

/// The defaults of a family for missing keys.
pub(super) struct Defaults {
    pub(super) sizes: Standard,
    pub(super) kv_heads: Option<usize>,
    pub(super) d_head: Option<usize>,
    pub(super) activation: &'static str,
    pub(super) gated: bool,
    pub(super) eps: f64,
    pub(super) rotation: Rotation,
    pub(super) std: f64,
    pub(super) tied: bool,
}

impl Defaults {
    pub(super) fn new(layers: usize, width: usize, heads: usize, ffn: usize, vocab: usize, positions: usize) -> Self {
        Self {
            sizes: Standard { layers, width, heads, ffn, vocab, positions },
            kv_heads: None,
            d_head: None,
            activation: "silu",
            gated: true,
            eps: 1e-6,
            rotation: Rotation::new(1.0, 10_000.0),
            std: 0.02,
            tied: false,
        }
    }

    pub(super) fn read(self, keys: &Keys) -> Result<Architecture, ImportError> {
        let mut architecture = Architecture {
            activation: activation(keys, &["hidden_act", "hidden_activation"], self.activation, self.gated)?,
            norm: Some(NormChoice::Rmsnorm),
            norm_eps: keys.number(
                "norm_eps",
                &["rms_norm_eps", "norm_eps", "norm_epsilon", "layer_norm_eps"],
                self.eps,
            )?,
            biases: false,
            causal: true,
            attention_dropout: keys.rate("attention_dropout", &["attention_dropout"], 0.0)?,
            head: tied(keys, self.tied)?,
            hf_init: Some(base(keys, self.std)?),
            ..self.sizes.read(keys)?
        };
        kv_heads(keys, &mut architecture, self.kv_heads)?;
        let d_head = head_width(keys, &mut architecture, self.d_head)?;
        rotary(keys, &mut architecture, d_head, self.rotation)?;
        Ok(architecture)
    }
}

/// Reads the windows. They are the same in every block, unless `layer_types` names the blocks that have one.
pub(super) fn windows(keys: &Keys, architecture: &mut Architecture, default: Option<usize>) -> Result<(), ImportError> {
    let given = keys.maybe_size("window", &["sliding_window"])?;
    let Some(window) = given.or(default.filter(|_| !keys.is_null("sliding_window"))) else { return Ok(()) };
    let everywhere = || vec![window; architecture.n_layers];
    architecture.windows = layer_types(keys, window)?.unwrap_or_else(everywhere);
    Ok(())
}

/// Llama, Mistral, SmolLM3, ERNIE 4.5, Seed-OSS.
pub(super) fn llama(keys: &Keys) -> Result<Architecture, ImportError> {
    let defaults = match keys.family() {
        "mistral" => Defaults { kv_heads: Some(8), ..Defaults::new(32, 4096, 32, 14336, 32000, 131_072) },
        "smollm3" => Defaults {
            kv_heads: Some(4),
            rotation: Rotation::new(1.0, 2e6),
            tied: true,
            ..Defaults::new(36, 2048, 16, 11008, 128_256, 32_768)
        },
        "ernie4_5" => Defaults {
            kv_heads: Some(2),
            d_head: Some(128),
            eps: 1e-5,
            tied: true,
            rotation: Rotation::new(1.0, 5e5),
            ..Defaults::new(18, 1024, 16, 3072, 103_424, 131_072)
        },
        "seed_oss" => {
            Defaults { kv_heads: Some(8), d_head: Some(128), ..Defaults::new(64, 4096, 80, 27648, 155_136, 524_288) }
        }
        _ => Defaults::new(32, 4096, 32, 11008, 32000, 2048),
    };
    let mut architecture = defaults.read(keys)?;
    let every = keys.flag("biases", &["use_bias"], false)?;
    let attention = keys.flag("attention biases", &["attention_bias"], every || keys.family() == "seed_oss")?;
    let ffn = keys.flag("ffn_biases", &["mlp_bias"], every)?;
    architecture.qkv_biases = Some(attention);
    architecture.attention_output_bias = Some(attention && keys.family() != "seed_oss");
    architecture.ffn_biases = Some(ffn);
    if keys.family() == "mistral" {
        windows(keys, &mut architecture, Some(4096))?;
    }
    if keys.family() == "smollm3" {
        architecture.rotated = rotated_blocks(keys, architecture.n_layers)?;
    }
    Ok(architecture)
}

/// Returns, for every block, true if it rotates queries and keys. SmolLM3 and Llama 4 do not rotate where
/// `no_rope_layers` is 0. Without that key, they do not rotate in blocks whose number, from 1, is a multiple of
/// `no_rope_layer_interval` (4 by default).
pub(super) fn rotated_blocks(keys: &Keys, n_layers: usize) -> Result<Vec<bool>, ImportError> {
    let value = keys.raw("no_rope_layers");
    let Some(value) = value.filter(|value| value.as_array().is_none_or(|layers| !layers.is_empty())) else {
        let every = keys.size("no rotation in every so many blocks", &["no_rope_layer_interval"], 4)?;
        return Ok((1..=n_layers).map(|i| i % every != 0).collect());
    };
    keys.same(&["no_rope_layer_interval"]);
    let rotated = value.as_array().map(|layers| layers.iter().map(|layer| *layer != 0 && *layer != false).collect());
    let rotated: Option<Vec<bool>> = rotated.filter(|rotated: &Vec<bool>| rotated.len() == n_layers);
    let rotated = rotated.ok_or_else(|| ImportError::value("no_rope_layers", "1 or 0 per layer", value, ""))?;
    keys.note("blocks without rotation", rotated.iter().filter(|rotated| !**rotated).count(), "no_rope_layers");
    Ok(rotated)
}

/// Qwen2 and MiMo (biases of queries, keys and values), Qwen3 (norms of queries and keys). Also the text parts of
/// models of texts and images: for text alone, positions on all axes are the positions of the tokens.
pub(super) fn qwen(keys: &Keys) -> Result<Architecture, ImportError> {
    let three = matches!(keys.family(), "qwen3" | "qwen3_vl_text");
    let usual = Defaults { d_head: three.then_some(128), ..Defaults::new(32, 4096, 32, 22016, 151_936, 32_768) };
    let defaults = match keys.family() {
        "qwen2_vl_text" | "qwen2_5_vl_text" => Defaults {
            kv_heads: Some(8),
            eps: 1e-5,
            rotation: Rotation::new(1.0, 1e6),
            ..Defaults::new(80, 8192, 64, 29568, 152_064, 32_768)
        },
        "qwen3_vl_text" => Defaults {
            rotation: Rotation::new(1.0, 5e5),
            sizes: Standard { positions: 128_000, ..usual.sizes },
            ..usual
        },
        _ => usual,
    };
    let mut architecture = defaults.read(keys)?;
    if three {
        architecture.qk_norm = QkNorm::Head;
        let biases = keys.flag("attention biases", &["attention_bias"], false)?;
        architecture.qkv_biases = Some(biases);
        architecture.attention_output_bias = Some(biases);
    } else {
        architecture.qkv_biases = Some(true);
        keys.same(&["attention_bias"]);
    }
    let first = if keys.family().starts_with("qwen2_") { 80 } else { 28 };
    if keys.flag("windows", &["use_sliding_window"], false)? {
        last_windows(keys, &mut architecture, first)?;
    } else {
        keys.count("first block with a window", &["max_window_layers"], first)?;
        keys.raw("sliding_window");
    }
    Ok(architecture)
}

/// Reads the windows: blocks from `max_window_layers` on have one, unless `layer_types` lists the blocks.
pub(super) fn last_windows(keys: &Keys, architecture: &mut Architecture, first: usize) -> Result<(), ImportError> {
    if keys.is_null("sliding_window") {
        keys.same(&["layer_types"]);
        return Ok(());
    }
    let window = keys.size("window", &["sliding_window"], 4096)?;
    let first = keys.count("first block with a window", &["max_window_layers"], first)?;
    let default = || (0..architecture.n_layers).map(|i| if i >= first { window } else { 0 }).collect();
    architecture.windows = layer_types(keys, window)?.unwrap_or_else(default);
    Ok(())
}

/// Phi-3: fused projections, dropout.
pub(super) fn phi3(keys: &Keys) -> Result<Architecture, ImportError> {
    let mut architecture = Defaults { eps: 1e-5, ..Defaults::new(32, 3072, 32, 8192, 32064, 4096) }.read(keys)?;
    architecture.dropout = keys.rate("dropout", &["resid_pdrop"], 0.0)?;
    architecture.embedding_dropout = Some(keys.rate("embedding_dropout", &["embd_pdrop"], 0.0)?);
    windows(keys, &mut architecture, None)?;
    Ok(architecture)
}

/// StarCoder2 and Nemotron (LayerNorm), Arcee and Apertus (RMSNorm): no gate.
pub(super) fn ungated(keys: &Keys) -> Result<Architecture, ImportError> {
    let defaults = match keys.family() {
        "starcoder2" => Defaults {
            kv_heads: Some(2),
            activation: "gelu_pytorch_tanh",
            eps: 1e-5,
            std: 0.018_042,
            tied: true,
            ..Defaults::new(30, 3072, 24, 12288, 49152, 4096)
        },
        "nemotron" => Defaults {
            activation: "relu2",
            eps: 1e-5,
            std: 0.0134,
            rotation: Rotation::new(0.5, 10_000.0),
            ..Defaults::new(32, 6144, 48, 24576, 256_000, 4096)
        },
        "apertus" => Defaults {
            activation: "xielu",
            eps: 1e-5,
            rotation: Rotation::new(1.0, 1.2e7),
            ..Defaults::new(32, 4096, 32, 14336, 131_072, 65536)
        },
        _ => Defaults { activation: "relu2", eps: 1e-5, ..Defaults::new(32, 2560, 32, 18432, 32000, 4096) },
    };
    let mut architecture = Defaults { gated: false, ..defaults }.read(keys)?;
    match keys.family() {
        "starcoder2" => {
            architecture.norm = Some(NormChoice::Layernorm);
            architecture.biases = keys.flag("biases", &["use_bias"], true)?;
            architecture.dropout = keys.rate("dropout", &["residual_dropout"], 0.0)?;
            architecture.embedding_dropout = Some(keys.rate("embedding_dropout", &["embedding_dropout"], 0.0)?);
            windows(keys, &mut architecture, None)?;
        }
        "nemotron" => {
            biases(keys, &mut architecture)?;
            architecture.norm = Some(NormChoice::Layernorm);
            // LayerNorm1P adds 1 to weights that the library starts at 1.
            architecture.norm_gain = 2.0;
            keys.note("norm_gain", 2, "LayerNorm1P: 1 + weight, weight 1");
        }
        "apertus" => {
            biases(keys, &mut architecture)?;
            let normed = keys.flag("qk_norm", &["qk_norm"], true)?;
            architecture.qk_norm = if normed { QkNorm::Head } else { QkNorm::None };
        }
        _ => biases(keys, &mut architecture)?,
    }
    Ok(architecture)
}

/// Granite: multipliers of embeddings, scores and branches; with sinks and windows or without.
pub(super) fn granite(keys: &Keys) -> Result<Architecture, ImportError> {
    let with_sinks = keys.family() == "granite_swa";
    let defaults = if with_sinks {
        Defaults { kv_heads: Some(4), eps: 1e-5, tied: true, ..Defaults::new(24, 2560, 20, 8192, 100_352, 8192) }
    } else {
        Defaults::new(32, 4096, 32, 11008, 32000, 2048)
    };
    let mut architecture = defaults.read(keys)?;
    multipliers(keys, &mut architecture)?;
    biases(keys, &mut architecture)?;
    if with_sinks {
        granite_sinks(keys, &mut architecture)?;
    }
    Ok(architecture)
}

/// Reads the windows, sinks and rotations of Granite with sinks. Blocks whose base is 0 do not rotate.
pub(super) fn granite_sinks(keys: &Keys, architecture: &mut Architecture) -> Result<(), ImportError> {
    let n_layers = architecture.n_layers;
    let window = keys.size("window", &["sliding_window"], 128)?;
    let default = || (0..n_layers).map(|i| if i % 4 == 0 { 0 } else { window }).collect();
    architecture.windows = layer_types(keys, window)?.unwrap_or_else(default);
    architecture.attention_sinks = vec![true; n_layers];
    if let Some(table) = &mut architecture.hf_init {
        table.sink = Init::Zero;
    }
    let Some(value) = keys.raw("layer_rope_theta").filter(|value| !value.is_null()) else { return Ok(()) };
    let bases: Option<Vec<f64>> = value.as_array().and_then(|bases| bases.iter().map(Value::as_f64).collect());
    let one = |bases: &Vec<f64>| {
        let mut turned = bases.iter().filter(|base| **base > 0.0);
        let first = turned.next();
        turned.all(|base| Some(base) == first)
    };
    let expected = "one number per block, 0 or a base that all other blocks share";
    let bases = bases.filter(|bases| bases.len() == n_layers && one(bases));
    let bases = bases.ok_or_else(|| ImportError::value("layer_rope_theta", expected, value, ""))?;
    if let Some(base) = bases.iter().find(|base| **base > 0.0) {
        architecture.rotary_base = *base;
    }
    architecture.rotated = bases.iter().map(|base| *base > 0.0).collect();
    keys.note("rotated", architecture.rotated.iter().filter(|rotated| **rotated).count(), "layer_rope_theta");
    Ok(())
}

/// OLMo: LayerNorm without parameters; OLMo 2 and 3: norms on the outputs of branches, of queries and keys.
pub(super) fn olmo(keys: &Keys) -> Result<Architecture, ImportError> {
    // Blocks with a window have the same base as the others, but `rope_scaling` does not apply to them.
    let window = WindowRotation { key: "rope_theta", base: 5e5, scaled: false, d_head: None };
    let rotation = if keys.family() == "olmo3" {
        Rotation { window: Some(window), ..Rotation::new(1.0, 5e5) }
    } else {
        Rotation::new(1.0, 10_000.0)
    };
    let defaults = Defaults { eps: 1e-5, rotation, ..Defaults::new(32, 4096, 32, 11008, 50304, 2048) };
    let mut architecture = defaults.read(keys)?;
    let biases = keys.flag("attention biases", &["attention_bias"], false)?;
    architecture.qkv_biases = Some(biases);
    architecture.attention_output_bias = Some(biases);
    if keys.family() == "olmo" {
        architecture.norm = Some(NormChoice::Layernorm);
        architecture.norm_eps = 1e-5;
        keys.maybe_number("cap of queries, keys, values", &["clip_qkv"])?;
    } else {
        architecture.norm_placement = NormPlacement::Reordered;
        architecture.qk_norm = QkNorm::Projection;
    }
    if keys.family() == "olmo3" {
        let window = keys.size("window", &["sliding_window"], 4096)?;
        let default = || (1..=architecture.n_layers).map(|i| if i % 4 == 0 { 0 } else { window }).collect();
        architecture.windows = layer_types(keys, window)?.unwrap_or_else(default);
    }
    debug_assert_ne!(architecture.activation, Activation::Identity);
    Ok(architecture)
}
