//! Linear map of features, with weight W (`fan_out` × `fan_in`) and bias b.
//!
//! ```text
//! forward   y_a = W x_a + b
//! backward  dx_a = Wᵀ dy_a
//! weights   dW = Σ_a dy_a x_aᵀ,  db = Σ_a dy_a     over the tokens of one sequence
//! ```
//!
//! W is the sampled weight, or that weight [`standardised`]; its gradient then goes back through the standardisation.
//! Weights are sampled tile by tile in the layout that products read: transposed in the forward pass, and a second time
//! as they are in the backward pass; orthogonal ones are sampled as a whole. On request, only the products of Gaussian
//! weights are sampled ([`conditional`]).

pub(crate) mod conditional;
mod standardised;

use std::ops::Range;

use rayon::{current_num_threads, prelude::*};
use sigprop_stack::{Linear, Tensor};

use crate::{
    array::{Array, Shape},
    fill::{fill_rows, fill_transposed},
    matmul::{Threads, View, ViewMut, multiply, multiply_add},
    random::{Random, Rows},
    scalar::Scalar,
};

/// Number of entries of the weight that are sampled at a time: few enough to stay in a cache until their product.
const TILE: usize = 1 << 20;

pub(crate) fn forward<T: Scalar>(linear: &Linear, random: &Random, input: &Array<T>) -> Array<T> {
    let tokens = input.shape().tokens();
    let mut output = Array::unwritten(input.shape(), linear.fan_out);
    let x = View::new(input.entries(), tokens, linear.fan_in, linear.fan_in);
    let weight = Weight::of(linear, random);
    for tile in tiles(linear) {
        // Every thread samples the weights that it multiplies, and helps others if there are more threads than parts.
        let y = ViewMut::new(&mut output.entries_mut()[tile.start..], tokens, tile.len(), linear.fan_out);
        let parts = y.parts(current_num_threads());
        let threads = if parts.len() < current_num_threads() { Threads::Shared } else { Threads::Alone };
        parts.into_par_iter().for_each(|(rows, mut y)| {
            let mut part = Array::unwritten(Shape { batch: 1, seq_len: linear.fan_in }, rows.len());
            let first = tile.start + rows.start;
            fill_transposed(linear.fan_in, part.entries_mut(), |row, out| weight.draw(first + row, out));
            multiply(threads, &mut y, 1.0, x, View::new(part.entries(), linear.fan_in, rows.len(), rows.len()));
        });
    }
    add_bias(linear.bias.as_ref(), 1, random, &mut output);
    output
}

/// Adds a bias, if there is one, to every token. The features are cut into `groups`, all of which get the same bias.
pub(crate) fn add_bias<T: Scalar>(bias: Option<&Tensor>, groups: usize, random: &Random, output: &mut Array<T>) {
    if let Some(tensor) = bias.filter(|tensor| !random.is_zero(tensor)) {
        let mut bias = vec![T::default(); output.width() / groups];
        random.tensor_row(tensor, 0, &mut bias);
        output.add_row(&bias.repeat(groups));
    }
}

pub(crate) fn backward<T: Scalar>(linear: &Linear, random: &Random, gradient: &Array<T>) -> Array<T> {
    let tokens = gradient.shape().tokens();
    let mut input_gradient = Array::unwritten(gradient.shape(), linear.fan_in);
    let mut dx = ViewMut::new(input_gradient.entries_mut(), tokens, linear.fan_in, linear.fan_in);
    let weight = Weight::of(linear, random);
    for rows in tiles(linear) {
        let mut tile = Array::unwritten(Shape { batch: 1, seq_len: rows.len() }, linear.fan_in);
        fill_rows(linear.fan_in, tile.entries_mut(), |row, out| weight.draw(rows.start + row, out));
        let tile = View::new(tile.entries(), rows.len(), linear.fan_in, linear.fan_in);
        let dy = View::new(&gradient.entries()[rows.start..], tokens, rows.len(), linear.fan_out);
        let add = if rows.start == 0 { multiply } else { multiply_add };
        add(Threads::Shared, &mut dx, 1.0, dy, tile);
    }
    input_gradient
}

/// The weight in use: the sampled weight, standardised if the linear map asks for it. It is computed row by row.
struct Weight<'a> {
    rows: Rows<'a>,
    standardised: Option<f64>,
}

impl<'a> Weight<'a> {
    fn of(linear: &'a Linear, random: &'a Random) -> Self {
        let shape = [linear.fan_out, linear.fan_in];
        Self { rows: random.rows_of_matrix(&linear.weight, shape), standardised: linear.standardised }
    }

    fn draw<T: Scalar>(&self, row: usize, out: &mut [T]) {
        self.rows.draw(row, out);
        if let Some(length) = self.standardised {
            standardised::standardise(length, out);
        }
    }
}

/// Ranges of rows of the weight that are sampled together; all but the last have the same length.
fn tiles(linear: &Linear) -> impl Iterator<Item = Range<usize>> {
    let rows = tile_rows(linear);
    (0..linear.fan_out).step_by(rows).map(move |first| first..(first + rows).min(linear.fan_out))
}

/// Number of rows of the weight that are sampled at a time.
pub(crate) fn tile_rows(linear: &Linear) -> usize {
    let tiles = (linear.fan_out * linear.fan_in).div_ceil(TILE).min(linear.fan_out);
    linear.fan_out.div_ceil(tiles)
}

/// Turns gradients of the weight in use into gradients of the sampled weight, or steps of the sampled weight into steps
/// of the weight in use, to first order. `matrix` is `fan_out` × `fan_in`.
pub(crate) fn through_standardisation<T: Scalar>(linear: &Linear, random: &Random, matrix: &mut [T]) {
    if let Some(length) = linear.standardised {
        standardised::through(linear, length, random, matrix);
    }
}

/// Returns dW from one sequence, `fan_out` × `fan_in`.
pub(crate) fn weight_gradient<T: Scalar>(linear: &Linear, random: &Random, input: &[T], gradient: &[T]) -> Vec<T> {
    let tokens = input.len() / linear.fan_in;
    let mut weight_gradient = vec![T::default(); linear.fan_out * linear.fan_in];
    multiply(
        Threads::Shared,
        &mut ViewMut::new(&mut weight_gradient, linear.fan_out, linear.fan_in, linear.fan_in),
        1.0,
        View::new(gradient, tokens, linear.fan_out, linear.fan_out).transposed(),
        View::new(input, tokens, linear.fan_in, linear.fan_in),
    );
    through_standardisation(linear, random, &mut weight_gradient);
    weight_gradient
}

/// Returns db from one sequence.
pub(crate) fn bias_gradient<T: Scalar>(linear: &Linear, gradient: &[T]) -> Vec<T> {
    let mut bias_gradient = vec![T::default(); linear.fan_out];
    for row in gradient.chunks_exact(linear.fan_out) {
        for (sum, &g) in bias_gradient.iter_mut().zip(row) {
            *sum += g;
        }
    }
    bias_gradient
}

#[cfg(test)]
mod tests {
    use sigprop_stack::Init;

    use super::*;
    use crate::Draws;

    /// Two tokens, two features in, one out, by hand.
    #[test]
    fn weight_gradients_agree_with_hand_computed_ones() {
        let weight = Tensor { name: "w".to_owned(), init: Init::Zero };
        let linear = Linear { fan_in: 2, fan_out: 1, weight, bias: None, standardised: None };
        let (input, gradient) = ([1.0f64, 2.0, 3.0, 4.0], [5.0, 6.0]);
        let got = weight_gradient(&linear, &Random::new(0, 0), &input, &gradient);
        assert_eq!(got.iter().map(|x| *x as i64).collect::<Vec<_>>(), [23, 34]);
        assert_eq!(bias_gradient(&linear, &gradient).iter().map(|x| *x as i64).collect::<Vec<_>>(), [11]);
    }
    /// |W x|² = γ² |x|² with orthonormal columns, and g·(W x) = (Wᵀ g)·x for any shape: both passes have one weight, whose
    /// rows are those of [`Draws`].
    #[test]
    fn orthogonal_weights_keep_lengths_and_go_both_ways() {
        for (fan_in, fan_out) in [(5, 5), (5, 9), (9, 4)] {
            let weight = Tensor { name: "w".to_owned(), init: Init::Orthogonal { std: 0.3 } };
            let linear = Linear { fan_in, fan_out, weight, bias: None, standardised: None };
            let array = |width: usize, salt: f64| {
                let mut array = Array::<f64>::zeros(Shape { batch: 1, seq_len: 1 }, width);
                let waves = (0..width).map(|i| (1.3 * i as f64 + salt).sin());
                array.entries_mut().iter_mut().zip(waves).for_each(|(entry, wave)| *entry = wave);
                array
            };
            let (random, x, g) = (Random::new(3, 0), array(fan_in, 0.2), array(fan_out, 0.9));
            let (y, dx) = (forward(&linear, &random, &x), backward(&linear, &random, &g));
            let dot = |a: &[f64], b: &[f64]| a.iter().zip(b).map(|(a, b)| a * b).sum::<f64>();
            approx::assert_relative_eq!(dot(g.entries(), y.entries()), dot(dx.entries(), x.entries()), epsilon = 1e-12);
            if fan_in <= fan_out {
                let square = 0.09 * fan_out as f64 * dot(x.entries(), x.entries());
                approx::assert_relative_eq!(dot(y.entries(), y.entries()), square, max_relative = 1e-12);
            }
            let mut draws = Draws::new(3);
            for (row, y) in y.entries().iter().enumerate() {
                let mut weights = vec![0f32; fan_in];
                draws.row(&linear.weight, None, fan_out, row, &mut weights);
                let weights: Vec<f64> = weights.into_iter().map(f64::from).collect();
                approx::assert_relative_eq!(dot(&weights, x.entries()), *y, epsilon = 1e-6);
            }
        }
    }
}
