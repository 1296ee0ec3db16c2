//! Lagrange interpolation between equidistant nodes.

/// Σ w_i f(first + i).
pub(crate) fn weighted<const K: usize, const P: usize>(
    first: i32,
    weights: [f64; P],
    mut functions: impl FnMut(i32) -> [f64; K],
) -> [f64; K] {
    let mut sum = [0.0; K];
    for (index, weight) in (first..).zip(weights).filter(|(_, weight)| weight.abs() > 0.0) {
        for (total, value) in sum.iter_mut().zip(functions(index)) {
            *total += weight * value;
        }
    }
    sum
}

/// Index of the first of P nodes around `x` (nodes at integers), and their weights.
pub(crate) fn lagrange<const P: usize>(x: f64) -> (i32, [f64; P]) {
    let nearest = x.round();
    if (x - nearest).abs() < 1e-12 {
        let mut weights = [0.0; P];
        weights[0] = 1.0;
        return (nearest as i32, weights);
    }
    let first = x.floor() as i32 - (P as i32 / 2 - 1);
    (first, lagrange_weights(x - f64::from(first)))
}

/// The weights of P nodes at 0, 1, … for `x`.
pub(crate) fn lagrange_weights<const P: usize>(x: f64) -> [f64; P] {
    std::array::from_fn(|i| {
        let others = (0..P).filter(|&j| j != i);
        let (above, below) =
            others.fold((1.0, 1.0), |(above, below), j| (above * (x - j as f64), below * (i as f64 - j as f64)));
        above / below
    })
}
