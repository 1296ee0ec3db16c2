//! Sums with weights that decay on both sides: a matrix per list, in time quadratic in the number of points.

use std::collections::BTreeSet;
use std::ops::Range;

use super::line::Run;
use super::list::{FALL, List, NOTHING, Spec};

/// Sums over the points of one list, as a matrix of weights.
#[derive(Clone, Debug)]
pub(crate) struct Dense {
    /// The range of the points of the list among all points.
    inputs: Range<usize>,
    /// The weights of all inputs, for one output after the other.
    weights: Vec<f64>,
}

/// The decay rate^(p |t − b| + q |c − b|) with the powers [p, q].
#[derive(Clone, Debug)]
pub(crate) struct TwoSided {
    powers: [usize; 2],
    /// rate^n for n from 0.
    of_rate: Vec<f64>,
    /// The longest run of neighbours that may be merged.
    longest: usize,
}

impl TwoSided {
    pub(super) fn new(rate: f64, powers: [usize; 2]) -> Self {
        let slope = -rate.ln();
        let [longest, reach] =
            [FALL / powers.iter().sum::<usize>() as f64, NOTHING].map(|fall| (fall / slope) as usize);
        Self { powers, longest, of_rate: (0..=reach).map(|power| rate.powf(power as f64)).collect() }
    }

    /// The distance from c beyond which weights are negligible.
    fn reach(&self) -> usize {
        self.of_rate.len() / self.powers[1]
    }

    /// Returns the mean decay over a run that is on one side of t and on one side of c; `ends` are t and c.
    fn over(&self, ends: [usize; 2], Run { middle, half }: Run) -> f64 {
        let exponent =
            |b: usize| -> usize { ends.iter().zip(self.powers).map(|(end, power)| power * end.abs_diff(b)).sum() };
        let of_rate = |power: usize| self.of_rate.get(power).copied().unwrap_or(0.0);
        let (first, last) = (exponent(middle - half), exponent(middle + half));
        if first == last {
            return of_rate(first);
        }
        let step = first.abs_diff(last) / (2 * half);
        let sum = (of_rate(first.min(last)) - of_rate(first.max(last) + step)) / (1.0 - of_rate(step));
        sum / (2 * half + 1) as f64
    }
}

impl Dense {
    /// Builds the sums over the points `inputs` of a list.
    pub(super) fn new(
        (list, inputs): (&List, Range<usize>),
        outputs: impl Iterator<Item = (usize, usize)>,
        (spec, decay): (&Spec, &TwoSided),
        weight: &dyn Fn(usize, usize) -> f64,
    ) -> Self {
        let mut weights = Vec::new();
        for (t, c) in outputs {
            let output = weights.len();
            weights.resize(output + inputs.len(), 0.0);
            let range = (spec.range)(t, c);
            let first = (*range.start()).max(c.saturating_sub(decay.reach()));
            let end = (range.end() + 1).min(c + decay.reach() + 1);
            if first >= end {
                continue;
            }
            // Each stretch is in one cell and on one side of both positions.
            let cuts = list.positions.iter().map(|at| at + 1).chain([t, t + 1, c, c + 1]);
            let cuts: BTreeSet<usize> = cuts.filter(|cut| (first..end).contains(cut)).chain([first, end]).collect();
            for (&first, &end) in cuts.iter().zip(cuts.iter().skip(1)) {
                let decayed = |b, half| weight(b, half) * decay.over([t, c], Run { middle: b, half });
                let of_cell = list.between(first, end, decay.longest, &decayed);
                let places = &mut weights[output + of_cell.start as usize - inputs.start..];
                places.iter_mut().zip(of_cell.weights).for_each(|(sum, own)| *sum += (spec.scale)(t, c) * own);
            }
        }
        Self { inputs, weights }
    }

    /// Returns the sums of a function given at all points, or at all nodes.
    pub(super) fn of<'f>(&'f self, f: &'f [f64]) -> impl Iterator<Item = f64> + 'f {
        let f = &f[self.inputs.clone()];
        self.weights.chunks_exact(f.len()).map(|weights| f.iter().zip(weights).map(|(&f, &weight)| f * weight).sum())
    }
}
