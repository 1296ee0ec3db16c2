//! Linear map of features, with weight W (`fan_out` × `fan_in`) and bias b.
//!
//! ```text
//! forward   y_a = W x_a + b
//! backward  dx_a = Wᵀ dy_a
//! weights   dW = Σ_a dy_a x_aᵀ,  db = Σ_a dy_a     over the tokens of one sequence
//! ```
//!
//! The weights are drawn in the forward pass and again in the backward pass, into `scratch`.

use sigprop_stack::Linear;

use crate::{
    array::Array,
    matmul::{View, ViewMut, multiply},
    random::Random,
    scalar::Scalar,
};

pub(crate) fn forward<T: Scalar>(linear: &Linear, random: &Random, scratch: &mut Vec<T>, input: &Array<T>) -> Array<T> {
    let tokens = input.shape().tokens();
    let mut output = Array::zeros(input.shape(), linear.fan_out);
    multiply(
        &mut ViewMut::new(output.entries_mut(), tokens, linear.fan_out, linear.fan_out),
        1.0,
        View::new(input.entries(), tokens, linear.fan_in, linear.fan_in),
        weight(linear, random, scratch).transposed(),
    );
    if let Some(tensor) = &linear.bias {
        let mut bias = vec![T::default(); linear.fan_out];
        random.tensor_row(tensor, 0, &mut bias);
        for row in output.rows_mut() {
            for (y, &b) in row.iter_mut().zip(&bias) {
                *y += b;
            }
        }
    }
    output
}

pub(crate) fn backward<T: Scalar>(
    linear: &Linear,
    random: &Random,
    scratch: &mut Vec<T>,
    gradient: &Array<T>,
) -> Array<T> {
    let tokens = gradient.shape().tokens();
    let mut input_gradient = Array::zeros(gradient.shape(), linear.fan_in);
    multiply(
        &mut ViewMut::new(input_gradient.entries_mut(), tokens, linear.fan_in, linear.fan_in),
        1.0,
        View::new(gradient.entries(), tokens, linear.fan_out, linear.fan_out),
        weight(linear, random, scratch),
    );
    input_gradient
}

/// dW of one sequence, `fan_out` × `fan_in`.
pub(crate) fn weight_gradient<T: Scalar>(linear: &Linear, input: &[T], gradient: &[T]) -> Vec<T> {
    let tokens = input.len() / linear.fan_in;
    let mut weight_gradient = vec![T::default(); linear.fan_out * linear.fan_in];
    multiply(
        &mut ViewMut::new(&mut weight_gradient, linear.fan_out, linear.fan_in, linear.fan_in),
        1.0,
        View::new(gradient, tokens, linear.fan_out, linear.fan_out).transposed(),
        View::new(input, tokens, linear.fan_in, linear.fan_in),
    );
    weight_gradient
}

/// db of one sequence.
pub(crate) fn bias_gradient<T: Scalar>(linear: &Linear, gradient: &[T]) -> Vec<T> {
    let mut bias_gradient = vec![T::default(); linear.fan_out];
    for row in gradient.chunks_exact(linear.fan_out) {
        for (sum, &g) in bias_gradient.iter_mut().zip(row) {
            *sum += g;
        }
    }
    bias_gradient
}

fn weight<'a, T: Scalar>(linear: &Linear, random: &Random, scratch: &'a mut Vec<T>) -> View<'a, T> {
    scratch.resize(linear.fan_out * linear.fan_in, T::default());
    random.tensor(&linear.weight, linear.fan_in, scratch);
    View::new(scratch, linear.fan_out, linear.fan_in, linear.fan_in)
}

#[cfg(test)]
mod tests {
    use sigprop_stack::{Init, Tensor};

    use super::*;

    /// Two tokens, two features in, one out, by hand.
    #[test]
    fn weight_gradients_agree_with_hand_computed_ones() {
        let weight = Tensor { name: "w".to_owned(), init: Init::Zero };
        let linear = Linear { fan_in: 2, fan_out: 1, weight, bias: None };
        let (input, gradient) = ([1.0f64, 2.0, 3.0, 4.0], [5.0, 6.0]);
        assert_eq!(weight_gradient(&linear, &input, &gradient).iter().map(|x| *x as i64).collect::<Vec<_>>(), [23, 34]);
        assert_eq!(bias_gradient(&linear, &gradient).iter().map(|x| *x as i64).collect::<Vec<_>>(), [11]);
    }
}
