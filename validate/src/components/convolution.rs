//! A convolution over positions, as a linear map of windows.
//!
//! ```text
//! forward   y_a = W (x_(a·stride − padding), …, x_(a·stride + kernel − 1 − padding)) + b, zeros outside
//! backward  every tap of Wᵀ dy_a goes back to the position it read
//! ```

use sigprop_stack::{Convolution, Linear};

use super::linear;
use crate::{
    array::{Array, Shape},
    random::Random,
    scalar::Scalar,
};

pub(crate) fn forward<T: Scalar>(convolution: &Convolution, random: &Random, input: &Array<T>) -> Array<T> {
    linear::forward(&of_windows(convolution), random, &windows(convolution, input))
}

/// Returns the gradient at the input, whose numbers of sequences and tokens are `shape`, from the gradient at the
/// output.
pub(crate) fn backward<T: Scalar>(
    convolution: &Convolution,
    random: &Random,
    shape: Shape,
    gradient: &Array<T>,
) -> Array<T> {
    let taps = linear::backward(&of_windows(convolution), random, gradient);
    let width = convolution.fan_in;
    let mut input_gradient = Array::zeros(shape, width);
    for (dx, windows) in input_gradient.sequences_mut().zip(taps.sequences()) {
        for (a, window) in windows.chunks_exact(convolution.kernel * width).enumerate() {
            for (k, tap) in window.chunks_exact(width).enumerate() {
                let Some(b) = read(convolution, a, k, shape.seq_len) else { continue };
                for (sum, &g) in dx[b * width..(b + 1) * width].iter_mut().zip(tap) {
                    *sum += g;
                }
            }
        }
    }
    input_gradient
}

/// The convolution as a linear map of windows of `kernel` tokens, one after the other.
pub(crate) fn of_windows(convolution: &Convolution) -> Linear {
    Linear {
        fan_in: convolution.kernel * convolution.fan_in,
        fan_out: convolution.fan_out,
        weight: convolution.weight.clone(),
        bias: convolution.bias.clone(),
        standardised: None,
    }
}

/// The window of the input that every token of the output reads, with zeros outside the sequence.
pub(crate) fn windows<T: Scalar>(convolution: &Convolution, input: &Array<T>) -> Array<T> {
    let Shape { batch, seq_len } = input.shape();
    let width = input.width();
    let shape = Shape { batch, seq_len: convolution.output_len(seq_len) };
    let mut windows = Array::zeros(shape, convolution.kernel * width);
    for (windows, x) in windows.sequences_mut().zip(input.sequences()) {
        for (a, window) in windows.chunks_exact_mut(convolution.kernel * width).enumerate() {
            for (k, tap) in window.chunks_exact_mut(width).enumerate() {
                if let Some(b) = read(convolution, a, k, seq_len) {
                    tap.copy_from_slice(&x[b * width..(b + 1) * width]);
                }
            }
        }
    }
    windows
}

/// The position that tap `k` of output `a` reads; `None` outside the sequence.
fn read(convolution: &Convolution, a: usize, k: usize, seq_len: usize) -> Option<usize> {
    (a * convolution.stride + k).checked_sub(convolution.padding).filter(|&b| b < seq_len)
}
