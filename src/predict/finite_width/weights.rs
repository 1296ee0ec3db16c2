//! What finite width adds to second moments of weights' gradients, and to gradients where they are observed.

use sigprop_stack::Component;

use super::{Gradient, Walk};
use crate::finite_width::expansion::{Applied, Coupling, ExpandedAttention};
use crate::finite_width::forward::{Fluctuations, Levels, concentration};
use crate::finite_width::variables::{Moments, levels};
use crate::mean_field::gradient::Gradient as LeadingGradient;
use crate::mean_field::kernel::Kernel;
use crate::mean_field::signal::Signal;
use crate::mean_field::steps::{FiniteWidth, Shift};
use crate::predict::mean_field::Added;

/// Finite-width terms of the gradient at the end of a stream that others read.
#[derive(Clone, Copy, Default)]
pub(super) struct Arrived {
    /// To ln E |g_a|².
    pub(super) ln_own: f64,
    /// To the cosine of two tokens.
    pub(super) cosine: f64,
    /// To ln E |g_a|² along the signal: the norm at the end of a stream takes it off.
    pub(super) along: f64,
}

impl Arrived {
    /// A mixture with this `share` of another one.
    pub(super) fn mixed(self, other: Self, share: f64) -> Self {
        let mix = |one: f64, other: f64| one + share * (other - one);
        Self {
            ln_own: mix(self.ln_own, other.ln_own),
            cosine: mix(self.cosine, other.cosine),
            along: mix(self.along, other.along),
        }
    }
}

/// What finite width adds to ln E |g_a|²|x_a|², and to E g_a·g_b x_a·x_b over that.
#[derive(Clone, Copy)]
pub(super) struct Beyond {
    pub(super) ln_own: f64,
    pub(super) pair: f64,
}

/// Sums over single tokens and over pairs.
fn sums(gradient: &Kernel, x: Option<&Kernel>) -> [f64; 2] {
    let positions = &gradient.positions;
    let own = positions.sum(|node| gradient.own[node] * x.map_or(1.0, |x| x.own[node]));
    [own, positions.sum_pairs(|point| gradient.pairs[point] * x.map_or(1.0, |x| x.pairs[point]))]
}

impl Beyond {
    /// Of a signal whose tokens have the correlation `r` at infinite width.
    pub(super) fn new(Coupling { ln_own, pair }: Coupling, r: f64, gradient: &LeadingGradient) -> Self {
        Self { ln_own, pair: pair - r * levels(&gradient.kernel).1 }
    }

    /// ln of what E dW² of a map of `x` is multiplied by.
    pub(super) fn added(self, gradient: &LeadingGradient, x: &Signal) -> f64 {
        self.of_sums(sums(&gradient.kernel, Some(&x.kernel)), &gradient.kernel)
    }

    /// The same of what is added.
    pub(super) fn added_alone(self, gradient: &LeadingGradient) -> f64 {
        self.of_sums(sums(&gradient.kernel, None), &gradient.kernel)
    }

    fn of_sums(self, [own, pairs]: [f64; 2], gradient: &Kernel) -> f64 {
        let more = (gradient.positions.length - 1.0) * self.pair * own;
        if own + pairs <= 0.0 || own + pairs + more <= 0.0 {
            return self.ln_own;
        }
        self.ln_own + (more / (own + pairs)).ln_1p()
    }

    /// What pairs would have to add for E dW² of a map of `x` to be multiplied by this (ln).
    pub(super) fn pair_for(self, added: f64, gradient: &LeadingGradient, x: &Signal) -> f64 {
        let [own, pairs] = sums(&gradient.kernel, Some(&x.kernel));
        if own <= 0.0 || own + pairs <= 0.0 {
            return self.pair;
        }
        (added - self.ln_own).exp_m1() * (own + pairs) / (own * (x.kernel.positions.length - 1.0).max(1.0))
    }
}

/// What finite width adds to the input of a map and to the gradient at its output, of which ln E |g_a|² over that of infinite width and
/// the cosine of two are these.
pub(super) fn finite_width(
    (x, slot): (&Signal, usize),
    fluctuations: &Fluctuations,
    (ln_own, cosine): (f64, f64),
    gradient: &LeadingGradient,
) -> FiniteWidth {
    let leading = Moments::of(x).correlation;
    let Levels { ln_level, correlation, .. } = fluctuations.levels(slot, None, leading);
    let gamma = concentration(&fluctuations.of(slot), leading + correlation).min(1.0);
    FiniteWidth {
        signal: Shift { ln_level, correlation },
        gradient: Shift { ln_level: ln_own, correlation: cosine - levels(&gradient.kernel).1 },
        concentration: (gamma - x.width.recip()).max(0.0),
        weights: 0.0,
    }
}

impl Walk {
    /// What finite width adds to the parameters of a component.
    pub(super) fn added(
        &mut self,
        component: &Component,
        applied: &Applied,
        [x, y]: [&Signal; 2],
        gradient: &Gradient,
    ) -> Added {
        let alone = self.without_signal(gradient, applied.after());
        let is_gain = match component {
            Component::Embedding(_) | Component::Prepend(_) => return alone,
            Component::Norm(_) => true,
            _ => false,
        };
        let with = if is_gain { y } else { x };
        let coupling = self.expansion.coupling(applied, !is_gain);
        let beyond = Beyond::new(coupling, Moments::of(with).correlation, &gradient.leading);
        let steps = || {
            let at_output = self.expansion.gradient(gradient.slot, applied.after());
            finite_width((x, gradient.slot), applied.before(), (at_output.0, at_output.1), &gradient.leading)
        };
        let is_asked = self.leading.steps && matches!(component, Component::Linear(_));
        let steps = if is_asked { steps() } else { FiniteWidth::default() };
        Added { weights: beyond.added(&gradient.leading, with), steps, ..alone }
    }

    /// What it adds to weights of a router of `x`, from the gradients at its scores.
    pub(super) fn of_router(
        &self,
        (x, slot): (&Signal, usize),
        fluctuations: &Fluctuations,
        scores: &LeadingGradient,
    ) -> Added {
        let leading = Moments::of(x).correlation;
        let r = leading + fluctuations.means(slot)[1];
        let coupling = Coupling::new(self.expansion.given(slot).clone(), slot, fluctuations, r);
        Added { weights: Beyond::new(coupling, leading, scores).added(scores, x), ..Added::default() }
    }

    /// What it adds to weights of values: their gradients are Σ_a h_a z_aᵀ of the outputs of an attention.
    pub(super) fn of_values(&self, attended: &ExpandedAttention, y: &Signal, gradient: &LeadingGradient) -> f64 {
        let coupling = self.expansion.coupling_behind(attended);
        Beyond::new(coupling, Moments::of(y).correlation, gradient).added(gradient, y)
    }

    /// What it adds to those that no signal is multiplied by.
    pub(super) fn without_signal(&self, gradient: &Gradient, fluctuations: &Fluctuations) -> Added {
        if !self.expansion.has_gradients() {
            return Added::default();
        }
        let kernel = &gradient.leading.kernel;
        let (ln_own, cosine, _) = self.expansion.gradient(gradient.slot, fluctuations);
        let biases = Beyond { ln_own, pair: cosine - levels(kernel).1 }.added_alone(&gradient.leading);
        Added { weights: ln_own, biases, ..Added::default() }
    }

    /// What it adds to ln E |g_a|², the cosine of two, and the variance of ln mean |g_a|².
    pub(super) fn observed_gradient(
        &self,
        gradient: &Gradient,
        fluctuations: &Fluctuations,
    ) -> (f64, f64, Option<f64>) {
        match &gradient.inside {
            Some(inside) => {
                let (added, cosine) = inside.given().at(fluctuations);
                (added, cosine, None)
            }
            None if self.expansion.has_gradients() => {
                let (added, cosine, variance) = self.expansion.gradient(gradient.slot, fluctuations);
                (added, cosine, Some(variance))
            }
            // The end of a stream that others have read, before the way back through it begins.
            None => {
                let Arrived { ln_own, cosine, along } = gradient.arrived;
                let cosine = levels(&gradient.leading.kernel).1 + cosine;
                // Of single tokens alone: products of two do not have it.
                (ln_own + along, cosine * (1.0 - along), None)
            }
        }
    }
}
