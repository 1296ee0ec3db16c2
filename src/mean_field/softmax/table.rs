//! Factors of rows on a grid of (ln n, ln w), interpolated with continuous first derivatives. The compiled program
//! contains the factors at the nodes, because they depend on nothing else.
//!
//! `SIGPROP_NODES=write cargo test --release nodes_are_those_of_the_integrals` writes `nodes.bin` anew: for every ln n
//! and every ln w six numbers of 64 bits, little-endian.

use std::ops::RangeInclusive;
use std::sync::LazyLock;

use super::SoftmaxRow;

/// Steps of ln n and ln w between two nodes.
pub(super) const STEPS: [f64; 2] = [0.5, 0.5];
/// Ends of the grid in ln n and ln w. Below the smallest w, scores hardly differ. Above the largest w, one key has all
/// the weight of a row, unless other scores are equally large. At n = 1 there is no other score.
const ENDS: [[f64; 2]; 2] = [[0.08, 16.0], [-9.2, 7.5]];

/// ln of σ(1), τ(1), f and g of a row, and the powers p and q.
pub(super) type Factors = [f64; 6];

/// Factors at the nodes of a grid.
pub(super) struct Nodes {
    /// The nodes on each axis that interpolation between the ends of the grid needs.
    pub(super) places: [RangeInclusive<i32>; 2],
    /// The factors at every ln n and ln w; the index of ln w changes fastest.
    pub(super) factors: Vec<Factors>,
}

pub(super) static NODES: LazyLock<Nodes> = LazyLock::new(|| {
    let places = [0, 1].map(|axis| {
        let [low, high] = ENDS[axis].map(|end| (end / STEPS[axis]).floor() as i32);
        low - 2..=high + 3
    });
    let (numbers, _) = include_bytes!("nodes.bin").as_chunks();
    let (factors, _) = numbers.as_chunks();
    Nodes { places, factors: factors.iter().map(|factors| factors.map(f64::from_le_bytes)).collect() }
});

impl Nodes {
    /// Returns the factors at this node, followed by the factors at later nodes on the axis of ln w.
    pub(super) fn from(&self, [n, w]: [i32; 2]) -> &[Factors] {
        let [keys, variances] = &self.places;
        let count = (variances.end() - variances.start() + 1) as usize;
        &self.factors[(n - keys.start()) as usize * count + (w - variances.start()) as usize..]
    }
}

impl SoftmaxRow {
    /// Returns a row of `keys` scores of variance `variance` each.
    pub(crate) fn new(keys: f64, variance: f64) -> Self {
        let [_, [smallest, largest]] = ENDS;
        if variance < smallest.exp() || keys < 1.0 + 1e-9 {
            return Self { variance, ..Self::flat(keys) };
        }
        let [n, w] = [(keys, 0), (variance, 1)].map(|(of, axis)| {
            let [low, high] = ENDS[axis];
            smooth(of.ln().clamp(low, high) / STEPS[axis])
        });
        let mut sums = [0.0; 6];
        for (place, &of_n) in (n.0..).zip(&n.1) {
            for (of_w, factors) in w.1.iter().zip(NODES.from([place, w.0])) {
                let weight = of_n * of_w;
                sums.iter_mut().zip(factors).for_each(|(sum, &factor)| *sum += weight * factor);
            }
        }
        let [squares, passed, first, third, powers @ ..] = sums;
        let [squares, passed, first, third] = [squares, passed, first, third].map(f64::exp);
        // Beyond the grid one key has all the weight in most rows. The share of rows with two keys at the top is one
        // over the standard deviation, and the share with three keys is one over the variance.
        let beyond = largest.exp() / variance;
        let is_beyond = beyond < 1.0;
        let root = if is_beyond { beyond.sqrt() } else { 1.0 };
        let [passed, first, third] = [passed, first, third].map(|of_tops| of_tops * root);
        let squares = if is_beyond { (-first + 1.0) * keys / variance } else { squares };
        let shift = if squares < 1.0 { squares } else { 1.0 };
        Self {
            variance,
            squares,
            passed,
            single_key: [squares, passed],
            shift,
            first,
            third,
            powers,
            ..Self::flat(keys)
        }
    }
}

/// Returns the index of the first of six nodes around `x`, and the weights of the six. The interpolation blends two
/// quartics linearly, one through the five nodes around each end of a cell. Both quartics are exact at both ends, so
/// that the derivative at a node is the derivative of its quartic from both sides.
fn smooth(x: f64) -> (i32, [f64; 6]) {
    let cell = x.floor();
    let x = x - cell;
    let (first, second) = (quartic(x), quartic(x - 1.0));
    let mut weights = [0.0; 6];
    for place in 0..5 {
        weights[place] += (1.0 - x) * first[place];
        weights[place + 1] += x * second[place];
    }
    (cell as i32 - 2, weights)
}

/// Returns Lagrange's weights of the nodes −2, −1, 0, 1, 2 for the quartic at `x`.
fn quartic(x: f64) -> [f64; 5] {
    let [one, four] = [x * x - 1.0, x * x - 4.0];
    [
        x * one * (x - 2.0) / 24.0,
        x * four * (x - 1.0) / -6.0,
        one * four / 4.0,
        x * four * (x + 1.0) / -6.0,
        x * one * (x + 2.0) / 24.0,
    ]
}

/// Returns the cubic at `x` through the four nodes around the cell that begins at `cell`: the index of the first node,
/// and the weights of the four.
pub(crate) fn cubic_of(cell: f64, x: f64) -> (i32, [f64; 4]) {
    let x = x - cell;
    let [a, b, c] = [x + 1.0, x - 1.0, x - 2.0];
    (cell as i32 - 1, [x * b * c / -6.0, a * b * c / 2.0, a * x * c / -2.0, a * x * b / 6.0])
}

pub(super) fn ln(factor: f64) -> f64 {
    /// Logarithm of a negligible factor.
    const NOTHING: f64 = -50.0;
    if factor > 0.0 { factor.ln().max(NOTHING) } else { NOTHING }
}

#[cfg(test)]
mod tests {
    use super::super::nodes::{first, of_rows};
    use super::super::overlaps::overlaps;
    use super::*;

    /// A polynomial of fourth degree is reproduced. A function that is no polynomial has one slope at a node.
    #[test]
    fn interpolation_is_smooth() {
        let interpolated = |f: &dyn Fn(f64) -> f64, x: f64| {
            let (first, weights) = super::smooth(x);
            (first..).zip(weights).map(|(node, weight)| weight * f(f64::from(node))).sum::<f64>()
        };
        let quartic = |x: f64| 1.0 - x + 0.3 * x * x - 0.2 * x.powi(3) + 0.05 * x.powi(4);
        approx::assert_relative_eq!(interpolated(&quartic, 2.37), quartic(2.37), max_relative = 1e-12);
        let at = |x: f64| interpolated(&|node| (node * node).sin(), x);
        let step = 1e-6;
        let [below, above] = [(at(2.0) - at(2.0 - step)) / step, (at(2.0 + step) - at(2.0)) / step];
        assert!((below - above).abs() < 1e-4, "{below} {above}");
    }

    /// Factors beyond the grid fall like integrated ones. The overlap of two rows is at most the overlap of one with
    /// itself.
    #[test]
    fn sharp_rows_are_those_of_the_integrals() {
        for keys in [4.0, 64.0] {
            for variance in [90.0, 700.0, 1700.0, 20_000.0] {
                let row = SoftmaxRow::new(keys, variance);
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
