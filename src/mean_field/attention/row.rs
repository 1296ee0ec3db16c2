//! The row of a query, whose keys have a part of their own and one that near keys have in common.
//!
//! With D_s, s and s' for D, tr and tr' of the smooth parts of keys and values alone, it is like two rows of equal keys:
//!
//! ```text
//! own      n = 1 + (tr tr' − s s')/(D − D_s)      w = v Q_aa tr n/(n − 1)      which is n = Z_a where ids do not repeat
//! smooth   n = 1 + s s'/D_s                       w = v Q_aa s n/(n − 1)
//! D σ = (D − D_s) σ_own + D_s σ_smooth            D τ likewise, of a query and of pairs; ΣA² as the own row has it
//! ```
//!
//! Own parts alone make k equal keys, a smooth part alone a few: each is exact in its limit of many keys.
//!
//! Assumption: σ and τ of one part hardly depend on the other. Source: ours.

use super::smooth::{Moments, Smooth, share};
use crate::mean_field::few::Few;
use crate::mean_field::softmax::{Row, Rows};

/// The keys that queries see.
pub(super) struct Keys {
    /// n of own parts of every query.
    own: Few<f64>,
    smooth: Option<SmoothKeys>,
}

/// n, s and D_s/D of every query, and D_s/D at the points of a class of pairs.
struct SmoothKeys {
    keys: Few<f64>,
    trace: Few<f64>,
    share: Few<f64>,
    share_of_pairs: Few<f64>,
}

impl Keys {
    /// From what is of all parts, and of smooth ones if there are, of so many keys in view.
    pub(super) fn new(all: &Moments, smooth: Option<Smooth>, most: &[f64]) -> Self {
        let Some(Smooth { moments, trace, shares }) = smooth else { return Self { own: all.keys(most), smooth: None } };
        let less = |of: &Few<f64>, part: &Few<f64>| of.iter().zip(part).map(|(&of, &part)| of - part).collect();
        let own = Moments { traces: less(&all.traces, &moments.traces), spread: less(&all.spread, &moments.spread) };
        let share = moments.spread.iter().zip(&all.spread).map(|(&part, &all)| share(part, all)).collect();
        let smooth = SmoothKeys { keys: moments.keys(most), trace, share, share_of_pairs: shares };
        Self { own: own.keys(most), smooth: Some(smooth) }
    }

    /// The row of a query, from the variance of its scores per E k² and tr.
    pub(super) fn row(&self, node: usize, score: f64, trace: f64) -> QueryRow {
        let own = equal_keys(self.own[node], score, trace);
        let smooth = self.smooth.as_ref().filter(|of| of.share[node] > 0.0 && of.trace[node] > 0.0);
        let smooth = smooth.map(|of| {
            let row = equal_keys(of.keys[node], score, of.trace[node]);
            Box::new(SmoothRow { row, share: of.share[node] })
        });
        QueryRow { own, smooth }
    }

    /// σ and τ of two queries at a point.
    pub(super) fn with(&self, point: usize, [a, c]: [&QueryRow; 2], correlation: f64) -> [f64; 2] {
        let own = a.own.with(&c.own, correlation);
        let (Some(smooth), Some(of_a), Some(of_c)) = (&self.smooth, &a.smooth, &c.smooth) else { return own };
        let share = smooth.share_of_pairs[point % smooth.share_of_pairs.len()];
        let smooth = of_a.row.with(&of_c.row, correlation);
        [0, 1].map(|index| own[index] + (smooth[index] - own[index]) * share)
    }
}

/// A row of so many keys, from the variance of its scores per E k² and tr.
fn equal_keys(keys: f64, score: f64, trace: f64) -> Row {
    if keys <= 1.0 + 1e-9 || trace <= 0.0 {
        return Row::constant(keys);
    }
    Rows::row(keys, score * trace * keys / (keys - 1.0))
}

/// The row of a query.
pub(super) struct QueryRow {
    pub(super) own: Row,
    pub(super) smooth: Option<Box<SmoothRow>>,
}

/// The row of smooth parts, and D_s/D.
pub(super) struct SmoothRow {
    row: Row,
    share: f64,
}

impl QueryRow {
    fn mixed(&self, of: impl Fn(&Row) -> f64) -> f64 {
        let own = of(&self.own);
        self.smooth.as_ref().map_or(own, |smooth| own + (of(&smooth.row) - own) * smooth.share)
    }

    /// σ(1).
    pub(super) fn squares(&self) -> f64 {
        self.mixed(|row| row.squares)
    }

    /// τ(1).
    pub(super) fn passed(&self) -> f64 {
        self.mixed(|row| row.passed)
    }

    /// The factor on the shift of the mean row from flat.
    pub(super) fn shift(&self) -> f64 {
        self.mixed(|row| row.shift)
    }

    /// σ(1) and τ(1) of a single key beyond those of the row.
    pub(super) fn single_key(&self) -> [f64; 2] {
        [self.own.single_key[0] - self.own.squares, self.own.single_key[1] - self.own.passed]
    }

    /// The score variance of smooth parts times their share of D.
    pub(super) fn smooth_variance(&self) -> f64 {
        self.smooth.as_ref().map_or(0.0, |smooth| smooth.row.variance * smooth.share)
    }

    /// Σ_b E A_b² over that of scores that do not differ.
    pub(super) fn sharper(&self) -> f64 {
        self.own.sharper()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// tr and tr', D, D_s, s and s', and σ(1) and τ(1) at v = 1 and 3.
    struct Sampled {
        traces: [f64; 2],
        spreads: [f64; 2],
        smooth_traces: [f64; 2],
        factors: [[f64; 2]; 2],
    }

    /// Of the last of 64 queries in K = I + 30 M Mᵀ with a diagonal of 1, M the mean over those before, and of keys that are rotated by 32
    /// angles; factors sampled with NumPy (40 000 rows): ± 0.2 %.
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

    fn of_one(traces: f64, spread: f64) -> Moments {
        Moments { traces: smallvec::smallvec![traces], spread: smallvec::smallvec![spread] }
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
                // A query and itself.
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
        let equal: Row = Rows::row(keys, 2.0 * trace * keys / (keys - 1.0));
        approx::assert_relative_eq!(row.passed(), equal.passed, max_relative = 1e-12);
        approx::assert_relative_eq!(row.squares(), equal.squares, max_relative = 1e-12);
    }
}
