//! The specification of sums over the points of one list.

use std::ops::RangeInclusive;

use smallvec::SmallVec;

use super::cubic::Stencil;
use super::line::{Run, runs};

/// Largest decrease of ln weight from one end of a run to the other, for weights that decay.
pub(super) const FALL: f64 = 0.5;
/// Decrease of ln weight beyond which weights are negligible.
pub(super) const NOTHING: f64 = 45.0;

/// The functions that specify a sum along the rows of a chart, or over nodes. Their arguments are the positions t, b
/// and c of `sum.rs`.
pub(crate) struct Spec<'a> {
    pub(crate) range: &'a dyn Fn(usize, usize) -> RangeInclusive<usize>,
    /// The weight of the positions t and b, the first two arguments. It is averaged over b and as many positions on
    /// either side of b as the third argument says.
    pub(crate) weight: &'a dyn Fn(usize, usize, usize) -> f64,
    pub(crate) scale: &'a dyn Fn(usize, usize) -> f64,
    pub(crate) decay: Decay<'a>,
}

/// The decay of the weight of b with its distance, in addition to `weight`.
#[derive(Clone, Copy)]
pub(crate) enum Decay<'a> {
    /// No decay.
    None,
    /// A decay by rate^|anchor − b|, in ranges from one end of the sequence to the anchor.
    OneSided {
        rate: f64,
        anchor: &'a dyn Fn(usize, usize) -> usize,
        /// True if b runs up to the anchor, false if it runs down to it.
        is_before: bool,
    },
    /// A decay by rate^(p |t − b| + q |c − b|) with the powers [p, q], in any range.
    TwoSided { rate: f64, powers: [usize; 2] },
}

/// Weights of five neighbouring points.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Weights {
    pub(super) start: u32,
    pub(super) weights: [f64; 5],
}

/// One list: its positions without repetitions, and the cubic at any position, with places among all points.
pub(super) struct List<'a> {
    pub(super) positions: &'a [usize],
    pub(super) stencil: &'a dyn Fn(usize) -> Stencil,
}

impl List<'_> {
    /// Returns Σ weight · cubic over `first`..`end`, which is in one cell, by runs of at most `longest` neighbours.
    pub(super) fn between(
        &self,
        first: usize,
        end: usize,
        longest: usize,
        weight: &dyn Fn(usize, usize) -> f64,
    ) -> Weights {
        let term = |run: Run| {
            let Stencil { start, weights } = (self.stencil)(run.middle);
            let unused = weights.iter().take_while(|weight| weight.abs() == 0.0).count();
            let mut used = [0.0; 4];
            used[..4 - unused].copy_from_slice(&weights[unused..]);
            (weight(run.middle, run.half) * run.tokens(), Stencil { start: start + unused, weights: used })
        };
        let terms: SmallVec<[(f64, Stencil); 20]> = runs(first, end, longest).map(term).collect();
        let Some(start) = terms.iter().map(|(_, stencil)| stencil.start).min() else { return Weights::default() };
        let mut sum = [0.0; 5];
        for (factor, stencil) in terms {
            for (place, own) in (stencil.start..).zip(stencil.weights).filter(|(_, own)| own.abs() > 0.0) {
                sum[place - start] += factor * own;
            }
        }
        Weights { start: start as u32, weights: sum }
    }
}
