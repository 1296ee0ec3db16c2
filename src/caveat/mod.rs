//! Caveats: where a rule is used outside the range it was derived for, or a prediction is not quite of the network that
//! was asked for.

mod kind;

pub use kind::CaveatKind;

use serde::{Deserialize, Serialize};

use crate::numerals::{percent, short};

/// A condition under which numbers are less certain, and the place where it occurred.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Caveat {
    /// Path of the first site, or name of the first tensor, that it concerns.
    pub site: String,
    /// The number of sites that it concerns.
    pub sites: usize,
    /// The condition.
    pub condition: Condition,
}

impl Caveat {
    /// Returns the caveat for one site.
    pub fn at(site: impl Into<String>, condition: Condition) -> Self {
        Self::of(site, 1, condition)
    }

    /// Returns the caveat for several sites, the first of which is named.
    pub fn of(site: impl Into<String>, sites: usize, condition: Condition) -> Self {
        Self { site: site.into(), sites, condition }
    }

    /// The quantity that is outside its range, and the effect on the numbers.
    pub fn text(&self) -> String {
        self.condition.text()
    }

    /// Its kind.
    pub fn kind(&self) -> &'static CaveatKind {
        self.condition.kind()
    }
}

/// The condition of a caveat, with the numbers that describe it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum Condition {
    /// The scores s of an attention have a large variance; the number is E s².
    SharpAttention(f64),
    /// Scores vary by the common part of neighbouring keys; the number is the score variance of this part.
    SmoothScores(f64),
    /// The input x of an activation has a mean; the number is |E x|/√(E x²).
    MeanAtActivation(f64),
    /// The input of an activation of pixels has a mean; the number is the mean relative to the root of the second moment.
    MeanOfPixels(f64),
    /// Dropped branches are averaged. The number is the variance v of ln |y|² by the mask of one branch, where y is the
    /// stream after it. To first order E 1/|y|², to which gradients are proportional, is larger by a share v.
    AveragedBranches(f64),
    /// The weights of experts multiply their inputs; the number is the standard deviation of E f² of the output f by
    /// the weight, relative to its mean.
    WeighedInputs(f64),
    /// Few sequences have most of the gradients; the number is the number of networks that an average over networks
    /// needs.
    RareSequences(f64),
    /// Signals x fluctuate strongly between networks; the number is the standard deviation s of ln |x|². If ln |x|² is
    /// Gaussian, an expansion to second order leaves out a share s⁴/8 of E |x|².
    SecondOrder(f64),
    /// Signals fluctuate too much for an expansion; the number is the standard deviation of ln |x|² between networks.
    InfiniteWidth(f64),
    /// Too few positions are followed. The numbers are the followed positions, all positions of a sequence, and the
    /// largest difference from the prediction with the next coarser grading.
    CoarsePositions(usize, usize, f64),
    /// Only some sequences of a text are read. The numbers are the sequences that are read, and all sequences of the
    /// text.
    SampledText(usize, usize),
    /// The softmax of the head is concentrated on the id of the input token; the number is the share of this id.
    TokenJustRead(f64),
    /// The scheme is not meant for the network, for the given reason.
    Scheme(String),
    /// The scheme has a scale that the model does not have. The text describes it.
    SchemeScale(String),
    /// A part of a config is not followed. The text describes it.
    Config(String),
    /// Weights of a checkpoint are equal or correlated.
    DependentWeights,
    /// Weights have heavy tails. The numbers are their kurtosis, and the excess kurtosis of the outputs of their map.
    HeavyTails(f64, f64),
    /// Entries of a tensor have this type, which is not read.
    UnreadType(String),
    /// The checkpoint has a tensor w that is no parameter of the network; the number is √(E w²).
    NoPlace(f64),
    /// The entries of a weight have a mean; the number is the relative change of the prediction that the mean may
    /// cause.
    MeanOfWeights(f64),
    /// The gains of norms vary strongly between features; the number is the number of features that carry the gradient.
    UnevenGains(f64),
    /// The rows of a tensor differ in size; the number is the ratio of their largest to their smallest standard
    /// deviation, rows of zeros left out.
    UnevenRows(f64),
    /// Several sites use one tensor. The numbers are how many use it, and the share by which second moments may be
    /// larger.
    SharedTensor(usize, f64),
    /// Several sites use one tensor, and the prediction follows this at infinite width alone; the number is how many use
    /// it.
    SharedWidth(usize),
    /// Parts read other signals than their common input, and the prediction is that of infinite width; the number is how
    /// many do.
    ReadWidth(usize),
    /// A recurrence is predicted at infinite width, but for the fluctuating cosine of two tokens.
    RecurrenceWidth,
    /// The state of a recurrence adds little to its output; the number is its share of the second moment.
    IdleState(f64),
    /// A norm divides by the scores of few heads of a recurrence. The numbers are the share by which the second moment
    /// after it is too large, and the share by which gradients before it are off.
    FewHeads(f64, f64),
    /// Keys of a delta rule are correlated and remain long in the state; the number is the share of a value that later
    /// writes erase.
    LongErasing(f64),
    /// Terms of finite width leave out the sinks of an attention; the number is the share by which numbers may be off.
    SinkWidth(f64),
    /// Queries, keys or values of an attention have orthogonal weights, and terms of finite width are those of Gaussian
    /// ones; the number is the standard deviation of ln |y|² of an output y that Gaussian values alone cause.
    OrthogonalAttention(f64),
}

/// The text of [`Condition::RecurrenceWidth`].
const RECURRENCE: &str = "\
    the outputs of a recurrence count as newly sampled entries. ± is too small by a factor of up to 5 where a recurrence \
    has few heads, and gradients of steps and strengths have no token correlation";

/// The text of [`Condition::UnevenGains`].
const UNEVEN_GAINS: &str = "\
    gains vary so much between features that single features carry most of the gradient through these norms. The \
    predicted gradient is the mean over networks; that of a single network is typically smaller, by orders of \
    magnitude in deep stacks";

/// The text of [`Condition::DependentWeights`].
const DEPENDENT_WEIGHTS: &str = "\
    weights are equal or correlated, and the prediction assumes that they are independent. Token correlations \
    and gradients can be off by any factor";

impl Condition {
    /// Its kind.
    pub fn kind(&self) -> &'static CaveatKind {
        match self {
            Self::SharpAttention(_) => &kind::SHARP_ATTENTION,
            Self::SmoothScores(_) => &kind::SMOOTH_SCORES,
            Self::MeanAtActivation(_) => &kind::MEAN_AT_ACTIVATION,
            Self::MeanOfPixels(_) => &kind::MEAN_OF_PIXELS,
            Self::AveragedBranches(_) => &kind::AVERAGED_BRANCHES,
            Self::WeighedInputs(_) => &kind::WEIGHED_INPUTS,
            Self::RareSequences(_) => &kind::RARE_SEQUENCES,
            Self::SecondOrder(_) => &kind::SECOND_ORDER,
            Self::InfiniteWidth(_) => &kind::INFINITE_WIDTH,
            Self::CoarsePositions(..) => &kind::COARSE_POSITIONS,
            Self::SampledText(..) => &kind::SAMPLED_TEXT,
            Self::TokenJustRead(_) => &kind::TOKEN_JUST_READ,
            Self::Scheme(_) => &kind::SCHEME,
            Self::SchemeScale(_) => &kind::SCHEME_SCALE,
            Self::Config(_) => &kind::CONFIG,
            Self::DependentWeights => &kind::DEPENDENT_WEIGHTS,
            Self::HeavyTails(..) => &kind::HEAVY_TAILS,
            Self::UnreadType(_) => &kind::UNREAD_TYPE,
            Self::NoPlace(_) => &kind::NO_PLACE,
            Self::MeanOfWeights(_) => &kind::MEAN_OF_WEIGHTS,
            Self::UnevenGains(_) => &kind::UNEVEN_GAINS,
            Self::UnevenRows(_) => &kind::UNEVEN_ROWS,
            Self::SharedTensor(..) => &kind::SHARED_TENSOR,
            Self::SharedWidth(_) => &kind::SHARED_WIDTH,
            Self::ReadWidth(_) => &kind::READ_WIDTH,
            Self::RecurrenceWidth => &kind::RECURRENCE_WIDTH,
            Self::IdleState(_) => &kind::IDLE_STATE,
            Self::FewHeads(..) => &kind::FEW_HEADS,
            Self::LongErasing(_) => &kind::LONG_ERASING,
            Self::SinkWidth(_) => &kind::SINK_WIDTH,
            Self::OrthogonalAttention(_) => &kind::ORTHOGONAL_ATTENTION,
        }
    }

    /// The size of the deviation from the range, in the quantity of [`CaveatKind::size`]; `None` if the kind has no
    /// size.
    pub fn size(&self) -> Option<f64> {
        match self {
            &(Self::SharpAttention(size)
            | Self::SmoothScores(size)
            | Self::MeanAtActivation(size)
            | Self::MeanOfPixels(size)
            | Self::AveragedBranches(size)
            | Self::WeighedInputs(size)
            | Self::RareSequences(size)
            | Self::SecondOrder(size)
            | Self::InfiniteWidth(size)
            | Self::CoarsePositions(_, _, size)
            | Self::TokenJustRead(size)
            | Self::HeavyTails(_, size)
            | Self::NoPlace(size)
            | Self::MeanOfWeights(size)
            | Self::UnevenGains(size)
            | Self::UnevenRows(size)
            | Self::SharedTensor(_, size)
            | Self::IdleState(size)
            | Self::LongErasing(size)
            | Self::SinkWidth(size)
            | Self::OrthogonalAttention(size)) => Some(size),
            &Self::FewHeads(second_moment, gradient) => Some(second_moment.max(gradient)),
            &(Self::SampledText(count, _) | Self::SharedWidth(count) | Self::ReadWidth(count)) => Some(count as f64),
            Self::Scheme(_)
            | Self::SchemeScale(_)
            | Self::Config(_)
            | Self::DependentWeights
            | Self::UnreadType(_)
            | Self::RecurrenceWidth => None,
        }
    }

    /// The quantity that is outside its range, and the effect on the numbers.
    fn text(&self) -> String {
        match self {
            Self::SharpAttention(variance) => format!(
                "scores have a variance of {}, above 16. Gradients of queries and keys may be off by more than 10 %, the stream by less",
                short(*variance)
            ),
            Self::SmoothScores(variance) => format!(
                "the common part of neighbouring keys has a score variance of {}. Gradients before this attention may be 10 to \
                 25 % too small",
                short(*variance)
            ),
            Self::MeanAtActivation(share) => format!(
                "the mean of an activation's input is {} of its root mean square, and the prediction assumes a mean of 0. Second \
                 moments after it may be off by up to twice that",
                percent(*share)
            ),
            Self::MeanOfPixels(share) => mean_of_pixels(*share),
            Self::AveragedBranches(variance) => format!(
                "some dropped branches are averaged where they are added, before the norms that follow. Each may make gradients \
                 too small by {}",
                percent(*variance)
            ),
            Self::WeighedInputs(deviation) => format!(
                "E f² of experts varies by {} with the weight on their input. ± leaves this out and is too small",
                percent(*deviation)
            ),
            Self::RareSequences(networks) => format!(
                "a few sequences, those that drop the largest branches, have most of the gradients. Averages over fewer than {} \
                 networks are usually smaller",
                short(*networks)
            ),
            Self::SecondOrder(deviation) => format!(
                "signals fluctuate strongly between networks (standard deviation of ln |x|² {}), and the expansion is only of \
                 second order. Numbers may be off by {}",
                short(*deviation),
                percent(deviation.powi(4) / 8.0)
            ),
            Self::InfiniteWidth(deviation) => {
                let deviation = if deviation.is_finite() { short(*deviation) } else { "beyond all numbers".to_owned() };
                format!(
                    "signals differ by a factor between networks (standard deviation of ln |x|² {deviation}). The corrections \
                     of finite width are left out: numbers are those of infinite width, ± has leading order"
                )
            }
            Self::CoarsePositions(positions, seq_len, difference) => format!(
                "{positions} of {seq_len} positions are too few. Numbers may be off by {}",
                percent(*difference)
            ),
            Self::SampledText(read, of) => format!(
                "the prediction reads {read} of the {of} sequences of the text, evenly spaced. The average over all of them \
                 differs by about 1/√{read} of the differences between sequences"
            ),
            Self::TokenJustRead(share) => format!(
                "the input token has {} of the softmax, so gradients of equal ids are more similar than predicted. The gradient \
                 norm is 5 to 15 % too small, the loss within 2 %",
                percent(*share)
            ),
            Self::Scheme(why) | Self::SchemeScale(why) | Self::Config(why) => why.clone(),
            Self::DependentWeights => DEPENDENT_WEIGHTS.to_owned(),
            Self::HeavyTails(kurtosis, excess) => format!(
                "weights have heavy tails (kurtosis {}) and are few per output, so that outputs have an excess kurtosis of up to \
                 {}. After activations and norms, second moments can be off by a similar share",
                short(*kurtosis),
                short(*excess)
            ),
            Self::UnreadType(dtype) => {
                format!("entries of type {dtype} cannot be read. The prediction uses the initialisation for them")
            }
            Self::NoPlace(size) => format!(
                "the network of the config has no parameter of this name. The prediction leaves it out (√E w² {})",
                short(*size)
            ),
            Self::MeanOfWeights(share) => format!(
                "the mean of the entries is not zero, and the prediction counts it as variance. Second moments or correlations \
                 after it may be off by up to {}",
                percent(*share)
            ),
            Self::UnevenGains(_) => UNEVEN_GAINS.to_owned(),
            Self::UnevenRows(ratio) => format!(
                "standard deviations of rows differ by a factor of {}. The loss and its gradient norm include this, within about \
                 10 %; the stream is that of average rows, and sequences with many tokens of large rows differ",
                short(*ratio)
            ),
            Self::SharedTensor(uses, share) => format!(
                "{uses} sites use this tensor, and the prediction treats each use as independent. Second moments may be larger by \
                 up to {}, gradients of the tensor by a factor of up to {uses}",
                percent(*share)
            ),
            Self::SharedWidth(uses) => format!(
                "{uses} sites use this tensor, and the prediction follows its uses at infinite width alone. There is no ±, second \
                 moments may be off by a share of about {uses}/width, and effects of first steps treat each use as independent"
            ),
            Self::ReadWidth(reads) => of_reads(*reads),
            Self::RecurrenceWidth => RECURRENCE.to_owned(),
            Self::IdleState(share) => idle_state(*share),
            Self::FewHeads(second_moment, gradient) => few_heads(*second_moment, *gradient),
            Self::LongErasing(share) => long_erasing(*share),
            Self::SinkWidth(share) => without_sinks(*share),
            Self::OrthogonalAttention(deviation) => as_gaussian(*deviation),
        }
    }
}

/// Returns the text of [`Condition::OrthogonalAttention`].
fn as_gaussian(deviation: f64) -> String {
    format!(
        "queries, keys or values have orthogonal weights, and terms of order 1/width are those of an attention with Gaussian \
         weights. The ± of its output may be too large by up to {}",
        percent(deviation)
    )
}

/// Returns the text of [`Condition::ReadWidth`].
fn of_reads(reads: usize) -> String {
    format!(
        "parts that read other signals ({reads}) are predicted at infinite width alone. There is no ±, and second moments \
         may be off by a share of about the number of blocks/width"
    )
}

/// Returns the text of [`Condition::SinkWidth`].
fn without_sinks(share: f64) -> String {
    format!(
        "attention has sinks, and terms of order 1/width are those of the same attention without them. The ± and gradients \
         of queries and keys may be off by about {}",
        percent(share)
    )
}

/// Returns the text of [`Condition::MeanOfPixels`].
fn mean_of_pixels(share: f64) -> String {
    format!(
        "the mean of an activation's input is {} of its root mean square, and the prediction assumes a Gaussian with this mean. \
         After a sum with a ReLU, second moments may be off by 9 % and gradients by 6 %, and gradients of gains before the sum \
         may be four times too small",
        percent(share)
    )
}

/// Returns the text of [`Condition::IdleState`].
fn idle_state(share: f64) -> String {
    format!(
        "the state adds {} of the output: this layer starts as a gated map of single tokens, and queries, keys and steps get \
         almost no gradient. This is no error of the prediction",
        percent(share)
    )
}

/// Returns the text of [`Condition::FewHeads`].
fn few_heads(second_moment: f64, gradient: f64) -> String {
    format!(
        "the norm divides by the scores of few heads of a recurrence, which fluctuate by their own size. Second moments after \
         it may be {} too large, gradients before it may be off by {}",
        percent(second_moment),
        percent(gradient)
    )
}

/// Returns the text of [`Condition::LongErasing`].
fn long_erasing(share: f64) -> String {
    format!(
        "later writes of the delta rule erase {} of a value, because keys are correlated and decays slow. Second moments of \
         the output may be off by up to 16 %, gradients before it by 10 %",
        percent(share)
    )
}
