//! How a row whose ids repeat differs from one of equal keys: factors on its overlaps, on a grid of (ln n, ln w, φ), cubic between; the
//! nodes are integrated when they are first needed, once in a process.

use std::collections::HashMap;
use std::sync::{Arc, LazyLock, Mutex, PoisonError, RwLock};

use super::grouped::{Flat, overlaps};
use super::table::{cubic_of, ln};
use super::{Row, Rows};
use crate::mean_field::positions::{Counts, Repetition};

/// Of ln n, ln w and φ between two nodes.
const STEPS: [f64; 3] = [2.0 * std::f64::consts::LN_2, std::f64::consts::LN_2, 0.25];
/// Ends of ln n and ln w: of one key there is one id, below w factors go as it does.
const ENDS: [[f64; 2]; 2] = [[0.0, 14.0], [-2.0 * std::f64::consts::LN_2, 4.2]];

/// ln of the factors over w/(1 + w).
type Factors = [f64; 6];
/// A law, and where on the grid; and a law and a number of keys.
type Place = ([u64; 2], [i32; 3]);
type Keys = ([u64; 2], usize);

static NODES: LazyLock<RwLock<HashMap<Place, Factors>>> = LazyLock::new(RwLock::default);
static COUNTS: LazyLock<Mutex<HashMap<Keys, Arc<Counts>>>> = LazyLock::new(Mutex::default);

impl Row {
    /// Of `keys` of score variance `variance` in all, with this likeness of two with the same id.
    pub(crate) fn with_ids(self, repetition: &Repetition, keys: f64, variance: f64, likeness: f64) -> Self {
        let [n, w] = [keys.ln(), variance.ln()];
        let [n, w] = [(n, ENDS[0], STEPS[0]), (w, ENDS[1], STEPS[1])].map(|(of, [low, high], step)| {
            let x = of.clamp(low, high) / step;
            cubic_of(x.floor(), x)
        });
        let likeness = likeness.clamp(0.0, 1.0) / STEPS[2];
        // Nodes from 0 to 1 alone.
        let likeness = cubic_of(likeness.floor().clamp(1.0, STEPS[2].recip() - 2.0), likeness);
        // Where scores are flat, and at powers of four, one node is enough.
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
        Row {
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
    // One key, or keys that are as unlike as those of different ids.
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

/// How many ids have how many of `length` keys.
fn counts(repetition: &Repetition, length: usize) -> Arc<Counts> {
    let mut known = COUNTS.lock().unwrap_or_else(PoisonError::into_inner);
    let counts = known.entry((repetition.law(), length)).or_insert_with(|| Arc::new(repetition.counts(length)));
    Arc::clone(counts)
}

fn integrated(groups: &Counts, w: f64, likeness: f64) -> Factors {
    let length: f64 = groups.iter().map(|(ids, tokens)| ids * tokens).sum();
    let flat = Flat::new(groups, likeness);
    // Of one id, whose keys are the same, no scores differ.
    if flat.spread < 1e-9 {
        return [0.0; 6];
    }
    let keys = 1.0 + flat.trace * flat.trace / flat.spread;
    let like = Rows::row(keys, w * flat.trace * keys / (keys - 1.0));
    let of = overlaps(groups, w, likeness);
    let of_keys = flat.trace / length;
    // Groups of one size lean nowhere.
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

    /// Between nodes factors are those that are integrated.
    #[test]
    fn factors_between_nodes_are_near() {
        for (vocab_size, keys) in [(1000, 48.0), (32_000, 100.0), (32_000, 3000.0)] {
            let repetition = Repetition::new(PowerLaw { vocab_size, exponent: 1.0 });
            for (variance, likeness) in [(0.4, 0.9), (1.7, 0.35), (3.0, 0.6), (12.0, 1.0)] {
                let like = Row::flat(keys);
                let row = like.with_ids(&repetition, keys, variance, likeness);
                let got = [row.squares, row.passed, row.first, row.shift, row.single_key[0], row.single_key[1]];
                let exact = integrated(&counts(&repetition, keys as usize), variance, likeness);
                for (index, (got, exact)) in got.into_iter().zip(exact).enumerate() {
                    let exact = (exact * variance / (1.0 + variance)).exp();
                    // What is shift is little.
                    let tolerance = if index == 3 { 0.05 } else { 0.02 };
                    approx::assert_relative_eq!(got, exact, max_relative = tolerance);
                }
            }
        }
    }
}
