//! DeepSeek-V2, V3 and V3.2, Kimi K2, which is V3, and GLM-5: latent attention, mixtures with shared experts.

use sigprop_stack::{Multiplied, Weighting};

use super::super::ImportError;
use super::super::init::base;
use super::super::rotary::{Rotation, deepseek_score_factor, rotary};
use super::mixture::groups;
use super::{Keys, Standard, activation, biases, mlp_layer_types, tied};
use crate::architecture::{Architecture, Experts, Latent, NormChoice};

pub(super) fn deepseek(keys: &Keys) -> Result<Architecture, ImportError> {
    let (three, glm) = (keys.family() != "deepseek_v2", keys.family() == "glm_moe_dsa");
    let sizes = match keys.family() {
        "deepseek_v2" => Standard { layers: 32, width: 4096, heads: 32, ffn: 11008, vocab: 102_400, positions: 2048 },
        "glm_moe_dsa" => {
            Standard { layers: 78, width: 6144, heads: 64, ffn: 12288, vocab: 154_880, positions: 202_752 }
        }
        family => {
            let positions = if family == "deepseek_v32" { 163_840 } else { 4096 };
            Standard { layers: 61, width: 7168, heads: 128, ffn: 18432, vocab: 129_280, positions }
        }
    };
    let mut architecture = Architecture {
        activation: activation(keys, &["hidden_act"], "silu", true)?,
        norm: Some(NormChoice::Rmsnorm),
        norm_eps: keys.number("norm_eps", &["rms_norm_eps"], if glm { 1e-5 } else { 1e-6 })?,
        biases: false,
        causal: true,
        attention_dropout: keys.rate("attention_dropout", &["attention_dropout"], 0.0)?,
        head: tied(keys, false)?,
        hf_init: Some(base(keys, 0.02)?),
        ..sizes.read(keys)?
    };
    let latent = Latent {
        query_rank: if keys.is_null("q_lora_rank") {
            None
        } else {
            Some(keys.size("rank of queries", &["q_lora_rank"], if glm { 2048 } else { 1536 })?)
        },
        kv_rank: keys.size("rank of keys and values", &["kv_lora_rank"], 512)?,
        d_nope: keys.size("d_nope", &["qk_nope_head_dim"], if glm { 192 } else { 128 })?,
        d_rope: keys.size("d_rope", &["qk_rope_head_dim"], 64)?,
        d_value: keys.size("d_value", &["v_head_dim"], if glm { 256 } else { 128 })?,
    };
    architecture.latent = Some(latent);
    biases(keys, &mut architecture)?;
    let shared = keys.count("shared experts", &["n_shared_experts"], if three { 1 } else { 2 })?;
    let d_ff = keys.size("d_ff of an expert", &["moe_intermediate_size"], if three { 2048 } else { 1407 })?;
    if let Some(n_experts) = keys.maybe_size("n_experts", &["n_routed_experts"])?.or(Some(if three { 256 } else { 64 }))
    {
        architecture.experts = Some(Experts {
            n_experts,
            top_k: keys.size("top_k", &["num_experts_per_tok"], if three { 8 } else { 6 })?.min(n_experts),
            d_ff,
            shared_d_ff: shared * d_ff,
            shared_gate: false,
            weighting: if three { Weighting::Sigmoid } else { Weighting::Softmax },
            weights_multiply: Multiplied::Outputs,
            router_scale: 1.0,
            own_norms: false,
            normalised: keys.flag("normalised experts", &["norm_topk_prob"], three)?,
            scale: keys.number("scale of experts", &["routed_scaling_factor"], if three { 2.5 } else { 1.0 })?,
            first_dense: keys.count("first dense blocks", &["first_k_dense_replace"], if three { 3 } else { 0 })?,
            every: keys.size("every how many blocks", &["moe_layer_freq"], 1)?,
        });
        if three {
            groups(keys, Weighting::Sigmoid, if glm { [1, 1] } else { [8, 4] })?;
        } else if keys.word("choice of experts", &["topk_method"], "greedy")? == "group_limited_greedy" {
            groups(keys, Weighting::Softmax, [1, 1])?;
        }
    }
    rotary(keys, &mut architecture, latent.d_rope, Rotation::new(1.0, 10_000.0))?;
    let factor = deepseek_score_factor(keys)?;
    architecture.attention_scale = Some(factor * ((latent.d_nope + latent.d_rope) as f64).powf(-0.5));
    // All features of the rotated part of a head are rotated.
    architecture.rotary_dim = None;
    if INDEXED.contains(&keys.family()) {
        mlp_layer_types(keys, &mut architecture)?;
        indexer(keys, &architecture)?;
    }
    Ok(architecture)
}

/// Families whose attention has an indexer, which keeps some tokens for each query.
pub(in crate::huggingface) const INDEXED: [&str; 2] = ["deepseek_v32", "glm_moe_dsa"];

/// Warns if the indexer would not keep all tokens. It keeps the tokens with the highest scores: all,
/// in sequences that are short enough.
fn indexer(keys: &Keys, architecture: &Architecture) -> Result<(), ImportError> {
    let kept = keys.size("tokens kept by the indexer", &["index_topk"], 2048)?;
    let tokens = keys.options.seq_len.unwrap_or(architecture.seq_len);
    if tokens > kept {
        keys.warn(format!(
            "attention sees all {tokens} tokens; the indexer, which is left out, keeps {kept} (index_topk)"
        ));
    }
    Ok(())
}
