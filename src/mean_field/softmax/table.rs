//! Factors of rows on a grid of (ln n, ln w), cubic between; the nodes are integrated when they are first needed, once in a
//! process.

use std::collections::HashMap;
use std::sync::{LazyLock, PoisonError, RwLock};

use super::Row;
use super::integrals::{Overlaps, overlaps};
use crate::mean_field::scalar::Scalar;

/// Of ln n and ln w between two nodes.
const STEPS: [f64; 2] = [0.5, 0.5];
/// Ends of ln n and ln w: below w scores do not differ, above one key takes all but where others are as large; n of one has no scores that differ.
const ENDS: [[f64; 2]; 2] = [[0.08, 16.0], [-9.2, 7.5]];

/// ln of the four factors of a row, and the two powers.
type Factors = [f64; 6];

static NODES: LazyLock<RwLock<HashMap<[i32; 2], Factors>>> = LazyLock::new(RwLock::default);

/// What is known of rows.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Rows;

impl Rows {
    /// A row of `keys` scores of the variance `variance` each.
    pub(crate) fn row<S: Scalar>(keys: S, variance: S) -> Row<S> {
        let [_, [smallest, largest]] = ENDS;
        if variance.value() < smallest.exp() || keys.value() < 1.0 + 1e-9 {
            return Row { variance, ..Row::flat(keys) };
        }
        let [n, w] = [(keys, 0), (variance, 1)].map(|(of, axis)| {
            let [low, high] = ENDS[axis];
            cubic(of.ln().clamped(low, high) / STEPS[axis])
        });
        let mut sums = [S::from(0.0); 6];
        for (i, &of_n) in n.1.iter().enumerate() {
            for (j, &of_w) in w.1.iter().enumerate() {
                let weight = of_n * of_w;
                let factors = node([n.0 + i as i32, w.0 + j as i32]);
                sums.iter_mut().zip(factors).for_each(|(sum, factor)| *sum += weight * factor);
            }
        }
        let [squares, passed, first, third, powers @ ..] = sums;
        let [squares, passed, first, third] = [squares, passed, first, third].map(S::exp);
        // One key takes all but where two are at the top, in one over the standard deviation of rows, or three, in one over the variance.
        let beyond = S::from(largest.exp()) / variance;
        let is_beyond = beyond.value() < 1.0;
        let root = if is_beyond { beyond.sqrt() } else { S::from(1.0) };
        let [passed, first, third] = [passed, first, third].map(|of_tops| of_tops * root);
        let squares = if is_beyond { (-first + 1.0) * keys / variance } else { squares };
        let shift = if squares.value() < 1.0 { squares } else { S::from(1.0) };
        Row { keys, variance, squares, passed, single_key: [squares, passed], shift, first, third, powers }
    }
}

/// Index of the first of four nodes around `x`, and their weights.
fn cubic<S: Scalar>(x: S) -> (i32, [S; 4]) {
    cubic_of(x.value().floor(), x)
}

/// The same, of nodes around the cell that begins at `cell`.
pub(super) fn cubic_of<S: Scalar>(cell: f64, x: S) -> (i32, [S; 4]) {
    let x = x - cell;
    let [a, b, c] = [x + 1.0, x - 1.0, x - 2.0];
    (cell as i32 - 1, [x * b * c / -6.0, a * b * c / 2.0, a * x * c / -2.0, a * x * b / 6.0])
}

fn node(place: [i32; 2]) -> Factors {
    let known = NODES.read().unwrap_or_else(PoisonError::into_inner).get(&place).copied();
    known.unwrap_or_else(|| {
        let factors = factors(place);
        NODES.write().unwrap_or_else(PoisonError::into_inner).insert(place, factors);
        factors
    })
}

fn factors(place: [i32; 2]) -> Factors {
    let [n, w] = [0, 1].map(|axis| (STEPS[axis] * f64::from(place[axis])).exp());
    // n of one is where they lose their meaning.
    let n = n.max(1.05);
    let [alone, _] = overlaps(n, w, 0.0);
    let [squares, passed] = of_rows([n, n], w, alone);
    let [s2, s3, ..] = alone;
    let third = (0.5 * w).sqrt() * (1.0 - 3.0 * s2 + 2.0 * s3) / ((1.0 - 1.0 / n) * (1.0 - 2.0 / n));
    let [p, q] = powers(n, w);
    [squares, passed, first(n, alone), ln(third), p, q]
}

/// p and q.
fn powers(n: f64, w: f64) -> [f64; 2] {
    /// How many times as many scores the longer row has that they are taken from.
    const LONGER: f64 = 4.0;
    /// Below this variance they hardly change, and both logarithms are small.
    const LEAST: f64 = 0.1;
    let (m, w) = (LONGER * n, w.max(LEAST));
    let [alone, shared] = overlaps(n, w, m - n);
    let [longer, _] = overlaps(m, w, 0.0);
    let grown = first(m, longer) - first(n, alone);
    let [of_alone, of_shared] = [of_rows([n, n], w, alone), of_rows([n, m], w, shared)];
    [0, 1].map(|index| if grown > 1e-8 { (of_shared[index] - of_alone[index]) / grown } else { 0.0 })
}

/// ln σ(1) and ln τ(1) of a row of n scores and one of these and others, m in all.
fn of_rows([n, m]: [f64; 2], w: f64, [both, once, twice, square]: Overlaps) -> [f64; 2] {
    let flat = (1.0 - 1.0 / n) / m;
    [(both - 1.0 / m) / (w * flat), (both - once - twice + square) / flat].map(ln)
}

/// ln f.
fn first(n: f64, [s2, ..]: Overlaps) -> f64 {
    ln((1.0 - s2) / (1.0 - 1.0 / n))
}

pub(super) fn ln(factor: f64) -> f64 {
    /// e to it is nothing.
    const NOTHING: f64 = -50.0;
    if factor > 0.0 { factor.ln().max(NOTHING) } else { NOTHING }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Beyond the grid factors fall as integrated ones do, and two rows have at most in common what one has
    /// with itself.
    #[test]
    fn sharp_rows_are_those_of_the_integrals() {
        for keys in [4.0, 64.0] {
            for variance in [90.0, 700.0, 1700.0, 20_000.0] {
                let row: Row<f64> = Rows::row(keys, variance);
                let [alone, _] = overlaps(keys, variance, 0.0);
                let [squares, passed] = of_rows([keys, keys], variance, alone);
                for (got, exact) in [(row.squares, squares), (row.passed, passed), (row.first, first(keys, alone))] {
                    approx::assert_relative_eq!(got, exact.exp(), max_relative = 0.05);
                }
                for correlation in [-1.0, -0.5, 0.0, 0.5, 0.9, 0.999, 1.0] {
                    let [squares, passed] = row.with(&row, correlation);
                    assert!(squares.abs() <= row.squares * (1.0 + 1e-9), "{squares} at {correlation}");
                    assert!(passed.abs() <= row.passed * (1.0 + 1e-9), "{passed} at {correlation}");
                }
            }
        }
    }
}
