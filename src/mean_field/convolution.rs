//! Convolution y_a = Σ_k W_k x_(a·stride + k − padding) + b, where tokens outside the sequence are zero.
//! G^y and G^x are the kernels E g_a g_b of the gradients at the output y and at the input x.
//!
//! ```text
//! E y_a y_c = n_in s² Σ_k E x_(a·stride + k − padding) x_(c·stride + k − padding) + s_bias²
//! G^x_bd    = n_out s² Σ_k G^y_ac over the a, c whose tap k reads b and d: of neighbours b one in `stride`, of distances too
//! E dW²     = Σ_ac G^y_ac times the mean over k of E x x as above            E db² = Σ_ac G^y_ac
//! ```
//!
//! Taps are independent, and the same tap of two outputs reads two inputs. Exchangeable tokens, such as the patches of
//! an image, stay exchangeable: κ taps have L' = (L − κ)/stride + 1 outputs, and G^x_bd = n_out s² κ L'(L' − 1)/(L
//! (L − 1)) G^y_ac.
//!
//! Assumption: the gradient at an input is averaged over the place of the input between outputs. Source: the linear
//! map, tap by tap.

use std::sync::Arc;

use sigprop_stack::Convolution;
use smallvec::smallvec;

use super::component::{MeanField, Parameter};
use super::few::Few;
use super::gradient::Gradient;
use super::kernel::Kernel;
use super::positions::{Positions, Taps};
use super::signal::Signal;

/// A convolution that is prepared for inputs at given positions.
#[derive(Debug)]
pub(crate) struct Rule {
    convolution: Convolution,
    outputs: Arc<Positions>,
    /// Sums over the taps if positions differ; `None` if tokens are exchangeable.
    taps: Option<Taps>,
}

impl Rule {
    /// Prepares the convolution for inputs at these positions.
    pub(crate) fn new(convolution: &Convolution, inputs: &Positions) -> Self {
        let length = convolution.output_len(inputs.length as usize);
        let taps = inputs.chart.as_ref().map(|chart| Taps::new(convolution, chart, length));
        let outputs = taps.as_ref().map_or_else(
            || Positions::groups(&[length as f64], inputs.repetition.clone()),
            |taps| Positions::on(Arc::clone(taps.outputs()), None),
        );
        Self { convolution: convolution.clone(), outputs: Arc::new(outputs), taps }
    }

    /// Returns the kernel of the inputs that two outputs read, averaged over taps.
    fn read(&self, x: &Kernel) -> Kernel {
        let kernel = match &self.taps {
            None => Kernel::new(&self.outputs, |node| x.own[node], |point| x.pairs[point]),
            Some(taps) => {
                let pairs = x.positions.class_mean(|point| x.pairs[point]);
                let [own, pairs] = taps.read(&x.own, &pairs);
                let share = (self.convolution.kernel as f64).recip();
                Kernel::new(&self.outputs, |node| own[node] * share, |point| pairs[point] * share)
            }
        };
        Kernel { ln_unit: x.ln_unit, ..kernel }
    }

    /// Returns n s² summed over all taps, where n = `count` is the number of input or of output features.
    fn gain(&self, count: usize) -> f64 {
        count as f64 * self.convolution.kernel as f64 * self.convolution.weight.init.variance()
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
        let kernel = match &self.taps {
            None => {
                let own = self.outputs.length / inputs.length;
                let others = (self.outputs.length - 1.0) / (inputs.length - 1.0);
                let pairs = if inputs.length > 1.0 { own * others } else { 0.0 };
                Kernel::new(inputs, |node| gradient.own[node] * own, |point| gradient.pairs[point] * pairs)
            }
            Some(taps) => {
                let [own, pairs] = taps.spread(&gradient.own, &gradient.pairs);
                let share = (self.convolution.kernel as f64).recip();
                Kernel::new(inputs, |node| own[node] * share, |point| pairs[point % pairs.len()] * share)
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
