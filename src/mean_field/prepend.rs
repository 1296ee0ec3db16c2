//! A learned token before all others, with entries of variance s²: independent of them.
//!
//! ```text
//! E y_0² = s²      E y_0 y_b = 0      the others as they are          E dW² = E g_0²
//! ```
//!
//! It is a group of its own. Source: Devlin et al. 2019; Dosovitskiy et al. 2021.

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
        let positions = Arc::new(x.kernel.positions.with_first());
        let before = |point: usize| x.kernel.positions.before(point, &positions);
        let own = |node: usize| node.checked_sub(1).map_or(S::from(0.0), |node| x.kernel.own[node]);
        let pair = |point: usize| before(point).map_or(S::from(0.0), |point| x.kernel.pairs[point]);
        let others = Kernel { ln_unit: x.kernel.ln_unit, ..Kernel::new(&positions, own, pair) };
        let token = Kernel::new(&positions, |node| S::from(f64::from(u8::from(node == 0))), |_| S::from(0.0));
        let kernel = Kernel::sum([(1.0, &others), (self.token.init.variance(), &token)].into_iter());
        Signal::centred(x.width, kernel)
    }

    fn backward(&self, x: &Signal<S>, _: &Signal<S>, gradient: &Gradient<S>) -> Gradient<S> {
        let positions = &x.kernel.positions;
        let mut pairs: Few<S> = x.kernel.pairs.iter().map(|_| S::from(0.0)).collect();
        for (point, &pair) in gradient.kernel.pairs.iter().enumerate() {
            if let Some(point) = positions.before(point, &gradient.kernel.positions) {
                pairs[point] = pair;
            }
        }
        let own = gradient.kernel.own[1..].iter().copied().collect();
        Gradient::independent(x.kernel.with(gradient.kernel.ln_unit, own, pairs))
    }

    fn weights<'a>(&'a self, _: &Signal<S>, _: &Signal<S>, gradient: &Gradient<S>) -> Few<(Parameter<'a>, f64)> {
        let ln_own = gradient.kernel.own[0].value().ln() + gradient.kernel.ln_unit;
        smallvec![(Parameter::Tensor(&self.token), ln_own)]
    }
}
