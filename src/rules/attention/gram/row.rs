//! One row of attention beyond the first order in its scores.

use crate::moments::ratio;
use crate::rules::attention::SHARPEST_SAMPLED;
use crate::rules::attention::concentration::Unequal;
use crate::rules::attention::gram::queries::Queries;
use crate::rules::attention::pull::Ends;
use crate::rules::softmax;

/// Score variance, of a row or of its key that is furthest from the average, from which the structure of keys matters beyond the
/// first order, and number of effective keys, as a share of those a query sees, below which they have one.
const SHARPEST_EXCHANGEABLE: f64 = 0.1;
const LARGEST_STRUCTURED: f64 = 0.95;

/// Powers of ρ beyond the first two; less of a sum is rounding.
pub(super) const LEAST_POWER: f64 = 2.0;
const LARGEST_POWER: f64 = 64.0;
/// Of averages: S11 has a limit for sharp scores, whose slope at ρ = 1 grows; of two keys it is asin ρ/π, of which ρ⁵ makes what
/// is beyond the first order at ρ = ¾.
pub(super) const LARGEST_VALUE_POWER: f64 = 5.0;
const LEAST_REST: f64 = 1e-3;

/// What a score variance makes of the first order, for keys with a structure.
#[derive(Clone, Copy, Debug)]
pub(super) struct Saturation {
    /// s, φ, t and f.
    pub(super) value: f64,
    pub(super) shift: f64,
    pub(super) slope: f64,
    pub(super) first: f64,
    /// What of s averages have that scores move.
    pub(super) moved: f64,
    /// S2 n_e.
    pub(super) own: f64,
    pub(super) single: Single,
}

/// What a score variance makes of single keys.
#[derive(Clone, Copy, Debug)]
pub(super) struct Single {
    /// Σ A², over its value for w = 0.
    pub(super) squares: f64,
    /// Σ A² (v_b − z)², likewise.
    pub(super) slope: f64,
}

impl Saturation {
    /// A part of the way to `other`.
    pub(super) fn mixed(&self, other: &Self, part: f64) -> Self {
        let mix = |of: fn(&Self) -> f64| of(self) * (1.0 - part) + of(other) * part;
        Self {
            value: mix(|s| s.value),
            shift: mix(|s| s.shift),
            slope: mix(|s| s.slope),
            first: mix(|s| s.first),
            moved: mix(|s| s.moved),
            own: mix(|s| s.own),
            single: Single { squares: mix(|s| s.single.squares), slope: mix(|s| s.single.slope) },
        }
    }
}

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
    /// s, φ, t, E χt and f.
    pub(super) value: f64,
    pub(super) shift: f64,
    pub(super) slope: f64,
    pub(super) weighted_slope: f64,
    pub(super) first: f64,
    /// What of s averages have that scores move: rows have it in common whatever their queries are.
    pub(super) moved: f64,
    /// w_e (1 − 3 S2 + 2 S3)².
    pub(super) second: f64,
    pub(super) traces: Traces,
    /// How much of what leans towards queries is there.
    pub(super) leant: f64,
    pub(super) ends: Ends,
    /// Of n_e keys of score variance w_e, if scores differ.
    pub(super) overlaps: Option<softmax::Row>,
    /// d ln t/d ln w of those.
    pub(super) growth: f64,
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

/// Roots of what pairs of rows take products of, and what they take averages of.
#[derive(Clone, Copy, Default)]
pub(super) struct Roots {
    /// Of s, and of s, t and E χt less f².
    pub(super) value: f64,
    pub(super) value_rest: f64,
    pub(super) slope_rest: f64,
    pub(super) weighted_slope_rest: f64,
    pub(super) second: f64,
    /// Of γ tr of keys times that of values, as far as their inputs differ, and of what is there where it leans towards queries.
    pub(super) unlike: f64,
    /// The power of ρ that what is beyond W_1 and W_2 grows with.
    pub(super) power: f64,
}

impl Roots {
    /// Of a row whose keys have the `concentration` γ.
    pub(super) fn of(row: &Row, concentration: f64) -> Self {
        let root = |square: f64| square.max(0.0).sqrt();
        let first = row.first * row.first;
        let rest = |own: f64| root(own - first);
        let own = (row.value - row.moved).max(0.0);
        let [value, slope] = [own - first - 0.5 * row.second, row.slope - first - row.second];
        let power = if value > LEAST_REST * row.value { slope / value - 1.0 } else { LEAST_POWER };
        Self {
            value: root(own),
            value_rest: rest(own),
            slope_rest: rest(row.slope),
            weighted_slope_rest: rest(row.weighted_slope),
            second: root(row.second),
            unlike: root(concentration * row.leant * row.traces.input),
            power: power.clamp(LEAST_POWER, LARGEST_POWER),
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
            moved: 0.0,
            second: 0.0,
            traces,
            leant: 1.0,
            ends: Ends::flat(),
            overlaps: None,
            growth: 0.0,
            roots: Roots::default(),
            single: None,
        }
    }
}

impl Row {
    /// Whether keys have unequal weights, or a structure, where scores matter, of which the largest has the variance `furthest`.
    pub(super) fn is_structured(&self, decays: bool, furthest: f64) -> bool {
        let matters = self.contrast.max(furthest) > SHARPEST_EXCHANGEABLE;
        matters && (decays || self.effective < LARGEST_STRUCTURED * self.in_view)
    }

    /// How much more the squares of keys and values that pass T are, for their lengths.
    pub(super) fn lengths(&self, unequal: Unequal, longer: f64) -> f64 {
        let cosine = 1.0 - self.traces.key;
        let [of_values, of_keys] = self.outlying(unequal);
        let normalised = unequal.squares(cosine) + of_values + of_keys;
        normalised + longer * (1.0 + 2.0 * self.attended())
    }

    /// What T of values and of keys loses beside scores far from their average.
    pub(super) fn outlying(&self, unequal: Unequal) -> [f64; 2] {
        self.overlaps.map_or([0.0; 2], |row| unequal.outlying(1.0 - self.traces.key, &row))
    }

    /// What passes of the two directions that keys do not pass like the others, per γ; rotations leave the part `turned` of
    /// products of different keys, which have all of it but T.
    pub(super) fn own_directions(&self, turned: f64) -> f64 {
        let t = self.s2 * (1.0 - self.s2);
        let flat = [(1.0 - self.s2).powi(2), t, t];
        let [of_gradient, of_scores, t] = self.overlaps.map_or(flat, |row| {
            let [of_gradient, of_scores] = row.own_directions();
            [of_gradient, of_scores, row.t()]
        });
        turned * (of_gradient - t) + t + of_scores
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

    /// Σ A² (v_b − z)² over single keys less what t makes it, likewise from the `values`.
    pub(super) fn beyond_slope(&self, values: impl Iterator<Item = (f64, f64)>) -> f64 {
        let Some(single) = self.single else { return 0.0 };
        let flat: f64 = values.map(|(weight, apart)| weight * weight * apart).sum();
        (single.slope - self.weighted_slope) * flat
    }

    /// As keys with a `structure` saturate; what lengths of queries and keys stray by is what they make of n_e equal keys, `exact`
    /// if they do not.
    pub(super) fn saturate(&mut self, structure: &Saturation, exact: &softmax::Row) {
        let flat = self.effective.recip();
        let [squares, value, slope, weighted] = self.overlaps.map_or([1.0; 4], |row| {
            let excess = ratio(row.s2 - flat, exact.s2 - flat);
            [row.s2 / exact.s2, excess, ratio(row.t(), exact.t()), ratio(row.t_weighted, exact.t())]
        });
        let single = structure.single;
        self.single = Some(Single { squares: single.squares * squares, slope: single.slope * weighted });
        self.s2 = (structure.own * squares * flat).min(1.0);
        self.value = structure.value * value;
        self.moved = structure.moved * value;
        self.shift = structure.shift;
        self.slope = structure.slope * slope;
        self.weighted_slope = structure.slope * weighted;
        self.first = structure.first;
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
