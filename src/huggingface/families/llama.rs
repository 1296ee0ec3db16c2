//! Decoders with rotary positions and no biases: Llama and what followed.

use super::super::ImportError;
use super::super::init::base;
use super::super::rotary::{Rotation, WindowRotation, rotary};
use super::{Keys, Standard, activation, biases, head_width, kv_heads, layer_types, tied};
use crate::architecture::{Activation, Architecture, Experts, NormChoice, NormPlacement, QkNorm};
use sigprop_stack::Weighting;

/// What a family takes for keys that are missing.
struct Defaults {
    sizes: Standard,
    kv_heads: Option<usize>,
    d_head: Option<usize>,
    activation: &'static str,
    gated: bool,
    eps: f64,
    rotation: Rotation,
    std: f64,
    tied: bool,
}

impl Defaults {
    fn new(layers: usize, width: usize, heads: usize, ffn: usize, vocab: usize, positions: usize) -> Self {
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

    fn read(self, keys: &Keys) -> Result<Architecture, ImportError> {
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
            init: Some(base(keys, self.std)?),
            ..self.sizes.read(keys)?
        };
        kv_heads(keys, &mut architecture, self.kv_heads)?;
        let d_head = head_width(keys, &mut architecture, self.d_head)?;
        rotary(keys, &mut architecture, d_head, self.rotation)?;
        Ok(architecture)
    }
}

/// Every block looks at the same window, or those that `layer_types` names.
fn windows(keys: &Keys, architecture: &mut Architecture, default: Option<usize>) -> Result<(), ImportError> {
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
        architecture.rotated = smollm3_rotated(keys, architecture.n_layers)?;
    }
    Ok(architecture)
}

/// SmolLM3 leaves rotation out in every fourth block, or where `no_rope_layers` is 0.
fn smollm3_rotated(keys: &Keys, n_layers: usize) -> Result<Vec<bool>, ImportError> {
    let every = keys.size("blocks without rotation", &["no_rope_layer_interval"], 4)?;
    let Some(value) = keys.raw("no_rope_layers") else {
        return Ok((1..=n_layers).map(|i| i % every != 0).collect());
    };
    let rotated = value.as_array().map(|layers| layers.iter().map(|layer| *layer != 0 && *layer != false).collect());
    let rotated: Option<Vec<bool>> = rotated.filter(|rotated: &Vec<bool>| rotated.len() == n_layers);
    rotated.ok_or_else(|| ImportError::value("no_rope_layers", "1 or 0 per layer", value, ""))
}

/// Mixtral and Qwen3-MoE: a mixture of experts in place of the feed-forward network.
pub(super) fn mixture(keys: &Keys) -> Result<Architecture, ImportError> {
    let mixtral = keys.family() == "mixtral";
    let defaults = if mixtral {
        Defaults {
            kv_heads: Some(8),
            eps: 1e-5,
            rotation: Rotation::new(1.0, 1e6),
            ..Defaults::new(32, 4096, 32, 14336, 32000, 131_072)
        }
    } else {
        Defaults { kv_heads: Some(4), ..Defaults::new(24, 2048, 32, 6144, 151_936, 32_768) }
    };
    let mut architecture = defaults.read(keys)?;
    let dense = architecture.d_ff.unwrap_or(1);
    let normalised = if mixtral { true } else { keys.flag("normalised experts", &["norm_topk_prob"], false)? };
    let d_ff = if mixtral { dense } else { keys.size("d_ff of an expert", &["moe_intermediate_size"], 768)? };
    architecture.experts = Some(Experts {
        n_experts: keys.size("n_experts", &["num_local_experts", "num_experts"], if mixtral { 8 } else { 128 })?,
        top_k: keys.size("top_k", &["num_experts_per_tok"], if mixtral { 2 } else { 8 })?,
        d_ff,
        shared_d_ff: 0,
        shared_gate: false,
        weighting: Weighting::Softmax,
        normalised,
        scale: 1.0,
        first_dense: 0,
        every: keys.size("every how many blocks", &["decoder_sparse_step"], 1)?,
    });
    if !mixtral {
        architecture.qk_norm = QkNorm::Head;
        biases(keys, &mut architecture)?;
        let dense_layers = keys.raw("mlp_only_layers").and_then(serde_json::Value::as_array);
        if dense_layers.is_some_and(|layers| !layers.is_empty()) {
            keys.warn("mlp_only_layers is left out: all blocks have experts".to_owned());
        }
    }
    if mixtral || keys.flag("windows", &["use_sliding_window"], false)? {
        windows(keys, &mut architecture, if mixtral { None } else { Some(4096) })?;
    } else {
        keys.raw("sliding_window");
    }
    Ok(architecture)
}

/// Qwen2 (biases of queries, keys and values) and Qwen3 (norms of queries and keys).
pub(super) fn qwen(keys: &Keys) -> Result<Architecture, ImportError> {
    let three = keys.family() == "qwen3";
    let d_head = three.then_some(128);
    let mut architecture = Defaults { d_head, ..Defaults::new(32, 4096, 32, 22016, 151_936, 32_768) }.read(keys)?;
    if three {
        architecture.qk_norm = QkNorm::Head;
        let biases = keys.flag("attention biases", &["attention_bias"], false)?;
        architecture.qkv_biases = Some(biases);
        architecture.attention_output_bias = Some(biases);
    } else {
        architecture.qkv_biases = Some(true);
    }
    if keys.flag("windows", &["use_sliding_window"], false)? {
        let window = keys.size("window", &["sliding_window"], 4096)?;
        let first = keys.count("first block with a window", &["max_window_layers"], 28)?;
        let default = || (0..architecture.n_layers).map(|i| if i >= first { window } else { 0 }).collect();
        architecture.windows = layer_types(keys, window)?.unwrap_or_else(default);
    } else {
        keys.count("first block with a window", &["max_window_layers"], 28)?;
        keys.raw("sliding_window");
    }
    Ok(architecture)
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
            architecture.qk_norm = QkNorm::Head;
        }
        _ => biases(keys, &mut architecture)?,
    }
    Ok(architecture)
}

/// Granite: multipliers of embeddings, scores and branches.
pub(super) fn granite(keys: &Keys) -> Result<Architecture, ImportError> {
    let mut architecture = Defaults::new(32, 4096, 32, 11008, 32000, 2048).read(keys)?;
    architecture.embedding_scale = keys.number("embedding_scale", &["embedding_multiplier"], 1.0)?;
    architecture.attention_scale = Some(keys.number("attention_scale", &["attention_multiplier"], 1.0)?);
    architecture.branch_scale = Some(keys.number("branch_scale", &["residual_multiplier"], 1.0)?);
    architecture.logit_scale = keys.number("logits divided by", &["logits_scaling"], 1.0)?.recip();
    biases(keys, &mut architecture)?;
    Ok(architecture)
}

/// OLMo: LayerNorm without parameters; OLMo 2 and 3: norms on the outputs of branches, of queries and keys.
pub(super) fn olmo(keys: &Keys) -> Result<Architecture, ImportError> {
    // Blocks with a window have the same base, but `rope_scaling` is not of them.
    let window = WindowRotation { key: "rope_theta", base: 5e5, scaled: false };
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
