//! A forward prediction that continues piece by piece.

use std::cell::RefCell;
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
pub struct ForwardWalk(Vec<Forward>);

#[derive(Clone)]
enum Forward {
    MeanField {
        walk: Rc<RefCell<mean_field::Walk>>,
        signal: Arc<Signal>,
    },
    /// A pass at finite width, with the expansion and the signal here.
    FiniteWidth {
        walk: Rc<RefCell<finite_width::Walk>>,
        here: Box<(Expansion, finite_width::Signal)>,
    },
}

impl ForwardWalk {
    /// Starts at the source of a stream. The body of the stream only decides how positions differ. Of given sequences
    /// of ids, the first is used.
    pub fn new(stream: &Stream) -> Self {
        Self::in_theory(Theory::default(), stream)
    }

    /// Starts at the source of a stream, in this theory.
    pub(crate) fn in_theory(theory: Theory, stream: &Stream) -> Self {
        let stack = Stack::new("", vec![stream.clone()], GradientSeed { stream: 0, correlation: 0.0 });
        let ids = if sequences::has_given_ids(&stack) { sequences::given(&stack).swap_remove(0) } else { vec![] };
        let start = |segment| {
            let walk = mean_field::Walk::new(Sites::Stream, Some(Grading::FINE), (None, segment), ids.clone());
            Forward::start(theory, walk, stream)
        };
        Self(sequences::segments(&stack).into_iter().map(start).collect())
    }

    /// Returns the theory in use.
    pub(crate) fn theory(&self) -> Theory {
        match self.0[0] {
            Forward::MeanField { .. } => Theory::MeanField,
            Forward::FiniteWidth { .. } => Theory::FiniteWidth,
        }
    }

    /// Continues through `body`, whose shapes must fit.
    pub fn through(&mut self, body: &[Node]) -> Result<(), PredictError> {
        self.0.iter_mut().try_for_each(|forward| forward.through(body))
    }

    /// Returns E x² here, averaged over positions.
    pub fn second_moment(&self) -> f64 {
        self.0.iter().map(Forward::second_moment).sum::<f64>() / self.0.len() as f64
    }
}

impl Forward {
    fn start(theory: Theory, mut walk: mean_field::Walk, stream: &Stream) -> Self {
        match theory {
            Theory::MeanField => {
                let signal = walk.enter(stream);
                Self::MeanField { walk: Rc::new(RefCell::new(walk)), signal }
            }
            Theory::FiniteWidth => {
                let mut walk = finite_width::Walk::new(walk);
                let signal = walk.enter("", stream);
                let here = Box::new((walk.expansion.clone(), signal));
                Self::FiniteWidth { walk: Rc::new(RefCell::new(walk)), here }
            }
        }
    }

    fn through(&mut self, body: &[Node]) -> Result<(), PredictError> {
        match self {
            Self::MeanField { walk, signal } => {
                *signal = advance(body, Arc::clone(signal), &mut *walk.borrow_mut())?;
            }
            Self::FiniteWidth { walk, here } => {
                let walk = &mut *walk.borrow_mut();
                let (expansion, signal) = &mut **here;
                walk.expansion = expansion.clone();
                *signal = advance(body, signal.clone(), walk)?;
                *expansion = walk.expansion.clone();
            }
        }
        Ok(())
    }

    fn second_moment(&self) -> f64 {
        match self {
            Self::MeanField { signal, .. } => mean_field::second_moment(signal),
            Self::FiniteWidth { walk, here } => {
                let walk = &mut *walk.borrow_mut();
                walk.expansion = here.0.clone();
                walk.second_moment(&here.1)
            }
        }
    }
}
