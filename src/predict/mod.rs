//! The predictor: passes moments through a stack, forward and backward.

mod finite_width;
mod forward_pass;
mod gates;
mod graded;
mod masks;
pub(crate) mod mean_field;
mod pooled;
mod reads;
mod rows;
mod sequences;
mod shared;
mod tables;
mod tensors;
mod token_share;
mod variance_map;

use serde::Serialize;
use sigprop_stack::{GIBIBYTE, Number, Optimizer, Quantity, SiteTable, Stack, StackError, Stream, check};

use self::shared::Follows;
use crate::caveat::Caveat;
pub use crate::mean_field::dual::expression::UnfitExpression;
pub use forward_pass::ForwardPass;
pub use gates::Blocked;
pub(crate) use gates::blocked;
pub(crate) use sequences::is_exchangeable;
pub use variance_map::Repeller;

/// Which sites are reported.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sites {
    /// Sites on the stream.
    Stream,
    /// Sites on the stream and inside blocks.
    All,
}

/// The sharpness of an attention, averaged over initialisations, heads, queries and sequences.
#[derive(Clone, Debug, PartialEq)]
pub struct AttentionRow {
    /// Index of the block.
    pub layer: i64,
    /// Path of the site.
    pub site: String,
    /// E s² of a score before the softmax, over the keys in view and without position biases.
    pub score_variance: Number,
    /// Effective number of attended tokens: 1/E Σ_b A_ab² of a query a's attention weights A.
    pub attended: f64,
    /// Effective number of attended tokens if all scores were equal: the number of keys that a query sees, fewer if
    /// their weights decay.
    pub in_view: f64,
}

/// The effect of a gradient step of a linear map on the output of the map, per entry. Gradient and output are those of
/// the same sequence.
#[derive(Clone, Debug, PartialEq)]
pub struct LinearRow {
    /// Name of the weight tensor of the map.
    pub tensor: String,
    /// E y² of the output.
    pub output: Number,
    /// E Δy² for ΔW = −dL/dW; [`crate::first_step`] says where it is reliable.
    pub moved_by_sgd: Number,
    /// E Δy² for ΔW = −sign dL/dW; [`crate::first_step`] says where it is reliable.
    pub moved_by_adam: Number,
    /// E |dL/dW|.
    pub gradient_size: Number,
}

impl LinearRow {
    /// Returns E Δy² of a step with the learning rate 1.
    pub fn moved(&self, optimizer: Optimizer) -> Number {
        match optimizer {
            Optimizer::Sgd => self.moved_by_sgd,
            Optimizer::Adam => self.moved_by_adam,
        }
    }
}

/// A factor on a branch that is a parameter.
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

/// The prediction for a stack.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Prediction {
    /// Every site, in order of depth, and every weight tensor.
    pub table: SiteTable,
    /// Every attention, in order of depth.
    pub attentions: Vec<AttentionRow>,
    /// Every use of a linear map outside experts, in order of depth, if [`Options::steps`] is set.
    pub linears: Vec<LinearRow>,
    /// Every factor on a branch that is a parameter, in order of depth, if [`Options::steps`] is set.
    pub scales: Vec<ScaleRow>,
    /// Parameters whose gradient is exactly zero.
    pub blocked: Vec<Blocked>,
    /// The share of the token table in the variance of the sum of embeddings; `None` if nothing is added to it.
    pub token_share: Option<f64>,
    /// The fixed point of the variance map if it repels and the variance changes much; `None` also for other stacks than
    /// chains of equal layers.
    pub repeller: Option<Repeller>,
    /// Warnings about rules that were used outside their range.
    pub caveats: Vec<Caveat>,
    /// The positions that were followed; `None` if all were.
    pub followed: Option<Followed>,
    /// The given sequences of ids that numbers are averaged over, if there are several.
    pub sequences: Option<Sequences>,
}

impl Prediction {
    /// Returns true if the variance of the stream changes by more than a factor of 100, so that a fixed point explains
    /// something.
    fn changes_much(&self) -> bool {
        const MUCH: f64 = 100.0;
        let lns = self.table.stream_sites();
        let lns = lns.filter_map(|row| row.value(Quantity::Variance)).map(|value| value.ln_abs());
        let (lowest, highest) = lns.fold((f64::INFINITY, f64::NEG_INFINITY), |(a, b), ln| (a.min(ln), b.max(ln)));
        highest - lowest > MUCH.ln()
    }
}

/// The number of positions that were followed to represent all positions of a sequence.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Followed {
    /// Number of positions that are followed.
    pub positions: usize,
    /// Number of positions of the sequence.
    pub seq_len: usize,
    /// The largest difference from the prediction with the next coarser grading: relative for second moments, absolute
    /// for correlations. `None` if there is no such prediction.
    pub difference: Option<f64>,
}

/// Given sequences of ids that a prediction averages over.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Sequences {
    /// Number of sequences.
    pub count: usize,
    /// The standard deviation over sequences of ln E x² or of ln E g² at a site on the stream, for the site where it is
    /// largest.
    pub deviation: f64,
}

/// The reason why there is no prediction.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum PredictError {
    /// The stack is not valid.
    #[error(transparent)]
    Stack(#[from] StackError),
    /// A moment is not a number, or a second moment is negative: the signal left the range of logarithms or of the
    /// rules.
    #[error("{site}: {quantity} is negative or not a number; the network is too deep or too steep to follow")]
    NotANumber {
        /// Path of the site.
        site: String,
        /// Name of the quantity.
        quantity: &'static str,
    },
    /// A structure has no rule.
    #[error("{site}: {what} cannot be predicted yet; sigprop validate samples it")]
    NotFollowed {
        /// Path of the site.
        site: String,
        /// A description of the structure.
        what: &'static str,
    },
    /// An activation is a formula over which no averages are finite.
    #[error("{site}: the activation `{formula}` cannot be predicted: {reason}")]
    Expression {
        /// Path of the site.
        site: String,
        /// The text of the formula.
        formula: &'static str,
        /// The property that excludes it.
        reason: UnfitExpression,
    },
    /// The matrices of all pairs of positions, one per block, would not fit in memory.
    #[error(
        "about {:.0} GiB of memory needed to follow every pair of positions, {:.0} GiB allowed; lower the sequence \
         length or the number of blocks",
        bytes / GIBIBYTE,
        MAX_BYTES / GIBIBYTE
    )]
    Memory {
        /// Estimated need in bytes.
        bytes: f64,
    },
}

/// Predictions that need more memory than this are refused.
const MAX_BYTES: f64 = 20.0 * GIBIBYTE;

/// Which terms are computed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Theory {
    /// The leading order, and the corrections of finite width to second order.
    #[default]
    FiniteWidth,
    /// The leading order alone: the network of infinite width.
    MeanField,
}

/// How many positions of a sequence are followed, where they differ.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Positions {
    /// About 30 positions: three per doubling of the position.
    Coarse,
    /// About 40 positions: four per doubling of the position.
    Fine,
    /// Eight positions per doubling of the position.
    Finest,
    /// Every position.
    All,
}

/// Options of a prediction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Options {
    /// Which sites are reported.
    pub sites: Sites,
    /// True to predict the effect of steps along gradients. The cost is the cube of the sequence length where every
    /// position is followed.
    pub steps: bool,
    /// Which terms are computed.
    pub theory: Theory,
    /// How many positions are followed to represent all positions of a sequence. `None`: the number is raised until the
    /// prediction changes little.
    pub positions: Option<Positions>,
}

impl From<Sites> for Options {
    fn from(sites: Sites) -> Self {
        Self { sites, steps: false, theory: Theory::default(), positions: None }
    }
}

/// Predicts all moments of all sites of a stack, forward and backward.
///
/// Where positions differ, because of a mask, of scores that depend on positions or of several streams, some positions
/// represent all ([`Followed`]). Where ids are given, every pair of positions is followed, in one sequence after the
/// other. Where stochastic depth drops branches that contribute much to the stream, the result is an average over up to
/// 64 passes with different masks.
pub fn predict(stack: &Stack, options: impl Into<Options>) -> Result<Prediction, PredictError> {
    predict_seeded(stack, options.into(), None, &|| ())
}

/// Predicts like [`predict`], and calls `each` after every given sequence of ids. [`sequences()`] returns their number.
pub fn predict_watched(
    stack: &Stack,
    options: impl Into<Options>,
    each: &(dyn Fn() + Sync),
) -> Result<Prediction, PredictError> {
    predict_seeded(stack, options.into(), None, each)
}

/// Returns the number of sequences of given ids that a prediction of the stack averages over; 1 where ids are sampled.
pub fn sequences(stack: &Stack) -> usize {
    sequences::given(stack).len()
}

/// Predicts like [`predict_watched`]. If `same_ids` is given, it is the correlation, between tokens of equal ids, of
/// the gradients at the end of the stream.
pub(crate) fn predict_seeded(
    stack: &Stack,
    options: Options,
    same_ids: Option<f64>,
    each: &(dyn Fn() + Sync),
) -> Result<Prediction, PredictError> {
    check(stack)?;
    reads::check(stack)?;
    let mut prediction = graded::predict(stack, options, same_ids, each)?;
    prediction.blocked = blocked(stack, None, &prediction.table.weights);
    prediction.token_share = token_share::token_share(stack);
    prediction.repeller = prediction.changes_much().then(|| variance_map::repeller(stack)).flatten();
    let follows = Follows::of(stack);
    prediction.caveats.extend(reads::caveat(stack));
    prediction.caveats.extend(tensors::caveats(stack, &prediction.table, follows == Some(Follows::Uses)));
    Ok(prediction)
}

/// Refuses stacks that would not fit in memory: the inputs of all blocks and the inside of one, for every sequence in
/// progress.
fn check_memory(stack: &Stack, sequences: usize) -> Result<(), PredictError> {
    /// Number of matrices that one block needs while it is computed.
    const INSIDES: f64 = 40.0;
    let matrices = |stream: &Stream| (stream.body.len() as f64 + INSIDES) * (stream.seq_len as f64).powi(2);
    let at_a_time = sequences.min(rayon::current_num_threads()) as f64;
    let bytes = 8.0 * at_a_time * stack.streams.iter().map(matrices).sum::<f64>();
    if bytes > MAX_BYTES { Err(PredictError::Memory { bytes }) } else { Ok(()) }
}
