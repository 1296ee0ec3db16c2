//! A forward prediction that continues piece by piece.

use std::cell::RefCell;
use std::mem::replace;
use std::rc::Rc;
use std::sync::Arc;

use sigprop_stack::{GradientSeed, Node, Stack, Stream, advance};

use super::{PredictError, Sites, Theory, finite_width, mean_field, sequences};
use crate::finite_width::expansion::Expansion;
use crate::mean_field::positions::Grading;
use crate::mean_field::signal::Signal;

/// A forward prediction in progress, for schemes whose next weights depend on the signal so far.
///
/// Clones continue from the same place independently. They share the tables that they integrate on the way.
#[derive(Clone)]
pub struct ForwardPass(Vec<Forward>);

#[derive(Clone)]
enum Forward {
    /// A pass at infinite width, with the signals at the current point and at the ends of earlier streams.
    MeanField { pass: Rc<RefCell<mean_field::MeanFieldPass>>, signal: Arc<Signal>, memories: Vec<Arc<Signal>> },
    /// A pass at finite width, with the expansion and the signal at the current point.
    FiniteWidth { pass: Rc<RefCell<finite_width::FiniteWidthPass>>, here: Box<(Expansion, finite_width::Signal)> },
}

impl ForwardPass {
    /// Starts at the source of a stream. The body of the stream is not applied; it only decides how positions differ.
    /// If sequences of ids are given, the first is used.
    pub fn new(stream: &Stream) -> Self {
        Self::in_theory(Theory::default(), stream)
    }

    /// Starts at the source of a stream, in this theory.
    pub(crate) fn in_theory(theory: Theory, stream: &Stream) -> Self {
        let stack = Stack::new("", vec![stream.clone()], GradientSeed { stream: 0, correlation: 0.0 });
        Self::start(theory, &stack)
    }

    /// Starts at the source of the first stream of an infinitely wide network. [`ForwardPass::enter`] starts the others.
    pub(crate) fn infinitely_wide(stack: &Stack) -> Self {
        Self::start(Theory::MeanField, stack)
    }

    fn start(theory: Theory, stack: &Stack) -> Self {
        let ids = if sequences::has_given_ids(stack) { sequences::given(stack).swap_remove(0) } else { vec![] };
        let start = |segment| {
            let pass = mean_field::MeanFieldPass::new(stack, Sites::Stream, Some(Grading::FINE), (None, segment), &ids);
            Forward::start(theory, pass, &stack.streams[0])
        };
        Self(sequences::segments(stack).into_iter().map(start).collect())
    }

    /// Continues at the source of the next stream of an infinitely wide network. Its attention may read the current
    /// signal, the end of the stream so far.
    pub(crate) fn enter(&mut self, stream: &Stream) {
        self.0.iter_mut().for_each(|forward| forward.enter(stream));
    }

    /// Returns a pass at the end of an earlier stream of an infinitely wide network.
    pub(crate) fn at_end_of(&self, stream: usize) -> Self {
        Self(self.0.iter().map(|forward| forward.at_end_of(stream)).collect())
    }

    /// Returns the theory in use.
    pub(crate) fn theory(&self) -> Theory {
        match self.0[0] {
            Forward::MeanField { .. } => Theory::MeanField,
            Forward::FiniteWidth { .. } => Theory::FiniteWidth,
        }
    }

    /// Continues through `body`, which must fit the width of the current signal. Its parts must not read other signals
    /// than their common input.
    pub fn through(&mut self, body: &[Node]) -> Result<(), PredictError> {
        if let Some(node) = body.iter().find(|node| node.op.reads().next().is_some()) {
            let what = "a part that reads another signal, where a scheme depends on signals,";
            return Err(PredictError::NotFollowed { site: node.name.clone(), what });
        }
        self.0.iter_mut().try_for_each(|forward| forward.through(body))
    }

    /// Returns E x² of the current signal, averaged over positions.
    pub fn second_moment(&self) -> f64 {
        self.0.iter().map(Forward::second_moment).sum::<f64>() / self.0.len() as f64
    }
}

impl Forward {
    fn start(theory: Theory, mut pass: mean_field::MeanFieldPass, stream: &Stream) -> Self {
        match theory {
            Theory::MeanField => {
                let signal = pass.enter(stream);
                Self::MeanField { pass: Rc::new(RefCell::new(pass)), signal, memories: Vec::new() }
            }
            Theory::FiniteWidth => {
                let mut pass = finite_width::FiniteWidthPass::new(pass);
                let signal = pass.enter("", stream);
                let here = Box::new((pass.expansion.clone(), signal));
                Self::FiniteWidth { pass: Rc::new(RefCell::new(pass)), here }
            }
        }
    }

    fn enter(&mut self, stream: &Stream) {
        match self {
            Self::MeanField { pass, signal, memories } => {
                memories.push(replace(signal, pass.borrow_mut().enter(stream)));
            }
            Self::FiniteWidth { .. } => unreachable!("several streams are followed at infinite width"),
        }
    }

    fn at_end_of(&self, stream: usize) -> Self {
        match self {
            Self::MeanField { pass, memories, .. } => {
                let signal = Arc::clone(&memories[stream]);
                Self::MeanField { pass: Rc::clone(pass), signal, memories: memories.clone() }
            }
            Self::FiniteWidth { .. } => unreachable!("several streams are followed at infinite width"),
        }
    }

    fn through(&mut self, body: &[Node]) -> Result<(), PredictError> {
        match self {
            Self::MeanField { pass, signal, memories } => {
                *signal = advance(body, Arc::clone(signal), memories, &mut *pass.borrow_mut())?;
            }
            Self::FiniteWidth { pass, here } => {
                let pass = &mut *pass.borrow_mut();
                let (expansion, signal) = &mut **here;
                pass.expansion = expansion.clone();
                *signal = advance(body, signal.clone(), &[], pass)?;
                *expansion = pass.expansion.clone();
            }
        }
        Ok(())
    }

    fn second_moment(&self) -> f64 {
        match self {
            Self::MeanField { signal, .. } => mean_field::second_moment(signal),
            Self::FiniteWidth { pass, here } => {
                let pass = &mut *pass.borrow_mut();
                pass.expansion = here.0.clone();
                pass.second_moment(&here.1)
            }
        }
    }
}
