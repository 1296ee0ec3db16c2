//! The parameters of the library's models: their names and shapes, and which of ours they hold.
//!
//! A family, or a convention of another library, tells them module by module, relative to its base model (`h.0.…`, not
//! `transformer.h.0.…`).
//! A module may hold several of our parameters, cut along its rows or columns:
//!
//! ```text
//! rows      [out, in]: all rows of the first, then all of the second …
//! columns   [in, out]: the same of columns, every part transposed (GPT-2's Conv1D)
//! heads     rows are cut into groups, one per key and value head, and every group like `rows`
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
mod mixture;
mod nanogpt;
mod parallel;
mod renaming;
#[cfg(test)]
mod tests;
mod timm;
mod torch;
mod vision;

pub(super) use bert::{
    BERT, DISTILBERT, ESM, GTE, MEGATRON_BERT, MODERNBERT, MPNET, NOMIC_BERT, ROBERTA_PRE, XLM_ROBERTA_XL,
};
pub(super) use deepseek::deepseek;
pub(super) use encoder_decoder::{BART, BLENDERBOT, T5, WHISPER, marian};
pub(super) use gemma::{GEMMA, GEMMA2, GLM4};
pub(super) use gpt::{BIGCODE, BIOGPT, BLOOM, GPT_NEO, GPT2, MPT, OPENAI_GPT, OPT};
pub(super) use head::HeadNames;
pub(super) use llama::{
    APERTUS, BAICHUAN, INTERNLM2, LLAMA, NANOCHAT, NEMOTRON, OLMO, OLMO2, PHI3, STARCODER2, UNGATED,
};
pub(super) use mixture::{GRANITE_MOE, HUNYUAN, MIXTRAL, QWEN_MOE, QWEN3_VL_MOE, SHARED_EXPERTS};
pub(super) use parallel::{COHERE, GPTJ, NEOX, PHI, STABLELM, falcon};
pub use renaming::RenamingError;
pub(super) use vision::{BEIT, CLIP_TEXT, CLIP_VISION, SIGLIP_VISION, SIGLIP2_VISION, VIT, dinov2};

use sigprop_stack::{Init, LearningRates};

use crate::architecture::{Architecture, Parallel};
use renaming::Rule;

const QKV: &[&str] =
    &["blocks.*.attention.heads.query", "blocks.*.attention.heads.key", "blocks.*.attention.heads.value"];

/// A module of the library and what of ours it holds. A first `*` is the number of a block, a second one that
/// of an expert.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Module {
    name: &'static str,
    holds: Holds,
}

/// All modules of a family. Those whose parameters a network does not have are not there.
pub(super) type Modules = &'static [&'static [Module]];

#[derive(Clone, Copy, Debug, PartialEq)]
enum Holds {
    /// Its `weight` is a table.
    Table(&'static str),
    /// Its `weight` is a table of positions, with so many rows before the first.
    Positions(&'static str, usize),
    /// It is the table itself, without `weight`, of so many axes.
    Bare(&'static str, usize),
    /// It is the factor per feature on the branch of this site, without `weight`.
    LayerScale(&'static str),
    /// It is a table of relative positions, without `weight`, which starts at zero and is not in the network, beside the
    /// attention of this site.
    RelativePositions(&'static str),
    /// `weight` and `bias` of linear maps or convolutions.
    Maps(&'static [&'static str], Layout),
    /// It is the weights of linear maps of all experts, [experts, out, in], without `weight`.
    Experts(&'static [&'static str]),
    /// Linear maps whose biases the library leaves out.
    Unbiased(&'static [&'static str]),
    /// `weight` and `bias` of the norm that ours all are.
    Norm { ours: &'static [&'static str], stored: Gain, biased: bool },
    /// The same, called `gamma` and `beta`.
    Gamma(&'static [&'static str]),
}

/// How maps share a matrix.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Layout {
    Rows,
    /// The same in parameters called `…_weight` and `…_bias`.
    Underscored,
    Columns,
    Heads,
    /// One map, over three frames: [out, in, 3].
    Frames,
    /// One map, over the pixels of a patch: [out, channels, side, side].
    Patches,
}

/// What a norm stores.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Gain {
    /// The gain.
    Whole,
    /// The gain less 1.
    LessOne,
}

const fn table(name: &'static str, ours: &'static str) -> Module {
    Module { name, holds: Holds::Table(ours) }
}

const fn positions(name: &'static str, ours: &'static str, offset: usize) -> Module {
    Module { name, holds: Holds::Positions(ours, offset) }
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

/// A linear map, or several one below the other.
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

const fn frames(name: &'static str, ours: &'static [&'static str]) -> Module {
    Module { name, holds: Holds::Maps(ours, Layout::Frames) }
}

const fn patches(name: &'static str, ours: &'static [&'static str]) -> Module {
    Module { name, holds: Holds::Maps(ours, Layout::Patches) }
}

const fn experts(name: &'static str, ours: &'static [&'static str]) -> Module {
    Module { name, holds: Holds::Experts(ours) }
}

const fn unbiased(name: &'static str, ours: &'static [&'static str]) -> Module {
    Module { name, holds: Holds::Unbiased(ours) }
}

/// A norm; LayerNorms have a bias where the architecture has biases.
const fn norm(name: &'static str, ours: &'static [&'static str]) -> Module {
    Module { name, holds: Holds::Norm { ours, stored: Gain::Whole, biased: false } }
}

/// A LayerNorm that has a bias in any case.
const fn biased_norm(name: &'static str, ours: &'static [&'static str]) -> Module {
    Module { name, holds: Holds::Norm { ours, stored: Gain::Whole, biased: true } }
}

/// A norm of `gamma` and `beta`.
const fn gamma_norm(name: &'static str, ours: &'static [&'static str]) -> Module {
    Module { name, holds: Holds::Gamma(ours) }
}

/// A norm that stores its gain less 1.
const fn centred_norm(name: &'static str, ours: &'static [&'static str]) -> Module {
    Module { name, holds: Holds::Norm { ours, stored: Gain::LessOne, biased: false } }
}

/// A LayerNorm that stores its gain less 1 and has a bias in any case.
const fn centred_biased_norm(name: &'static str, ours: &'static [&'static str]) -> Module {
    Module { name, holds: Holds::Norm { ours, stored: Gain::LessOne, biased: true } }
}

/// The names of a model's parameters.
#[derive(Clone, Debug, PartialEq)]
pub struct Names {
    /// Whose names they are; none: those that the description of the network implies.
    convention: Option<&'static str>,
    /// None: every parameter is called as in a stack.
    modules: Option<Modules>,
    axes: Axes,
    head: HeadNames,
    /// Groups of rows where maps are cut by heads.
    n_kv_heads: usize,
    norm_biases: bool,
    /// Whether attention and feed-forward network share their norm.
    shares_norm: bool,
    /// Whether the factors on branches are parameters.
    layer_scale: bool,
    /// Names of one's own, in place of these.
    rules: Vec<Rule>,
    /// Number of parameters that the class of the library has beside those of the network.
    beside: u64,
}

/// What of the shapes of parameters a network does not say.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Axes {
    /// Rows of the table of positions.
    pub(super) positions: Option<usize>,
    /// Channels and side of a patch.
    pub(super) patch: Option<[usize; 2]>,
    /// Table of relative positions in every block: relative positions, heads.
    pub(super) relative_positions: Option<[usize; 2]>,
    /// That of all blocks.
    pub(super) shared_relative_positions: Option<[usize; 2]>,
}

impl Names {
    pub(super) fn new(modules: Modules, architecture: &Architecture, axes: Axes, beside: u64) -> Self {
        Self { modules: Some(modules), axes, beside, ..Self::own(architecture) }
    }

    pub(super) fn with_head(self, head: HeadNames) -> Self {
        Self { head, ..self }
    }

    /// Those of a network that is not of the library: the names of its stack, LayerNorms having biases where the
    /// architecture has.
    pub fn own(architecture: &Architecture) -> Self {
        Self {
            convention: None,
            modules: None,
            axes: Axes::default(),
            head: HeadNames::default(),
            n_kv_heads: architecture.n_kv_heads.or(architecture.n_heads).unwrap_or(1),
            norm_biases: architecture.biases,
            shares_norm: architecture.parallel == Parallel::SharedNorm,
            layer_scale: architecture.layer_scale,
            rules: Vec::new(),
            beside: 0,
        }
    }

    /// Whose names they are, if they are not those that the description of the network implies.
    pub fn convention(&self) -> Option<&'static str> {
        self.convention
    }
}

/// A parameter as a checkpoint holds it.
#[derive(Clone, Debug, PartialEq)]
pub struct Held {
    /// Its name, relative to the base model; that of a head whole.
    pub name: String,
    /// Of a head: what stands before the names of the base model beside it.
    pub base: Option<&'static str>,
    /// Its name with `*` for the numbers of blocks and experts.
    pub pattern: String,
    /// Its axes.
    pub shape: Vec<usize>,
    /// The axis along which its parts lie one after the other.
    pub axis: usize,
    /// Groups along this axis that each hold a share of every part.
    pub groups: usize,
    /// What it holds; several norms that are one in the library are one part.
    pub parts: Vec<Part>,
}

/// A parameter of ours in one of the library's.
#[derive(Clone, Debug, PartialEq)]
pub struct Part {
    /// Names of ours: one, or those of all norms that are one in the library.
    pub parameters: Vec<String>,
    /// The first of them with `*` for the numbers of blocks.
    pub pattern: String,
    /// Which expert's it is.
    pub expert: Option<usize>,
    /// Rows and columns of ours.
    pub shape: [usize; 2],
    /// What it holds at initialisation.
    pub start: Start,
    /// What the network adds to what is stored: 1 where gains are stored less 1, else 0.
    pub offset: f64,
    /// How fast it learns.
    pub learning_rates: LearningRates,
}

/// What a parameter holds at initialisation.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Start {
    /// Independent draws.
    Drawn(Init),
    /// Gains of norms, as they are stored, and biases of norms.
    Constant(f64),
}
