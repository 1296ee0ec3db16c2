//! Parameters that a class of the library has in addition to the network: poolers, output heads, tables that are not
//! learned.
//!
//! The class is the first of `architectures`; without that key it is the base model (`AutoModel`). The classes were
//! read from transformers 5.24; `tests/sigprop/huggingface/counts.rs` compares the counts of every family.

mod images;

use serde_json::Value;

use super::ImportError;
use super::families::{INDEXED, Indexer};
use super::keys::Keys;
use crate::architecture::{Architecture, Head};

/// The task of a class, which decides its head.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Task {
    Base,
    /// Logits of tokens: next, masked or of a decoder.
    Language,
    /// Logits of tokens: of the next token, of masked tokens, or of a decoder's tokens.
    PreTraining,
    /// One label for a sequence, or for an image.
    Sequence,
    /// A label for each token, or the two ends of an answer in a text.
    Tokens,
    /// One score for a sequence, by which one of several sequences is chosen.
    Choice,
    NextSentence,
    /// Labels of two tokens of an image.
    Distilled,
}

impl Task {
    /// Returns the task of a class by its name; unknown classes are base models.
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

/// Widths on which the sizes of heads depend.
#[derive(Clone, Copy)]
struct Widths {
    d_model: u64,
    /// The width of the token embedding.
    embedding: u64,
    vocab: u64,
    labels: u64,
}

impl Widths {
    /// Returns the number of parameters of a linear map with a bias.
    fn map(&self, outputs: u64) -> u64 {
        self.d_model * outputs + outputs
    }

    /// Returns the number of parameters of a linear map from the stream to its own width, the first map of poolers and
    /// of some heads.
    fn dense(&self) -> u64 {
        self.map(self.d_model)
    }

    fn labels(&self) -> u64 {
        self.map(self.labels)
    }

    /// Returns the number of parameters of the transform before the logits of a masked language model: a map to the
    /// width of the token embedding, a LayerNorm, and the bias of the logits.
    fn transform(&self) -> u64 {
        self.map(self.embedding) + 2 * self.embedding + self.vocab
    }
}

/// Returns the number of parameters that the class of a config has in addition to the network.
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
    let biased = matches!(keys.family(), "eurobert" | "phimoe") && task == Task::Language && last.head_bias;
    Ok(matrix
        + if biased { widths.vocab } else { 0 }
        + own(keys.family(), task, &widths)
        + fixed(keys, architecture)?
        + images::images(keys, task, architecture, &widths)?)
}

/// Returns the number of parameters that a family has in every class in addition to the network: tables that are not
/// learned, a norm of the class token, indexers, and a regression over all attention weights.
fn fixed(keys: &Keys, architecture: &Architecture) -> Result<u64, ImportError> {
    let width = architecture.d_model as u64;
    let positions = keys.axes.get().positions.unwrap_or(architecture.seq_len) as u64;
    Ok(match keys.family() {
        "whisper" => architecture.seq_len as u64 * width,
        "marian" | "pegasus" => 2 * positions * width,
        "roformer" => positions * width / architecture.n_heads.unwrap_or(1) as u64,
        "esm" => (architecture.n_layers * architecture.n_heads.unwrap_or(1)) as u64 + 1,
        // Each xIELU has two learned slopes.
        "apertus" => 2 * architecture.n_layers as u64,
        "clip_vision_model" => 2 * width,
        // The blocks that read images: attention with norms of queries and keys, a gated
        // feed-forward network, two norms and two gates.
        "mllama_text_model" => {
            let heads = architecture.n_heads.unwrap_or(1) as u64;
            let most = |sizes: &[usize]| sizes.iter().copied().max().unwrap_or(0) as u64;
            let (kv_heads, d_ff) = (most(&architecture.block_kv_heads), most(&architecture.block_d_ff));
            let block =
                2 * width * width * (heads + kv_heads) / heads + 3 * width * d_ff + 2 * width / heads + 2 * width + 2;
            architecture.block_d_ff.iter().filter(|d_ff| **d_ff == 0).count() as u64 * block
        }
        // Learned factors on the input of the router, one per feature, and on the outputs of experts, one per expert.
        "gemma4_text" => {
            architecture.experts.map_or(0, |experts| architecture.n_layers as u64 * (width + experts.n_experts as u64))
        }
        // Biases that are added to the scores when experts are chosen.
        "ernie4_5_moe" => architecture.experts.map_or(0, |experts| {
            let sparse = architecture.n_layers.saturating_sub(experts.first_dense) / experts.every.max(1);
            (sparse * experts.n_experts) as u64
        }),
        "minimax_m3" | "minimax_m3_vl_text" => Indexer::read(keys)?.parameters(width),
        family if INDEXED.contains(&family) => {
            let default = if family == "deepseek_v32" { 64 } else { 32 };
            let (heads, d_head) = (
                keys.size("heads of the indexer", &["index_n_heads"], default)? as u64,
                keys.size("d_head of the indexer", &["index_head_dim"], 128)? as u64,
            );
            let rank = architecture.latent.and_then(|latent| latent.query_rank).unwrap_or(0) as u64;
            indexers(keys, architecture.n_layers)?
                * (rank * heads * d_head + width * d_head + 2 * d_head + width * heads)
        }
        _ => 0,
    })
}

/// Returns the number of blocks with an indexer of their own. The other blocks of GLM-5 keep the tokens that the last
/// indexer before them kept.
fn indexers(keys: &Keys, n_layers: usize) -> Result<u64, ImportError> {
    let listed = keys.raw("indexer_types").or(keys.raw("index_topk_pattern"));
    let count = match listed {
        Some(Value::String(letters)) => letters.matches('F').count(),
        Some(Value::Array(kinds)) => kinds.iter().filter(|kind| kind.as_str() == Some("full")).count(),
        Some(other) => return Err(ImportError::value("indexer_types", "full or shared per layer", other, "")),
        None => {
            let every = keys.size("indexer in every how many blocks", &["index_topk_freq"], 1)?;
            let offset = keys.count("blocks before the first shared indexer", &["index_skip_topk_offset"], 2)?;
            (0..n_layers).filter(|block| (block + 1).saturating_sub(offset).is_multiple_of(every)).count()
        }
    };
    Ok(count as u64)
}

/// Families that have BERT's classes.
const LIKE_BERT: [&str; 12] = [
    "bert",
    "albert",
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

/// Returns the number of parameters of poolers and heads, without the matrix of the logits.
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
        "electra" | "distilbert" | "roformer" | "deberta-v2" | "t5" | "mt5" | "umt5" | "bart" | "mbart" | "plbart" => {
            match task {
                Task::Language if matches!(family, "electra" | "distilbert" | "roformer" | "deberta-v2") => {
                    widths.transform()
                }
                Task::Base | Task::Language | Task::NextSentence | Task::Distilled => 0,
                Task::Choice if family == "roformer" => widths.map(1),
                Task::Sequence => widths.dense() + widths.labels(),
                Task::Tokens => widths.labels(),
                Task::PreTraining | Task::Choice => widths.dense() + widths.map(1),
            }
        }
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
        "t5gemma" if matches!(task, Task::Sequence | Task::Tokens) => widths.labels(),
        "ijepa" | "vit_msn" if task == Task::Sequence => widths.labels(),
        "bert-generation" if task == Task::Language => widths.vocab,
        "bert-generation" | "splinter" | "deit" | "beit" | "dinov2" | "vit_mae" | "vit_msn" | "ijepa" => 0,
        "vit" => match task {
            Task::Sequence => widths.labels(),
            _ => widths.dense(),
        },
        _ => match task {
            Task::Language if matches!(family, "gptj" | "codegen" | "phi") => widths.vocab,
            // The matrix of a decoder's labels has no biases.
            Task::Sequence => widths.embedding * widths.labels,
            Task::Tokens => widths.embedding * widths.labels + widths.labels,
            _ => 0,
        },
    }
}
