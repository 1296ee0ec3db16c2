//! The choice of how finely positions are graded: as finely as a comparison with the next coarser grading requires.

use std::sync::Arc;

use rayon::prelude::*;
use sigprop_stack::{Quantity, SiteTable, Stack, Stream};

use super::finite_width::Found;
use super::reads::joined;
use super::rows::Rows;
use super::shared::{Follows, SharedPass};
use super::{
    Followed, Options, Positions, PredictError, Prediction, Theory, check_memory, finite_width, mean_field, sequences,
};
use crate::caveat::{Caveat, Condition};
use crate::mean_field::positions::{Grading, layout::Layout};

/// The largest accepted difference between the predictions with two successive gradings. The error of the finer
/// prediction is a fraction of this difference.
const ENOUGH: f64 = 0.1;

/// Returns the prediction of the theory in `options`, with positions graded as finely as needed.
pub(super) fn predict(
    stack: &Stack,
    options: Options,
    same_ids: Option<f64>,
    each: &(dyn Fn() + Sync),
) -> Result<Prediction, PredictError> {
    let of = |options, grading| Rows::average(passes(stack, options, grading, (same_ids, each))?);
    let at = |grading| of(options, grading);
    let gradings = match options.positions {
        Some(Positions::Coarse) => return at(Some(Grading::COARSE)),
        Some(Positions::Fine) => return at(Some(Grading::FINE)),
        Some(Positions::Finest) => return at(Some(Grading::FINEST)),
        Some(Positions::All) => return at(None),
        None => [Grading::COARSE, Grading::FINE, Grading::FINER, Grading::FINEST],
    };
    // First steps cost the cube of the number of positions. Only the last grading has them, or the only one if ids are
    // given.
    let first_steps = Options { steps: options.steps && sequences::has_given_ids(stack), ..options };
    let graded = |grading| of(first_steps, Some(grading));
    let sparse = || graded(Grading::SPARSE);
    // The first two gradings are compared in any case, so they run in parallel.
    let (mut best, mut coarse) = if is_graded(stack) {
        let (best, coarse) = rayon::join(sparse, || graded(Grading::COARSE));
        (best, Some(coarse))
    } else {
        (sparse(), None)
    };
    let (mut used, mut last) = (Grading::SPARSE, None);
    for grading in gradings {
        let may_be_too_coarse = match &best {
            Ok(best) => best.followed.is_some(),
            Err(error) => matches!(error, PredictError::NotANumber { .. }),
        };
        if !may_be_too_coarse {
            break;
        }
        let finer = coarse.take().unwrap_or_else(|| graded(grading));
        let both = best.as_ref().ok().zip(finer.as_ref().ok());
        last = both.map(|(coarser, finer)| difference(&coarser.table, &finer.table));
        (best, used) = (finer, grading);
        if last.is_some_and(|difference| difference <= ENOUGH) {
            break;
        }
    }
    let mut best = best?;
    if options.steps != first_steps.steps {
        best = at(Some(used))?;
    }
    best.followed = best.followed.map(|followed| Followed { difference: last, ..followed });
    if last.is_some_and(|difference| difference > ENOUGH) {
        best.caveats.extend(best.followed.and_then(|followed| caveat(stack, followed)));
    }
    Ok(best)
}

/// Returns true if only some positions of a stream are followed, which represent all of them.
fn is_graded(stack: &Stack) -> bool {
    let of = |index| {
        let streams: Vec<&Stream> = joined(stack, index).into_iter().map(|stream| &stack.streams[stream]).collect();
        Layout::of(&streams, Some(Grading::SPARSE), None, None).is_graded()
    };
    !sequences::has_given_ids(stack) && (0..stack.streams.len()).any(of)
}

/// Returns a caveat that the finest grading does not suffice.
fn caveat(stack: &Stack, Followed { positions, seq_len, difference }: Followed) -> Option<Caveat> {
    Some(Caveat::at(&stack.name, Condition::CoarsePositions(positions, seq_len, difference?)))
}

/// Returns the rows of all passes: one list per given sequence of ids (or a single list if ids are sampled), with one
/// pass per length of the first segment (`sequences::segments`). `each` is called after every given sequence.
fn passes(
    stack: &Stack,
    options: Options,
    grading: Option<Grading>,
    (same_ids, each): (Option<f64>, &(dyn Fn() + Sync)),
) -> Result<Vec<Vec<Rows>>, PredictError> {
    let tables = Arc::default();
    let follows = Follows::of(stack);
    let pass = |segment, ids: &[Vec<u32>]| {
        let leading = || {
            let pass = mean_field::MeanFieldPass::new(stack, options.sites, grading, (same_ids, segment), ids);
            pass.sharing(&tables).asked(options.steps)
        };
        if let Some(follows) = follows {
            return SharedPass::new(follows, leading()).through(stack);
        }
        if options.theory == Theory::MeanField {
            return leading().through(stack);
        }
        match finite_width::FiniteWidthPass::new(leading()).through(stack)? {
            Found::Rows(rows) => Ok(rows),
            Found::Diverges(site, deviation, expanded) => {
                let mut rows = leading().through(stack)?.with_spreads(&expanded);
                rows.caveat_at(&site, Some(Condition::InfiniteWidth(deviation)));
                Ok(rows)
            }
        }
    };
    let segments = sequences::segments(stack);
    if !sequences::has_given_ids(stack) {
        if (grading.is_none() || segments.len() > 1) && !sequences::is_exchangeable(stack) {
            check_memory(stack, 1)?;
        }
        let passes = segments.into_iter().map(|segment| pass(segment, &[])).collect::<Result<_, _>>()?;
        return Ok(vec![passes]);
    }
    let sequences = sequences::given(stack);
    // All pairs of positions are followed.
    check_memory(stack, sequences.len())?;
    let of_sequence = |ids: &Vec<Vec<u32>>| {
        let passes = segments.iter().map(|&segment| pass(segment, ids)).collect();
        each();
        passes
    };
    sequences.par_iter().map(of_sequence).collect()
}

/// Returns the largest difference of two predictions: relative for second moments, absolute for correlations.
fn difference(a: &SiteTable, b: &SiteTable) -> f64 {
    let levels = [Quantity::Variance, Quantity::GradVariance];
    let correlations = [Quantity::TokenCorrelation, Quantity::GradTokenCorrelation];
    let sites = a.sites.iter().zip(&b.sites).flat_map(|(a, b)| {
        let both = move |quantity| Some((a.value(quantity)?, b.value(quantity)?));
        let relative = levels.into_iter().filter_map(both).map(|(a, b)| a.ratio(&b) - 1.0);
        relative.chain(correlations.into_iter().filter_map(both).map(|(a, b)| a.value() - b.value()))
    });
    let weights = a.weights.iter().zip(&b.weights);
    let weights = weights.map(|(a, b)| a.grad_second_moment.value.ratio(&b.grad_second_moment.value) - 1.0);
    sites.chain(weights).map(f64::abs).filter(|difference| difference.is_finite()).fold(0.0, f64::max)
}
