//! The predictor: walks a stack with moments.

mod finite_width;
mod forward_walk;
mod gates;
mod graded;
mod masks;
pub(crate) mod mean_field;
mod pooled;
mod rows;
mod sequences;
mod tables;
mod tensors;
mod token_share;

use serde::Serialize;
use sigprop_stack::{GIBIBYTE, Number, Optimizer, SiteTable, Stack, StackError, Stream, check};

use crate::caveat::Caveat;
pub use forward_walk::ForwardWalk;
pub use gates::Blocked;
pub(crate) use gates::blocked;
pub(crate) use sequences::is_exchangeable;

/// Which sites are told.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sites {
    /// Those on the stream.
    Stream,
    /// Those inside blocks too.
    All,
}

/// What an attention does with its scores, averaged over initialisations, heads, queries and sequences.
#[derive(Clone, Debug, PartialEq)]
pub struct AttentionRow {
    /// Index of the block.
    pub layer: i64,
    /// Path of the site.
    pub site: String,
    /// E s² of a score before the softmax, over the keys in view and without what positions add.
    pub score_variance: Number,
    /// Effective number of attended tokens: 1/E Σ_b A_ab² of a query a's attention weights A.
    pub attended: f64,
    /// The same of scores that do not differ: the number of keys that a query sees, fewer if their weights decay.
    pub in_view: f64,
}

/// What a step of a linear map, for one sequence, does to its output on that sequence, per entry.
#[derive(Clone, Debug, PartialEq)]
pub struct LinearRow {
    /// Name of the weight.
    pub tensor: String,
    /// E y² of the output.
    pub output: Number,
    /// E Δy² of ΔW = −dL/dW, where [`crate::first_step`] trusts it.
    pub moved_by_sgd: Number,
    /// E Δy² of ΔW = −sign dL/dW, likewise.
    pub moved_by_adam: Number,
    /// E |dL/dW|.
    pub gradient_size: Number,
}

impl LinearRow {
    /// E Δy² of a step with the learning rate 1.
    pub fn moved(&self, optimizer: Optimizer) -> Number {
        match optimizer {
            Optimizer::Sgd => self.moved_by_sgd,
            Optimizer::Adam => self.moved_by_adam,
        }
    }
}

/// The factor on a branch, where it is a parameter.
#[derive(Clone, Debug, PartialEq)]
pub struct ScaleRow {
    /// Index of the block.
    pub layer: i64,
    /// Name of the parameter: the path of the sum, and `scale`.
    pub name: String,
    /// The factor.
    pub scale: f64,
    /// Number of entries: 1, or one per feature.
    pub entries: usize,
    /// E f² of the branch's output f, per entry and before the factor.
    pub output: Number,
    /// E (dL/dα)² of an entry α.
    pub grad_second_moment: Number,
}

/// What theory says about a stack.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Prediction {
    /// Every site, in order of depth, and every weight tensor.
    pub table: SiteTable,
    /// Every attention, in order of depth.
    pub attentions: Vec<AttentionRow>,
    /// Every use of a linear map outside experts, in order of depth, if [`Options::steps`] are asked for.
    pub linears: Vec<LinearRow>,
    /// Every factor on a branch that is a parameter, in order of depth, if [`Options::steps`] are asked for.
    pub scales: Vec<ScaleRow>,
    /// Parameters whose gradient is exactly zero.
    pub blocked: Vec<Blocked>,
    /// The share of the token table in the variance of the sum of embeddings; none where nothing is added to it.
    pub token_share: Option<f64>,
    /// Where rules were used outside their range.
    pub caveats: Vec<Caveat>,
    /// Which positions were followed, where not all were.
    pub followed: Option<Followed>,
    /// The given sequences of ids that numbers are averages over, if there are several.
    pub sequences: Option<Sequences>,
}

/// Positions of a sequence that stand for all.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Followed {
    /// How many there are.
    pub positions: usize,
    /// Of so many.
    pub seq_len: usize,
    /// The largest relative difference of a second moment, or difference of a correlation, from the prediction of fewer positions; none
    /// where there was no other.
    pub difference: Option<f64>,
}

/// Given sequences of ids that a prediction averages over.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Sequences {
    /// How many there are.
    pub count: usize,
    /// The largest standard deviation between sequences of ln E x² of a site on the stream, or of ln E g².
    pub deviation: f64,
}

/// Why there is no prediction.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum PredictError {
    /// The stack cannot be walked.
    #[error(transparent)]
    Stack(#[from] StackError),
    /// A moment that is not a number, however large, or a negative level: the signal left the range of logarithms, or that of rules.
    #[error("{site}: {quantity} is negative or not a number; the network is too deep or too steep to follow")]
    NotANumber {
        /// Path of the site.
        site: String,
        /// Name of the quantity.
        quantity: &'static str,
    },
    /// A structure that has no rule.
    #[error("{site}: {what} cannot be predicted yet; sigprop validate samples it")]
    NotFollowed {
        /// Path of the site.
        site: String,
        /// The structure.
        what: &'static str,
    },
    /// A matrix per block of all pairs of positions would not fit.
    #[error(
        "about {:.0} GiB of memory needed to follow every pair of positions, {:.0} GiB allowed; lower the sequence \
         length or the number of blocks",
        bytes / GIBIBYTE,
        MAX_BYTES / GIBIBYTE
    )]
    Memory {
        /// Estimated need.
        bytes: f64,
    },
}

/// Predictions that need more memory than this are refused.
const MAX_BYTES: f64 = 20.0 * GIBIBYTE;

/// Which terms are followed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Theory {
    /// The leading order, and what finite width adds to second order.
    #[default]
    FiniteWidth,
    /// The leading order alone: the network of infinite width.
    MeanField,
}

/// How many positions of a sequence are followed, where they differ.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Positions {
    /// Some 30 rows, three per factor of two.
    Coarse,
    /// Some 40 rows, four per factor of two.
    Fine,
    /// Eight per factor of two.
    Finest,
    /// Every one.
    All,
}

/// What is followed and put out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Options {
    /// Which sites are told.
    pub sites: Sites,
    /// Whether to predict what steps along gradients do; takes the cube of the sequence where every position is followed.
    pub steps: bool,
    /// Which terms are followed.
    pub theory: Theory,
    /// How many positions stand for all; by default so many that more of them change little.
    pub positions: Option<Positions>,
}

impl From<Sites> for Options {
    fn from(sites: Sites) -> Self {
        Self { sites, steps: false, theory: Theory::default(), positions: None }
    }
}

/// Predicts all moments of all sites of a stack, forward and backward.
///
/// Where a mask, positions that scores know of or several streams make positions differ, some stand for all
/// ([`Followed`]); where ids are given, every pair of positions is followed, for one sequence after the other. Where stochastic
/// depth drops branches that are much of the stream, up to 64 walks are averaged.
pub fn predict(stack: &Stack, options: impl Into<Options>) -> Result<Prediction, PredictError> {
    predict_seeded(stack, options.into(), None, &|| ())
}

/// The prediction of [`predict`], which calls `each` after every one of the [`sequences()`] that it averages over.
pub fn predict_watched(
    stack: &Stack,
    options: impl Into<Options>,
    each: &(dyn Fn() + Sync),
) -> Result<Prediction, PredictError> {
    predict_seeded(stack, options.into(), None, each)
}

/// The number of sequences of given ids that a prediction of the stack averages over; 1 where ids are drawn.
pub fn sequences(stack: &Stack) -> usize {
    sequences::given(stack).len()
}

/// The same with gradients at the end of the stream that have the correlation `same_ids` between tokens of equal ids.
pub(crate) fn predict_seeded(
    stack: &Stack,
    options: Options,
    same_ids: Option<f64>,
    each: &(dyn Fn() + Sync),
) -> Result<Prediction, PredictError> {
    check(stack)?;
    let mut prediction = graded::predict(stack, options, same_ids, each)?;
    prediction.blocked = blocked(stack, None, &prediction.table.weights);
    prediction.token_share = token_share::token_share(stack);
    prediction.caveats.extend(tensors::caveats(stack, &prediction.table));
    Ok(prediction)
}

/// Refuses what would not fit: the input of every block, and the insides of one, per sequence at a time.
fn check_memory(stack: &Stack, sequences: usize) -> Result<(), PredictError> {
    /// Matrices that one block needs while it is worked on.
    const INSIDES: f64 = 40.0;
    let matrices = |stream: &Stream| (stream.body.len() as f64 + INSIDES) * (stream.seq_len as f64).powi(2);
    let at_a_time = sequences.min(rayon::current_num_threads()) as f64;
    let bytes = 8.0 * at_a_time * stack.streams.iter().map(matrices).sum::<f64>();
    if bytes > MAX_BYTES { Err(PredictError::Memory { bytes }) } else { Ok(()) }
}
