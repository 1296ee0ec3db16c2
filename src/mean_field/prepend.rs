//! A learned token before all others, independent of them, with entries of variance s².
//!
//! ```text
//! E y_0² = s²      E y_0 y_b = 0      the others as they are          E dW² = E g_0²
//! ```
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
