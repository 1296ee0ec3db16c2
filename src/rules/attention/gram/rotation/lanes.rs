//! Frequencies side by side, and views of the first keys, of which some are computed and the others interpolated.

use crate::rules::attention::gram::row::{interpolation, sampled_rows};

/// Frequencies at a time.
pub(super) const LANES: usize = 8;

/// Real and imaginary parts.
pub(super) type Complex = [[f64; LANES]; 2];

pub(super) const ZERO: Complex = [[0.0; LANES]; 2];

/// Some frequencies θ_f and their shares p_f.
pub(super) struct Lanes {
    pub(super) shares: [f64; LANES],
    /// cos θ_f Δ and sin θ_f Δ, by distance.
    pub(super) turns: Vec<Complex>,
}

impl Lanes {
    /// At most [`LANES`] frequencies, with their shares, at `count` distances.
    pub(super) fn new(frequencies: &[(f64, f64)], count: usize) -> Self {
        let padded: [(f64, f64); LANES] = std::array::from_fn(|f| frequencies.get(f).copied().unwrap_or_default());
        let turn = |distance: usize| {
            let angles = padded.map(|(frequency, _)| frequency * distance as f64);
            [angles.map(f64::cos), angles.map(f64::sin)]
        };
        Self { shares: padded.map(|(_, share)| share), turns: (0..count).map(turn).collect() }
    }
}

/// Adds to a sum the product of a real `factor` and a term.
pub(super) fn add(sum: &mut Complex, factor: f64, term: &Complex) {
    for (sum, term) in sum.iter_mut().zip(term) {
        for f in 0..LANES {
            sum[f] += factor * term[f];
        }
    }
}

/// Adds to a sum the product of a real factor for each frequency and a term.
pub(super) fn add_shares(sum: &mut Complex, factors: [f64; LANES], term: &Complex) {
    for (sum, term) in sum.iter_mut().zip(term) {
        for f in 0..LANES {
            sum[f] += factors[f] * term[f];
        }
    }
}

/// Views of the first keys: where they end, for some of them, and where between those every query is.
pub(super) struct Views {
    pub(super) ends: Vec<usize>,
    at: Vec<(usize, f64)>,
}

impl Views {
    /// Of queries whose views end at `ends`, which do not fall.
    pub(super) fn new(ends: &[usize]) -> Self {
        let mut views = ends.to_vec();
        views.dedup();
        let places = sampled_rows(views.len(), 32, 1.0 / 16.0);
        let between = interpolation(&places);
        let at = ends.iter().map(|end| between[views.partition_point(|view| view < end)]).collect();
        Self { ends: places.into_iter().map(|place| views[place]).collect(), at }
    }

    pub(super) fn count(&self) -> usize {
        self.ends.len()
    }

    /// The two views around a query, and their weights.
    pub(super) fn around(&self, a: usize) -> [(usize, f64); 2] {
        let (view, part) = self.at[a];
        [(view, 1.0 - part), ((view + 1).min(self.count() - 1), part)]
    }

    /// The four pairs of views around two queries, and their weights.
    pub(super) fn corners(&self, a: usize, c: usize) -> [(usize, f64); 4] {
        let [[one, two], other] = [self.around(a), self.around(c)];
        let pair =
            |(view, part): (usize, f64), (other, share): (usize, f64)| (view * self.count() + other, part * share);
        [pair(one, other[0]), pair(one, other[1]), pair(two, other[0]), pair(two, other[1])]
    }
}
