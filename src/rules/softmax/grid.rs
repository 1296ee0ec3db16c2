//! A table of smooth functions of (ln n, ln w) whose nodes are computed when they are first needed.

use std::collections::HashMap;

/// Distance of nodes in ln w and ln n.
const STEP_N: f64 = 0.5;
const POINTS_N: usize = 4;

/// Lagrange interpolation of K functions at once by `POINTS` points in ln w and four in ln n, of which
/// `origin` is a node.
pub(super) struct Grid<const K: usize, const POINTS: usize> {
    step_w: f64,
    origin: f64,
    nodes: HashMap<(i32, i32), [f64; K]>,
}

impl<const K: usize, const POINTS: usize> Grid<K, POINTS> {
    pub(super) fn new(origin: f64, step_w: f64) -> Self {
        Self { step_w, origin, nodes: HashMap::new() }
    }

    /// The functions at (ln n, ln w); `compute` gives them at a node.
    pub(super) fn at(&mut self, ln_n: f64, ln_w: f64, compute: &dyn Fn(f64, f64) -> [f64; K]) -> [f64; K] {
        let (first_n, weights_n) = lagrange::<POINTS_N>((ln_n - self.origin) / STEP_N);
        let (first_w, weights_w) = lagrange::<POINTS>(ln_w / self.step_w);
        let mut sum = [0.0; K];
        for (i, weight_n) in weights_n.into_iter().enumerate().filter(|(_, weight)| weight.abs() > 0.0) {
            for (j, weight_w) in weights_w.into_iter().enumerate().filter(|(_, weight)| weight.abs() > 0.0) {
                let key = (first_n + i as i32, first_w + j as i32);
                let (origin, step_w) = (self.origin, self.step_w);
                let node = self.nodes.entry(key).or_insert_with(|| {
                    // n = 1 is where overlaps lose their meaning: nodes stay above.
                    let ln_n = (origin + STEP_N * f64::from(key.0)).max(0.05);
                    compute(ln_n, step_w * f64::from(key.1))
                });
                for (total, value) in sum.iter_mut().zip(node) {
                    *total += weight_n * weight_w * *value;
                }
            }
        }
        sum
    }
}

/// Index of the first of P nodes around `x` (nodes at integers), and their weights.
fn lagrange<const P: usize>(x: f64) -> (i32, [f64; P]) {
    let nearest = x.round();
    if (x - nearest).abs() < 1e-12 {
        let mut weights = [0.0; P];
        weights[0] = 1.0;
        return (nearest as i32, weights);
    }
    let first = x.floor() as i32 - (P as i32 / 2 - 1);
    let weights = std::array::from_fn(|i| {
        let node = f64::from(first) + i as f64;
        (0..P)
            .filter(|&j| j != i)
            .map(|j| {
                let other = f64::from(first) + j as f64;
                (x - other) / (node - other)
            })
            .product()
    });
    (first, weights)
}
