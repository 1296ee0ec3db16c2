//! Networks that are not computed, by their unsupported structure.

use serde_json::{Map, Value};

/// Advice for a config whose structure is not computed.
const ADVICE: &str = "describe the nearest network in a TOML file (docs/model-files.md lists all keys)";

const STATE_SPACE: &str = "its state-space, recurrent or linear-attention layers are not of a kind that is computed, which gated delta rules, \
     Mamba and Mamba-2 are";

struct Structure {
    /// The reason why the structure is not computed.
    reason: &'static str,
    /// Model types with this structure, in full or by their first letters.
    model_types: &'static [&'static str],
}

const STRUCTURES: &[Structure] = &[
    Structure {
        reason: "its attention multiplies the output of a head by the sigmoid of one score per head (g_proj), which is \
                 not computed",
        model_types: &["step3p5", "step3p7"],
    },
    Structure { reason: STATE_SPACE, model_types: &["lfm3", "kimi_linear", "bailing_hybrid", "lara_mini"] },
    Structure {
        reason: "its mean over earlier tokens, whose weights are exponentials of keys and decay with distance (WKV), is \
                 not computed",
        model_types: &["rwkv"],
    },
    Structure {
        reason: "its recurrence multiplies the input by √(1 − α²), where α is the decay of the same token (RG-LRU), which \
                 is not computed",
        model_types: &["recurrent_gemma"],
    },
    Structure {
        reason: "its recurrence has exponential gates that are divided by a running sum (mLSTM), which is not computed",
        model_types: &["xlstm"],
    },
    Structure {
        reason: "its attention blocks share their weights and also read the embeddings, which is not computed",
        model_types: &["zamba"],
    },
    Structure { reason: "its Fourier transforms of tokens and features are not computed", model_types: &["fnet"] },
    Structure {
        reason: "it divides each series by its standard deviation and has batch norms in its blocks, which are not \
                 imported",
        model_types: &["patchtst"],
    },
    Structure {
        reason: "its residual network before the first block and the learned factors on features of its queries are not \
                 computed",
        model_types: &["timesfm"],
    },
    Structure {
        reason: "the packed map of queries, keys and values of the first DeBERTa, in which keys have no bias, and disentangled \
                 attention to spans are not computed; DeBERTa-v2 and -v3 are",
        model_types: &["deberta", "sew-d"],
    },
    Structure {
        reason: "attention over blocks, global tokens or hashes is not a mask that is computed",
        model_types: &[
            "longformer",
            "led",
            "big_bird",
            "bigbird_pegasus",
            "longt5",
            "pegasus_x",
            "nystromformer",
            "mra",
            "yoso",
            "reformer",
        ],
    },
    Structure {
        reason: "ternary weights, which the forward pass rounds and rescales, and norms before the last map of a branch \
                 are not computed together; for weights that are not rounded, predict the live module in Python \
                 (docs/live.md): sigprop.torch.predict(AutoModel.from_config(config), tokens)",
        model_types: &["bitnet"],
    },
    Structure {
        reason: "differential attention, the difference of two softmaxes, is not computed",
        model_types: &["diffllama"],
    },
    Structure {
        reason: "two-stream attention, segments and pooled lengths are not computed",
        model_types: &["xlnet", "xlm-prophetnet", "prophetnet", "funnel", "canine", "perceiver"],
    },
    Structure {
        reason: "embeddings per layer and alternating updates of several streams are not computed",
        model_types: &["gemma3n"],
    },
    Structure {
        reason: "convolutions over waveforms and convolutional positions before the first block are not computed",
        model_types: &[
            "wav2vec2",
            "hubert",
            "wavlm",
            "unispeech",
            "sew",
            "data2vec-audio",
            "speecht5",
            "seamless",
            "encodec",
            "mimi",
            "dac",
        ],
    },
    Structure {
        reason: "convolutions and feature maps of several resolutions are not computed",
        model_types: &[
            "swin",
            "donut-swin",
            "hiera",
            "segformer",
            "pvt",
            "cvt",
            "levit",
            "convnext",
            "mobilevit",
            "mobilenet",
            "efficientnet",
            "resnet",
            "regnet",
            "poolformer",
            "focalnet",
            "dinat",
            "glpn",
            "hgnet",
            "convbert",
            "squeezebert",
            "conditional_detr",
            "deformable_detr",
            "detr",
            "dab-detr",
            "rt_detr",
            "sam",
        ],
    },
];

/// Beginnings of model types that are not computed, each with the family whose rules read the rest of such a config.
/// The first match counts.
const WITHOUT: &[(&str, &str)] = &[
    ("deberta", "bert"),
    ("longformer", "roberta"),
    ("led", "bart"),
    ("bigbird_pegasus", "pegasus"),
    ("big_bird", "bert"),
    ("longt5", "t5"),
    ("pegasus_x", "pegasus"),
    ("nystromformer", "bert"),
    ("mra", "bert"),
    ("yoso", "bert"),
    ("diffllama", "llama"),
    ("gemma3n_text", "gemma3_text"),
];

/// Beginnings of model types that start like a shorter entry above but have another structure.
const OTHERS: [&str; 2] = ["sam3", "deberta-v2"];

/// Returns the reason why networks of this kind are not computed, with advice; `None` if they are.
pub(super) fn refused(model_type: &str, config: &Map<String, Value>) -> Option<String> {
    let streams = config.get("hc_mult").is_some_and(|value| !value.is_null());
    // The library has embeddings per layer of width 256 by default.
    let per_layer =
        model_type == "gemma4_text" && config.get("hidden_size_per_layer_input").is_none_or(|width| *width != 0);
    let is_other = |start: &str| OTHERS.iter().any(|other| other.starts_with(start) && model_type.starts_with(other));
    let is_of = |start: &&str| model_type.starts_with(*start) && !is_other(start);
    let structure = STRUCTURES.iter().find(|structure| structure.model_types.iter().any(is_of));
    let reason = match structure {
        _ if streams => "hyper-connections (hc_mult) have several residual streams",
        _ if per_layer => {
            "embeddings per layer (hidden_size_per_layer_input), which multiply a chain of the stream, are not computed"
        }
        Some(structure) => structure.reason,
        None => return None,
    };
    let family = WITHOUT.iter().find(|(start, _)| !streams && model_type.starts_with(start)).map(|(_, family)| family);
    let read = family.map(|family| format!("read the rest of the config with --as {family}, or "));
    Some(format!("{reason}; {}{ADVICE}", read.unwrap_or_default()))
}
