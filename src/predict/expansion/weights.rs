//! What finite width adds to second moments of weights' gradients, and to gradients where they are observed.

use sigprop_stack::Component;

use super::{Gradient, Walk};
use crate::finite_width::chart::{Moments, levels};
use crate::finite_width::expansion::{Applied, Coupling};
use crate::finite_width::forward::Fluctuations;
use crate::mean_field::kernel::Kernel;
use crate::mean_field::signal::Signal;
use crate::predict::mean_field::Added;

/// ln of what finite width multiplies E dW² by, if it adds `ln_own` to ln E |g_a|²|x_a|² and `pair` to E g_a·g_b x_a·x_b over that;
/// without a signal x is 1.
pub(super) fn added(ln_own: f64, pair: f64, gradient: &Kernel<f64>, x: Option<&Kernel<f64>>) -> f64 {
    let positions = &gradient.positions;
    let own = positions.sum(|node| gradient.own[node] * x.map_or(1.0, |x| x.own[node]));
    let pairs = positions.sum_pairs(|point| gradient.pairs[point] * x.map_or(1.0, |x| x.pairs[point]));
    let more = (positions.length - 1.0) * pair * own;
    if own + pairs <= 0.0 || own + pairs + more <= 0.0 {
        return ln_own;
    }
    ln_own + (more / (own + pairs)).ln_1p()
}

impl Walk<'_> {
    /// What finite width adds to the parameters of a component.
    pub(super) fn added(
        &mut self,
        component: &Component,
        applied: &Applied,
        [x, y]: [&Signal<f64>; 2],
        gradient: &Gradient,
    ) -> Added {
        let alone = self.without_signal(gradient, applied.after());
        let is_gain = match component {
            Component::Embedding(_) | Component::Prepend(_) => return alone,
            Component::Norm(_) => true,
            _ => false,
        };
        let with = if is_gain { y } else { x };
        let Coupling { ln_own, pair } = self.expansion.coupling(applied, !is_gain);
        let kernel = &gradient.leading.kernel;
        let pair = pair - Moments::of(with).correlation * levels(kernel).1;
        Added { weights: added(ln_own, pair, kernel, Some(&with.kernel)), ..alone }
    }

    /// What it adds to those that no signal is multiplied by.
    pub(super) fn without_signal(&self, gradient: &Gradient, fluctuations: &Fluctuations) -> Added {
        if !self.expansion.has_gradients() {
            return Added::default();
        }
        let kernel = &gradient.leading.kernel;
        let (ln_own, cosine, _) = self.expansion.gradient(gradient.place, fluctuations);
        let biases = added(ln_own, cosine - levels(kernel).1, kernel, None);
        Added { weights: ln_own, biases }
    }

    /// What it adds to ln E |g_a|², the cosine of two, and the variance of ln mean |g_a|².
    pub(super) fn observed_gradient(&self, gradient: &Gradient, fluctuations: &Fluctuations) -> (f64, f64, Option<f64>) {
        match &gradient.inside {
            Some(inside) => {
                let (added, cosine) = inside.given().at(fluctuations);
                (added, cosine, None)
            }
            None if self.expansion.has_gradients() => {
                let (added, cosine, variance) = self.expansion.gradient(gradient.place, fluctuations);
                (added, cosine, Some(variance))
            }
            // The end of a stream that others have read.
            None => (0.0, levels(&gradient.leading.kernel).1, None),
        }
    }
}
