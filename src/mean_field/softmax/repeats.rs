//! The difference between a row with repeated ids and a row of equal keys: factors on its overlaps. They are on a grid
//! of (ln n, ln w, ζ) with cubic interpolation. The nodes are integrated when they are first needed, once in a process.

use std::collections::HashMap;
use std::sync::{Arc, LazyLock, Mutex, PoisonError, RwLock};

use super::SoftmaxRow;
use super::grouped::{Flat, overlaps};
use super::table::{cubic_of, ln};
use crate::mean_field::positions::{Counts, Repetition};

/// Steps of ln n, ln w and ζ between two nodes.
const STEPS: [f64; 3] = [2.0 * std::f64::consts::LN_2, std::f64::consts::LN_2, 0.25];
/// Ends of the grid in ln n and ln w. At n = 1 no id repeats, and below the smallest w the logarithms of factors are
/// proportional to w.
const ENDS: [[f64; 2]; 2] = [[0.0, 14.0], [-2.0 * std::f64::consts::LN_2, 4.2]];

/// The logarithms of the factors, divided by w/(1 + w).
type Factors = [f64; 6];
/// A key of `NODES`: a distribution of ids, as `Repetition::law` identifies it, and a node of the grid.
type Place = ([u64; 2], [i32; 3]);
/// A key of `COUNTS`: a distribution of ids, as `Repetition::law` identifies it, and a number of keys.
type Keys = ([u64; 2], usize);

static NODES: LazyLock<RwLock<HashMap<Place, Factors>>> = LazyLock::new(RwLock::default);
static COUNTS: LazyLock<Mutex<HashMap<Keys, Arc<Counts>>>> = LazyLock::new(Mutex::default);

impl SoftmaxRow {
    /// Returns this row with the factors for repeated ids. The row has `keys` keys with this total score `variance`;
    /// `likeness` is ζ, the correlation of two keys with the same id.
    pub(crate) fn with_ids(self, repetition: &Repetition, keys: f64, variance: f64, likeness: f64) -> Self {
        let [n, w] = [keys.ln(), variance.ln()];
        let [n, w] = [(n, ENDS[0], STEPS[0]), (w, ENDS[1], STEPS[1])].map(|(of, [low, high], step)| {
            let x = of.clamp(low, high) / step;
            cubic_of(x.floor(), x)
        });
        let likeness = likeness.clamp(0.0, 1.0) / STEPS[2];
        // Nodes are between 0 and 1.
        let likeness = cubic_of(likeness.floor().clamp(1.0, STEPS[2].recip() - 2.0), likeness);
        // One node is enough where scores are flat, and at powers of four.
        let is_flat = variance < ENDS[1][0].exp();
        let mut sums = [0.0; 6];
        for (i, &of_n) in n.1.iter().enumerate().filter(|(_, of_n)| of_n.abs() > 0.0) {
            for (j, &of_w) in w.1.iter().enumerate().filter(|(_, of_w)| !is_flat || of_w.abs() > 0.0) {
                for (k, &of_likeness) in likeness.1.iter().enumerate() {
                    let at = [n.0 + i as i32, w.0 + j as i32, likeness.0 + k as i32];
                    let weight = of_n * of_w * of_likeness;
                    sums.iter_mut().zip(node(repetition, at)).for_each(|(sum, ln)| *sum += weight * ln);
                }
            }
        }
        let grown = variance / (variance + 1.0);
        let [squares, passed, first, shift, of_keys @ ..] = sums.map(|sum| (sum * grown).exp());
        SoftmaxRow {
            squares: self.squares * squares,
            passed: self.passed * passed,
            single_key: [self.single_key[0] * of_keys[0], self.single_key[1] * of_keys[1]],
            shift: self.shift * shift,
            first: self.first * first,
            ..self
        }
    }
}

fn node(repetition: &Repetition, at: [i32; 3]) -> Factors {
    // There is no correction for one key, or if keys with the same id are no more correlated than keys with different
    // ids.
    if at[0] < 1 || at[2] == 0 {
        return [0.0; 6];
    }
    let place = (repetition.law(), at);
    let known = NODES.read().unwrap_or_else(PoisonError::into_inner).get(&place).copied();
    known.unwrap_or_else(|| {
        let factors = factors(repetition, at);
        NODES.write().unwrap_or_else(PoisonError::into_inner).insert(place, factors);
        factors
    })
}

fn factors(repetition: &Repetition, at: [i32; 3]) -> Factors {
    let [n, w] = [0, 1].map(|axis| (STEPS[axis] * f64::from(at[axis])).exp());
    integrated(&counts(repetition, n.round() as usize), w, STEPS[2] * f64::from(at[2]))
}

/// Returns the mean number of ids in a row of `length` keys, for each number of keys per id.
fn counts(repetition: &Repetition, length: usize) -> Arc<Counts> {
    let mut known = COUNTS.lock().unwrap_or_else(PoisonError::into_inner);
    let counts = known.entry((repetition.law(), length)).or_insert_with(|| Arc::new(repetition.counts(length)));
    Arc::clone(counts)
}

fn integrated(groups: &Counts, w: f64, likeness: f64) -> Factors {
    let length: f64 = groups.iter().map(|(ids, tokens)| ids * tokens).sum();
    let flat = Flat::new(groups, likeness);
    // If all keys have one id and are equal, no scores differ.
    if flat.spread < 1e-9 {
        return [0.0; 6];
    }
    let keys = 1.0 + flat.trace * flat.trace / flat.spread;
    let like = SoftmaxRow::new(keys, w * flat.trace * keys / (keys - 1.0));
    let of = overlaps(groups, w, likeness);
    let of_keys = flat.trace / length;
    // With groups of one size the mean row has no shift.
    let leans = flat.shift < -1e-6 * flat.spread;
    let ratios = [
        (of.squares[0] - of.mean) / (w * flat.spread * like.squares),
        of.passed[0] / (flat.spread * like.passed),
        (of.apart / flat.spread).sqrt() / like.first,
        if leans { (of.mean - flat.mean) / (2.0 * w * flat.shift * like.shift) } else { 1.0 },
        (of.squares[1] - length.recip()) / (w * of_keys * like.squares),
        of.passed[1] / (of_keys * like.passed),
    ];
    ratios.map(|ratio| ln(ratio) * (1.0 + w) / w)
}

#[cfg(test)]
mod tests {
    use sigprop_stack::PowerLaw;

    use super::*;

    /// Factors between nodes are close to integrated ones.
    #[test]
    fn factors_between_nodes_are_near() {
        for (vocab_size, keys) in [(1000, 48.0), (32_000, 100.0), (32_000, 3000.0)] {
            let repetition = Repetition::new(PowerLaw { vocab_size, exponent: 1.0 });
            for (variance, likeness) in [(0.4, 0.9), (1.7, 0.35), (3.0, 0.6), (12.0, 1.0)] {
                let like = SoftmaxRow::flat(keys);
                let row = like.with_ids(&repetition, keys, variance, likeness);
                let got = [row.squares, row.passed, row.first, row.shift, row.single_key[0], row.single_key[1]];
                let exact = integrated(&counts(&repetition, keys as usize), variance, likeness);
                for (index, (got, exact)) in got.into_iter().zip(exact).enumerate() {
                    let exact = (exact * variance / (1.0 + variance)).exp();
                    // The shift is small.
                    let tolerance = if index == 3 { 0.05 } else { 0.02 };
                    approx::assert_relative_eq!(got, exact, max_relative = tolerance);
                }
            }
        }
    }
}
