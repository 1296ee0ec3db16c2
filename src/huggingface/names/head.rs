//! Heads over the vocabulary. They are outside the base model, so their names are complete.

use super::{Module, bare, norm, rows, table, unbiased};
use crate::architecture::{Architecture, Head};

/// The names of the head in a class of the library.
#[derive(Clone, Debug, Default, PartialEq)]
pub(in crate::huggingface) struct HeadNames {
    /// The prefix of the names of the base model.
    pub(super) base: &'static str,
    pub(super) modules: Vec<Module>,
}

impl HeadNames {
    /// Returns the names for a `model_type`.
    pub(in crate::huggingface) fn new(model_type: &str, architecture: &Architecture) -> Self {
        let (base, modules, map) = known(model_type);
        let (token, last) = match &architecture.decoder {
            None => ("embeddings.token", architecture),
            Some(decoder) if architecture.shared_embedding => ("encoder.embeddings.token", &**decoder),
            Some(decoder) => ("decoder.embeddings.token", &**decoder),
        };
        match last.head {
            Head::None | Head::Pooler => Self::default(),
            Head::Tied => Self { base, modules: [modules, &[table(map, token)]].concat() },
            Head::Untied => Self { base, modules: modules.to_vec() },
        }
    }
}

/// Returns the prefix of the names of the base model, the modules of the head, and the name of the module that is tied
/// to the table of token embeddings.
fn known(model_type: &str) -> (&'static str, &'static [Module], &'static str) {
    match model_type {
        "gpt2" | "gpt_bigcode" | "gpt_neo" | "gptj" | "codegen" | "bloom" | "mpt" | "falcon" | "openai-gpt" => {
            ("transformer.", LM_HEAD, "lm_head")
        }
        "gpt_neox" => ("gpt_neox.", NEOX, "lm_head"),
        "bert" | "megatron-bert" => ("bert.", BERT, "cls.predictions.decoder"),
        "roberta" | "xlm-roberta" | "camembert" | "xlm-roberta-xl" => ("roberta.", ROBERTA, "lm_head.decoder"),
        "data2vec-text" => ("data2vec_text.", ROBERTA, "lm_head.decoder"),
        "roberta-prelayernorm" => ("roberta_prelayernorm.", ROBERTA, "lm_head.decoder"),
        "ernie" => ("ernie.", BERT, "cls.predictions.decoder"),
        "roformer" => ("roformer.", BERT, "cls.predictions.decoder"),
        "bert-generation" => ("bert.", GENERATION, "lm_head.decoder"),
        "deberta-v2" => ("deberta.", BERT, "cls.predictions.decoder"),
        "mpnet" => ("mpnet.", ROBERTA, "lm_head.decoder"),
        "nomic_bert" => ("nomic_bert.", NOMIC_BERT, "cls.predictions.decoder"),
        "gte" => ("gte.", GTE, "lm_head.decoder"),
        "esm" => ("esm.", ESM, "lm_head.decoder"),
        "biogpt" => ("biogpt.", BIOGPT, "output_projection"),
        "albert" => ("albert.", ALBERT, "predictions.decoder"),
        "electra" => ("electra.", ELECTRA, "generator_lm_head"),
        "distilbert" => ("distilbert.", DISTILBERT, "vocab_projector"),
        "modernbert" => ("model.", MODERNBERT, "decoder"),
        "t5" | "mt5" | "umt5" => ("", DECODER, "lm_head"),
        "bart" | "mbart" | "plbart" | "m2m_100" | "pegasus" | "blenderbot" | "marian" => ("model.", DECODER, "lm_head"),
        "t5gemma" => ("model.", T5GEMMA, "lm_head.out_proj"),
        "whisper" => ("model.", WHISPER, "proj_out"),
        "internlm2" => ("model.", INTERNLM2, "output"),
        "mamba" | "mamba2" | "falcon_mamba" => ("backbone.", LM_HEAD, "lm_head"),
        _ => ("model.", LM_HEAD, "lm_head"),
    }
}

const LM_HEAD: &[Module] = &[rows("lm_head", &["head"])];

/// GPT-NeoX: before release 5.0 the head had another name.
const NEOX: &[Module] = &[rows("lm_head", &["head"]), rows("embed_out", &["head"])];

const INTERNLM2: &[Module] = &[rows("output", &["head"])];

const DECODER: &[Module] = &[rows("lm_head", &["decoder.head"])];

const T5GEMMA: &[Module] = &[rows("lm_head.out_proj", &["decoder.head"])];

const WHISPER: &[Module] = &[rows("proj_out", &["decoder.head"])];

const BERT: &[Module] = &[
    rows("cls.predictions.transform.dense", &["head.dense"]),
    norm("cls.predictions.transform.LayerNorm", &["head.norm"]),
    rows("cls.predictions.decoder", &["head"]),
    bare("cls.predictions.bias", "head.bias", 1),
];

const NOMIC_BERT: &[Module] = &[
    rows("cls.predictions.transform.dense", &["head.dense"]),
    norm("cls.predictions.transform.layer_norm", &["head.norm"]),
    rows("cls.predictions.decoder", &["head"]),
    bare("cls.predictions.bias", "head.bias", 1),
];

const ESM: &[Module] = &[
    rows("lm_head.dense", &["head.dense"]),
    norm("lm_head.layer_norm", &["head.norm"]),
    unbiased("lm_head.decoder", &["head"]),
    bare("lm_head.bias", "head.bias", 1),
];

const GTE: &[Module] = &[
    rows("lm_head.dense", &["head.dense"]),
    norm("lm_head.norm", &["head.norm"]),
    norm("lm_head.layer_norm", &["head.norm"]),
    rows("lm_head.decoder", &["head"]),
];

const GENERATION: &[Module] = &[rows("lm_head.decoder", &["head"]), bare("lm_head.bias", "head.bias", 1)];

const BIOGPT: &[Module] = &[rows("output_projection", &["head"])];

const ROBERTA: &[Module] = &[
    rows("lm_head.dense", &["head.dense"]),
    norm("lm_head.layer_norm", &["head.norm"]),
    rows("lm_head.decoder", &["head"]),
    bare("lm_head.bias", "head.bias", 1),
];

const ELECTRA: &[Module] = &[
    rows("generator_predictions.dense", &["head.dense"]),
    norm("generator_predictions.LayerNorm", &["head.norm"]),
    rows("generator_lm_head", &["head"]),
];

const ALBERT: &[Module] = &[
    rows("predictions.dense", &["head.dense"]),
    norm("predictions.LayerNorm", &["head.norm"]),
    rows("predictions.decoder", &["head"]),
    bare("predictions.bias", "head.bias", 1),
];

const DISTILBERT: &[Module] = &[
    rows("vocab_transform", &["head.dense"]),
    norm("vocab_layer_norm", &["head.norm"]),
    rows("vocab_projector", &["head"]),
];

const MODERNBERT: &[Module] =
    &[rows("head.dense", &["head.dense"]), norm("head.norm", &["head.norm"]), rows("decoder", &["head"])];
