//! The row of a query, whose keys have a part of their own and a part that near keys have in common.
//!
//! The row is like two rows of n equal keys with scores of variance w:
//!
//! ```text
//! own      n = 1 + (tr tr' − tr_s tr'_s)/(D − D_s)      w = v Q_aa tr n/(n − 1)      n = Z_a if ids do not repeat
//! smooth   n = 1 + tr_s tr'_s/D_s                       w = v Q_aa tr_s n/(n − 1)
//! D σ = (D − D_s) σ_own + D_s σ_smooth                  D τ and D χ likewise; ΣA² as the own row has it
//! ```
//!
//! where n is the number of keys of a row; tr, tr' are the variances of the keys and of the values in view about their
//! averages, which are tr_a in [`super`]; D is the first order in the scores, per v Q_ac; tr_s, tr'_s, D_s are tr, tr'
//! and D of the smooth parts alone ([`super::smooth`]); w is the variance of a score; v is scale² d_head, which is the
//! variance of a score over Q_aa K_bb; Q_aa is the second moment of the query; Z_a is the number of keys in view of
//! query a; σ, τ, χ are the factors of sharp rows on D, on gradients through scores and on the shift of the mean
//! weights; σ_own, σ_smooth are σ of the two rows ([`crate::mean_field::softmax`]); A is the row of attention weights.
//!
//! Where there is a sink, the own row has the keys in view and the sink ([`SoftmaxRow::with_sink`]). Its scores have the
//! common part c and the variance w with
//!
//! ```text
//! c = v Q_aa P°_aa/R²      w R (1 − W) + c R (1 − R) = v Q_aa tr
//! ```
//!
//! where P° is P of the smooth parts of keys; W is the flat weight of a key; R is the sum of the flat weights of all keys
//! in view. A single key has no smooth row.
//!
//! σ and τ are mixed in this way for a query and for pairs of queries. Own parts alone are like as many equal keys as
//! are in view, and a smooth part alone is like a few. Each row is exact in its limit of many keys.
//!
//! Assumption: σ and τ of one part hardly depend on the other. Source: ours.

use super::smooth::{Smooth, TraceMoments, share};
use crate::mean_field::few::Few;
use crate::mean_field::softmax::{SinkRow, SoftmaxRow};

/// The numbers n of equal keys to which the rows of queries are equivalent, for own parts and for smooth parts of keys.
pub(super) struct Keys {
    /// n of the row of own parts, per query.
    own: Few<f64>,
    smooth: Option<SmoothKeys>,
    sink: Option<Sink>,
}

/// The sink that takes part of the weight of every query.
struct Sink {
    /// ω = e^ς for the logit ς of the sink.
    omega: f64,
    /// P°/R² of every query: the mean product of the smooth parts of two keys in view.
    common: Few<f64>,
}

/// The numbers that determine the rows of smooth parts.
struct SmoothKeys {
    /// n of the row of smooth parts, per query.
    keys: Few<f64>,
    /// tr_s of every query: the variance of the smooth parts of the keys in view about their average.
    trace: Few<f64>,
    /// D_s/D of every query: the share of smooth parts in D.
    share: Few<f64>,
    /// D_s/D, the share of smooth parts in D, at the points of a class of pairs.
    share_of_pairs: Few<f64>,
}

impl Keys {
    /// Computes the numbers from the moments of all parts and, if there are any, of smooth parts; `most` is the number
    /// of keys in view of every query.
    pub(super) fn new(all: &TraceMoments, smooth: Option<Smooth>, most: &[f64]) -> Self {
        let Some(Smooth { moments, trace, shares }) = smooth else {
            return Self { own: all.keys(most), smooth: None, sink: None };
        };
        let less = |of: &Few<f64>, part: &Few<f64>| of.iter().zip(part).map(|(&of, &part)| of - part).collect();
        let own =
            TraceMoments { traces: less(&all.traces, &moments.traces), spread: less(&all.spread, &moments.spread) };
        let share = moments.spread.iter().zip(&all.spread).map(|(&part, &all)| share(part, all)).collect();
        let smooth = SmoothKeys { keys: moments.keys(most), trace, share, share_of_pairs: shares };
        Self { own: own.keys(most), smooth: Some(smooth), sink: None }
    }

    /// Returns these keys with a sink of weight `omega`. Own rows then have the keys `in_view`; `common` is P°/R².
    pub(super) fn with_sink(self, omega: f64, in_view: Few<f64>, common: Few<f64>) -> Self {
        Self { own: in_view, sink: Some(Sink { omega, common }), ..self }
    }

    /// Returns the row of a query, from `score` = v Q_aa and `trace` = tr.
    pub(super) fn row(&self, node: usize, score: f64, trace: f64) -> QueryRow {
        let keys = self.own[node];
        let own = match &self.sink {
            Some(sink) => sink.row(keys, score, trace, sink.common[node]),
            None => equal_keys(keys, score, trace),
        };
        let is_one = self.sink.is_some() && keys < 1.5;
        let smooth = self.smooth.as_ref().filter(|of| !is_one && of.share[node] > 0.0 && of.trace[node] > 0.0);
        let smooth = smooth.map(|of| {
            let row = equal_keys(of.keys[node], score, of.trace[node]);
            Box::new(SmoothRow { row, share: of.share[node] })
        });
        QueryRow { own, smooth }
    }

    /// Returns σ and τ for two queries at a point, from their rows a and c and the correlation of their scores.
    pub(super) fn with(&self, point: usize, [a, c]: [&QueryRow; 2], correlation: f64) -> [f64; 2] {
        let own = a.own.with(&c.own, correlation);
        let (Some(smooth), Some(of_a), Some(of_c)) = (&self.smooth, &a.smooth, &c.smooth) else { return own };
        let share = smooth.share_of_pairs[point % smooth.share_of_pairs.len()];
        let smooth = of_a.row.with(&of_c.row, correlation);
        [0, 1].map(|index| own[index] + (smooth[index] - own[index]) * share)
    }
}

impl Sink {
    /// Returns a row of `keys` keys and this sink, from `score` = v Q_aa, `trace` = tr and `common` = P°_aa/R².
    fn row(&self, keys: f64, score: f64, trace: f64, common: f64) -> SoftmaxRow {
        let weight = (keys + self.omega).recip();
        let rows = keys * weight;
        let common = common.clamp(0.0, trace.max(0.0) / (rows * (1.0 - rows)));
        let own = (trace / rows - common * (1.0 - rows)).max(0.0) / (1.0 - weight);
        let [variance, common] = [own, common].map(|of| of * score);
        SoftmaxRow::with_sink(&SinkRow { keys, variance, common, omega: self.omega })
    }
}

/// Returns a row of `keys` equivalent keys, from `score` = v Q_aa and `trace` = tr, or tr_s for smooth parts.
fn equal_keys(keys: f64, score: f64, trace: f64) -> SoftmaxRow {
    if keys <= 1.0 + 1e-9 || trace <= 0.0 {
        return SoftmaxRow::constant(keys);
    }
    SoftmaxRow::new(keys, score * trace * keys / (keys - 1.0))
}

/// The row of a query: the row of own parts, and the row of smooth parts if there are any.
pub(super) struct QueryRow {
    pub(super) own: SoftmaxRow,
    pub(super) smooth: Option<Box<SmoothRow>>,
}

/// The row of smooth parts, and D_s/D.
pub(super) struct SmoothRow {
    row: SoftmaxRow,
    share: f64,
}

impl QueryRow {
    fn mixed(&self, of: impl Fn(&SoftmaxRow) -> f64) -> f64 {
        let own = of(&self.own);
        self.smooth.as_ref().map_or(own, |smooth| own + (of(&smooth.row) - own) * smooth.share)
    }

    /// Returns σ(1), the factor of a sharp row on D for a query with itself.
    pub(super) fn squares(&self) -> f64 {
        self.mixed(|row| row.squares)
    }

    /// Returns τ(1), the factor of a sharp row on gradients through scores for a query with itself.
    pub(super) fn passed(&self) -> f64 {
        self.mixed(|row| row.passed)
    }

    /// χ, the factor on the shift of the mean row from flat weights.
    pub(super) fn shift(&self) -> f64 {
        self.mixed(|row| row.shift)
    }

    /// σ(1) and τ(1) of a single key, minus their values for the row.
    pub(super) fn single_key(&self) -> [f64; 2] {
        [self.own.single_key[0] - self.own.squares, self.own.single_key[1] - self.own.passed]
    }

    /// The score variance of smooth parts times their share of D.
    pub(super) fn smooth_variance(&self) -> f64 {
        self.smooth.as_ref().map_or(0.0, |smooth| smooth.row.variance * smooth.share)
    }

    /// Σ_b E A_b² divided by its value for equal scores.
    pub(super) fn sharper(&self) -> f64 {
        self.own.sharper()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// tr and tr', D and D_s, tr_s and tr'_s, and σ(1) and τ(1) at v = 1 and 3.
    struct Sampled {
        traces: [f64; 2],
        spreads: [f64; 2],
        smooth_traces: [f64; 2],
        factors: [[f64; 2]; 2],
    }

    /// The last of 64 queries in K = I + 30 M Mᵀ with a diagonal of 1, where M is the mean over the tokens before; in
    /// the second entry keys are rotated by 32 angles. The factors were sampled with NumPy (40 000 rows): ± 0.2 %.
    const SAMPLED: [Sampled; 2] = [
        Sampled {
            traces: [0.65663, 0.65663],
            spreads: [0.014_636_3, 0.008_422_4],
            smooth_traces: [0.17257, 0.17257],
            factors: [[1.1141, 1.3432], [1.3115, 2.0700]],
        },
        Sampled {
            traces: [0.76926, 0.65663],
            spreads: [0.016_272_9, 0.009_151_0],
            smooth_traces: [0.26827, 0.17257],
            factors: [[1.1267, 1.4122], [1.3310, 2.2382]],
        },
    ];

    fn of_one(traces: f64, spread: f64) -> TraceMoments {
        TraceMoments { traces: smallvec::smallvec![traces], spread: smallvec::smallvec![spread] }
    }

    #[test]
    fn rows_of_own_and_smooth_parts_are_as_sampled() {
        for Sampled { traces: [key, value], spreads: [spread, of_smooth], smooth_traces, factors } in SAMPLED {
            let smooth = Smooth {
                moments: of_one(smooth_traces[0] * smooth_traces[1], of_smooth),
                trace: smallvec::smallvec![smooth_traces[0]],
                shares: smallvec::smallvec![of_smooth / spread],
            };
            let keys = Keys::new(&of_one(key * value, spread), Some(smooth), &[64.0]);
            for ((variance, tolerance), [squares, passed]) in [(1.0, 0.035), (3.0, 0.06)].into_iter().zip(factors) {
                let row = keys.row(0, variance, key);
                approx::assert_relative_eq!(row.squares(), squares, max_relative = tolerance);
                approx::assert_relative_eq!(row.passed(), passed, max_relative = tolerance);
                // The pair is a query and itself.
                let [value, gradient] = keys.with(0, [&row, &row], 1.0);
                approx::assert_relative_eq!(value, row.squares(), max_relative = 1e-9);
                approx::assert_relative_eq!(gradient, row.passed(), max_relative = 1e-9);
            }
        }
    }

    #[test]
    fn without_smooth_parts_keys_are_those_in_view() {
        let (keys, trace) = (16.0, 0.75);
        let all = of_one(trace * trace, trace * trace / (keys - 1.0));
        let nothing =
            Smooth { moments: of_one(0.0, 0.0), trace: smallvec::smallvec![0.0], shares: smallvec::smallvec![0.0] };
        let row = Keys::new(&all, Some(nothing), &[keys]).row(0, 2.0, trace);
        let equal: SoftmaxRow = SoftmaxRow::new(keys, 2.0 * trace * keys / (keys - 1.0));
        approx::assert_relative_eq!(row.passed(), equal.passed, max_relative = 1e-12);
        approx::assert_relative_eq!(row.squares(), equal.squares, max_relative = 1e-12);
    }
}
