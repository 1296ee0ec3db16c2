//! A learned token before all others, with entries of variance s²: independent of them.
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
use super::gradient::Gradient;
use super::kernel::Kernel;
use super::scalar::{Few, Scalar};
use super::signal::Signal;

impl<S: Scalar> MeanField<S> for Prepend {
    fn forward(&self, x: &Signal<S>) -> Signal<S> {
        let inputs = &x.kernel.positions;
        let positions = Arc::new(inputs.with_first());
        let others = Kernel {
            ln_unit: x.kernel.ln_unit,
            own: inputs.own_behind(&positions, &x.kernel.own),
            pairs: inputs.pairs_behind(&positions, &x.kernel.pairs),
            positions: Arc::clone(&positions),
        };
        let token = Kernel::new(&positions, |node| S::from(f64::from(u8::from(node == 0))), |_| S::from(0.0));
        let kernel = Kernel::sum([(1.0, &others), (self.token.init.variance(), &token)].into_iter());
        let unit = (0.5 * (others.ln_unit - kernel.ln_unit)).exp();
        let means = x.scaled_means(|_| S::from(unit)).map(|means| inputs.own_behind(&positions, &means));
        Signal { means, ..Signal::centred(x.width, kernel) }
    }

    fn backward(&self, x: &Signal<S>, _: &Signal<S>, gradient: &Gradient<S>) -> Gradient<S> {
        let (inputs, kernel) = (&x.kernel.positions, &gradient.kernel);
        let own = kernel.positions.own_without_first(inputs, &kernel.own);
        let pairs = kernel.positions.pairs_without_first(inputs, &kernel.pairs);
        Gradient::independent(x.kernel.with(kernel.ln_unit, own, pairs))
    }

    fn weights<'a>(&'a self, _: &Signal<S>, _: &Signal<S>, gradient: &Gradient<S>) -> Few<(Parameter<'a>, f64)> {
        let ln_own = gradient.kernel.own[0].value().ln() + gradient.kernel.ln_unit;
        smallvec![(Parameter::Tensor(&self.token), ln_own)]
    }
}
