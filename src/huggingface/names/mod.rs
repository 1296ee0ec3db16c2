//! The parameters of the library's models: their names and shapes, and the parameters of our network that they hold.
//!
//! A family, or a convention of another library, lists them module by module, relative to its base model (`h.0.…`, not
//! `transformer.h.0.…`). A module may hold several parameters of the network, cut along its rows or columns:
//!
//! ```text
//! rows      [out, in]: all rows of the first, then all of the second …
//! columns   [in, out]: the same of columns, every part transposed (GPT-2's Conv1D)
//! heads     rows are cut into groups, one per key and value head, and every group like `rows`
//! shards    rows are cut into four groups, and every group like `rows`
//! ```

mod bert;
mod conventions;
mod deepseek;
mod encoder_decoder;
mod expand;
mod gemma;
mod gpt;
mod head;
mod llama;
mod meta;
mod minimax;
mod mixers;
mod mixture;
mod nanogpt;
mod parallel;
mod recurrent;
mod renaming;
#[cfg(test)]
mod tests;
mod timm;
mod torch;
mod vision;

pub(super) use bert::{
    ALBERT, BERT, DEBERTA_V2, DISTILBERT, ESM, GTE, MEGATRON_BERT, MODERNBERT, MPNET, NOMIC_BERT, ROBERTA_PRE,
    XLM_ROBERTA_XL,
};
pub(super) use deepseek::deepseek;
pub(super) use encoder_decoder::{BART, BLENDERBOT, T5, T5GEMMA, WHISPER, marian};
pub(super) use gemma::{GEMMA, GEMMA2, GEMMA4, GLM, GLM4};
pub(super) use gpt::{BIGCODE, BIOGPT, BLOOM, GPT_NEO, GPT2, MPT, OPENAI_GPT, OPT};
pub(super) use head::HeadNames;
pub(super) use llama::{
    APERTUS, BAICHUAN, INTERNLM2, LLAMA, MLLAMA, NANOCHAT, NEMOTRON, OLMO, OLMO2, PHI3, STARCODER2, UNGATED,
};
pub(super) use minimax::{MINIMAX, MINIMAX_M3};
pub(super) use mixers::LFM2;
pub(super) use mixture::{
    GPT_OSS, GRANITE_MOE, HUNYUAN, LLAMA4, MIMO_V2, MIXTRAL, PHIMOE, PRIVACY_FILTER, QWEN_MOE, QWEN3_VL_MOE,
    SHARED_EXPERTS,
};
pub(super) use parallel::{CODEGEN, COHERE, GPTJ, NEOX, PHI, STABLELM, falcon};
pub(super) use recurrent::{BAMBA, FALCON_H1, GRANITE_HYBRID, JAMBA, MAMBA, MAMBA2, OLMO_HYBRID, QWEN3_5, QWEN3_NEXT};
pub use renaming::RenamingError;
pub(super) use vision::{BEIT, CLIP_TEXT, CLIP_VISION, SIGLIP_VISION, SIGLIP2_VISION, VIT, dinov2, dinov3};

use sigprop_stack::{Init, LearningRates, Rates, StepBias};

use crate::architecture::{Architecture, Parallel};
use renaming::Rule;

const QKV: &[&str] =
    &["blocks.*.attention.heads.query", "blocks.*.attention.heads.key", "blocks.*.attention.heads.value"];

/// A module of the library, and the parameters of the network (`ours`) that it holds. In names, a first `*` is the
/// number of a block, and a second one the number of an expert.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Module {
    name: &'static str,
    holds: Holds,
}

/// All modules of a family. Modules whose parameters a network does not have are skipped.
pub(super) type Modules = &'static [&'static [Module]];

#[derive(Clone, Copy, Debug, PartialEq)]
enum Holds {
    /// The `weight` of the module is a table.
    Table(&'static str),
    /// The `weight` of the module is a table of positions, with this many unused rows before the first position.
    Positions(&'static str, usize),
    /// The `weight` of the module is a table with this many unused rows at its end.
    Padded(&'static str, usize),
    /// The module itself is learned tokens, [1, tokens, width], whose names in the network are this one and a number.
    Tokens(&'static str),
    /// The module itself is a table with this many axes; it has no `weight`. A table of one column has one axis if this
    /// is 2.
    Bare(&'static str, usize),
    /// The module itself is the factor per feature on the branch of this site; it has no `weight`.
    LayerScale(&'static str),
    /// The module itself is a table of relative positions in the attention of this site; it has no `weight`. It starts
    /// at zero and is not in the network.
    RelativePositions(&'static str),
    /// The `weight` and `bias` of the module are those of linear maps or convolutions.
    Maps(&'static [&'static str], Layout),
    /// The module itself is the weights of linear maps of all experts, [experts, out, in]; it has no `weight`.
    Experts(&'static [&'static str]),
    /// The module itself is the weights of linear maps of all experts, [experts, in, out]; it has no `weight`. A module
    /// whose name ends in `_bias` holds their biases, [experts, out].
    ExpertColumns(&'static [&'static str], Columns),
    /// The `weight` of the module is that of linear maps whose biases the library leaves out.
    Unbiased(&'static [&'static str]),
    /// The `weight` of the module is that of this router. Its `bias` starts like the weight and is not in the network.
    BiasedRouter(&'static str),
    /// The `weight` and `bias` of the module are those of one norm of the library, which may be several norms of the
    /// network.
    Norm { ours: &'static [&'static str], stored: Gain, biased: bool },
    /// The `gamma` and `beta` of the module are those of a norm.
    Gamma(&'static [&'static str]),
}

/// The layout of one or several linear maps in the weight that a module stores.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Layout {
    Rows,
    /// The layout of `Rows`, in parameters called `…_weight` and `…_bias`.
    Underscored,
    Columns,
    Heads,
    /// Rows are cut into groups, one per head of queries, and every group like `Rows`.
    QueryHeads,
    /// Rows are cut into groups, one per head of keys of a recurrence, and every group like `Rows`.
    StateHeads,
    Shards,
    /// One map over three frames: [out, in, 3].
    Frames,
    /// A convolution of single features: [features, 1, taps].
    Taps,
    /// One map over the pixels of a patch: [out, channels, side, side].
    Patches,
}

/// The order of the columns of several maps in one weight.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Columns {
    /// All columns of the first map, then all of the second.
    Sequential,
    /// The first column of every map, then the second.
    Alternating,
}

/// The number that a norm stores.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Gain {
    /// The gain.
    Whole,
    /// The gain minus 1.
    LessOne,
}

const fn table(name: &'static str, ours: &'static str) -> Module {
    Module { name, holds: Holds::Table(ours) }
}

const fn positions(name: &'static str, ours: &'static str, offset: usize) -> Module {
    Module { name, holds: Holds::Positions(ours, offset) }
}

const fn padded(name: &'static str, ours: &'static str, rows: usize) -> Module {
    Module { name, holds: Holds::Padded(ours, rows) }
}

const fn tokens(name: &'static str, ours: &'static str) -> Module {
    Module { name, holds: Holds::Tokens(ours) }
}

const fn bare(name: &'static str, ours: &'static str, axes: usize) -> Module {
    Module { name, holds: Holds::Bare(ours, axes) }
}

const fn layer_scale(name: &'static str, site: &'static str) -> Module {
    Module { name, holds: Holds::LayerScale(site) }
}

const fn relative_positions(name: &'static str, site: &'static str) -> Module {
    Module { name, holds: Holds::RelativePositions(site) }
}

/// Returns the module of a linear map, or of several in one weight, one below the other.
const fn rows(name: &'static str, ours: &'static [&'static str]) -> Module {
    Module { name, holds: Holds::Maps(ours, Layout::Rows) }
}

const fn underscored(name: &'static str, ours: &'static [&'static str]) -> Module {
    Module { name, holds: Holds::Maps(ours, Layout::Underscored) }
}

const fn columns(name: &'static str, ours: &'static [&'static str]) -> Module {
    Module { name, holds: Holds::Maps(ours, Layout::Columns) }
}

const fn heads(name: &'static str, ours: &'static [&'static str]) -> Module {
    Module { name, holds: Holds::Maps(ours, Layout::Heads) }
}

const fn query_heads(name: &'static str, ours: &'static [&'static str]) -> Module {
    Module { name, holds: Holds::Maps(ours, Layout::QueryHeads) }
}

const fn state_heads(name: &'static str, ours: &'static [&'static str]) -> Module {
    Module { name, holds: Holds::Maps(ours, Layout::StateHeads) }
}

const fn shards(name: &'static str, ours: &'static [&'static str]) -> Module {
    Module { name, holds: Holds::Maps(ours, Layout::Shards) }
}

const fn frames(name: &'static str, ours: &'static [&'static str]) -> Module {
    Module { name, holds: Holds::Maps(ours, Layout::Frames) }
}

const fn taps(name: &'static str, ours: &'static [&'static str]) -> Module {
    Module { name, holds: Holds::Maps(ours, Layout::Taps) }
}

const fn patches(name: &'static str, ours: &'static [&'static str]) -> Module {
    Module { name, holds: Holds::Maps(ours, Layout::Patches) }
}

const fn experts(name: &'static str, ours: &'static [&'static str]) -> Module {
    Module { name, holds: Holds::Experts(ours) }
}

const fn expert_columns(name: &'static str, ours: &'static [&'static str], order: Columns) -> Module {
    Module { name, holds: Holds::ExpertColumns(ours, order) }
}

const fn unbiased(name: &'static str, ours: &'static [&'static str]) -> Module {
    Module { name, holds: Holds::Unbiased(ours) }
}

const fn biased_router(name: &'static str, ours: &'static str) -> Module {
    Module { name, holds: Holds::BiasedRouter(ours) }
}

/// A norm; LayerNorms have a bias if the architecture has biases.
const fn norm(name: &'static str, ours: &'static [&'static str]) -> Module {
    Module { name, holds: Holds::Norm { ours, stored: Gain::Whole, biased: false } }
}

/// A LayerNorm that always has a bias.
const fn biased_norm(name: &'static str, ours: &'static [&'static str]) -> Module {
    Module { name, holds: Holds::Norm { ours, stored: Gain::Whole, biased: true } }
}

/// A norm of `gamma` and `beta`.
const fn gamma_norm(name: &'static str, ours: &'static [&'static str]) -> Module {
    Module { name, holds: Holds::Gamma(ours) }
}

/// A norm that stores its gain minus 1.
const fn centred_norm(name: &'static str, ours: &'static [&'static str]) -> Module {
    Module { name, holds: Holds::Norm { ours, stored: Gain::LessOne, biased: false } }
}

/// A LayerNorm that stores its gain minus 1 and always has a bias.
const fn centred_biased_norm(name: &'static str, ours: &'static [&'static str]) -> Module {
    Module { name, holds: Holds::Norm { ours, stored: Gain::LessOne, biased: true } }
}

/// The names of a model's parameters.
#[derive(Clone, Debug, PartialEq)]
pub struct Names {
    /// The convention of the names; `None` if it follows from the description of the network.
    convention: Option<&'static str>,
    /// The modules; `None` if every parameter has its name in the stack.
    modules: Option<Modules>,
    axes: Axes,
    head: HeadNames,
    /// The number of heads of queries.
    n_heads: usize,
    /// The number of groups of rows in weights that are divided by heads.
    n_kv_heads: usize,
    /// The number of heads of keys of a recurrence.
    n_state_heads: usize,
    norm_biases: bool,
    /// True if attention and feed-forward network share their norm.
    shares_norm: bool,
    /// True if the learned factors on branches (LayerScale) are parameters.
    layer_scale: bool,
    /// Names given by the user, which replace the names of the convention.
    rules: Vec<Rule>,
    /// The number of parameters that the class of the library has in addition to the network.
    beside: u64,
}

/// Sizes of parameters that a network does not determine.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Axes {
    /// The number of rows of the table of positions.
    pub(super) positions: Option<usize>,
    /// The number of channels and the side of a patch.
    pub(super) patch: Option<[usize; 2]>,
    /// The shape of the table of relative positions in every block: relative positions, heads.
    pub(super) relative_positions: Option<[usize; 2]>,
    /// The shape of the table that all blocks share.
    pub(super) shared_relative_positions: Option<[usize; 2]>,
}

impl Names {
    pub(super) fn new(modules: Modules, architecture: &Architecture, axes: Axes, beside: u64) -> Self {
        Self { modules: Some(modules), axes, beside, ..Self::own(architecture) }
    }

    pub(super) fn with_head(self, head: HeadNames) -> Self {
        Self { head, ..self }
    }

    /// Returns the names of a network that is not from the library, which are those in its stack. LayerNorms have
    /// biases if the architecture has biases.
    pub fn own(architecture: &Architecture) -> Self {
        Self {
            convention: None,
            modules: None,
            axes: Axes::default(),
            head: HeadNames::default(),
            n_heads: architecture.n_heads.unwrap_or(1),
            n_state_heads: architecture.recurrence.map_or(1, |mixer| mixer.n_key_heads),
            n_kv_heads: architecture.n_kv_heads.or(architecture.n_heads).unwrap_or(1),
            norm_biases: architecture.biases,
            shares_norm: architecture.parallel == Parallel::SharedNorm,
            layer_scale: architecture.layer_scale,
            rules: Vec::new(),
            beside: 0,
        }
    }

    /// Returns the convention of the names; `None` if it follows from the description of the network.
    pub fn convention(&self) -> Option<&'static str> {
        self.convention
    }
}

/// A tensor of a checkpoint.
#[derive(Clone, Debug, PartialEq)]
pub struct Held {
    /// Its name, relative to the base model; the complete name for a head.
    pub name: String,
    /// The prefix of the names of the base model, for a head; else `None`.
    pub base: Option<&'static str>,
    /// Its name with `*` for the numbers of blocks and experts.
    pub pattern: String,
    /// The sizes of its axes.
    pub shape: Vec<usize>,
    /// The axis along which its parts follow one after the other.
    pub axis: usize,
    /// The number of groups along this axis, each of which holds a share of every part.
    pub groups: usize,
    /// The parameters it holds. Several norms of the network that are one in the library are one part.
    pub parts: Vec<Part>,
}

/// A parameter of the network in a tensor of the library.
#[derive(Clone, Debug, PartialEq)]
pub struct Part {
    /// Its name in the network, or the names of all norms that are one in the library.
    pub parameters: Vec<String>,
    /// The first name, with `*` for the numbers of blocks.
    pub pattern: String,
    /// The index of its expert; `None` if it belongs to no expert, or to all experts together.
    pub expert: Option<usize>,
    /// Rows and columns of the network's parameter.
    pub shape: [usize; 2],
    /// Its values at initialisation.
    pub start: Start,
    /// The number that the network adds to stored values: 1 if gains are stored minus 1, else 0.
    pub offset: f64,
    /// Its learning rates.
    pub learning_rates: LearningRates,
}

/// The values of a parameter at initialisation.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Start {
    /// Independent samples.
    Drawn(Init),
    /// One value for all entries: gains of norms, as they are stored, and biases of norms.
    Constant(f64),
    /// Logarithms of the rates of a recurrence.
    LogRates(Rates),
    /// Biases of the steps of a recurrence.
    StepBiases(StepBias),
}
