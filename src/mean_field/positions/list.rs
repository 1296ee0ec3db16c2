//! What is summed over the points of one list, and how.

use std::ops::RangeInclusive;

use smallvec::SmallVec;

use super::cubic::Stencil;
use super::line::{Run, runs};

/// What decaying weights fall by from one end of a run to the other, and where nothing is left of them, in units of 1/e.
pub(super) const FALL: f64 = 0.5;
pub(super) const NOTHING: f64 = 45.0;

/// How to sum along the rows of a chart, or over nodes: functions of positions t, b and c as above.
pub(crate) struct Spec<'a> {
    pub(crate) range: &'a dyn Fn(usize, usize) -> RangeInclusive<usize>,
    /// On average over so many positions on both sides of b.
    pub(crate) weight: &'a dyn Fn(usize, usize, usize) -> f64,
    pub(crate) scale: &'a dyn Fn(usize, usize) -> f64,
    pub(crate) decay: Decay<'a>,
}

/// How the weight of b decays with its distance, on top of `weight`.
#[derive(Clone, Copy)]
pub(crate) enum Decay<'a> {
    /// It does not.
    None,
    /// By rate^|anchor − b|, in ranges from one end of the sequence to the anchor.
    OneSided {
        rate: f64,
        anchor: &'a dyn Fn(usize, usize) -> usize,
        /// Whether b goes up to the anchor, not down to it.
        is_before: bool,
    },
    /// By rate^(p |t − b| + q |c − b|) with the powers [p, q], in any range.
    TwoSided { rate: f64, powers: [usize; 2] },
}

/// Weights of five neighbouring points.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Weights {
    pub(super) start: u32,
    pub(super) weights: [f64; 5],
}

/// One list: its positions without repetitions, and the cubic at any position with places among all points.
pub(super) struct List<'a> {
    pub(super) positions: &'a [usize],
    pub(super) stencil: &'a dyn Fn(usize) -> Stencil,
}

impl List<'_> {
    /// Σ weight · cubic from `first` to before `end`, which lie in one cell, by runs of neighbours.
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
