//! Smooth parts of keys and of values, which near tokens have in common: D_s, tr_s of keys and tr'_s of values. These
//! are D, tr and tr' ([`super`]) with the own parts K_bb − lim K_bd and V_bb − lim V_bd for d → b set to zero.
//!
//! If ids are given, the excess covariance of tokens with the same id is subtracted first, because it is not smooth.
//! Source: ours.

use super::groups::without_same_ids;
use super::operators::{Operators, added, multiplied};
use super::side::Ahead;
use crate::mean_field::few::Few;
use crate::mean_field::kernel::Kernel;

/// tr tr' (`traces`) and D (`spread`) of every query, where tr and tr' are the variances of the keys and of the values
/// in view about their averages.
pub(super) struct TraceMoments {
    pub(super) traces: Few<f64>,
    pub(super) spread: Few<f64>,
}

impl TraceMoments {
    /// Returns 1 + tr tr'/D of every query, the equivalent number of equal keys. It is between 1 and `most`, or `most`
    /// if D or tr tr' is not positive.
    pub(super) fn keys(&self, most: &[f64]) -> Few<f64> {
        let keys = |((&traces, &spread), &most): ((&f64, &f64), &f64)| {
            if most < 1.5 || spread <= 0.0 || traces <= 0.0 {
                return most;
            }
            (traces / spread + 1.0).clamp(1.0, most)
        };
        self.traces.iter().zip(&self.spread).zip(most).map(keys).collect()
    }
}

/// Statistics of the smooth parts in view of queries.
pub(super) struct Smooth {
    pub(super) moments: TraceMoments,
    /// tr_s of every query: the variance of the smooth parts of the keys in view about their average.
    pub(super) trace: Few<f64>,
    /// D_s/D, the share of smooth parts in D, at the points of a class of pairs.
    pub(super) shares: Few<f64>,
}

impl Smooth {
    /// Computes the statistics of smooth parts; `all` is D of all parts.
    pub(super) fn new(operators: &Operators, [key, value]: [&Ahead; 2], all: &Kernel) -> Self {
        let positions = &key.side.kernel.positions;
        let ids_repeat = positions.given.as_ref().is_some_and(|given| given.repetition.same() > 0.0);
        if ids_repeat {
            let apart = |of: &Ahead| Ahead::new(operators, &without_same_ids(&of.side.kernel), of.side.is_key);
            Self::of_parts(operators, [&apart(key), &apart(value)], all)
        } else {
            Self::of_parts(operators, [key, value], all)
        }
    }

    fn of_parts(operators: &Operators, sides: [&Ahead; 2], all: &Kernel) -> Self {
        let sums = &operators.sums;
        let [of_keys, of_values] =
            sides.map(|of| of.side.kernel.positions.class_mean(|point| of.side.kernel.pairs[point]));
        let [trace, of_value] = [(&of_keys, sides[0]), (&of_values, sides[1])].map(|(pairs, side)| -> Few<f64> {
            let square = sums.average.of(&operators.diagonal(pairs));
            square.into_iter().zip(operators.diagonal(&side.smooth)).map(|(square, mean)| square - mean).collect()
        });
        let rows = operators.over_keys(&sums.chart.all(&multiplied(&of_keys, &of_values)), true);
        let together = operators.lower(&sums.forward.of(&sums.chart.transposed(&rows)));
        let [key, value] = sides;
        let crossed = sums.forward.of(&multiplied(&key.transposed, &value.transposed));
        let both = added(&operators.lower(&crossed), &operators.lower(&sums.chart.transposed(&crossed)));
        let means = added(&together, &multiplied(&key.smooth, &value.smooth));
        let spread: Vec<f64> = means.into_iter().zip(both).map(|(all, both)| all - both).collect();
        let shares = spread.iter().zip(&all.pairs).map(|(&part, &all)| share(part, all)).collect();
        let traces = trace.iter().zip(of_value).map(|(&key, value)| key * value).collect();
        Self { moments: TraceMoments { traces, spread: operators.diagonal(&spread) }, trace, shares }
    }
}

/// Returns `part`/`all`, between 0 and 1.
pub(super) fn share(part: f64, all: f64) -> f64 {
    if part > 0.0 && all > 0.0 { (part / all).clamp(0.0, 1.0) } else { 0.0 }
}
