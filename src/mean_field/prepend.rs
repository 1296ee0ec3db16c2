//! A learned token before all others, independent of them.
//!
//! ```text
//! E y_0² = s²      E y_0 y_b = 0      the others as they are          E dW² = E g_0²
//! ```
//!
//! where y_0 is the learned token; b is the position of another token; E is the average over random weights and over
//! features; s² is the variance of an entry of a weight; dW is the gradient of an entry of the learned token; g_0 is
//! the gradient of the loss at the first token.
//!
//! Example: a token with entries of variance 0.04 before two tokens of variance 1 and correlation 0.5: the first token
//! has variance 0.04 and the others variance 1, and the correlations are 0 with the first token and 0.5 between the
//! others. If the gradient has variance 3 at the first token and variance 2 at the others, E dW² = 3, and the gradient
//! at x has variance 2.
//!
//! Source: Devlin et al. 2019; Dosovitskiy et al. 2021.

use std::sync::Arc;

use sigprop_stack::Prepend;
use smallvec::smallvec;

use super::component::{MeanField, Parameter};
use super::few::Few;
use super::gradient::Gradient;
use super::kernel::Kernel;
use super::signal::Signal;

impl MeanField for Prepend {
    fn forward(&self, x: &Signal) -> Signal {
        let inputs = &x.kernel.positions;
        let positions = Arc::new(inputs.with_first());
        let others = Kernel {
            ln_unit: x.kernel.ln_unit,
            own: inputs.own_behind(&positions, &x.kernel.own),
            pairs: inputs.pairs_behind(&positions, &x.kernel.pairs),
            positions: Arc::clone(&positions),
        };
        let token = Kernel::new(&positions, |node| f64::from(u8::from(node == 0)), |_| 0.0);
        let kernel = Kernel::sum([(1.0, &others), (self.token.init.variance(), &token)].into_iter());
        let unit = (0.5 * (others.ln_unit - kernel.ln_unit)).exp();
        let means = x.scaled_means(|_| unit).map(|means| inputs.own_behind(&positions, &means));
        Signal { means, ..Signal::centred(x.width, kernel) }
    }

    fn backward(&self, x: &Signal, _: &Signal, gradient: &Gradient) -> Gradient {
        let (inputs, kernel) = (&x.kernel.positions, &gradient.kernel);
        let own = kernel.positions.own_without_first(inputs, &kernel.own);
        let pairs = kernel.positions.pairs_without_first(inputs, &kernel.pairs);
        Gradient::independent(x.kernel.with(kernel.ln_unit, own, pairs))
    }

    fn weights<'a>(&'a self, _: &Signal, _: &Signal, gradient: &Gradient) -> Few<(Parameter<'a>, f64)> {
        let ln_own = gradient.kernel.own[0].ln() + gradient.kernel.ln_unit;
        smallvec![(Parameter::Tensor(&self.token), ln_own)]
    }
}

#[cfg(test)]
mod tests {
    use approx::assert_relative_eq;
    use sigprop_stack::{Init, Tensor};

    use super::*;

    #[test]
    fn example_of_the_header() {
        let prepend = Prepend { token: Tensor { name: String::new(), init: Init::Normal { std: 0.2 } } };
        let x = Signal::centred(64.0, Kernel::of_tokens(2.0, [1.0, 0.5]));
        let y = prepend.forward(&x);
        let unit = y.kernel.ln_unit.exp();
        // The nodes are the first token and the others. The points are the pairs in the first group, between both
        // groups, and in the second group.
        let (own, pairs) = (y.kernel.own.iter().zip([0.04, 1.0]), y.kernel.pairs.iter().zip([0.0, 0.0, 0.5]));
        for (moment, expected) in own.chain(pairs) {
            assert_relative_eq!(moment * unit, expected, epsilon = 1e-12, max_relative = 1e-9);
        }
        let own = |node| if node == 0 { 3.0 } else { 2.0 };
        let gradient = Gradient::independent(Kernel::new(&y.kernel.positions, own, |_| 0.0));
        prepend.backward(&x, &y, &gradient).kernel.assert_is([2.0, 0.0]);
        let [(_, ln_square)] = prepend.weights(&x, &y, &gradient)[..] else { panic!("there is one token") };
        assert_relative_eq!(ln_square.exp(), 3.0, max_relative = 1e-9);
    }
}
