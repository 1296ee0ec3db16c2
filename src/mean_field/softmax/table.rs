//! Factors of rows on a grid of (ln n, ln w), cubic between; the nodes are integrated when they are first needed, once in a
//! process.

use std::collections::HashMap;
use std::sync::{LazyLock, PoisonError, RwLock};

use super::Row;
use super::integrals::overlaps;
use crate::mean_field::scalar::Scalar;

/// Of ln n and ln w between two nodes.
const STEPS: [f64; 2] = [0.5, 0.5];
/// Ends of ln n and ln w: below w scores do not differ, above rows have one key; n of one has no scores that differ.
const ENDS: [[f64; 2]; 2] = [[0.08, 16.0], [-9.2, 4.6]];

/// ln of the four factors; where there is no second term its ln is small.
type Factors = [f64; 4];

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
        let factors = std::array::from_fn(|index| {
            let mut sum = S::from(0.0);
            for (i, &of_n) in n.1.iter().enumerate() {
                for (j, &of_w) in w.1.iter().enumerate() {
                    sum += of_n * of_w * node([n.0 + i as i32, w.0 + j as i32])[index];
                }
            }
            sum.exp()
        });
        let [squares, passed, first, second] = factors;
        // One key takes all but where two are at its top: that is one over the standard deviation.
        let beyond = S::from(largest.exp()) / variance;
        if beyond.value() < 1.0 {
            return Row { keys, variance, squares: squares * beyond, passed: passed * beyond.sqrt(), first, second };
        }
        Row { keys, variance, squares, passed, first, second }
    }
}

/// Index of the first of four nodes around `x`, and their weights.
fn cubic<S: Scalar>(x: S) -> (i32, [S; 4]) {
    let cell = x.value().floor();
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
    /// e to it is nothing.
    const NOTHING: f64 = -50.0;
    let [n, w] = [0, 1].map(|axis| (STEPS[axis] * f64::from(place[axis])).exp());
    // n of one is where they lose their meaning.
    let n = n.max(1.05);
    let [s2, s3, s22] = overlaps(n, w);
    let others = 1.0 - 1.0 / n;
    let third = 1.0 - 3.0 * s2 + 2.0 * s3;
    let second = 0.5 * w * third * third * n * n / ((n - 1.0) * (n - 2.0)) / others;
    let ln = |factor: f64| if factor > 0.0 { factor.ln().max(NOTHING) } else { NOTHING };
    [(s2 - 1.0 / n) / (w * others / n), (s2 - 2.0 * s3 + s22) / (others / n), (1.0 - s2) / others, second].map(ln)
}
