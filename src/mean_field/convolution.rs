//! Convolution y_a = Σ_k W_k x_(a·stride + k − padding) + bias, where tokens outside the sequence are zero. Every tap
//! W_k is a linear map of each of n_groups parts of the features.
//!
//! ```text
//! E y_a y_c = n_in/n_groups s² Σ_k E x_(a·stride + k − padding) x_(c·stride + k − padding) + s_bias²
//! G^x_bd    = n_out/n_groups s² Σ_k G^y_ac over the a, c whose tap k reads b and d
//! E dW²     = Σ_ac G^y_ac times the mean over k of E x x as above            E dbias² = Σ_ac G^y_ac
//! ```
//!
//! where a, c are positions of tokens at the output; b, d are positions of tokens at the input; E is the average over
//! random weights and over features; k is the number of a tap; n_in is the fan-in of a linear map; n_out is the fan-out
//! of a linear map; s² is the variance of an entry of a weight; s_bias² is the variance of an entry of a bias; stride
//! is the number of inputs per output; padding is the number of zero tokens before the sequence; n_groups is the number
//! of groups of features; G^y is the kernel E g_a g_b
//! of the gradients at the output y; G^x is the kernel E g_a g_b of the gradients at the input x; dW is the gradient of
//! an entry of W; dbias is the gradient of an entry of the bias.
//!
//! Taps are independent, and the same tap of two outputs reads two inputs. A tap reads one of `stride` neighbouring
//! inputs, and two inputs only if their distance is a multiple of `stride`. If a causal convolution has outputs a and c
//! with one id, its last tap reads two inputs with one id; the ids of other taps are independent. Exchangeable tokens,
//! such as the patches of an image, stay exchangeable: `n_taps` taps turn L tokens into L' = (L − n_taps)/stride + 1
//! outputs, and G^x_bd = n_out/n_groups s² n_taps L'(L' − 1)/(L (L − 1)) G^y_ac.
//!
//! Example: 8 exchangeable tokens of variance 1 and correlation 0.5, 3 → 6 features, 4 taps, stride 4, weights of
//! variance 1/12: the 2 outputs have variance 12/12 = 1 and correlation 0.5. A gradient of variance 1 at y becomes 6/12
//! · 4 · 2/8 = 0.5 at x.
//!
//! Over images, positions are pixels, and padding and stride hold along rows and columns. Pixels that share an image are
//! correlated like pixels of two images. Pixels within three positions of an edge are classes of their own, because
//! windows there have fewer taps (`positions/pixels.rs`): kernels are averages over classes.
//!
//! Assumption: the gradient at an input is averaged over the place of the input between outputs. Entries of y are
//! jointly Gaussian, also where a feature reads few entries (depthwise). Source: the linear map, tap by tap; for images
//! Xiao et al. 2018, section 2.

use std::sync::Arc;

use sigprop_stack::Convolution;
use smallvec::smallvec;

use super::component::{MeanField, Parameter};
use super::few::Few;
use super::gradient::Gradient;
use super::kernel::Kernel;
use super::positions::{Positions, Taps, pixels::Sums};
use super::signal::Signal;

/// A convolution that is prepared for inputs at given positions.
#[derive(Debug)]
pub(crate) struct Rule {
    convolution: Convolution,
    /// The positions of the outputs: those of the inputs if there are as many.
    outputs: Arc<Positions>,
    reads: Reads,
    /// True if there are as many outputs as inputs, and one tap of an output reads the input at the same position.
    reads_itself: bool,
}

/// The way in which outputs read inputs.
#[derive(Debug)]
enum Reads {
    /// All tokens are exchangeable.
    Exchangeable,
    /// Positions of a sequence differ: sums over the taps.
    Positions(Taps),
    /// Pixels differ by their distance from the edges: sums over the taps of an output, and of an input.
    Pixels([Sums; 2]),
}

impl Rule {
    /// Prepares the convolution for inputs at these positions.
    pub(crate) fn new(convolution: &Convolution, inputs: &Arc<Positions>) -> Self {
        let length = convolution.output_len(inputs.length as usize);
        let is_as_long = length == inputs.length as usize;
        let (outputs, reads) = match (&inputs.chart, convolution.image) {
            (_, Some(_)) => {
                let sums = Sums::both_ways(convolution.sliding(inputs.length as usize), inputs);
                (Arc::clone(sums[0].positions()), Reads::Pixels(sums))
            }
            (None, None) => {
                let outputs = Positions::groups(&[length as f64], inputs.repetition.clone());
                (Arc::new(outputs), Reads::Exchangeable)
            }
            (Some(chart), None) => {
                let taps = Taps::new(convolution, chart, length);
                let outputs = if is_as_long {
                    Arc::clone(inputs)
                } else {
                    Arc::new(Positions::on(Arc::clone(taps.outputs()), None))
                };
                (outputs, Reads::Positions(taps))
            }
        };
        let reads_itself = is_as_long && convolution.padding < convolution.kernel;
        Self { convolution: convolution.clone(), outputs, reads, reads_itself }
    }

    /// Returns the difference of `pairs` at a point from their mean over classes: the tap that reads the token of the
    /// output adds it to the sum over taps.
    fn of_class(&self, pairs: &[f64], mean: &[f64], point: usize) -> f64 {
        if self.reads_itself { pairs[point] - mean[point % mean.len()] } else { 0.0 }
    }

    /// Returns the kernel of the inputs that two outputs read, averaged over taps.
    fn read(&self, x: &Kernel) -> Kernel {
        let share = (self.convolution.taps() as f64).recip();
        let kernel = match &self.reads {
            Reads::Exchangeable => Kernel::new(&self.outputs, |node| x.own[node], |point| x.pairs[point]),
            Reads::Positions(taps) => {
                let mean = x.positions.class_mean(|point| x.pairs[point]);
                let [own, pairs] = taps.read(&x.own, &mean);
                let pair = |point: usize| pairs[point % pairs.len()] + self.of_class(&x.pairs, &mean, point);
                Kernel::new(&self.outputs, |node| own[node] * share, |point| pair(point) * share)
            }
            Reads::Pixels([sums, _]) => {
                let [own, pairs] = sums.of(&x.own, &x.pairs);
                Kernel::new(&self.outputs, |node| own[node] * share, |point| pairs[point] * share)
            }
        };
        Kernel { ln_unit: x.ln_unit, ..kernel }
    }

    /// Returns n s² summed over all taps, where n is the number of features of a group out of `count` input or output
    /// features.
    fn gain(&self, count: usize) -> f64 {
        let Convolution { groups, weight, .. } = &self.convolution;
        (count / groups * self.convolution.taps()) as f64 * weight.init.variance()
    }
}

impl MeanField for Rule {
    fn forward(&self, x: &Signal) -> Signal {
        let kernel = self.read(&x.kernel).scaled(self.gain(self.convolution.fan_in));
        let bias = self.convolution.bias.as_ref().map_or(0.0, |bias| bias.init.variance());
        Signal::centred(self.convolution.fan_out as f64, kernel.shifted(bias))
    }

    fn backward(&self, x: &Signal, _: &Signal, gradient: &Gradient) -> Gradient {
        let inputs = &x.kernel.positions;
        let gradient = &gradient.kernel;
        let share = (self.convolution.taps() as f64).recip();
        let kernel = match &self.reads {
            Reads::Exchangeable => {
                let own = self.outputs.length / inputs.length;
                let others = (self.outputs.length - 1.0) / (inputs.length - 1.0);
                let pairs = if inputs.length > 1.0 { own * others } else { 0.0 };
                Kernel::new(inputs, |node| gradient.own[node] * own, |point| gradient.pairs[point] * pairs)
            }
            Reads::Positions(taps) => {
                let mean = gradient.positions.class_mean(|point| gradient.pairs[point]);
                let [own, pairs] = taps.spread(&gradient.own, &mean);
                let pair = |point: usize| pairs[point % pairs.len()] + self.of_class(&gradient.pairs, &mean, point);
                Kernel::new(inputs, |node| own[node] * share, |point| pair(point) * share)
            }
            Reads::Pixels([_, sums]) => {
                let [own, pairs] = sums.of(&gradient.own, &gradient.pairs);
                Kernel::new(inputs, |node| own[node] * share, |point| pairs[point] * share)
            }
        };
        Gradient::independent(
            Kernel { ln_unit: gradient.ln_unit, ..kernel }.scaled(self.gain(self.convolution.fan_out)),
        )
    }

    fn weights<'a>(&'a self, x: &Signal, _: &Signal, gradient: &Gradient) -> Few<(Parameter<'a>, f64)> {
        let read = self.read(&x.kernel);
        let weight = (Parameter::Tensor(&self.convolution.weight), gradient.kernel.ln_contracted(&read));
        let Some(bias) = &self.convolution.bias else { return smallvec![weight] };
        smallvec![(Parameter::Tensor(bias), gradient.kernel.ln_total()), weight]
    }
}

#[cfg(test)]
mod tests {
    use sigprop_stack::{Init, Tensor};

    use super::*;

    #[test]
    fn example_of_the_header() {
        let weight = Tensor { name: String::new(), init: Init::Normal { std: 12f64.sqrt().recip() } };
        let convolution = Convolution {
            fan_in: 3,
            fan_out: 6,
            kernel: 4,
            stride: 4,
            padding: 0,
            groups: 1,
            causal: false,
            image: None,
            weight,
            bias: None,
        };
        let x = Signal::centred(3.0, Kernel::of_tokens(8.0, [1.0, 0.5]));
        let rule = Rule::new(&convolution, &x.kernel.positions);
        let y = rule.forward(&x);
        assert!((y.kernel.positions.length - 2.0).abs() < 1e-12, "8 tokens have 2 outputs");
        y.kernel.assert_is([1.0, 0.5]);
        let gradient = Gradient::independent(Kernel::of_tokens(2.0, [1.0, 0.0]));
        rule.backward(&x, &y, &gradient).kernel.assert_is([0.5, 0.0]);
    }
}
