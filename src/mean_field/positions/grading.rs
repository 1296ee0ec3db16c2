//! Positions and distances that represent all others: near ones one by one, then in steps that grow with the distance.

use std::collections::BTreeSet;

/// The density of the positions and distances that are followed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Grading {
    /// Number of distances and positions that are followed one by one.
    pub(crate) dense: usize,
    /// Number of points per factor of two, beyond the dense ones.
    pub(crate) per_octave: usize,
}

impl Grading {
    pub(crate) const SPARSE: Self = Self { dense: 4, per_octave: 2 };
    pub(crate) const COARSE: Self = Self { dense: 6, per_octave: 3 };
    pub(crate) const FINE: Self = Self { dense: 8, per_octave: 4 };
    pub(crate) const FINER: Self = Self { dense: 12, per_octave: 6 };
    pub(crate) const FINEST: Self = Self { dense: 16, per_octave: 8 };

    /// Returns the grading that follows every one of `length` positions.
    pub(crate) fn all(length: usize) -> Self {
        Self { dense: length, per_octave: 1 }
    }

    /// Returns 0, 1, … one by one, then in steps that grow with the distance, up to `length` − 1.
    pub(super) fn up_to(self, length: usize) -> BTreeSet<usize> {
        let Self { dense, per_octave } = self;
        let growth = 2f64.powf((per_octave as f64).recip()) - 1.0;
        let mut positions: BTreeSet<usize> = (0..dense.min(length)).collect();
        let mut at = dense.min(length) as f64 - 1.0;
        loop {
            let step = ((at + 1.0) * growth).max(1.0);
            at += step;
            if at >= length as f64 - 1.0 - 0.5 * step {
                break;
            }
            positions.insert(at.round() as usize);
        }
        positions.insert(length - 1);
        positions
    }

    /// Returns distances that also resolve `windows`. Up to a few times a window, neighbouring distances differ by at
    /// most the window divided by `per_octave`, which is a quarter of the window in the fine grading. Near the end of a
    /// window, distances are graded by their difference from this end.
    pub(super) fn distances(self, length: usize, windows: &[usize]) -> Vec<usize> {
        /// Distance, in units of the window, beyond which the window has no effect.
        const REACH: f64 = 6.0;
        let mut distances: Vec<usize> = self.up_to(length).into_iter().collect();
        for &window in windows {
            let widest = (window as f64 / self.per_octave as f64).max(1.0);
            let mut finer = BTreeSet::from([0, window]);
            let near = Self { dense: 2, per_octave: self.per_octave / 2 }.up_to((window / 2).max(1));
            finer.extend(near.iter().flat_map(|from| [window - from, window + from]).filter(|&at| at < length));
            for ends in distances.windows(2) {
                let [from, to] = [ends[0], ends[1]];
                let near = to as f64 <= REACH * window as f64;
                let parts = if near { ((to - from) as f64 / widest).ceil() as usize } else { 1 };
                let step = (to - from) as f64 / parts as f64;
                finer.extend((1..=parts).map(|part| from + (step * part as f64).round() as usize));
            }
            distances = finer.into_iter().collect();
        }
        distances
    }
}
