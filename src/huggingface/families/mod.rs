//! Families of models, and the functions that read their configs.

mod bert;
mod deberta;
mod deepseek;
mod encoder_decoder;
mod gemma;
mod gpt;
mod llama;
mod llama4;
mod minimax;
mod mixers;
mod mixture;
mod parallel;
mod recurrent;
mod sinks;
mod variants;
mod vision;

use serde_json::Value;
use sigprop_stack::Init;

pub(super) use deepseek::INDEXED;
pub(super) use minimax::Indexer;

use super::ImportError;
use super::keys::Keys;
use super::names;
use crate::architecture::{Activation, Architecture, Head, InitTable};

/// The default number of tokens of a sequence, if the model has at least as many positions and `--seq-len` is not
/// given.
const DEFAULT_TOKENS: usize = 256;

/// Models whose configs are read in the same way and whose parameters have the same names.
pub(super) struct Family {
    pub(super) model_types: &'static [&'static str],
    pub(super) read: fn(&Keys) -> Result<Architecture, ImportError>,
    pub(super) names: fn(&Architecture) -> names::Modules,
}

/// Every family.
pub(super) const FAMILIES: &[Family] = &[
    Family { model_types: &["gpt2"], read: gpt::gpt2, names: |_| names::GPT2 },
    Family { model_types: &["gpt_bigcode"], read: gpt::bigcode, names: |_| names::BIGCODE },
    Family { model_types: &["gpt_neo"], read: gpt::neo, names: |_| names::GPT_NEO },
    Family { model_types: &["opt"], read: gpt::opt, names: |_| names::OPT },
    Family { model_types: &["openai-gpt"], read: gpt::openai, names: |_| names::OPENAI_GPT },
    Family { model_types: &["xglm", "biogpt"], read: gpt::xglm, names: |_| names::BIOGPT },
    Family { model_types: &["bloom"], read: gpt::bloom, names: |_| names::BLOOM },
    Family { model_types: &["mpt"], read: gpt::mpt, names: |_| names::MPT },
    Family { model_types: &["gptj"], read: parallel::gptj, names: |_| names::GPTJ },
    Family { model_types: &["codegen"], read: parallel::gptj, names: |_| names::CODEGEN },
    Family { model_types: &["gpt_neox"], read: parallel::neox, names: |_| names::NEOX },
    Family { model_types: &["falcon"], read: parallel::falcon, names: names::falcon },
    Family { model_types: &["phi"], read: parallel::phi, names: |_| names::PHI },
    Family { model_types: &["cohere", "cohere2"], read: parallel::cohere, names: |_| names::COHERE },
    Family { model_types: &["stablelm"], read: parallel::stablelm, names: |_| names::STABLELM },
    Family {
        model_types: &["llama", "mistral", "smollm3", "ernie4_5", "seed_oss"],
        read: llama::llama,
        names: |_| names::LLAMA,
    },
    Family { model_types: &["mixtral"], read: mixture::mixtral, names: |_| names::MIXTRAL },
    Family { model_types: &["qwen2_moe", "qwen3_moe"], read: mixture::qwen, names: |_| names::QWEN_MOE },
    Family { model_types: &["qwen3_vl_moe_text"], read: mixture::qwen, names: |_| names::QWEN3_VL_MOE },
    Family {
        model_types: &["qwen2", "qwen3", "qwen2_vl_text", "qwen2_5_vl_text", "qwen3_vl_text", "mimo"],
        read: llama::qwen,
        names: |_| names::LLAMA,
    },
    Family { model_types: &["phi3"], read: llama::phi3, names: |_| names::PHI3 },
    Family { model_types: &["starcoder2"], read: llama::ungated, names: |_| names::STARCODER2 },
    Family { model_types: &["nemotron"], read: llama::ungated, names: |_| names::NEMOTRON },
    Family { model_types: &["arcee"], read: llama::ungated, names: |_| names::UNGATED },
    Family { model_types: &["apertus"], read: llama::ungated, names: |_| names::APERTUS },
    Family { model_types: &["granite", "granite_swa"], read: llama::granite, names: |_| names::LLAMA },
    Family { model_types: &["olmo"], read: llama::olmo, names: |_| names::OLMO },
    Family { model_types: &["olmo2", "olmo3"], read: llama::olmo, names: |_| names::OLMO2 },
    Family { model_types: &["ministral3"], read: variants::ministral, names: |_| names::LLAMA },
    Family { model_types: &["exaone4"], read: variants::exaone, names: |_| names::OLMO2 },
    Family { model_types: &["hunyuan_v1_dense"], read: variants::hunyuan, names: |_| names::HUNYUAN },
    Family { model_types: &["internlm2"], read: variants::internlm, names: |_| names::INTERNLM2 },
    Family { model_types: &["baichuan"], read: variants::baichuan, names: |_| names::BAICHUAN },
    Family { model_types: &["nemotron-nas"], read: variants::nemotron_nas, names: |_| names::LLAMA },
    Family { model_types: &["mllama_text_model"], read: variants::mllama, names: |_| names::MLLAMA },
    Family { model_types: &["nanochat"], read: variants::nanochat, names: |_| names::NANOCHAT },
    Family { model_types: &["llama4_text"], read: llama4::llama4, names: |_| names::LLAMA4 },
    Family { model_types: &["gpt_oss"], read: sinks::gpt_oss, names: |_| names::GPT_OSS },
    Family { model_types: &["openai_privacy_filter"], read: sinks::gpt_oss, names: |_| names::PRIVACY_FILTER },
    Family { model_types: &["mimo_v2_flash"], read: sinks::mimo, names: |_| names::MIMO_V2 },
    Family { model_types: &["lfm2"], read: mixers::lfm2, names: |_| names::LFM2 },
    Family { model_types: &["lfm2_moe"], read: mixers::lfm2, names: |_| names::LFM2 },
    Family { model_types: &["gemma"], read: gemma::gemma, names: |_| names::GEMMA },
    Family { model_types: &["gemma2", "gemma3_text"], read: gemma::gemma, names: |_| names::GEMMA2 },
    Family { model_types: &["gemma4_text"], read: gemma::gemma4, names: |_| names::GEMMA4 },
    Family { model_types: &["glm"], read: gemma::glm, names: |_| names::GLM },
    Family { model_types: &["glm4", "glm4v_text"], read: gemma::glm, names: |_| names::GLM4 },
    Family { model_types: &["olmoe"], read: mixture::olmoe, names: |_| names::QWEN_MOE },
    Family { model_types: &["granitemoe"], read: mixture::granite, names: |_| names::GRANITE_MOE },
    Family { model_types: &["granitemoe_swa"], read: mixture::granite, names: |_| names::GRANITE_MOE },
    Family { model_types: &["granitemoehybrid"], read: recurrent::granite, names: |_| names::GRANITE_HYBRID },
    Family { model_types: &["qwen3_next"], read: recurrent::qwen, names: |_| names::QWEN3_NEXT },
    Family { model_types: &["qwen3_5_text", "qwen3_5_moe_text"], read: recurrent::qwen, names: |_| names::QWEN3_5 },
    Family { model_types: &["olmo_hybrid"], read: recurrent::olmo, names: |_| names::OLMO_HYBRID },
    Family { model_types: &["bamba"], read: recurrent::bamba, names: |_| names::BAMBA },
    Family { model_types: &["falcon_h1"], read: recurrent::falcon, names: |_| names::FALCON_H1 },
    Family { model_types: &["jamba"], read: recurrent::jamba, names: |_| names::JAMBA },
    Family { model_types: &["mamba", "falcon_mamba"], read: recurrent::mamba, names: |_| names::MAMBA },
    Family { model_types: &["mamba2"], read: recurrent::mamba, names: |_| names::MAMBA2 },
    Family { model_types: &["nemotron_h"], read: recurrent::nemotron, names: |_| names::MAMBA2 },
    Family { model_types: &["minimax"], read: recurrent::minimax, names: |_| names::MINIMAX },
    Family { model_types: &["minimax_m2"], read: mixture::minimax, names: |_| names::MIXTRAL },
    Family {
        model_types: &["minimax_m3", "minimax_m3_vl_text"],
        read: minimax::minimax_m3,
        names: |_| names::MINIMAX_M3,
    },
    Family { model_types: &["phimoe"], read: mixture::phimoe, names: |_| names::PHIMOE },
    Family { model_types: &["glm4_moe", "dots1"], read: mixture::sigmoid, names: |_| names::SHARED_EXPERTS },
    Family { model_types: &["ernie4_5_moe"], read: mixture::ernie, names: |_| names::SHARED_EXPERTS },
    Family { model_types: &["hunyuan_v1_moe"], read: mixture::hunyuan, names: |_| names::HUNYUAN },
    Family {
        model_types: &["deepseek_v2", "deepseek_v3", "deepseek_v32", "glm_moe_dsa", "kimi_k2"],
        read: deepseek::deepseek,
        names: names::deepseek,
    },
    Family {
        model_types: &["bert", "roberta", "xlm-roberta", "camembert", "electra", "data2vec-text"],
        read: bert::bert,
        names: |_| names::BERT,
    },
    Family { model_types: &["albert"], read: bert::albert, names: |_| names::ALBERT },
    Family { model_types: &["ernie"], read: bert::ernie, names: |_| names::BERT },
    Family { model_types: &["splinter"], read: bert::splinter, names: |_| names::BERT },
    Family { model_types: &["bert-generation"], read: bert::generation, names: |_| names::BERT },
    Family { model_types: &["roformer"], read: bert::roformer, names: |_| names::BERT },
    Family { model_types: &["megatron-bert"], read: bert::bert, names: |_| names::MEGATRON_BERT },
    Family { model_types: &["roberta-prelayernorm"], read: bert::bert, names: |_| names::ROBERTA_PRE },
    Family { model_types: &["xlm-roberta-xl"], read: bert::bert, names: |_| names::XLM_ROBERTA_XL },
    Family { model_types: &["mpnet"], read: bert::mpnet, names: |_| names::MPNET },
    Family { model_types: &["deberta-v2"], read: deberta::deberta, names: |_| names::DEBERTA_V2 },
    Family { model_types: &["nomic_bert"], read: bert::nomic, names: |_| names::NOMIC_BERT },
    Family { model_types: &["gte"], read: bert::gte, names: |_| names::GTE },
    Family { model_types: &["eurobert"], read: bert::eurobert, names: |_| names::LLAMA },
    Family { model_types: &["esm"], read: bert::esm, names: |_| names::ESM },
    Family { model_types: &["distilbert"], read: bert::distilbert, names: |_| names::DISTILBERT },
    Family { model_types: &["modernbert"], read: bert::modernbert, names: |_| names::MODERNBERT },
    Family { model_types: &["t5gemma"], read: encoder_decoder::t5gemma, names: |_| names::T5GEMMA },
    Family { model_types: &["t5", "mt5", "umt5"], read: encoder_decoder::t5, names: |_| names::T5 },
    Family {
        model_types: &["bart", "mbart", "plbart", "m2m_100", "pegasus"],
        read: encoder_decoder::bart,
        names: |_| names::BART,
    },
    Family { model_types: &["blenderbot"], read: encoder_decoder::bart, names: |_| names::BLENDERBOT },
    Family { model_types: &["marian"], read: encoder_decoder::bart, names: names::marian },
    Family { model_types: &["whisper"], read: encoder_decoder::whisper, names: |_| names::WHISPER },
    Family { model_types: &["vit"], read: vision::vit, names: |_| names::VIT },
    Family { model_types: &["ijepa"], read: vision::vit, names: |_| names::VIT },
    Family { model_types: &["vit_msn"], read: vision::vit_msn, names: |_| names::VIT },
    Family { model_types: &["vit_mae"], read: vision::vit_mae, names: |_| names::VIT },
    Family { model_types: &["deit"], read: vision::deit, names: |_| names::VIT },
    Family { model_types: &["beit"], read: vision::beit, names: |_| names::BEIT },
    Family { model_types: &["dinov3_vit"], read: vision::dinov3, names: names::dinov3 },
    Family { model_types: &["dinov2"], read: vision::dinov2, names: names::dinov2 },
    Family { model_types: &["clip_text_model", "clip_text"], read: vision::clip_text, names: |_| names::CLIP_TEXT },
    Family { model_types: &["clip_vision_model"], read: vision::clip_vision, names: |_| names::CLIP_VISION },
    Family {
        model_types: &["siglip_text_model", "siglip2_text_model"],
        read: vision::siglip_text,
        names: |_| names::CLIP_TEXT,
    },
    Family { model_types: &["siglip_vision_model"], read: vision::siglip_vision, names: |_| names::SIGLIP_VISION },
    Family { model_types: &["siglip2_vision_model"], read: vision::siglip_vision, names: |_| names::SIGLIP2_VISION },
];

/// Returns the family of a `model_type`; `None` if it is not known.
pub(super) fn find(model_type: &str) -> Option<&'static Family> {
    FAMILIES.iter().find(|family| family.model_types.contains(&model_type))
}

/// Default sizes of a family, for keys with standard names.
struct Standard {
    layers: usize,
    width: usize,
    heads: usize,
    ffn: usize,
    vocab: usize,
    positions: usize,
}

/// Keys of the width of the stream.
const WIDTH: &[&str] = &["hidden_size", "d_model", "n_embd", "n_embed", "dim"];

impl Standard {
    fn read(self, keys: &Keys) -> Result<Architecture, ImportError> {
        const POSITIONS: &[&str] = &["max_position_embeddings", "n_positions", "max_seq_len", "max_sequence_length"];
        let d_model = keys.size("d_model", WIDTH, self.width)?;
        let n_heads = keys.size(
            "n_heads",
            &["num_attention_heads", "n_head", "num_heads", "n_heads", "attention_heads"],
            self.heads,
        )?;
        let n_layers = keys.depth(&["num_hidden_layers", "n_layer", "num_layers", "n_layers"], self.layers)?;
        let positions = keys.positions(POSITIONS, self.positions)?;
        Ok(Architecture {
            n_layers,
            d_model,
            n_heads: Some(n_heads),
            d_ff: Some(keys.size("d_ff", &["intermediate_size", "ffn_dim", "n_inner", "hidden_dim"], self.ffn)?),
            vocab_size: keys.size("vocab_size", &["vocab_size"], self.vocab)?,
            seq_len: positions.min(DEFAULT_TOKENS),
            ..Architecture::default()
        })
    }
}

/// Reads the width of a head: from its own key, else the width of the stream over the number of heads.
fn head_width(keys: &Keys, architecture: &mut Architecture, default: Option<usize>) -> Result<usize, ImportError> {
    let default = default.filter(|_| !keys.is_null("head_dim"));
    let explicit = match (keys.maybe_size("d_head", &["head_dim"])?, default) {
        (Some(width), _) => Some(width),
        (None, Some(width)) => {
            keys.note("d_head", width, format!("default of {}", keys.family()));
            Some(width)
        }
        (None, None) => None,
    };
    architecture.d_head = explicit;
    Ok(explicit.unwrap_or(architecture.d_model / architecture.n_heads.unwrap_or(1)).max(1))
}

/// Reads the number of heads of keys and values.
fn kv_heads(keys: &Keys, architecture: &mut Architecture, default: Option<usize>) -> Result<(), ImportError> {
    let given = keys.maybe_size("n_kv_heads", &["num_key_value_heads", "num_kv_heads", "n_head_kv"])?;
    architecture.n_kv_heads = given.or(default.filter(|_| !keys.is_null("num_key_value_heads")));
    Ok(())
}

/// Reads the flags of biases of all maps of attention, and of the feed-forward network.
fn biases(keys: &Keys, architecture: &mut Architecture) -> Result<(), ImportError> {
    let attention = keys.flag("attention biases", &["attention_bias"], false)?;
    architecture.qkv_biases = Some(attention);
    architecture.attention_output_bias = Some(attention);
    architecture.ffn_biases = Some(keys.flag("ffn_biases", &["mlp_bias"], false)?);
    Ok(())
}

/// Reads Granite's multipliers of embeddings, scores, branches and logits.
fn multipliers(keys: &Keys, architecture: &mut Architecture) -> Result<(), ImportError> {
    architecture.embedding_scale = keys.number("embedding_scale", &["embedding_multiplier"], 1.0)?;
    architecture.attention_scale = Some(keys.number("attention_scale", &["attention_multiplier"], 1.0)?);
    architecture.branch_scale = Some(keys.number("branch_scale", &["residual_multiplier"], 1.0)?);
    architecture.logit_scale = keys.number("logits divided by", &["logits_scaling"], 1.0)?.recip();
    Ok(())
}

/// Warns about whole layers that training skips, which the prediction leaves out.
fn skipped_layers(keys: &Keys, key: &'static str, default: f64) -> Result<(), ImportError> {
    let rate = keys.rate(key, &[key], default)?;
    if rate > 0.0 {
        keys.warn(format!("{key} = {rate}: training skips whole layers at this rate; the prediction leaves it out"));
    }
    Ok(())
}

/// Reads the kind of output head: tied or not.
fn tied(keys: &Keys, default: bool) -> Result<Head, ImportError> {
    Ok(if keys.flag("tied head", &["tie_word_embeddings"], default)? { Head::Tied } else { Head::Untied })
}

/// Reads an activation by its name in the library, gated or not.
fn activation(keys: &Keys, names: &[&'static str], default: &str, gated: bool) -> Result<Activation, ImportError> {
    let word = keys.word("activation", names, default)?;
    named_activation(names.first().copied().unwrap_or("activation"), &word, gated)
}

/// Returns the activation called `word`, a value that was read under `key`.
fn named_activation(key: &str, word: &str, gated: bool) -> Result<Activation, ImportError> {
    if gated && word == "swigluoai" {
        return Ok(Activation::QuickGegluPlusOne);
    }
    let plain = match word {
        "gelu" | "gelu_python" | "gelu_10" => Activation::Gelu,
        "gelu_new" | "gelu_fast" | "gelu_pytorch_tanh" | "gelu_python_tanh" | "gelu_accurate" => Activation::GeluTanh,
        "silu" | "swish" => Activation::Silu,
        "relu" => Activation::Relu,
        "relu2" => Activation::Relu2,
        "relu6" => Activation::Relu6,
        "quick_gelu" => Activation::QuickGelu,
        "tanh" => Activation::Tanh,
        "sigmoid" => Activation::Sigmoid,
        "mish" => Activation::Mish,
        "hardswish" => Activation::HardSwish,
        "leaky_relu" => Activation::LeakyRelu,
        "linear" => Activation::Identity,
        "xielu" => Activation::Xielu,
        _ => return Err(unsupported_activation(key, word)),
    };
    if !gated {
        return Ok(plain);
    }
    match plain {
        Activation::Gelu => Ok(Activation::Geglu),
        Activation::GeluTanh => Ok(Activation::GegluTanh),
        Activation::Silu => Ok(Activation::Swiglu),
        Activation::Relu => Ok(Activation::Reglu),
        Activation::Sigmoid => Ok(Activation::Glu),
        _ => Err(unsupported_activation(key, &format!("{word}, gated"))),
    }
}

fn unsupported_activation(key: &str, word: &str) -> ImportError {
    ImportError::value(
        key,
        "an activation that is computed",
        &Value::from(word),
        "gelu, gelu_new, silu, relu, quick_gelu …",
    )
}

/// Returns the table with `output` as the initialisation of the last linear maps of both branches.
fn residual_outputs(table: &InitTable, output: Init) -> InitTable {
    InitTable { attention_output: output, ffn_out: output, expert_out: output, ..*table }
}

/// Returns the window of every block from `layer_types`, 0 for none; `None` if the key is missing.
fn layer_types(keys: &Keys, window: usize) -> Result<Option<Vec<usize>>, ImportError> {
    let Some(value) = keys.raw("layer_types") else { return Ok(None) };
    let read = |kind: &Value| match kind.as_str() {
        Some("sliding_attention" | "chunked_attention") => Some(window),
        Some("full_attention") => Some(0),
        _ => None,
    };
    let windows = value.as_array().and_then(|kinds| kinds.iter().map(read).collect::<Option<Vec<usize>>>());
    match windows {
        Some(windows) => {
            keys.note("windows", windows.iter().filter(|window| **window > 0).count(), "layer_types");
            Ok(Some(windows))
        }
        None => Err(ImportError::value("layer_types", "full_attention or sliding_attention per layer", value, "")),
    }
}

/// Reads `mlp_layer_types`, which lists the blocks without experts, or else a list `moe_layer_freq`, if the config has
/// it.
fn mlp_layer_types(keys: &Keys, architecture: &mut Architecture) -> Result<(), ImportError> {
    let frequencies = keys.raw("moe_layer_freq").filter(|value| value.is_array());
    let value = keys.raw("mlp_layer_types").or(frequencies);
    let (Some(value), Some(experts)) = (value, &mut architecture.experts) else { return Ok(()) };
    let is_dense = |kind: &Value| match (kind.as_str(), kind.as_u64()) {
        (Some("dense"), _) | (_, Some(0)) => Some(true),
        (Some("sparse"), _) | (_, Some(1)) => Some(false),
        _ => None,
    };
    let dense = value.as_array().and_then(|kinds| kinds.iter().map(is_dense).collect::<Option<Vec<bool>>>());
    let expected = "dense or sparse, or 0 or 1 in moe_layer_freq, per layer";
    let dense = dense.ok_or_else(|| ImportError::value("mlp_layer_types", expected, value, ""))?;
    architecture.dense_blocks = (0..dense.len()).filter(|block| dense[*block]).collect();
    experts.first_dense = 0;
    keys.note("dense blocks", architecture.dense_blocks.len(), "mlp_layer_types");
    Ok(())
}

/// Reads a soft cap. Null means that there is none; a missing key means the default of the family.
fn cap(keys: &Keys, name: &str, key: &'static str, default: Option<f64>) -> Result<Option<f64>, ImportError> {
    match default.filter(|_| !keys.is_null(key)) {
        Some(default) => Ok(Some(keys.number(name, &[key], default)?)),
        None => keys.maybe_number(name, &[key]),
    }
}
