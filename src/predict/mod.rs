//! The predictor: walks a stack with moments.

mod expansion;
mod graded;
mod masks;
pub(crate) mod mean_field;
mod rows;
mod sequences;
mod typical;
mod walk;

use std::cell::RefCell;
use std::rc::Rc;
use std::sync::Arc;

use rayon::prelude::*;
use sigprop_stack::{
    GIBIBYTE, GradientSeed, Node, Number, Optimizer, SiteTable, Stack, StackError, Stream, advance, check,
};

use crate::domain::{Flow, Signal};
use crate::finite_width::expansion::Expansion;
use crate::mean_field::positions::Grading;
use crate::rules::embedding::SEGMENT_SHARES;
use rows::Rows;
pub(crate) use sequences::is_exchangeable;
use walk::Moments;

/// Which sites are told.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sites {
    /// Those on the stream.
    Stream,
    /// Those inside blocks too.
    All,
}

/// A place where a rule is used outside the range it was derived for.
#[derive(Clone, Debug, PartialEq)]
pub struct Caveat {
    /// Path of the first site it concerns.
    pub site: String,
    /// How many sites it concerns.
    pub sites: usize,
    /// What is outside its range, and what follows.
    pub text: String,
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

/// What theory says about a stack.
#[derive(Clone, Debug, PartialEq)]
pub struct Prediction {
    /// Every site, in order of depth, and every weight tensor.
    pub table: SiteTable,
    /// Every attention, in order of depth.
    pub attentions: Vec<AttentionRow>,
    /// Every use of a linear map outside experts, in order of depth, if [`Options::steps`] are asked for.
    pub linears: Vec<LinearRow>,
    /// Where rules were used outside their range.
    pub caveats: Vec<Caveat>,
    /// Which positions were followed, where not all were.
    pub followed: Option<Followed>,
}

/// Positions of a sequence that stand for all, in the theory of infinite width.
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

/// Why there is no prediction.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum PredictError {
    /// The stack cannot be walked.
    #[error(transparent)]
    Stack(#[from] StackError),
    /// A moment that is not a number, however large: the signal left even the range of logarithms.
    #[error("{site}: {quantity} is not a number any more; the network is too deep or too steep to follow")]
    NotANumber {
        /// Path of the site.
        site: String,
        /// Name of the quantity.
        quantity: &'static str,
    },
    /// A structure that the mean-field theory does not follow.
    #[error("{site}: this theory does not follow {what} yet; --theory finite-width does")]
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
    /// The leading order and what finite width adds.
    #[default]
    FiniteWidth,
    /// The leading order alone: the network of infinite width.
    MeanField,
    /// The leading order, and what finite width adds by one second-order expansion about it.
    Expansion,
}

/// How many positions of a sequence the theory of infinite width follows, where they differ.
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

/// What is told, and what is averaged over.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Options {
    /// Which sites are told.
    pub sites: Sites,
    /// Typical sequences of ids to draw where tokens are not exchangeable, by default as many as have 1024 tokens
    /// together, 1 to 16; given ids are all used.
    pub sequences: Option<usize>,
    /// Seed of what is drawn.
    pub seed: u64,
    /// Whether to predict what steps along gradients do; takes the cube of the sequence where every position is followed.
    pub steps: bool,
    /// Which terms are followed.
    pub theory: Theory,
    /// Of the theory of infinite width; by default as many as change nothing when they are made more.
    pub positions: Option<Positions>,
}

impl From<Sites> for Options {
    fn from(sites: Sites) -> Self {
        Self { sites, sequences: None, seed: 0, steps: false, theory: Theory::FiniteWidth, positions: None }
    }
}

/// Predicts all moments of all sites of a stack, forward and backward.
///
/// Tokens that are exchangeable take microseconds per block, twice as many where there are segments, a third of a millisecond per
/// layer of an MLP. Where a mask,
/// positions that are alike or that scores know of, several streams or given ids make every position different, every
/// pair of positions is followed, for one sequence of ids after the other. Where stochastic depth drops branches that
/// are much of the stream, up to 64 walks are averaged.
pub fn predict(stack: &Stack, options: impl Into<Options>) -> Result<Prediction, PredictError> {
    predict_seeded(stack, options.into(), None)
}

/// The same with gradients at the end of the stream that have the correlation `same_ids` between tokens of equal ids.
pub(crate) fn predict_seeded(
    stack: &Stack,
    options: Options,
    same_ids: Option<f64>,
) -> Result<Prediction, PredictError> {
    let Options { sites, sequences, seed, steps, theory, .. } = options;
    check(stack)?;
    if theory != Theory::FiniteWidth {
        return graded::predict(stack, options, same_ids);
    }
    let walk = |moments: Moments| moments.asked(steps, same_ids).walk(stack);
    let walks: Result<Vec<Rows>, PredictError> = if is_exchangeable(stack) {
        // What attention leaves of a stream goes with the lengths of segments.
        let at_a_time = if sequences::has_segments(stack) { 1 } else { SEGMENT_SHARES.len() };
        SEGMENT_SHARES.chunks(at_a_time).map(|shares| walk(Moments::exchangeable(sites, shares))).collect()
    } else {
        let sequences = sequences::sequences(stack, sequences, seed);
        check_memory(stack, sequences.len())?;
        let alike = sequences::treats_tokens_alike(stack);
        let walks = || sequences.into_par_iter().map(|ids| walk(Moments::by_position(sites, ids, alike))).collect();
        // What a walk does in parallel would otherwise wait at the door of the pool, every time.
        rayon::scope(|_| walks())
    };
    Rows::average(walks?)
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

/// A prediction on its way forward, for schemes whose next weights depend on what arrives.
///
/// Clones walk on from the same place on their own; what they integrate on the way they share.
#[derive(Clone)]
pub struct ForwardWalk(Forward);

#[derive(Clone)]
enum Forward {
    FiniteWidth {
        moments: Rc<RefCell<Moments>>,
        signal: Arc<Signal>,
    },
    MeanField {
        walk: Rc<RefCell<mean_field::Walk<'static>>>,
        signal: Arc<crate::mean_field::signal::Signal<f64>>,
    },
    /// With fluctuations here.
    Expansion {
        walk: Rc<RefCell<expansion::Walk<'static>>>,
        here: Box<(Expansion, expansion::Signal)>,
    },
}

impl ForwardWalk {
    /// Starts at the source of a stream. Its body tells only whether positions must be told apart; then one
    /// sequence is followed.
    pub fn new(stream: &Stream) -> Self {
        let stack = Stack::new("", vec![stream.clone()], GradientSeed { stream: 0, correlation: 0.0 });
        let mut moments = if is_exchangeable(&stack) {
            Moments::exchangeable(Sites::Stream, &SEGMENT_SHARES)
        } else {
            let ids = sequences::sequences(&stack, Some(1), 0).swap_remove(0);
            Moments::by_position(Sites::Stream, ids, sequences::treats_tokens_alike(&stack))
        };
        let signal = Arc::new(moments.enter(&stream.source, stream.seq_len));
        Self(Forward::FiniteWidth { moments: Rc::new(RefCell::new(moments)), signal })
    }

    /// The same in any theory; given ids, and two segments, take that of finite width.
    pub(crate) fn in_theory(theory: Theory, stream: &Stream) -> Self {
        let stack = Stack::new("", vec![stream.clone()], GradientSeed { stream: 0, correlation: 0.0 });
        if theory == Theory::FiniteWidth || sequences::has_given_ids(&stack) || sequences::has_segments(&stack) {
            return Self::new(stream);
        }
        let mut walk = mean_field::Walk::new(Sites::Stream, Some(Grading::FINE), (None, None), &[]);
        if theory == Theory::Expansion {
            let mut walk = expansion::Walk::new(walk);
            let signal = walk.enter("", stream);
            let here = Box::new((walk.expansion.clone(), signal));
            return Self(Forward::Expansion { walk: Rc::new(RefCell::new(walk)), here });
        }
        let signal = walk.enter(stream);
        Self(Forward::MeanField { walk: Rc::new(RefCell::new(walk)), signal })
    }

    /// Goes through `body`, whose shapes must fit.
    pub fn through(&mut self, body: &[Node]) -> Result<(), PredictError> {
        match &mut self.0 {
            Forward::FiniteWidth { moments, signal } => {
                *signal = advance(body, Arc::clone(signal), &mut *moments.borrow_mut())?;
            }
            Forward::MeanField { walk, signal } => {
                *signal = advance(body, Arc::clone(signal), &mut *walk.borrow_mut())?;
            }
            Forward::Expansion { walk, here } => {
                let walk = &mut *walk.borrow_mut();
                let (expansion, signal) = &mut **here;
                walk.expansion = expansion.clone();
                *signal = advance(body, signal.clone(), walk)?;
                *expansion = walk.expansion.clone();
            }
        }
        Ok(())
    }

    /// E x² here, averaged over positions.
    pub fn second_moment(&self) -> f64 {
        match &self.0 {
            Forward::FiniteWidth { signal, .. } => {
                signal.levels().map(f64::exp).sum::<f64>() / signal.tokens.len() as f64
            }
            Forward::MeanField { signal, .. } => mean_field::second_moment(signal),
            Forward::Expansion { walk, here } => {
                let walk = &mut *walk.borrow_mut();
                walk.expansion = here.0.clone();
                walk.second_moment(&here.1)
            }
        }
    }
}
