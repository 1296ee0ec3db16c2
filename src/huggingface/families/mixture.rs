//! Decoders with rotary positions and mixtures of experts: Mixtral and its descendants.

use serde_json::Value;
use sigprop_stack::{Multiplied, Weighting};

use super::super::ImportError;
use super::super::rotary::Rotation;
use super::llama::{Defaults, granite_sinks, last_windows, windows};
use super::{Keys, biases, layer_types, multipliers};
use crate::architecture::{Architecture, Experts, NormChoice, Positions, QkNorm};

/// The defaults of a family for missing keys of its experts.
pub(super) struct Mixture {
    pub(super) n_experts: usize,
    pub(super) top_k: usize,
    /// The width of an expert; `None` if it is the width of the feed-forward network.
    pub(super) d_ff: Option<usize>,
    pub(super) shared: Shared,
    pub(super) weighting: Weighting,
    /// The default of the flag that divides the weights by their sum; `None` if the family has no flag and always
    /// divides.
    pub(super) normalised: Option<bool>,
    /// The default of the factor on the sum of the chosen experts; `None` if the factor is always 1.
    pub(super) scale: Option<f64>,
    /// The default number of dense blocks at the beginning; `None` if the family never has any.
    pub(super) first_dense: Option<usize>,
}

/// Shared experts, which every token goes to.
pub(super) enum Shared {
    None,
    /// This many experts, each as wide as the others.
    Many(usize),
    /// One expert of this width, multiplied by the sigmoid of a score of the token.
    Gated(usize),
}

impl Mixture {
    pub(super) fn new(n_experts: usize, top_k: usize) -> Self {
        Self {
            n_experts,
            top_k,
            d_ff: None,
            shared: Shared::None,
            weighting: Weighting::Softmax,
            normalised: None,
            scale: None,
            first_dense: None,
        }
    }

    pub(super) fn read(self, keys: &Keys, architecture: &Architecture) -> Result<Experts, ImportError> {
        const EXPERTS: &[&str] = &["num_local_experts", "num_experts", "n_routed_experts", "moe_num_experts"];
        const TOP_K: &[&str] = &["num_experts_per_tok", "moe_k", "moe_topk"];
        const FIRST: &[&str] = &["first_k_dense_replace", "moe_layer_start_index", "num_dense_layers"];
        let d_ff = match self.d_ff {
            Some(default) => keys.size("d_ff of an expert", &["moe_intermediate_size"], default)?,
            None => architecture.d_ff.unwrap_or(1),
        };
        let shared_d_ff = match self.shared {
            Shared::None => 0,
            Shared::Many(default) => {
                d_ff * keys.count("shared experts", &["n_shared_experts", "moe_num_shared_experts"], default)?
            }
            Shared::Gated(default) => {
                keys.count("d_ff of shared experts", &["shared_expert_intermediate_size"], default)?
            }
        };
        let n_experts = keys.size("n_experts", EXPERTS, self.n_experts)?;
        Ok(Experts {
            n_experts,
            top_k: keys.size("top_k", TOP_K, self.top_k)?,
            d_ff,
            shared_d_ff,
            shared_gate: matches!(self.shared, Shared::Gated(_)) && shared_d_ff > 0,
            weighting: self.weighting,
            weights_multiply: Multiplied::Outputs,
            router_scale: 1.0,
            own_norms: false,
            normalised: match self.normalised {
                Some(default) => keys.flag("normalised experts", &["norm_topk_prob"], default)?,
                None => true,
            },
            scale: match self.scale {
                Some(default) => keys.number("scale of experts", &["routed_scaling_factor"], default)?,
                None => 1.0,
            },
            first_dense: match self.first_dense {
                Some(default) => keys.count("first dense blocks", FIRST, default)?,
                None => 0,
            },
            every: keys.size("every how many blocks", &["decoder_sparse_step", "moe_layer_interval"], 1)?,
        })
    }
}

/// Mixtral: experts as wide as the feed-forward network of Mistral.
pub(super) fn mixtral(keys: &Keys) -> Result<Architecture, ImportError> {
    let defaults = Defaults {
        kv_heads: Some(8),
        eps: 1e-5,
        rotation: Rotation::new(1.0, 1e6),
        ..Defaults::new(32, 4096, 32, 14336, 32000, 131_072)
    };
    let mut architecture = defaults.read(keys)?;
    architecture.experts = Some(Mixture::new(8, 2).read(keys, &architecture)?);
    windows(keys, &mut architecture, None)?;
    Ok(architecture)
}

/// Qwen2-MoE (gated shared experts, biases) and Qwen3-MoE (norms of queries and keys); the text part of Qwen3-VL-MoE,
/// whose weights are always divided by their sum.
pub(super) fn qwen(keys: &Keys) -> Result<Architecture, ImportError> {
    let (defaults, mixture) = match keys.family() {
        "qwen2_moe" => {
            let shared = Shared::Gated(5632);
            let mixture = Mixture { d_ff: Some(1408), shared, normalised: Some(false), ..Mixture::new(60, 4) };
            (Defaults { kv_heads: Some(16), ..Defaults::new(24, 2048, 16, 5632, 151_936, 32_768) }, mixture)
        }
        "qwen3_moe" => {
            let mixture = Mixture { d_ff: Some(768), normalised: Some(false), ..Mixture::new(128, 8) };
            (Defaults { kv_heads: Some(4), ..Defaults::new(24, 2048, 32, 6144, 151_936, 32_768) }, mixture)
        }
        _ => {
            let rotation = Rotation::new(1.0, 5e5);
            let sizes = Defaults::new(24, 2048, 16, 5632, 151_936, 128_000);
            (
                Defaults { kv_heads: Some(16), tied: true, rotation, ..sizes },
                Mixture { d_ff: Some(1408), ..Mixture::new(60, 4) },
            )
        }
    };
    let mut architecture = defaults.read(keys)?;
    architecture.experts = Some(mixture.read(keys, &architecture)?);
    if keys.family() == "qwen2_moe" {
        architecture.qkv_biases = Some(keys.flag("qkv_biases", &["qkv_bias"], true)?);
    } else {
        architecture.qk_norm = QkNorm::Head;
        biases(keys, &mut architecture)?;
        architecture.ffn_biases = Some(false);
    }
    keys.same(&["norm_topk_prob"]);
    architecture.dense_blocks = dense_blocks(keys)?;
    if keys.flag("windows", &["use_sliding_window"], false)? {
        qwen_windows(keys, &mut architecture)?;
    } else {
        keys.raw("sliding_window");
    }
    Ok(architecture)
}

/// Returns the numbers of the blocks without experts.
pub(super) fn dense_blocks(keys: &Keys) -> Result<Vec<usize>, ImportError> {
    let Some(value) = keys.raw("mlp_only_layers") else { return Ok(Vec::new()) };
    let number = |block: &Value| block.as_u64().and_then(|block| usize::try_from(block).ok());
    let blocks = value.as_array().and_then(|blocks| blocks.iter().map(number).collect::<Option<Vec<usize>>>());
    let blocks = blocks.ok_or_else(|| ImportError::value("mlp_only_layers", "numbers of blocks", value, ""))?;
    if !blocks.is_empty() {
        keys.note("dense blocks", blocks.len(), "mlp_only_layers");
    }
    Ok(blocks)
}

/// Warns if a token may choose experts only from the best few groups of experts, because predictions ignore this
/// restriction. `default` holds the number of groups and the number of groups that a token may choose from.
pub(super) fn groups(keys: &Keys, weighting: Weighting, default: [usize; 2]) -> Result<(), ImportError> {
    let groups = keys.size("groups of experts", &["n_group"], default[0])?;
    let kept = keys.size("groups that a token chooses from", &["topk_group"], default[1])?;
    let change = match weighting {
        Weighting::Sigmoid => "products of two tokens behind the experts are up to 7 % too large",
        Weighting::Softmax | Weighting::Sparsemixer => {
            "behind the experts second moments are up to 5 %, products of two tokens up to 13 % too large"
        }
    };
    if kept < groups {
        keys.warn(format!(
            "a token chooses among all experts, in the model among those of its best {kept} of {groups} groups \
             (topk_group, n_group): {change}"
        ));
    }
    Ok(())
}

/// Reads the windows: in all blocks of Qwen3-MoE, and in every other block of Qwen2-MoE before `max_window_layers`.
fn qwen_windows(keys: &Keys, architecture: &mut Architecture) -> Result<(), ImportError> {
    if keys.family() != "qwen2_moe" {
        return windows(keys, architecture, Some(4096));
    }
    let window = keys.size("window", &["sliding_window"], 4096)?;
    let end = keys.count("first block without a window", &["max_window_layers"], 28)?;
    let default = || (0..architecture.n_layers).map(|i| if i < end && i % 2 == 0 { window } else { 0 }).collect();
    architecture.windows = layer_types(keys, window)?.unwrap_or_else(default);
    Ok(())
}

/// OLMoE: one norm over the queries of all heads, and one over the keys of all heads.
pub(super) fn olmoe(keys: &Keys) -> Result<Architecture, ImportError> {
    let mut architecture = Defaults { eps: 1e-5, ..Defaults::new(16, 2048, 16, 2048, 50304, 4096) }.read(keys)?;
    let mixture = Mixture { normalised: Some(false), ..Mixture::new(64, 8) };
    architecture.experts = Some(mixture.read(keys, &architecture)?);
    architecture.qk_norm = QkNorm::Projection;
    biases(keys, &mut architecture)?;
    keys.maybe_number("cap of queries, keys, values", &["clip_qkv"])?;
    Ok(architecture)
}

/// Granite with experts, whose weights are a softmax of the chosen scores; hybrids but for their Mamba-2.
pub(super) fn granite(keys: &Keys) -> Result<Architecture, ImportError> {
    const SHARED: &[&str] = &["shared_intermediate_size"];
    let hybrid = keys.family() == "granitemoehybrid";
    let mut architecture = Defaults::new(32, 4096, 32, 11008, 32000, 2048).read(keys)?;
    let shared = match keys.family() {
        "granitemoehybrid" => keys.size("d_ff of the shared expert", SHARED, 1024)?,
        "granitemoe_swa" => keys.count("d_ff of the shared expert", SHARED, 0)?,
        _ => 0,
    };
    if hybrid && keys.raw("num_local_experts").and_then(Value::as_u64) == Some(0) {
        architecture.d_ff = Some(shared);
        keys.same(&["num_experts_per_tok"]);
    } else {
        let experts = Mixture::new(8, 2).read(keys, &architecture)?;
        architecture.experts = Some(Experts { shared_d_ff: shared, ..experts });
    }
    if hybrid && keys.word("positions", &["position_embedding_type"], "none")? != "rope" {
        architecture.positions = Positions::None;
    }
    multipliers(keys, &mut architecture)?;
    biases(keys, &mut architecture)?;
    if keys.family() == "granitemoe_swa" {
        granite_sinks(keys, &mut architecture)?;
    }
    keys.same(&["normalization_function"]);
    Ok(architecture)
}

/// MiniMax-M2: sigmoid weights, one norm over the queries and one over the keys of all heads, and rotation of a part of
/// the features.
pub(super) fn minimax(keys: &Keys) -> Result<Architecture, ImportError> {
    let d_head = keys.size("d_head", &["head_dim"], 128)?;
    let rotated = keys.maybe_size("rotary_dim", &["rotary_dim"])?;
    let share = rotated.map_or(1.0, |rotated| rotated as f64 / d_head as f64);
    let defaults = Defaults {
        kv_heads: Some(8),
        d_head: Some(d_head),
        rotation: Rotation::new(share, 5e6),
        ..Defaults::new(62, 3072, 48, 1536, 200_064, 196_608)
    };
    let mut architecture = defaults.read(keys)?;
    let mixture = Mixture { weighting: Weighting::Sigmoid, ..Mixture::new(256, 8) };
    architecture.experts = Some(mixture.read(keys, &architecture)?);
    architecture.qk_norm = QkNorm::Projection;
    keys.same(&["use_qk_norm", "qk_norm_type"]);
    Ok(architecture)
}

/// Phi-3.5-MoE: LayerNorms, and two experts whose weights are those of SparseMixer in evaluation.
pub(super) fn phimoe(keys: &Keys) -> Result<Architecture, ImportError> {
    let defaults = Defaults {
        kv_heads: Some(8),
        eps: 1e-5,
        rotation: Rotation::new(1.0, 1e6),
        ..Defaults::new(32, 4096, 32, 6400, 32064, 131_072)
    };
    let mut architecture = defaults.read(keys)?;
    architecture.norm = Some(NormChoice::Layernorm);
    biases(keys, &mut architecture)?;
    architecture.head_bias = keys.flag("head_bias", &["lm_head_bias"], false)?;
    windows(keys, &mut architecture, None)?;
    let margin = 2.0 * keys.number("margin of router scores, halved", &["router_jitter_noise"], 0.01)?;
    if (margin - Weighting::MARGIN).abs() > 1e-9 {
        let got = Value::from(0.5 * margin);
        return Err(ImportError::value("router_jitter_noise", "0.01, half the margin of SparseMixer", &got, ""));
    }
    // The model chooses two experts, whatever the config says.
    let experts = Mixture::new(16, 2).read(keys, &architecture)?;
    architecture.experts = Some(Experts { top_k: 2, weighting: Weighting::Sparsemixer, normalised: false, ..experts });
    keys.note("choice of experts", "the largest scores", "evaluation; training samples it");
    Ok(architecture)
}

/// GLM-4-MoE and dots.llm1: grouped-query attention with DeepSeek-V3's mixture.
pub(super) fn sigmoid(keys: &Keys) -> Result<Architecture, ImportError> {
    let dots = keys.family() == "dots1";
    let defaults = if dots {
        Defaults { kv_heads: Some(32), ..Defaults::new(62, 4608, 32, 10944, 152_064, 2048) }
    } else {
        Defaults {
            kv_heads: Some(8),
            eps: 1e-5,
            rotation: Rotation::new(0.5, 10_000.0),
            ..Defaults::new(46, 4096, 96, 10944, 151_552, 131_072)
        }
    };
    let mut architecture = defaults.read(keys)?;
    let mixture = Mixture {
        d_ff: Some(1408),
        shared: Shared::Many(1),
        weighting: Weighting::Sigmoid,
        normalised: Some(!dots),
        scale: Some(1.0),
        first_dense: Some(usize::from(!dots)),
        ..Mixture::new(128, if dots { 6 } else { 8 })
    };
    architecture.experts = Some(mixture.read(keys, &architecture)?);
    groups(keys, Weighting::Sigmoid, [1, 1])?;
    biases(keys, &mut architecture)?;
    if dots {
        architecture.qk_norm = QkNorm::Head;
        last_windows(keys, &mut architecture, 62)?;
    } else {
        // The width is not a multiple of the number of heads by default.
        architecture.d_head = architecture.d_head.or(Some(architecture.d_model / architecture.n_heads.unwrap_or(1)));
        architecture.attention_output_bias = Some(false);
        let normed = keys.flag("qk_norm", &["use_qk_norm"], false)?;
        architecture.qk_norm = if normed { QkNorm::Head } else { QkNorm::None };
    }
    Ok(architecture)
}

/// ERNIE 4.5 with experts.
pub(super) fn ernie(keys: &Keys) -> Result<Architecture, ImportError> {
    let defaults = Defaults {
        kv_heads: Some(4),
        eps: 1e-5,
        tied: true,
        rotation: Rotation::new(1.0, 5e5),
        ..Defaults::new(28, 2560, 20, 12288, 103_424, 131_072)
    };
    let mut architecture = defaults.read(keys)?;
    let mixture = Mixture { d_ff: Some(1536), shared: Shared::Many(2), first_dense: Some(1), ..Mixture::new(64, 6) };
    let experts = mixture.read(keys, &architecture)?;
    // The library counts blocks from the first of the network, and the key is the index of the last block with experts.
    let last = keys.raw("moe_layer_end_index").and_then(Value::as_i64).unwrap_or(-1);
    if !experts.first_dense.is_multiple_of(experts.every) {
        let got = Value::from(experts.every);
        return Err(ImportError::value("moe_layer_interval", "a divisor of moe_layer_start_index", &got, ""));
    }
    if last != -1 && last + 1 < architecture.n_layers as i64 {
        let got = Value::from(last);
        return Err(ImportError::value("moe_layer_end_index", "-1 or the last block", &got, ""));
    }
    architecture.experts = Some(experts);
    let biases = keys.flag("attention biases", &["use_bias"], false)?;
    architecture.qkv_biases = Some(biases);
    architecture.attention_output_bias = Some(biases);
    if biases {
        keys.warn("biases of dense blocks and shared experts are left out; they start at 0".to_owned());
    }
    keys.same(&["moe_norm_min"]);
    Ok(architecture)
}

/// Hunyuan with experts and one shared expert.
pub(super) fn hunyuan(keys: &Keys) -> Result<Architecture, ImportError> {
    let mut architecture = Defaults { eps: 1e-5, ..Defaults::new(32, 4096, 32, 11008, 290_943, 2048) }.read(keys)?;
    let experts = Mixture::new(1, 1).read(keys, &architecture)?;
    architecture.experts = Some(Experts { shared_d_ff: experts.d_ff, ..experts });
    architecture.qk_norm = QkNorm::Head;
    biases(keys, &mut architecture)?;
    architecture.ffn_biases = Some(false);
    keys.same(&["use_qk_norm", "norm_topk_prob", "moe_intermediate_size", "num_shared_expert"]);
    Ok(architecture)
}
