//! A learned token before the others.

use sigprop_stack::Prepend;

use crate::{
    array::{Array, Shape},
    random::Random,
    scalar::Scalar,
};

/// Returns the learned token, followed by the tokens of the input.
pub(crate) fn forward<T: Scalar>(prepend: &Prepend, random: &Random, input: &Array<T>) -> Array<T> {
    let Shape { batch, seq_len } = input.shape();
    let width = input.width();
    let mut output = Array::zeros(Shape { batch, seq_len: seq_len + 1 }, width);
    for (y, x) in output.sequences_mut().zip(input.sequences()) {
        random.tensor_row(&prepend.token, 0, &mut y[..width]);
        y[width..].copy_from_slice(x);
    }
    output
}

/// Returns the gradient of the input. The gradient of the learned token, the first row of each sequence, is left out.
pub(crate) fn backward<T: Scalar>(gradient: &Array<T>) -> Array<T> {
    let Shape { batch, seq_len } = gradient.shape();
    let mut input_gradient = Array::zeros(Shape { batch, seq_len: seq_len - 1 }, gradient.width());
    for (dx, dy) in input_gradient.sequences_mut().zip(gradient.sequences()) {
        dx.copy_from_slice(&dy[gradient.width()..]);
    }
    input_gradient
}
