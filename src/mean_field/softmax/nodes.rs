//! Factors of rows at the nodes of the table, from numerical integrals.

use rayon::prelude::*;

use super::overlaps::{Overlaps, overlaps};
use super::table::{Factors, NODES, STEPS, ln};

fn factors(place: [i32; 2]) -> Factors {
    let [n, w] = [0, 1].map(|axis| (STEPS[axis] * f64::from(place[axis])).exp());
    // The factors lose their meaning at n = 1.
    let n = n.max(1.05);
    let [alone, _] = overlaps(n, w, 0.0);
    let [squares, passed] = of_rows([n, n], w, alone);
    let [s2, s3, ..] = alone;
    let third = (0.5 * w).sqrt() * (1.0 - 3.0 * s2 + 2.0 * s3) / ((1.0 - 1.0 / n) * (1.0 - 2.0 / n));
    let [p, q] = powers(n, w);
    [squares, passed, first(n, alone), ln(third), p, q]
}

/// Returns the powers p and q for pairs of a row of `n` scores with a longer row.
fn powers(n: f64, w: f64) -> [f64; 2] {
    /// Number of scores of the longer row from which p and q are computed, relative to the shorter row.
    const LONGER: f64 = 4.0;
    /// Variance below which p and q hardly change, and both logarithms are small.
    const LEAST: f64 = 0.1;
    let (m, w) = (LONGER * n, w.max(LEAST));
    let [alone, shared] = overlaps(n, w, m - n);
    let [longer, _] = overlaps(m, w, 0.0);
    let grown = first(m, longer) - first(n, alone);
    let [of_alone, of_shared] = [of_rows([n, n], w, alone), of_rows([n, m], w, shared)];
    [0, 1].map(|index| if grown > 1e-8 { (of_shared[index] - of_alone[index]) / grown } else { 0.0 })
}

/// Returns ln σ(1) and ln τ(1) of a row of n scores and a row of these and others, m in all.
pub(super) fn of_rows([n, m]: [f64; 2], w: f64, [both, once, twice, square]: Overlaps) -> [f64; 2] {
    let flat = (1.0 - 1.0 / n) / m;
    [(both - 1.0 / m) / (w * flat), (both - once - twice + square) / flat].map(ln)
}

/// Returns ln f, where f = (1 − S2)/(1 − 1/n).
pub(super) fn first(n: f64, [s2, ..]: Overlaps) -> f64 {
    ln((1.0 - s2) / (1.0 - 1.0 / n))
}

#[test]
fn nodes_are_those_of_the_integrals() {
    let [keys, variances] = NODES.places.clone();
    let all: Vec<[i32; 2]> = keys.flat_map(|n| variances.clone().map(move |w| [n, w])).collect();
    let integrated: Vec<Factors> = all.par_iter().map(|&place| factors(place)).collect();
    if std::env::var("SIGPROP_NODES").is_ok_and(|what| what == "write") {
        let bytes: Vec<u8> = integrated.iter().flatten().flat_map(|number| number.to_le_bytes()).collect();
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/src/mean_field/softmax/nodes.bin");
        return std::fs::write(path, bytes).expect("the file is writable");
    }
    assert_eq!(integrated.len(), NODES.factors.len());
    for (place, exact) in all.into_iter().zip(&integrated) {
        for (got, exact) in NODES.from(place)[0].iter().zip(exact) {
            assert!((got - exact).abs() <= 1e-9 * (1.0 + exact.abs()), "{place:?}: {got}, integrated {exact}");
        }
    }
}
