//! The weights that a mask gives to keys in the absence of scores, W_ab = e^(−slope |a − b|)/Z_a for the keys in view,
//! and sums with powers of these weights. Z_a is the sum over these keys, plus ω = e^ς if there is a sink of logit ς.

use std::ops::RangeInclusive;

use sigprop_stack::Mask;

use crate::mean_field::positions::{Averages, Decay, Spec};

/// A function of two positions.
type OfTwo<'p, T> = Box<dyn Fn(usize, usize) -> T + 'p>;

/// The weights of keys in the absence of scores.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct FlatWeights {
    /// The keys in view of a query.
    pub(crate) mask: Mask,
    /// The rate of the decay of weights with distance.
    pub(crate) slope: f64,
    /// ω = e^ς, the weight of the sink relative to a key; 0 without a sink.
    pub(crate) sink: f64,
}

/// The keys in view of every query, and their weights in the absence of scores.
pub(super) struct Pattern {
    length: usize,
    mask: Mask,
    sink: f64,
    /// e^−slope.
    rate: f64,
    /// Z_a, the normalisation of the weights of query a, for every position a.
    pub(super) z: Vec<f64>,
}

/// The powers p and q of Σ_b W_tb^p W_cb^q f(b), or of Σ_b W_bt^p W_bc^q f(b).
#[derive(Clone, Copy)]
pub(super) struct Powers {
    pub(super) of_t: i32,
    pub(super) of_c: i32,
    /// True if b are keys, false if they are queries.
    pub(super) over_keys: bool,
}

/// The functions of a sum, which a [`Spec`] borrows.
pub(super) struct Weighted<'p> {
    range: OfTwo<'p, RangeInclusive<usize>>,
    weight: Box<dyn Fn(usize, usize, usize) -> f64 + 'p>,
    scale: OfTwo<'p, f64>,
    anchor: OfTwo<'p, usize>,
    decaying: Decaying,
}

/// The decay of weights with distance.
enum Decaying {
    Not,
    /// A decay with the distance from the anchor, in a range of all positions up to the anchor, or from it on.
    OneSided {
        rate: f64,
        is_before: bool,
    },
    TwoSided {
        rate: f64,
        powers: [usize; 2],
    },
}

impl Weighted<'_> {
    pub(super) fn spec(&self) -> Spec<'_> {
        let Self { range, weight, scale, anchor, decaying } = self;
        let decay = match *decaying {
            Decaying::Not => Decay::None,
            Decaying::OneSided { rate, is_before } => Decay::OneSided { rate, anchor, is_before },
            Decaying::TwoSided { rate, powers } => Decay::TwoSided { rate, powers },
        };
        Spec { range, weight, scale, decay }
    }
}

impl Pattern {
    pub(super) fn new(length: usize, FlatWeights { mask, slope, sink }: FlatWeights) -> Self {
        let mut pattern = Self { length, mask, sink, rate: (-slope).exp(), z: Vec::new() };
        pattern.z = (0..length).map(|a| fallen(pattern.rate, a, &pattern.keys(a)) + sink).collect();
        pattern
    }

    /// Returns true if query a sees key b.
    pub(super) fn sees(&self, a: usize, b: usize) -> bool {
        self.mask.keys(a, self.length).contains(&b)
    }

    /// The keys in view of a query.
    fn keys(&self, a: usize) -> RangeInclusive<usize> {
        let range = self.mask.keys(a, self.length);
        range.start..=range.end.saturating_sub(1)
    }

    /// The queries that see a key.
    fn queries(&self, b: usize) -> RangeInclusive<usize> {
        let first = self.mask.after.map_or(0, |after| b.saturating_sub(after));
        let last = self.mask.before.map_or(self.length - 1, |before| (b + before).min(self.length - 1));
        first..=last
    }

    /// Returns two ranges for the queries a and c: the keys in view of both, and the keys in view of c. For keys a and
    /// c, returns the queries that see both, and the queries that see c.
    pub(super) fn shared(&self, [a, c]: [usize; 2], over_keys: bool) -> [RangeInclusive<usize>; 2] {
        let view = |at: usize| if over_keys { self.keys(at) } else { self.queries(at) };
        [meet(&view(a), &view(c)), view(c)]
    }

    fn is_causal(&self) -> bool {
        self.mask == Mask::CAUSAL
    }

    /// Returns e^(−slope · distance), the factor on a weight at this distance.
    pub(super) fn decay(&self, distance: usize) -> f64 {
        self.rate.powf(distance as f64)
    }

    /// Returns 1/Σ_b W_ab² of query a: the number of keys in view if all have the same weight and there is no sink.
    pub(super) fn most(&self, a: usize) -> f64 {
        self.z[a].powi(2) / fallen(self.rate * self.rate, a, &self.keys(a))
    }

    /// Returns Σ_b W_ab of query a: 1 without a sink.
    pub(super) fn total(&self, a: usize) -> f64 {
        1.0 - self.sink / self.z[a]
    }

    /// Returns Σ_d W_td W_bd/Σ_d W_bd² for b up to t: the overlap of the weights of queries t and b, relative to that
    /// of b with itself.
    pub(super) fn alike(&self, t: usize, b: usize) -> f64 {
        let common = meet(&self.keys(t), &self.keys(b));
        if common.is_empty() {
            return 0.0;
        }
        // The common keys are before both, after both, or between, where the product is the same everywhere.
        let (start, end) = (*common.start(), *common.end());
        let square = self.rate * self.rate;
        let before = if start < b { fallen(square, b, &(start..=end.min(b - 1))) } else { 0.0 };
        let after = if end > t { fallen(square, t, &(start.max(t + 1)..=end)) } else { 0.0 };
        let between = (end.min(t) + 1).saturating_sub(start.max(b)) as f64;
        let squares = fallen(square, b, &self.keys(b));
        self.decay(t - b) * (before + between + after) / squares * self.z[b] / self.z[t]
    }

    /// Returns the functions of a sum with these powers. If there is a `factor`, which depends on |t − b|, it
    /// multiplies the terms.
    pub(super) fn weighted<'p>(&'p self, powers: Powers, factor: Option<&'p Averages>) -> Weighted<'p> {
        let Powers { of_t, of_c, over_keys } = powers;
        let anchor = move |t: usize, c: usize| match (of_t > 0, over_keys) {
            (false, _) => c,
            (true, true) => t.min(c),
            (true, false) => t.max(c),
        };
        let beyond = move |t: usize, c: usize| {
            if !self.is_causal() {
                return 1.0;
            }
            let at = anchor(t, c);
            let of_t = if of_t > 0 { self.decay(t.abs_diff(at)).powi(of_t) } else { 1.0 };
            of_t * self.decay(c.abs_diff(at)).powi(of_c)
        };
        let factor =
            move |t: usize, b: usize, half: usize| factor.map_or(1.0, |factor| factor.around(t.abs_diff(b), half));
        let view = move |a: usize| if over_keys { self.keys(a) } else { self.queries(a) };
        Weighted {
            range: Box::new(move |t, c| if of_t > 0 { meet(&view(t), &view(c)) } else { view(c) }),
            weight: if over_keys {
                Box::new(factor)
            } else {
                Box::new(move |t, b, half| factor(t, b, half) * self.z[b].powi(-of_t - of_c))
            },
            scale: if over_keys {
                Box::new(move |t, c| beyond(t, c) * self.z[t].powi(-of_t) * self.z[c].powi(-of_c))
            } else {
                Box::new(beyond)
            },
            anchor: Box::new(anchor),
            decaying: match self.rate {
                1.0.. => Decaying::Not,
                rate if self.is_causal() => Decaying::OneSided { rate: rate.powi(of_t + of_c), is_before: over_keys },
                rate => Decaying::TwoSided { rate, powers: [of_t as usize, of_c as usize] },
            },
        }
    }
}

/// Returns Σ rate^|a − b| over the keys b; 0 if the range of keys is empty.
fn fallen(rate: f64, a: usize, keys: &RangeInclusive<usize>) -> f64 {
    let (start, end) = (*keys.start(), *keys.end());
    // Σ rate^d over `count` distances from the first on.
    let sum = |first: usize, count: usize| {
        if rate < 1.0 { rate.powf(first as f64) * (1.0 - rate.powf(count as f64)) / (1.0 - rate) } else { count as f64 }
    };
    let upper = start.max(a + 1);
    let before = if start <= a { sum(a.saturating_sub(end), (end.min(a) + 1).saturating_sub(start)) } else { 0.0 };
    let after = if end > a { sum(upper - a, (end + 1).saturating_sub(upper)) } else { 0.0 };
    before + after
}

fn meet(a: &RangeInclusive<usize>, b: &RangeInclusive<usize>) -> RangeInclusive<usize> {
    *a.start().max(b.start())..=*a.end().min(b.end())
}
