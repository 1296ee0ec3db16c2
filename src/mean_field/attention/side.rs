//! Sums and averages of the kernel of keys, or of values, through a mask.
//!
//! A constant in the kernel of values, or of keys that are not rotated, cancels in all sums but P. The mean over pairs
//! is subtracted first: at correlations near 1 the error of the sums would exceed their difference. Where there is a
//! sink, the constant moves the share of the sink and does not cancel.

use super::operators::{Operators, added, scaled};
use crate::mean_field::few::Few;
use crate::mean_field::kernel::Kernel;

/// Keys or values: kernel, own part, R and P, after subtraction of the common part of pairs.
pub(super) struct Side {
    pub(super) kernel: Kernel,
    /// The common part that is subtracted.
    pub(super) common: f64,
    pub(super) own: Few<f64>,
    /// R at all points (row b, position c).
    pub(super) rows: Vec<f64>,
    /// P at lower points.
    pub(super) averages: Vec<f64>,
    /// P of every query with itself.
    pub(super) own_averages: Few<f64>,
    pub(super) is_key: bool,
}

/// Keys or values, with the sums that only the forward pass needs.
pub(super) struct Ahead {
    pub(super) side: Side,
    pub(super) own_at_second: Vec<f64>,
    /// R at all points, with both positions exchanged.
    pub(super) transposed: Vec<f64>,
    /// The part of P from pairs of different tokens, at lower points.
    pub(super) smooth: Vec<f64>,
    /// The part of P from the own parts of tokens, at lower points, without the factor κ of rotations.
    pub(super) own_sums: Vec<f64>,
    /// tr of every query: the variance of the keys, or values, in view about their average.
    pub(super) trace: Few<f64>,
}

impl Ahead {
    /// Computes the sums of keys, which may be rotated, or of values.
    pub(super) fn new(operators: &Operators, kernel: &Kernel, is_key: bool) -> Self {
        let positions = &kernel.positions;
        let does_not_cancel = operators.sums.sink > 0.0 || (is_key && operators.rotated.is_some());
        let common = if does_not_cancel { 0.0 } else { operators.common(kernel) };
        let kernel = kernel.less(common);
        let pairs = positions.class_mean(|point| kernel.pairs[point]);
        let diagonal = operators.diagonal(&pairs);
        let own: Few<f64> = kernel.own.iter().zip(&diagonal).map(|(&own, &limit)| own - limit).collect();
        let rows = operators.over_keys(&operators.sums.chart.all(&pairs), is_key);
        let transposed = operators.sums.chart.transposed(&rows);
        let smooth = operators.lower(&operators.sums.forward.of(&transposed));
        let own_sums = operators.sums.own.of(&own);
        let at_rest = added(&smooth, &own_sums);
        let own_averages = operators.diagonal(&at_rest);
        let rotated = operators.rotated.as_ref().filter(|_| is_key);
        let averages = rotated.map_or(at_rest, |by| added(&smooth, &scaled(&own_sums, &by.at_lower_points)));
        let square = operators.sums.average.of(&kernel.own);
        // tr is 0 if one key is in view.
        let trace = square.iter().zip(&own_averages).zip(&operators.sums.most);
        let trace = trace.map(|((&square, &own), &most)| if most < 1.5 { 0.0 } else { square - own }).collect();
        let own_at_second = operators.at_second(&own);
        let side = Side { kernel, common, own, rows, averages, own_averages, is_key };
        Self { side, own_at_second, transposed, smooth, own_sums, trace }
    }
}
