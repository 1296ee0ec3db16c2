//! A convolution over positions or over pixels, as a linear map of windows, or of each group of their features.
//!
//! ```text
//! forward   y_a = W (x_(a·stride − padding), …, x_(a·stride + kernel − 1 − padding)) + b, zeros outside
//! backward  every tap of Wᵀ dy_a goes back to the position it read
//! ```
//!
//! A window has its groups one after the other, each with its taps, each with its features.

use sigprop_stack::{Convolution, Linear, Tap};

use super::linear;
use crate::{
    array::{Array, Shape},
    random::{Purpose, Random},
    scalar::Scalar,
};

pub(crate) fn forward<T: Scalar>(convolution: &Convolution, random: &Random, input: &Array<T>) -> Array<T> {
    let windows = windows(convolution, input);
    if convolution.groups == 1 {
        return linear::forward(&of_windows(convolution), random, &windows);
    }
    let mut output = Array::zeros(windows.shape(), convolution.fan_out);
    for row in rows::<T>(convolution, random) {
        for (y, window) in output.rows_mut().zip(windows.rows()) {
            for (&w, &x) in row.weight.iter().zip(&window[row.start..]) {
                y[row.feature] += w * x;
            }
        }
    }
    linear::add_bias(convolution.bias.as_ref(), 1, random, &mut output);
    output
}

/// Returns the gradient at the input, whose numbers of sequences and tokens are `shape`, from the gradient at the
/// output.
pub(crate) fn backward<T: Scalar>(
    convolution: &Convolution,
    random: &Random,
    shape: Shape,
    gradient: &Array<T>,
) -> Array<T> {
    let windows = backward_to_windows(convolution, random, gradient);
    let mut input_gradient = Array::zeros(shape, convolution.fan_in);
    for (dx, windows) in input_gradient.sequences_mut().zip(windows.sequences()) {
        for (window, x) in taps(convolution, shape.seq_len) {
            for (sum, &g) in dx[x..x + features(convolution)].iter_mut().zip(&windows[window..]) {
                *sum += g;
            }
        }
    }
    input_gradient
}

fn backward_to_windows<T: Scalar>(convolution: &Convolution, random: &Random, gradient: &Array<T>) -> Array<T> {
    if convolution.groups == 1 {
        return linear::backward(&of_windows(convolution), random, gradient);
    }
    let mut windows = Array::zeros(gradient.shape(), convolution.taps() * convolution.fan_in);
    for row in rows::<T>(convolution, random) {
        for (window, dy) in windows.rows_mut().zip(gradient.rows()) {
            for (sum, &w) in window[row.start..].iter_mut().zip(&row.weight) {
                *sum += w * dy[row.feature];
            }
        }
    }
    windows
}

/// Returns dW from the windows and the gradient at the output of one sequence.
pub(crate) fn weight_gradient<T: Scalar>(
    convolution: &Convolution,
    random: &Random,
    windows: &[T],
    gradient: &[T],
) -> Vec<T> {
    let linear = of_windows(convolution);
    if convolution.groups == 1 {
        return linear::weight_gradient(&linear, random, windows, gradient);
    }
    let mut weight_gradient = vec![T::default(); linear.fan_out * linear.fan_in];
    let tokens = windows.chunks_exact(convolution.groups * linear.fan_in).zip(gradient.chunks_exact(linear.fan_out));
    for (window, dy) in tokens {
        for (feature, (sums, &dy)) in weight_gradient.chunks_exact_mut(linear.fan_in).zip(dy).enumerate() {
            for (sum, &x) in sums.iter_mut().zip(&window[start(convolution, feature)..]) {
                *sum += dy * x;
            }
        }
    }
    weight_gradient
}

/// The convolution as a linear map of the windows of one group; `fan_out` counts the features of all groups.
pub(crate) fn of_windows(convolution: &Convolution) -> Linear {
    Linear {
        fan_in: convolution.window(),
        fan_out: convolution.fan_out,
        weight: convolution.weight.clone(),
        bias: convolution.bias.clone(),
        standardised: None,
    }
}

/// The window of the input that every token of the output reads, with zeros outside the sequence.
pub(crate) fn windows<T: Scalar>(convolution: &Convolution, input: &Array<T>) -> Array<T> {
    let Shape { batch, seq_len } = input.shape();
    let shape = Shape { batch, seq_len: convolution.output_len(seq_len) };
    let mut windows = Array::zeros(shape, convolution.taps() * convolution.fan_in);
    let features = features(convolution);
    for (windows, inputs) in windows.sequences_mut().zip(input.sequences()) {
        for (window, x) in taps(convolution, seq_len) {
            windows[window..window + features].copy_from_slice(&inputs[x..x + features]);
        }
    }
    windows
}

/// A row of the weight.
struct Row<T> {
    /// The feature of the output that it computes.
    feature: usize,
    /// The place in a window of the first entry that it reads.
    start: usize,
    weight: Vec<T>,
}

/// The rows of the weight of a convolution with several groups.
fn rows<'a, T: Scalar>(convolution: &'a Convolution, random: &'a Random) -> impl Iterator<Item = Row<T>> + 'a {
    let tensor = random.rows_of(Purpose::Weight, &convolution.weight);
    (0..convolution.fan_out).map(move |feature| {
        let mut weight = vec![T::default(); convolution.window()];
        tensor.draw(feature, &mut weight);
        Row { feature, start: start(convolution, feature), weight }
    })
}

/// The place in a window of the first entry that a feature of the output reads.
fn start(convolution: &Convolution, feature: usize) -> usize {
    feature / (convolution.fan_out / convolution.groups) * convolution.window()
}

/// The number of features of the input in a group.
fn features(convolution: &Convolution) -> usize {
    convolution.fan_in / convolution.groups
}

/// The places of the features of every tap and group: among the windows of a sequence, and in the sequence itself, which
/// has `seq_len` tokens. Taps outside the sequence are left out.
fn taps(convolution: &Convolution, seq_len: usize) -> impl Iterator<Item = (usize, usize)> {
    let &Convolution { groups, fan_in, .. } = convolution;
    let (features, taps) = (features(convolution), convolution.taps());
    convolution.sliding(seq_len).reads(seq_len).flat_map(move |Tap { window, tap, input }| {
        (0..groups)
            .map(move |group| (((window * groups + group) * taps + tap) * features, input * fan_in + group * features))
    })
}
