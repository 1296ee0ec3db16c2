//! Decoders with recurrences in place of attention in some or all blocks.

use serde_json::Value;
use sigprop_stack::{Init, Rates, StepBias, Weighting};

use super::super::ImportError;
use super::super::init::base;
use super::super::rotary::Rotation;
use super::llama::Defaults;
use super::mixture::{Mixture, Shared, dense_blocks};
use super::{Keys, WIDTH, activation, biases, tied};
use crate::architecture::{
    Architecture, Experts, InitTable, Mixer, Multipliers, NormChoice, NormPlacement, Positions, QkNorm, RecurrentForm,
    RecurrentMixer,
};

/// Qwen3-Next and Qwen3.5: gated delta rules, and attention with a gate in every fourth block.
pub(super) fn qwen(keys: &Keys) -> Result<Architecture, ImportError> {
    let (sizes, kv_heads, experts) = match keys.family() {
        "qwen3_next" => (Defaults::new(48, 2048, 16, 5632, 151_936, 32_768), 2, Some([512, 10])),
        "qwen3_5_moe_text" => (Defaults::new(40, 2048, 16, 512, 248_320, 32_768), 2, Some([256, 8])),
        _ => (Defaults::new(32, 4096, 16, 12_288, 248_320, 32_768), 4, None),
    };
    let rotation = Rotation::new(0.25, 10_000.0);
    let defaults = Defaults { kv_heads: Some(kv_heads), d_head: Some(256), rotation, ..sizes };
    let mut architecture = defaults.read(keys)?;
    architecture.qk_norm = QkNorm::Head;
    architecture.attention_gate = true;
    biases(keys, &mut architecture)?;
    architecture.ffn_biases = Some(false);
    if let Some([n_experts, top_k]) = experts {
        let normalised = (keys.family() == "qwen3_next").then_some(true);
        let shared = Shared::Gated(512);
        let mixture = Mixture { d_ff: Some(512), shared, normalised, ..Mixture::new(n_experts, top_k) };
        architecture.experts = Some(mixture.read(keys, &architecture)?);
        architecture.dense_blocks = dense_blocks(keys)?;
    }
    architecture.recurrence = Some(gated_delta(keys, [16, 32], |_| 128, |_| 128)?);
    let every = keys.size("attention in every so many blocks", &["full_attention_interval"], 4)?;
    let default = |index: usize| if (index + 1).is_multiple_of(every) { Mixer::Attention } else { Mixer::Recurrence };
    architecture.mixers = layers(keys, architecture.n_layers, default)?;
    Ok(architecture)
}

/// The gated delta rule with Qwen's distributions. The defaults of the numbers of heads are those of keys and of values,
/// the default of `d_key` follows from the number of heads of keys, and that of `d_value` from `d_key`.
fn gated_delta(
    keys: &Keys,
    [n_key_heads, n_heads]: [usize; 2],
    d_key: impl Fn(usize) -> usize,
    d_value: impl Fn(usize) -> usize,
) -> Result<RecurrentMixer, ImportError> {
    let n_key_heads = keys.size("heads of keys of recurrences", &["linear_num_key_heads"], n_key_heads)?;
    let n_heads = keys.size("heads of values of recurrences", &["linear_num_value_heads"], n_heads)?;
    let d_key = keys.size("d_key of recurrences", &["linear_key_head_dim"], d_key(n_key_heads))?;
    Ok(RecurrentMixer {
        form: RecurrentForm::GatedDelta,
        n_heads,
        n_key_heads,
        d_key,
        d_value: keys.size("d_value of recurrences", &["linear_value_head_dim"], d_value(d_key))?,
        taps: keys.size("taps", &["linear_conv_kernel_dim"], 4)?,
        tap_biases: false,
        biases: false,
        rates: Rates::Uniform { low: 0.01, high: 16.0 },
        step_bias: StepBias::Value(1.0),
        strength: 1.0,
        norm_groups: n_heads,
        norm_eps: None,
        block_norms: None,
        step_rank: 0,
        latent_norms: false,
    })
}

/// OLMo hybrid: gated delta rules in Pre-LN blocks, and attention in every fourth block, which is as in OLMo 2.
pub(super) fn olmo(keys: &Keys) -> Result<Architecture, ImportError> {
    let mut architecture = Defaults::new(32, 3840, 30, 11_008, 100_352, 65_536).read(keys)?;
    biases(keys, &mut architecture)?;
    architecture.norm_placement = NormPlacement::Reordered;
    architecture.qk_norm = QkNorm::Projection;
    if keys.nested("rope_parameters")?.is_some_and(|rotation| rotation.get("rope_theta").is_some_and(Value::is_null)) {
        keys.note("positions", Positions::None, "rope_parameters.rope_theta");
        architecture.positions = Positions::None;
        architecture.rotary_dim = None;
    }
    let (d_model, n_layers) = (architecture.d_model, architecture.n_layers);
    let n_heads = architecture.n_heads.unwrap_or(1);
    let rates = Rates::Uniform {
        low: keys.number("smallest rate", &["linear_a_log_min"], 0.0)?,
        high: keys.number("largest rate", &["linear_a_log_max"], 16.0)?,
    };
    let low = keys.number("smallest step", &["linear_dt_min"], 0.001)?;
    let floor = keys.number("floor of steps", &["linear_dt_init_floor"], 1e-4)?;
    if low < floor {
        return Err(ImportError::value("linear_dt_min", "at least linear_dt_init_floor", &Value::from(low), ""));
    }
    let negative = keys.flag("strengths up to 2", &["linear_allow_neg_eigval"], true)?;
    architecture.recurrence = Some(RecurrentMixer {
        rates,
        step_bias: StepBias::LogUniform { low, high: keys.number("largest step", &["linear_dt_max"], 0.1)? },
        strength: if negative { 2.0 } else { 1.0 },
        norm_eps: Some(1e-5),
        block_norms: Some(NormPlacement::Pre),
        ..gated_delta(keys, [n_heads, n_heads], |n_key_heads| 3 * d_model / (4 * n_key_heads), |d_key| 2 * d_key)?
    });
    let attends = |index: usize| (index + 1).is_multiple_of(4) || n_layers < 4 && index + 1 == n_layers;
    let default = |index| if attends(index) { Mixer::Attention } else { Mixer::Recurrence };
    architecture.mixers = layers(keys, n_layers, default)?;
    Ok(architecture)
}

/// Bamba: Mamba-2 in all blocks but a few with attention, and feed-forward networks.
pub(super) fn bamba(keys: &Keys) -> Result<Architecture, ImportError> {
    let rotation = Rotation::new(0.5, 10_000.0);
    let sizes = Defaults::new(32, 4096, 32, 14_336, 128_000, 262_144);
    let mut architecture = Defaults { kv_heads: Some(8), eps: 1e-5, rotation, ..sizes }.read(keys)?;
    biases(keys, &mut architecture)?;
    let attends = keys.raw("attn_layer_indices").and_then(Value::as_array);
    let mixer = |index: usize| match attends {
        Some(attends) if attends.contains(&Value::from(index)) => Mixer::Attention,
        Some(_) | None => Mixer::Recurrence,
    };
    architecture.mixers = layers(keys, architecture.n_layers, mixer)?;
    hybrid(keys, &mut architecture)?;
    Ok(architecture)
}

/// Granite 4: Mamba-2 in the blocks that `layer_types` names.
pub(super) fn granite(keys: &Keys) -> Result<Architecture, ImportError> {
    let mut architecture = super::mixture::granite(keys)?;
    architecture.mixers = layers(keys, architecture.n_layers, |_| Mixer::Recurrence)?;
    hybrid(keys, &mut architecture)?;
    Ok(architecture)
}

/// Falcon-H1: attention and Mamba-2 side by side in every block, with factors on their parts. Factors on the inputs of
/// linear maps are factors on their outputs here; those of queries and keys are factors on the scores.
pub(super) fn falcon(keys: &Keys) -> Result<Architecture, ImportError> {
    let sizes = Defaults::new(32, 4096, 32, 14_336, 128_000, 8192);
    let mut architecture = Defaults { kv_heads: Some(8), eps: 1e-5, ..sizes }.read(keys)?;
    biases(keys, &mut architecture)?;
    architecture.embedding_scale = keys.number("embedding_scale", &["embedding_multiplier"], 1.0)?;
    architecture.logit_scale = keys.number("logit_scale", &["lm_head_multiplier"], 1.0)?;
    let attended = keys.number("factor on the input of attention", &["attention_in_multiplier"], 1.0)?;
    let key = keys.number("factor on keys", &["key_multiplier"], 1.0)?;
    let d_head = architecture.d_head.unwrap_or(architecture.d_model / architecture.n_heads.unwrap_or(1));
    architecture.attention_scale = Some(attended.powi(2) * key / (d_head as f64).sqrt());
    architecture.value_scale = attended;
    let input = keys.number("factor on the input of recurrences", &["ssm_in_multiplier"], 1.0)?;
    let [gate, value, key, query, step] = factors(keys, "ssm_multipliers")?.map(|factor| input * factor);
    let [ffn_gate, ffn_output] = factors(keys, "mlp_multipliers")?;
    architecture.multipliers = Some(Multipliers {
        ffn_gate,
        ffn_output,
        attention_output: keys.number("factor on attention", &["attention_out_multiplier"], 1.0)?,
        recurrence_output: keys.number("factor on recurrences", &["ssm_out_multiplier"], 1.0)?,
        recurrence_gate: gate,
        recurrence_value: value,
        recurrence_key: key,
        recurrence_query: query,
        recurrence_step: step,
    });
    keys.same(&["layer_types", "layers_block_type", "projectors_bias"]);
    architecture.mixers = vec![Mixer::AttentionAndRecurrence; architecture.n_layers];
    hybrid(keys, &mut architecture)?;
    let normed = keys.flag("norms of recurrences", &["mamba_rms_norm"], false)?;
    if normed && keys.flag("norms before gates", &["mamba_norm_before_gate"], true)? {
        let expected = "false: norms before the gates of Mamba-2 are not computed";
        return Err(ImportError::value("mamba_norm_before_gate", expected, &Value::from(true), ""));
    }
    if !normed {
        architecture.recurrence = architecture.recurrence.map(|mixer| RecurrentMixer { norm_groups: 0, ..mixer });
    }
    Ok(architecture)
}

/// Reads a list of N factors, which are 1 by default.
fn factors<const N: usize>(keys: &Keys, key: &'static str) -> Result<[f64; N], ImportError> {
    let Some(value) = keys.raw(key).filter(|value| !value.is_null()) else { return Ok([1.0; N]) };
    let numbers = value.as_array().and_then(|list| list.iter().map(Value::as_f64).collect::<Option<Vec<f64>>>());
    let expected = if N == 2 { "two numbers" } else { "five numbers" };
    let read = numbers.and_then(|numbers| numbers.try_into().ok());
    let read = read.ok_or_else(|| ImportError::value(key, expected, value, ""))?;
    keys.note(key, value, key);
    Ok(read)
}

/// Adds the Mamba-2 of hybrids with attention.
fn hybrid(keys: &Keys, architecture: &mut Architecture) -> Result<(), ImportError> {
    if !architecture.mixers.iter().any(|mixer| mixer.has_recurrence()) {
        architecture.mixers = Vec::new();
        return Ok(());
    }
    let n_heads = keys.size("heads of recurrences", &["mamba_n_heads"], 128)?;
    let width = match keys.maybe_size("width of recurrences", &["mamba_d_ssm"])? {
        Some(width) => width,
        None if keys.family() == "falcon_h1" && !keys.is_null("mamba_d_ssm") => 1024,
        None => keys.size("width of recurrences over d_model", &["mamba_expand"], 2)? * architecture.d_model,
    };
    keys.same(&["mamba_d_head", "mamba_chunk_size", "time_step_limit"]);
    architecture.recurrence = Some(RecurrentMixer {
        d_value: width / n_heads,
        taps: keys.size("taps", &["mamba_d_conv"], 4)?,
        tap_biases: keys.flag("biases of taps", &["mamba_conv_bias"], true)?,
        biases: keys.flag("biases of recurrences", &["mamba_proj_bias"], false)?,
        step_bias: StepBias::Value(1.0),
        ..mamba2(
            n_heads,
            keys.size("groups of recurrences", &["mamba_n_groups"], 1)?,
            keys.size("d_key of recurrences", &["mamba_d_state"], 256)?,
        )
    });
    Ok(())
}

/// Mamba-2 with its own defaults.
fn mamba2(n_heads: usize, n_key_heads: usize, d_key: usize) -> RecurrentMixer {
    RecurrentMixer {
        form: RecurrentForm::Mamba2,
        n_heads,
        n_key_heads,
        d_key,
        d_value: 64,
        taps: 4,
        tap_biases: true,
        biases: false,
        rates: Rates::Counted,
        step_bias: StepBias::LogUniform { low: 0.001, high: 0.1 },
        strength: 1.0,
        norm_groups: n_key_heads,
        norm_eps: None,
        block_norms: None,
        step_rank: 0,
        latent_norms: false,
    }
}

/// Mamba, Falcon-Mamba and Mamba-2: recurrences alone.
pub(super) fn mamba(keys: &Keys) -> Result<Architecture, ImportError> {
    let second = keys.family() == "mamba2";
    let d_model = keys.size("d_model", WIDTH, if second { 4096 } else { 768 })?;
    let n_layers = keys.depth(&["num_hidden_layers", "n_layer"], if second { 64 } else { 32 })?;
    let width = keys.size("width of recurrences over d_model", &["expand"], 2)? * d_model;
    let d_key = keys.size("d_key of recurrences", &["state_size"], if second { 128 } else { 16 })?;
    let (own, step) = if second {
        let n_heads = keys.size("heads of recurrences", &["num_heads"], 128)?;
        let groups = keys.size("groups of recurrences", &["n_groups"], 8)?;
        keys.same(&["head_dim"]);
        (RecurrentMixer { d_value: width / n_heads, ..mamba2(n_heads, groups, d_key) }, None)
    } else {
        let rank = step_rank(keys, "time_step_rank", d_model)?;
        let scale = keys.number("scale of steps", &["time_step_scale"], 1.0)?;
        let bound = (rank as f64).powf(-0.5) * scale;
        let plain = mamba1(width, d_key, rank);
        let mixer = if keys.family() == "falcon_mamba" {
            let eps = keys.number("ε of norms of latents", &["mixer_rms_eps"], 1e-6)?;
            RecurrentMixer { norm_eps: Some(eps), latent_norms: true, ..plain }
        } else {
            plain
        };
        (mixer, Some(Init::Uniform { bound }))
    };
    let mixer = RecurrentMixer {
        taps: keys.size("taps", &["conv_kernel", "d_conv"], 4)?,
        tap_biases: keys.flag("biases of taps", &["use_conv_bias"], true)?,
        biases: keys.flag("biases of recurrences", &["use_bias"], false)?,
        step_bias: step_bias(keys)?,
        ..own
    };
    let rescaled = keys.flag("outputs over the root of the depth", &["rescale_prenorm_residual"], false)?;
    let table = InitTable { step, ..base(keys, 0.1)? };
    Ok(Architecture {
        n_layers,
        d_model,
        vocab_size: keys.size("vocab_size", &["vocab_size"], if second { 32_768 } else { 50_280 })?,
        norm: Some(NormChoice::Rmsnorm),
        norm_eps: keys.number("norm_eps", &["layer_norm_epsilon"], 1e-5)?,
        biases: false,
        causal: true,
        positions: Positions::None,
        head: tied(keys, !second)?,
        mixers: vec![Mixer::Recurrence; n_layers],
        block_d_ff: vec![0; n_layers],
        recurrence: Some(mixer),
        hf_init: Some(InitTable {
            taps: Some(Init::Uniform { bound: (mixer.taps as f64).powf(-0.5) }),
            recurrence_output: Some(uniform_output(width, if rescaled { n_layers } else { 1 })),
            ..table
        }),
        ..Architecture::default()
    })
}

/// Mamba-1 with its own defaults.
fn mamba1(width: usize, d_key: usize, step_rank: usize) -> RecurrentMixer {
    RecurrentMixer { form: RecurrentForm::Mamba1, d_value: 1, norm_groups: 0, step_rank, ..mamba2(width, 1, d_key) }
}

/// MiniMax-01: lightning attention and attention in turns, experts, and residual connections from the norms.
pub(super) fn minimax(keys: &Keys) -> Result<Architecture, ImportError> {
    let mut architecture = super::mixture::mixtral(keys)?;
    architecture.skip_from_norm = true;
    let skip = keys.number("skip_scale", &["mlp_alpha_factor"], 1.0)?;
    let branch = keys.number("branch_scale", &["mlp_beta_factor"], 1.0)?;
    (architecture.skip_scale, architecture.branch_scale) = (Some(skip), Some(branch));
    for (key, expected) in [
        ("full_attn_alpha_factor", skip),
        ("linear_attn_alpha_factor", skip),
        ("full_attn_beta_factor", branch),
        ("linear_attn_beta_factor", branch),
    ] {
        let got = keys.number("factor of attention", &[key], 1.0)?;
        if (got - expected).abs() > 0.0 {
            return Err(ImportError::value(key, "the factor of mlp", &Value::from(got), ""));
        }
    }
    keys.same(&["block_size"]);
    let n_heads = architecture.n_heads.unwrap_or(1);
    let d_head = architecture.d_head.unwrap_or(architecture.d_model / n_heads);
    architecture.recurrence = Some(RecurrentMixer {
        form: RecurrentForm::Lightning,
        d_value: d_head,
        norm_groups: 1,
        norm_eps: Some(1e-6),
        ..mamba2(n_heads, n_heads, d_head)
    });
    let default = |index: usize| if index.is_multiple_of(2) { Mixer::Attention } else { Mixer::Recurrence };
    architecture.mixers = layers(keys, architecture.n_layers, default)?;
    Ok(architecture)
}

/// Jamba: Mamba-1 with norms of its latents, attention in every eighth block, experts in every other block.
pub(super) fn jamba(keys: &Keys) -> Result<Architecture, ImportError> {
    let sizes = Defaults::new(32, 4096, 32, 14_336, 65_536, 262_144);
    let mut architecture = Defaults { kv_heads: Some(8), ..sizes }.read(keys)?;
    architecture.positions = Positions::None;
    architecture.rotary_dim = None;
    let (width, n_layers) = (architecture.d_model, architecture.n_layers);
    let period = keys.size("attention in every so many blocks", &["attn_layer_period"], 8)?;
    let offset = keys.count("first block with attention", &["attn_layer_offset"], 4)?;
    let mixer = |index: usize| if index % period == offset { Mixer::Attention } else { Mixer::Recurrence };
    architecture.mixers = (0..n_layers).map(mixer).collect();
    let state = keys.size("d_key of recurrences", &["mamba_d_state"], 16)?;
    let expanded = width * keys.size("width of recurrences over d_model", &["mamba_expand"], 2)?;
    architecture.recurrence = Some(RecurrentMixer {
        taps: keys.size("taps", &["mamba_d_conv"], 4)?,
        tap_biases: keys.flag("biases of taps", &["mamba_conv_bias"], true)?,
        biases: keys.flag("biases of recurrences", &["mamba_proj_bias"], false)?,
        step_bias: StepBias::Value(0.0),
        latent_norms: true,
        ..mamba1(expanded, state, step_rank(keys, "mamba_dt_rank", width)?)
    });
    let experts = Experts { normalised: false, ..Mixture::new(16, 2).read(keys, &architecture)? };
    let period = keys.size("experts in every so many blocks", &["expert_layer_period"], 2)?;
    let offset = keys.count("first block with experts", &["expert_layer_offset"], 1)?;
    if experts.n_experts > 1 {
        architecture.dense_blocks = (0..n_layers).filter(|index| index % period != offset).collect();
        architecture.experts = Some(experts);
    }
    Ok(architecture)
}

/// Nemotron-H: every block has one branch, which is Mamba-2, attention, a feed-forward network or experts.
pub(super) fn nemotron(keys: &Keys) -> Result<Architecture, ImportError> {
    let kinds = nemotron_kinds(keys)?;
    let sizes = Defaults::new(kinds.len(), 4096, 32, 21_504, 131_072, 4096);
    let defaults =
        Defaults { kv_heads: Some(8), d_head: Some(128), activation: "relu2", gated: false, eps: 1e-5, ..sizes };
    let mut architecture = defaults.read(keys)?;
    architecture.activation = activation(keys, &["mlp_hidden_act"], "relu2", false)?;
    architecture.n_layers = kinds.len();
    architecture.positions = Positions::None;
    architecture.rotary_dim = None;
    biases(keys, &mut architecture)?;
    let mixer = |kind: &Kind| match kind {
        Kind::Recurrence => Mixer::Recurrence,
        Kind::Attention => Mixer::Attention,
        Kind::FeedForward | Kind::Experts => Mixer::None,
    };
    architecture.mixers = kinds.iter().map(mixer).collect();
    let d_ff = architecture.d_ff.unwrap_or(4 * architecture.d_model);
    architecture.block_d_ff =
        architecture.mixers.iter().map(|mixer| if *mixer == Mixer::None { d_ff } else { 0 }).collect();
    if kinds.contains(&Kind::Experts) {
        architecture.experts = Some(nemotron_experts(keys, &architecture)?);
        architecture.dense_blocks = (0..kinds.len()).filter(|&index| kinds[index] == Kind::FeedForward).collect();
    }
    let n_heads = keys.size("heads of recurrences", &["mamba_num_heads"], 128)?;
    let groups = keys.size("groups of recurrences", &["n_groups", "mamba_n_groups"], 8)?;
    let d_key = keys.size("d_key of recurrences", &["ssm_state_size"], 128)?;
    let mixer = RecurrentMixer {
        d_value: keys.size("d_value of recurrences", &["mamba_head_dim"], 64)?,
        taps: keys.size("taps", &["conv_kernel", "mamba_d_conv"], 4)?,
        tap_biases: keys.flag("biases of taps", &["use_conv_bias", "mamba_conv_bias"], true)?,
        biases: keys.flag("biases of recurrences", &["use_bias"], false)?,
        step_bias: step_bias(keys)?,
        ..mamba2(n_heads, groups, d_key)
    };
    architecture.recurrence = Some(mixer);
    if keys.flag("outputs over the root of the depth", &["rescale_prenorm_residual"], true)? {
        let output = Some(uniform_output(mixer.width(), kinds.len()));
        architecture.hf_init = architecture.hf_init.map(|init| InitTable { recurrence_output: output, ..init });
    }
    Ok(architecture)
}

fn nemotron_experts(keys: &Keys, architecture: &Architecture) -> Result<Experts, ImportError> {
    if let Some(rank) = keys.raw("moe_latent_size").filter(|rank| !rank.is_null()) {
        return Err(ImportError::value("moe_latent_size", "null: experts of a latent are not computed", rank, ""));
    }
    let mixture = Mixture {
        d_ff: Some(7688),
        weighting: Weighting::Sigmoid,
        normalised: Some(true),
        scale: Some(1.0),
        ..Mixture::new(8, 2)
    };
    let shared_d_ff = keys.size("d_ff of shared experts", &["moe_shared_expert_intermediate_size"], 7688)?;
    super::mixture::groups(keys, Weighting::Sigmoid, [1, 1])?;
    Ok(Experts { shared_d_ff, ..mixture.read(keys, architecture)? })
}

/// The only branch of a block of Nemotron-H.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Recurrence,
    Attention,
    FeedForward,
    Experts,
}

/// Returns the kind of every block.
fn nemotron_kinds(keys: &Keys) -> Result<Vec<Kind>, ImportError> {
    let kind = |word: &str| match word {
        "M" | "mamba" | "linear_attention" => Some(Kind::Recurrence),
        "*" | "attention" | "full_attention" => Some(Kind::Attention),
        "-" | "mlp" => Some(Kind::FeedForward),
        "E" | "moe" => Some(Kind::Experts),
        _ => None,
    };
    let pattern = keys.raw("hybrid_override_pattern").and_then(Value::as_str);
    let list = keys.raw("layers_block_type").or(keys.raw("layer_types")).and_then(Value::as_array);
    let words: Vec<String> = match (list, pattern) {
        (Some(list), _) => list.iter().filter_map(Value::as_str).map(str::to_owned).collect(),
        (None, Some(pattern)) => pattern.chars().map(String::from).collect(),
        (None, None) => ["M", "E", "*", "-"].map(str::to_owned).into(),
    };
    let kinds: Option<Vec<Kind>> = words.iter().map(|word| kind(word)).collect();
    kinds.ok_or_else(|| {
        let got = Value::from(words.join(" "));
        ImportError::value("layers_block_type", "linear_attention, full_attention, mlp or moe per layer", &got, "")
    })
}

/// Returns the mixer of every block: those of `layer_types`, or `default`.
fn layers(keys: &Keys, n_layers: usize, default: impl Fn(usize) -> Mixer) -> Result<Vec<Mixer>, ImportError> {
    let Some(value) = keys.raw("layer_types").or(keys.raw("layers_block_type")) else {
        return Ok((0..n_layers).map(default).collect());
    };
    let read = |kind: &Value| match kind.as_str() {
        Some("full_attention" | "attention") => Some(Mixer::Attention),
        Some("linear_attention" | "mamba") => Some(Mixer::Recurrence),
        _ => None,
    };
    let mixers = value.as_array().and_then(|kinds| kinds.iter().map(read).collect::<Option<Vec<Mixer>>>());
    let Some(mixers) = mixers.filter(|mixers| mixers.len() == n_layers) else {
        return Err(ImportError::value("layer_types", "full_attention or linear_attention per layer", value, ""));
    };
    let recurrences = mixers.iter().filter(|mixer| **mixer == Mixer::Recurrence).count();
    keys.note("blocks with a recurrence", recurrences, "layer_types");
    Ok(mixers)
}

/// Returns the width of the latent of steps; `auto` is one for every 16 features.
fn step_rank(keys: &Keys, key: &'static str, d_model: usize) -> Result<usize, ImportError> {
    let is_given = keys.raw(key).is_some_and(Value::is_u64);
    let rank = if is_given { keys.size("rank of steps", &[key], 1)? } else { d_model.div_ceil(16) };
    if !is_given {
        keys.note("rank of steps", rank, "d_model/16");
    }
    Ok(rank)
}

/// Reads the range of steps without input.
fn step_bias(keys: &Keys) -> Result<StepBias, ImportError> {
    let low = keys.number("smallest step", &["time_step_min", "mamba_dt_min"], 0.001)?;
    let high = keys.number("largest step", &["time_step_max", "mamba_dt_max"], 0.1)?;
    Ok(StepBias::LogUniform { low, high })
}

/// PyTorch's default of a map of `width` features, over the root of `depth`.
fn uniform_output(width: usize, depth: usize) -> Init {
    Init::Uniform { bound: ((width * depth) as f64).powf(-0.5) }
}
