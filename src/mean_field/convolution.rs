//! Convolution y_a = Σ_k W_k x_(a·stride + k) + b over tokens that are all alike, as patches of an image are.
//!
//! ```text
//! E y_a y_c = n_in s² κ E x_a x_c + s_b²             κ taps; L' = (L − κ)/stride + 1 outputs
//! E g_b² = n_out s² κ L'/L E g_a²                    E g_b g_b' = n_out s² κ L'(L' − 1)/(L (L − 1)) E g_a g_c
//! E dW² = Σ_ac E g_a g_c E x_a x_c                   E db² = Σ_ac E g_a g_c
//! ```
//!
//! The same tap of two outputs reads two inputs: averages over the inputs are exact. Assumption: no padding, tokens in one group.
//! Source: the linear map, tap by tap.

use std::sync::Arc;

use sigprop_stack::Convolution;
use smallvec::smallvec;

use super::moments::{Few, Gradient, Kernel, Signal};
use super::positions::Positions;
use super::scalar::Scalar;
use super::{MeanField, Parameter};

/// s² of all taps.
fn variance(convolution: &Convolution) -> f64 {
    convolution.kernel as f64 * convolution.weight.init.variance()
}

impl<S: Scalar> MeanField<S> for Convolution {
    fn forward(&self, x: &Signal<S>) -> Signal<S> {
        let before = &x.kernel.positions;
        let length = self.output_len(before.length as usize) as f64;
        let same_ids = before.classes.get(1).map(|&pair| [pair, before.triple]);
        let positions = Arc::new(Positions::groups(&[length], same_ids));
        let kernel = Kernel::new(&positions, |node| x.kernel.own[node], |point| x.kernel.pairs[point]);
        let kernel = Kernel { ln_unit: x.kernel.ln_unit, ..kernel }.scaled(self.fan_in as f64 * variance(self));
        let bias = self.bias.as_ref().map_or(0.0, |bias| bias.init.variance());
        Signal::centred(self.fan_out as f64, kernel.shifted(bias))
    }

    fn backward(&self, x: &Signal<S>, y: &Signal<S>, gradient: &Gradient<S>) -> Gradient<S> {
        let [inputs, outputs] = [x, y].map(|signal| signal.kernel.positions.length);
        let own = outputs / inputs;
        let pairs = if inputs > 1.0 { own * (outputs - 1.0) / (inputs - 1.0) } else { 0.0 };
        let kernel = &gradient.kernel;
        let kernel =
            Kernel::new(&x.kernel.positions, |node| kernel.own[node] * own, |point| kernel.pairs[point] * pairs);
        let gain = self.fan_out as f64 * variance(self);
        Gradient::independent(Kernel { ln_unit: gradient.kernel.ln_unit, ..kernel }.scaled(gain))
    }

    fn weights<'a>(&'a self, x: &Signal<S>, _: &Signal<S>, gradient: &Gradient<S>) -> Few<(Parameter<'a>, f64)> {
        let read = gradient.kernel.with(x.kernel.ln_unit, x.kernel.own.clone(), x.kernel.pairs.clone());
        let weight = (Parameter::Tensor(&self.weight), gradient.kernel.ln_contracted(&read));
        let Some(bias) = &self.bias else { return smallvec![weight] };
        smallvec![(Parameter::Tensor(bias), gradient.kernel.ln_total()), weight]
    }
}
