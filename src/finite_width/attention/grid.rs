//! Attentions whose queries, keys and values are linear maps of one stream, interpolated on a grid.
//!
//! Apart from units, such an attention depends only on the variance E s² of its scores, the correlation r of its input,
//! the number of keys and the dropout rate. The grid is even in ln E s² and in −ln(1 − r), because the difference 1 − r
//! decides where tokens are almost equal. Interpolation between nodes is cubic. A node is computed when it is first
//! needed, once per process.

use std::collections::HashMap;
use std::sync::{Arc, LazyLock, PoisonError, RwLock};

use sigprop_stack::{Attention, PositionBias};

use super::point::{Between, Point, chain, multiplies};
use crate::finite_width::variables::{ExpansionPoint, PairMoments};
use crate::mean_field::attention::Scores;
use crate::mean_field::kernel::Kernel;
use crate::mean_field::positions::Positions;
use crate::mean_field::signal::Signal;
use crate::mean_field::softmax::cubic_of;

/// The distances between nodes of the grid: in ln E s² for the score variance E s², and in −ln(1 − r) for the
/// correlation r of two tokens.
const STEPS: [f64; 2] = [0.25, 0.125];
/// The bounds of the grid, smallest and largest: first of ln E s² for the score variance E s², then of −ln(1 − r) for
/// the correlation r of two tokens.
const ENDS: [[f64; 2]; 2] = [[-20.0, 12.0], [-0.01, 25.0]];

/// The numbers on which an attention depends, apart from units: ln of the score variance, the correlation of two tokens
/// of the input, the number of keys and the dropout rate.
#[derive(Clone, Copy, Debug)]
pub(super) struct GridPoint {
    pub(super) ln_score: f64,
    pub(super) correlation: f64,
    pub(super) keys: f64,
    /// The probability that an attention weight is zeroed.
    pub(super) dropout: f64,
}

/// A key of `NODES`: the indices of a node in ln E s² and in −ln(1 − r), and the bits of the number of keys and of the
/// dropout rate.
type Node = ([i32; 2], [u64; 2]);

static NODES: LazyLock<RwLock<HashMap<Node, Arc<Point>>>> = LazyLock::new(RwLock::default);

impl GridPoint {
    fn on_grid(&self) -> [f64; 2] {
        [self.ln_score, -(1.0 - self.correlation).ln()]
    }

    /// Returns true if the point is inside the grid.
    pub(super) fn is_inside(&self) -> bool {
        self.on_grid().iter().zip(ENDS).all(|(x, [low, high])| (low..=high).contains(x))
    }

    fn node(&self, at: [i32; 2]) -> Arc<Point> {
        let key = (at, [self.keys.to_bits(), self.dropout.to_bits()]);
        let known = NODES.read().unwrap_or_else(PoisonError::into_inner).get(&key).map(Arc::clone);
        known.unwrap_or_else(|| {
            let [ln_score, apart] = [0, 1].map(|axis| STEPS[axis] * f64::from(at[axis]));
            let node = Self { ln_score, correlation: -(-apart).exp_m1(), ..*self };
            let point = Arc::new(node.exact());
            NODES.write().unwrap_or_else(PoisonError::into_inner).insert(key, Arc::clone(&point));
            point
        })
    }

    /// Returns the attention at this point, interpolated from the nodes around it.
    pub(super) fn interpolated(&self) -> Point {
        let [ln_score, apart] = self.on_grid();
        let [ln_score, apart] = [ln_score / STEPS[0], apart / STEPS[1]];
        let (score, of_score) = cubic_of(ln_score.floor(), ln_score);
        // Only a few tokens can have negative correlations, so that nodes begin at 0.
        let (row, of_row) = cubic_of(apart.floor().max(1.0), apart);
        let mut sum = Point::zero();
        for (i, &of_score) in (score..).zip(&of_score) {
            for (j, &of_row) in (row..).zip(&of_row) {
                sum.add_multiple(&self.node([i, j]), of_score * of_row);
            }
        }
        sum
    }

    /// Computes the attention at this point exactly. It has one head of one feature, and its queries, keys and values
    /// are all equal to its input of variance 1.
    pub(super) fn exact(&self) -> Point {
        let input = PairMoments::unit(self.correlation);
        let x = ExpansionPoint { x: &input, means: [0.0; 2] };
        let attention = Attention {
            scale: (0.5 * self.ln_score).exp(),
            dropout_rate: self.dropout,
            ..Attention::plain(1, 1, 1, [const { Vec::new() }; 3])
        };
        let point = Point::exact(&attention, Between { queries: x, keys: x }, self.keys);
        point.expect("chains of no maps are followed")
    }
}

/// Returns an attention to `keys` tokens near the expansion point `x`, as quadratic functions of the variables; `None`
/// if a map of queries, keys or values is not supported.
pub(super) fn point(attention: &Attention, x: Between<'_>, keys: f64) -> Option<Point> {
    let bodies = [&attention.query, &attention.key, &attention.value];
    let has_positions = matches!(attention.bias, Some(PositionBias::Disentangled(_)));
    if !has_positions && attention.memory.is_none() && bodies.iter().all(|body| multiplies(body)) {
        return interpolated(attention, x.queries, keys);
    }
    Point::exact(attention, x, keys)
}

/// Returns an attention whose queries, keys and values are linear maps of one stream. It is interpolated on the grid
/// and converted to the units of this attention, or computed exactly outside the grid. `None` if a map is not
/// supported.
fn interpolated(attention: &Attention, x: ExpansionPoint<'_>, keys: f64) -> Option<Point> {
    let one = Arc::new(Positions::groups(&[1.0], None));
    let (own, ln_unit) = x.level();
    let kernel = Kernel { ln_unit, ..Kernel::new(&one, |_| own, |_| own) };
    let x_alone = Signal::centred(x.x.width, kernel);
    let parts = [&attention.query, &attention.key, &attention.value].map(|body| chain(body, &x_alone));
    let [Some(query), Some(key), Some(value)] = parts else { return None };
    let scores = Scores::new(attention, &query, &key);
    let level = |of: &Signal| of.kernel.own[0].ln() + of.kernel.ln_unit;
    let score = scores.variance * query.kernel.own[0] * key.kernel.own[0];
    let place = GridPoint { ln_score: score.ln(), correlation: x.correlation(), keys, dropout: attention.dropout_rate };
    if !place.is_inside() {
        return Point::exact(attention, Between { queries: x, keys: x }, keys);
    }
    let mut point = place.interpolated();
    point.ln_unit = level(&value);
    let group = (attention.n_heads / attention.n_kv_heads) as f64;
    let steps = attention.scale.powi(2) * attention.d_value as f64 * scores.slope / score;
    let of = |signal: &Signal| (level(signal) + level(&value)).exp();
    let units = [steps * of(&key), group * steps * of(&query), group];
    for (factor, unit) in point.factors.iter_mut().zip(units).flat_map(|(path, unit)| path.iter_mut().zip([unit; 4])) {
        factor.scale(unit);
    }
    Some(point)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::finite_width::quadratic::Quadratic;

    fn numbers(point: Point) -> impl Iterator<Item = Quadratic> {
        point.variables().into_iter().chain(point.factors.into_iter().flatten())
    }

    /// Interpolated values and first derivatives are near the exact ones, relative to the largest of their kind. Second
    /// derivatives of single points are those of the table of rows, which is cubic cell by cell;
    /// `tests/sigprop/finite_width.rs` compares the predictions that follow.
    #[test]
    fn points_between_nodes_are_near() {
        for score in [0.05f64, 0.8, 3.0] {
            for correlation in [0.02, 0.35, 0.8, 0.97] {
                for keys in [16.0, 512.0] {
                    let place = GridPoint { ln_score: score.ln(), correlation, keys, dropout: 0.1 };
                    let (got, exact) = (place.interpolated(), place.exact());
                    for (index, (got, exact)) in numbers(got).zip(numbers(exact)).enumerate() {
                        let size = 1.0f64.max(exact.value.abs());
                        let near = |got: f64, exact: f64, tolerance: f64| {
                            let bound = tolerance * size.max(exact.abs());
                            assert!((got - exact).abs() < bound, "{place:?} {index}: {got}, not {exact}");
                        };
                        near(got.value, exact.value, 2e-3);
                        for (got, exact) in got.gradient[0].iter().zip(&exact.gradient[0]) {
                            near(*got, *exact, 1e-2);
                        }
                    }
                }
            }
        }
    }
}
