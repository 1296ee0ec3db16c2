//! Maps from the positions of a sequence to the positions of a convolution over it, and back.

use std::sync::Arc;

use sigprop_stack::Convolution;

use super::averages::Averages;
use super::chart::Chart;
use super::cubic::{Entries, Sparse, Stencil};

/// Sums over the taps of a convolution.
#[derive(Debug)]
pub(crate) struct Taps {
    inputs: Arc<Chart>,
    outputs: Arc<Chart>,
    /// Matrix that turns a function of one input, given at nodes, into its sums over taps at the nodes of the outputs.
    own_read: Sparse,
    /// Matrix that turns a function of two inputs, given at all points, into its sums over taps at the lower points of
    /// the outputs.
    read: Sparse,
    /// Matrix that turns a function of one output, given at nodes, into its sums over taps at the nodes of the inputs,
    /// times 1/stride.
    own_spread: Sparse,
    /// Matrix that turns a function of two outputs, given at all points, into its sums over taps at the lower points of
    /// the inputs, times 1/stride.
    spread: Sparse,
    /// The share of distances at which one tap reads two inputs, at the lower points of the inputs.
    shares: Vec<f64>,
}

impl Taps {
    /// Builds the sums for `length` outputs.
    pub(crate) fn new(convolution: &Convolution, inputs: &Arc<Chart>, length: usize) -> Self {
        let Convolution { kernel, stride, padding, .. } = *convolution;
        let is_same = length == inputs.length;
        let outputs = if is_same { Arc::clone(inputs) } else { Arc::new(inputs.resampled(length)) };
        let input =
            |output: usize, tap: usize| (output * stride + tap).checked_sub(padding).filter(|&at| at < inputs.length);
        let output = |input: usize, tap: usize| {
            (input + padding).checked_sub(tap).map(|at| at / stride).filter(|&at| at < length)
        };
        let read = |(first, second): (usize, usize)| -> Entries {
            let taps = (0..kernel).filter_map(|tap| Some((input(first, tap)?, input(second, tap)?)));
            taps.flat_map(|(first, second)| inputs.found(first, second)).collect()
        };
        let weight = (stride as f64).recip();
        let spread = |(first, second): (usize, usize)| -> Entries {
            let steps = ((first - second) as f64 * weight).round() as usize;
            let taps = (0..kernel).filter_map(|tap| {
                let first = output(first, tap)?;
                Some((first, first.checked_sub(steps)?))
            });
            let found = taps.flat_map(|(first, second)| outputs.found(first, second));
            found.map(|(place, own)| (place, own * weight)).collect()
        };
        let own = |at: Option<usize>, chart: &Chart, weight: f64| -> Entries {
            let Some(at) = at else { return Entries::new() };
            let Stencil { start, weights } = chart.at[at];
            (start as u32..).zip(weights.map(|own| own * weight)).collect()
        };
        let own_read = |&node: &usize| (0..kernel).flat_map(|tap| own(input(node, tap), inputs, 1.0)).collect();
        let own_spread = |&node: &usize| (0..kernel).flat_map(|tap| own(output(node, tap), &outputs, weight)).collect();
        let is_read = |distance: usize| if distance.is_multiple_of(stride) { 1.0 } else { 0.0 };
        Self {
            own_read: Sparse::new(outputs.nodes().iter().map(own_read)),
            read: Sparse::new(outputs.lower_positions().map(read)),
            own_spread: Sparse::new(inputs.nodes().iter().map(own_spread)),
            spread: Sparse::new(inputs.lower_positions().map(spread)),
            shares: inputs.averaged(&Averages::new((0..inputs.length).map(is_read))),
            inputs: Arc::clone(inputs),
            outputs,
        }
    }

    /// The chart of the outputs.
    pub(crate) fn outputs(&self) -> &Arc<Chart> {
        &self.outputs
    }

    /// Returns sums over taps at the nodes and lower points of the outputs. They are sums of a function of one input,
    /// given at nodes, and of a symmetric function of two inputs, given at lower points.
    pub(crate) fn read(&self, own: &[f64], lower: &[f64]) -> [Vec<f64>; 2] {
        [self.own_read.times(own).collect(), self.read.times(&self.inputs.all(lower)).collect()]
    }

    /// Returns sums over taps at the nodes and lower points of the inputs, from functions of one and of two outputs.
    pub(crate) fn spread(&self, own: &[f64], lower: &[f64]) -> [Vec<f64>; 2] {
        let all = self.outputs.all(lower);
        let pairs = self.spread.times(&all).zip(&self.shares).map(|(sum, &share)| sum * share).collect();
        [self.own_spread.times(own).collect(), pairs]
    }
}
