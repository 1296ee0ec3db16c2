//! One row of attention beyond the first order in its scores.

use crate::moments::ratio;
use crate::rules::attention::SHARPEST_SAMPLED;
use crate::rules::attention::concentration::Unequal;
use crate::rules::attention::gram::queries::Queries;
use crate::rules::attention::pull::Ends;
use crate::rules::softmax;
use crate::rules::softmax::groups::{Saturation, Single};

/// Score variance, of a row or of its key that is furthest from the average, from which the structure of keys matters beyond the
/// first order, and number of effective keys, as a share of those a query sees, below which they have one.
const SHARPEST_EXCHANGEABLE: f64 = 0.1;
const LARGEST_STRUCTURED: f64 = 0.95;
/// Score variance of a row up to which pairs of its keys are followed.
pub(super) const SHARPEST_FOLLOWED: f64 = 1.5;

/// What saturation makes of a row.
#[derive(Clone, Copy)]
pub(super) struct Row {
    /// S2.
    pub(super) s2: f64,
    /// n_e.
    pub(super) effective: f64,
    /// Keys in view: 1/Σ_b W_ab².
    pub(super) in_view: f64,
    /// w_e.
    pub(super) contrast: f64,
    /// s, σ, t, E χt and f.
    pub(super) value: f64,
    pub(super) shift: f64,
    pub(super) slope: f64,
    pub(super) weighted_slope: f64,
    pub(super) first: f64,
    /// w_e (1 − 3 S2 + 2 S3)².
    pub(super) second: f64,
    pub(super) traces: Traces,
    pub(super) ends: Ends,
    /// Of n_e keys of score variance w_e, if scores differ.
    pub(super) overlaps: Option<softmax::Row>,
    pub(super) roots: Roots,
    /// Of single keys, where those in groups are others.
    pub(super) single: Option<Single>,
}

/// What the keys in view differ in.
#[derive(Clone, Copy)]
pub(super) struct Traces {
    /// tr of keys and of values.
    pub(super) key: f64,
    pub(super) value: f64,
    /// Their product, of what their inputs differ in alone, tr_v² E k²/E v²: rotations make keys differ in what all inputs
    /// share too.
    pub(super) input: f64,
}

/// Roots of what pairs of rows take products of.
#[derive(Clone, Copy, Default)]
pub(super) struct Roots {
    /// Of s, and of s, t and E χt less f².
    pub(super) value: f64,
    pub(super) value_rest: f64,
    pub(super) slope_rest: f64,
    pub(super) weighted_slope_rest: f64,
    pub(super) second: f64,
    /// Of γ tr of keys times that of values, as far as their inputs differ.
    pub(super) unlike: f64,
}

impl Roots {
    /// Of a row whose keys have the `concentration` γ.
    pub(super) fn of(row: &Row, concentration: f64) -> Self {
        let root = |square: f64| square.max(0.0).sqrt();
        let rest = |own: f64| root(own - row.first * row.first);
        Self {
            value: root(row.value),
            value_rest: rest(row.value),
            slope_rest: rest(row.slope),
            weighted_slope_rest: rest(row.weighted_slope),
            second: root(row.second),
            unlike: root(concentration * row.traces.input),
        }
    }
}

impl Row {
    /// One key in view, or keys that are copies.
    pub(super) fn flat(in_view: f64, traces: Traces) -> Self {
        Self::flat_keys(in_view, in_view, traces)
    }

    /// Scores that do not differ.
    pub(super) fn flat_keys(effective: f64, in_view: f64, traces: Traces) -> Self {
        Self {
            s2: 1.0 / effective,
            effective,
            in_view,
            contrast: 0.0,
            value: 1.0,
            shift: 1.0,
            slope: 1.0,
            weighted_slope: 1.0,
            first: 1.0,
            second: 0.0,
            traces,
            ends: Ends::flat(),
            overlaps: None,
            roots: Roots::default(),
            single: None,
        }
    }
}

impl Row {
    /// Whether keys have unequal weights, or a structure, where scores matter, of which the largest has the variance `furthest`.
    pub(super) fn is_structured(&self, decays: bool, furthest: f64) -> bool {
        let matters = self.contrast.max(furthest) > SHARPEST_EXCHANGEABLE;
        // Beyond what was sampled rows are those of n_e equal keys.
        let sampled = self.contrast <= SHARPEST_SAMPLED;
        matters && sampled && (decays || self.effective < LARGEST_STRUCTURED * self.in_view)
    }

    /// Whether keys have a structure that pairs of them do not say all of.
    pub(super) fn is_beyond_pairs(&self) -> bool {
        self.contrast > SHARPEST_FOLLOWED && self.effective < LARGEST_STRUCTURED * self.in_view
    }

    /// How much more the squares of keys and values that pass T are, for their lengths.
    pub(super) fn lengths(&self, unequal: Unequal, longer: f64) -> f64 {
        let cosine = 1.0 - self.traces.key;
        let normalised = unequal.squares(cosine) + 2.0 * self.outlying(unequal);
        normalised + longer * (1.0 + 2.0 * self.attended())
    }

    /// What T loses beside scores far from their average.
    pub(super) fn outlying(&self, unequal: Unequal) -> f64 {
        self.overlaps.map_or(0.0, |row| unequal.outlying(1.0 - self.traces.key, &row))
    }

    /// What passes of the two directions that keys do not pass like the others, per γ; rotations leave the part `turned` of
    /// products of different keys, which have all of it but T.
    pub(super) fn own_directions(&self, turned: f64, longer: f64) -> f64 {
        let t = self.s2 * (1.0 - self.s2);
        let flat = [(1.0 - self.s2).powi(2), t, t];
        let [of_gradient, of_scores, t] = self.overlaps.map_or(flat, |row| {
            let [of_gradient, of_scores] = row.own_directions();
            [of_gradient, of_scores, row.t()]
        });
        let passed = turned * (of_gradient - t) + t + of_scores;
        passed * (1.0 + longer * self.contrast.min(SHARPEST_SAMPLED) * (1.0 - self.s2))
    }

    /// λ of `attention/concentration.rs`: by how much a longer key is attended more.
    pub(super) fn attended(&self) -> f64 {
        let attended =
            |row: softmax::Row| ratio(row.leaning(self.contrast.min(SHARPEST_SAMPLED)) * row.t(), row.s2 * row.s2);
        self.overlaps.map_or(0.0, attended)
    }

    /// Σ A² over single keys, over that of scores that do not differ.
    pub(super) fn squares(&self) -> f64 {
        self.single.map_or(self.s2 * self.effective, |single| single.squares)
    }

    /// Σ A² over single keys less what the first order makes it, from the `score` variance v Q_aa and the weight and the
    /// centred square of each of the `keys`; 0 where keys have no structure.
    pub(super) fn beyond_squares(&self, score: f64, keys: impl Iterator<Item = (f64, f64)>) -> f64 {
        let Some(single) = self.single else { return 0.0 };
        let first = |(weight, apart): (f64, f64)| {
            let moved = self.shift * (apart - self.traces.key);
            weight * weight * (1.0 + score * (self.value * apart + moved))
        };
        single.squares / self.in_view - keys.map(first).sum::<f64>()
    }

    /// Σ A² (v_b − z)² over single keys less what groups make it, likewise from the `values`.
    pub(super) fn beyond_slope(&self, values: impl Iterator<Item = (f64, f64)>) -> f64 {
        let Some(single) = self.single else { return 0.0 };
        let flat: f64 = values.map(|(weight, apart)| weight * weight * apart).sum();
        (single.slope - self.weighted_slope) * flat
    }

    /// As `groups` of keys saturate; what lengths of queries and keys stray by is what they make of n_e equal keys, `exact` if
    /// they do not.
    pub(super) fn saturate(&mut self, groups: &Saturation, exact: &softmax::Row) {
        let flat = self.effective.recip();
        let [squares, value, slope, weighted] = self.overlaps.map_or([1.0; 4], |row| {
            let excess = ratio(row.s2 - flat, exact.s2 - flat);
            [row.s2 / exact.s2, excess, ratio(row.t(), exact.t()), ratio(row.t_weighted, exact.t())]
        });
        let single = groups.single;
        self.single = Some(Single { squares: single.squares * squares, slope: single.slope * weighted });
        self.s2 = groups.own * squares / self.effective;
        self.value = groups.value * value;
        self.shift = groups.shift;
        self.slope = groups.slope * slope;
        self.weighted_slope = groups.slope * weighted;
        self.first = groups.first;
    }
}

/// The pull of a query's key direction on the average.
#[derive(Clone, Copy)]
pub(super) struct Pull {
    /// Score variance; with γ, not beyond what was sampled.
    pub(super) strength: f64,
    pub(super) unequal: Unequal,
}

impl Pull {
    /// Of rows a and c, which have the part `alike` of their scores in common, where rotations leave the part `turned`.
    pub(super) fn at(self, q: &Queries, [a, c]: [usize; 2], rows: &[Row], [alike, turned]: [f64; 2]) -> f64 {
        let (one, other) = (&rows[a], &rows[c]);
        let unlike = one.roots.unlike * other.roots.unlike;
        let correlation = if a == c { turned } else { q.pulled(a, c) };
        self.strength * q.size(a, c) * unlike * one.ends.pull(&other.ends, correlation, [alike, turned], self.unequal)
    }
}

/// Rows of which something is computed: the first `all`, then fewer and fewer, no step more than a part `step` of
/// the position, and the last.
pub(super) fn sampled_rows(n: usize, all: usize, step: f64) -> Vec<usize> {
    let mut rows = vec![0];
    while rows[rows.len() - 1] + 1 < n {
        let last = rows[rows.len() - 1];
        let step = if last + 1 < all { 1 } else { ((last as f64 * step) as usize).max(1) };
        rows.push((last + step).min(n - 1));
    }
    rows
}

/// Of each position the sampled row at or below it, and how far it is on the way to the next.
pub(super) fn interpolation(rows: &[usize]) -> Vec<(usize, f64)> {
    let mut between = Vec::new();
    for (place, ends) in rows.windows(2).enumerate() {
        between.extend((ends[0]..ends[1]).map(|a| (place, (a - ends[0]) as f64 / (ends[1] - ends[0]) as f64)));
    }
    between.push((rows.len() - 1, 0.0));
    between
}
