//! Parameters that a class of the library has beside those of the network: poolers, output heads, tables that are not
//! learned.
//!
//! The class is the first of `architectures`; without that key it is the base model (`AutoModel`). Read from
//! transformers 5.24; `tests/sigprop/huggingface/counts.rs` compares the counts of every family.

use serde_json::Value;

use super::ImportError;
use super::keys::Keys;
use crate::architecture::{Architecture, Head, Stem};

/// What a class ends with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Task {
    Base,
    /// Logits of tokens: next, masked or of a decoder.
    Language,
    /// All tasks of the first training.
    PreTraining,
    /// One label for a sequence, or for an image.
    Sequence,
    /// A label for each token; ends of an answer.
    Tokens,
    /// One number for a sequence.
    Choice,
    NextSentence,
    /// Labels of two tokens of an image.
    Distilled,
}

impl Task {
    /// Of a class called so; what is not known is a base model.
    fn of(class: &str) -> Self {
        let tasks: [(&[&str], Self); 7] = [
            (
                &[
                    "LMHeadModel",
                    "ForCausalLM",
                    "ForMaskedLM",
                    "ForConditionalGeneration",
                    "MTModel",
                    "GenerationDecoder",
                ],
                Self::Language,
            ),
            (&["ForPreTraining"], Self::PreTraining),
            (&["ForSequenceClassification", "ForImageClassification"], Self::Sequence),
            (&["ForTokenClassification", "ForQuestionAnswering"], Self::Tokens),
            (&["ForMultipleChoice"], Self::Choice),
            (&["ForNextSentencePrediction"], Self::NextSentence),
            (&["WithTeacher"], Self::Distilled),
        ];
        let ends = |ends: &[&str]| ends.iter().any(|end| class.ends_with(end));
        tasks.iter().find(|(words, _)| ends(words)).map_or(Self::Base, |(_, task)| *task)
    }
}

/// Widths on which heads depend.
#[derive(Clone, Copy)]
struct Widths {
    d_model: u64,
    /// Of the token embedding.
    embedding: u64,
    vocab: u64,
    labels: u64,
}

impl Widths {
    /// A linear map with a bias.
    fn map(&self, outputs: u64) -> u64 {
        self.d_model * outputs + outputs
    }

    /// The first map of a head, as wide as the stream: poolers and the like.
    fn dense(&self) -> u64 {
        self.map(self.d_model)
    }

    fn labels(&self) -> u64 {
        self.map(self.labels)
    }

    /// A map to the width of the token embedding, a LayerNorm, and the bias of the logits.
    fn transform(&self) -> u64 {
        self.map(self.embedding) + 2 * self.embedding + self.vocab
    }
}

/// How many there are.
pub(super) fn beside(keys: &Keys, architecture: &Architecture) -> Result<u64, ImportError> {
    let class = keys.raw("architectures").and_then(|classes| classes.get(0)).and_then(Value::as_str);
    let task = class.map_or(Task::Base, Task::of);
    keys.note(
        "class",
        class.unwrap_or("base model"),
        if class.is_some() { "architectures" } else { "no architectures" },
    );
    let labels = if keys.family() == "bart" && task == Task::Sequence { 3 } else { 2 };
    let labels = match keys.raw("id2label").and_then(Value::as_object) {
        Some(labels) => labels.len(),
        None => keys.size("labels", &["num_labels"], labels)?,
    };
    let widths = Widths {
        d_model: architecture.d_model as u64,
        embedding: architecture.embedding_width.unwrap_or(architecture.d_model) as u64,
        vocab: architecture.vocab_size as u64,
        labels: labels as u64,
    };
    let last = architecture.decoder.as_deref().unwrap_or(architecture);
    let with_matrix = last.head == Head::Untied && matches!(task, Task::Language | Task::PreTraining);
    let matrix = if with_matrix { widths.vocab * widths.embedding } else { 0 };
    Ok(matrix
        + own(keys.family(), task, &widths)
        + fixed(keys, architecture)
        + images(keys, task, architecture, &widths)?)
}

/// Tables that are not learned but are parameters, a norm of the class token, and a regression over all attention.
fn fixed(keys: &Keys, architecture: &Architecture) -> u64 {
    let positions = keys.axes.get().positions.unwrap_or(architecture.seq_len);
    let parameters = match keys.family() {
        "whisper" => architecture.seq_len * architecture.d_model,
        "marian" | "pegasus" => 2 * positions * architecture.d_model,
        "roformer" => positions * architecture.d_model / architecture.n_heads.unwrap_or(1),
        "clip_vision_model" => 2 * architecture.d_model,
        "esm" => architecture.n_layers * architecture.n_heads.unwrap_or(1) + 1,
        _ => 0,
    };
    parameters as u64
}

/// What classes have over an encoder of images, or of texts about them.
fn images(keys: &Keys, task: Task, architecture: &Architecture, widths: &Widths) -> Result<u64, ImportError> {
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
        // Labels of the class token beside the mean of the patches.
        "dinov2" => {
            let mask = if keys.flag("mask token", &["use_mask_token"], true)? { widths.d_model } else { 0 };
            let labels = if task == Task::Sequence { widths.labels() + widths.d_model * widths.labels } else { 0 };
            mask + labels
        }
        "beit" => {
            let pooler = if architecture.final_norm == Some(false) { norm } else { 0 };
            let labels = if task == Task::Sequence { widths.labels() } else { 0 };
            let mask = if keys.flag("mask token", &["use_mask_token"], false)? { widths.d_model } else { 0 };
            pooler + labels + mask + relative_positions(keys, architecture)?
        }
        "vit_mae" if task == Task::PreTraining => masked_decoder(keys, architecture, widths)?,
        _ => 0,
    })
}

/// ViT-MAE's decoder, which fills in the hidden patches.
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

/// BEiT's tables of relative positions: of two patches, and of a patch and the class token.
fn relative_positions(keys: &Keys, architecture: &Architecture) -> Result<u64, ImportError> {
    let across = ((architecture.seq_len - 1) as f64).sqrt().round() as u64;
    let table = ((2 * across).saturating_sub(1).pow(2) + 3) * architecture.n_heads.unwrap_or(1) as u64;
    let own = keys.flag("relative positions", &["use_relative_position_bias"], false)?;
    let shared = keys.flag("shared relative positions", &["use_shared_relative_position_bias"], false)?;
    let tables = if own { architecture.n_layers as u64 } else { 0 } + u64::from(shared);
    Ok(tables * table)
}

/// Families that have BERT's classes.
const LIKE_BERT: [&str; 11] = [
    "bert",
    "roberta",
    "xlm-roberta",
    "camembert",
    "data2vec-text",
    "megatron-bert",
    "roberta-prelayernorm",
    "xlm-roberta-xl",
    "mpnet",
    "ernie",
    "esm",
];

/// Poolers and heads but for the matrix of the logits.
fn own(family: &str, task: Task, widths: &Widths) -> u64 {
    match family {
        _ if LIKE_BERT.contains(&family) => match task {
            Task::Base | Task::Distilled => widths.dense(),
            Task::Language => widths.transform(),
            Task::PreTraining => widths.transform() + widths.dense() + widths.map(2),
            Task::Sequence => widths.dense() + widths.labels(),
            Task::Tokens => widths.labels(),
            Task::Choice => widths.dense() + widths.map(1),
            Task::NextSentence => widths.dense() + widths.map(2),
        },
        "electra" | "distilbert" | "roformer" | "t5" | "mt5" | "umt5" | "bart" | "mbart" | "plbart" => match task {
            Task::Language if matches!(family, "electra" | "distilbert" | "roformer") => widths.transform(),
            Task::Base | Task::Language | Task::NextSentence | Task::Distilled => 0,
            Task::Choice if family == "roformer" => widths.map(1),
            Task::Sequence => widths.dense() + widths.labels(),
            Task::Tokens => widths.labels(),
            Task::PreTraining | Task::Choice => widths.dense() + widths.map(1),
        },
        // A map and a norm without biases.
        "modernbert" => match task {
            Task::Base => 0,
            Task::Language => widths.dense() + widths.vocab,
            Task::Choice => widths.dense() + widths.map(1),
            _ => widths.dense() + widths.labels(),
        },
        "nomic_bert" | "gte" | "eurobert" => match task {
            Task::Language if family == "eurobert" => 0,
            Task::Language => widths.transform(),
            Task::Sequence => widths.dense() + widths.labels(),
            Task::Tokens => widths.labels(),
            _ => 0,
        },
        "ijepa" | "vit_msn" if task == Task::Sequence => widths.labels(),
        "bert-generation" if task == Task::Language => widths.vocab,
        "bert-generation" | "splinter" | "deit" | "beit" | "dinov2" | "vit_mae" | "vit_msn" | "ijepa" => 0,
        "vit" => match task {
            Task::Sequence => widths.labels(),
            _ => widths.dense(),
        },
        _ => match task {
            Task::Language if matches!(family, "gptj" | "phi") => widths.vocab,
            // The matrix of a decoder's labels has no biases.
            Task::Sequence => widths.embedding * widths.labels,
            Task::Tokens => widths.embedding * widths.labels + widths.labels,
            _ => 0,
        },
    }
}
