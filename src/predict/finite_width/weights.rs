//! Corrections of finite width to the second moments of weight gradients, and to gradients at observed sites.

use sigprop_stack::Component;

use super::{FiniteWidthPass, Gradient};
use crate::finite_width::expansion::{Applied, Coupling, ExpandedAttention};
use crate::finite_width::forward::{Fluctuations, Levels, concentration};
use crate::finite_width::variables::{PairMoments, levels};
use crate::mean_field::gradient::Gradient as LeadingGradient;
use crate::mean_field::kernel::Kernel;
use crate::mean_field::signal::Signal;
use crate::mean_field::steps::{FiniteWidth, Shift};
use crate::predict::mean_field::Added;

/// Corrections of finite width to the gradient at the end of a stream that other streams read.
#[derive(Clone, Copy, Default)]
pub(super) struct Arrived {
    /// The correction to ln E |g_a|².
    pub(super) ln_own: f64,
    /// The correction to the cosine of the gradients of two tokens.
    pub(super) cosine: f64,
    /// The correction to ln E |g_a|² by the component of g_a along the signal. The norm at the end of a stream removes
    /// this component.
    pub(super) along: f64,
}

impl Arrived {
    /// Returns the weighted average of these corrections and `other`, which has the weight `share`.
    pub(super) fn mixed(self, other: Self, share: f64) -> Self {
        let mix = |one: f64, other: f64| one + share * (other - one);
        Self {
            ln_own: mix(self.ln_own, other.ln_own),
            cosine: mix(self.cosine, other.cosine),
            along: mix(self.along, other.along),
        }
    }
}

/// Corrections of finite width to products of a gradient g with a signal x at tokens a and b: `ln_own` to ln E
/// |g_a|²|x_a|², and `pair` to the ratio of E g_a·g_b x_a·x_b to E |g_a|²|x_a|².
#[derive(Clone, Copy)]
pub(super) struct Beyond {
    pub(super) ln_own: f64,
    pub(super) pair: f64,
}

/// Returns Σ_a |g_a|²|x_a|² over tokens, and Σ_ab g_a·g_b x_a·x_b over pairs of different tokens. If `x` is `None`, its
/// factors are left out.
fn sums(gradient: &Kernel, x: Option<&Kernel>) -> [f64; 2] {
    let positions = &gradient.positions;
    let own = positions.sum(|node| gradient.own[node] * x.map_or(1.0, |x| x.own[node]));
    [own, positions.sum_pairs(|point| gradient.pairs[point] * x.map_or(1.0, |x| x.pairs[point]))]
}

impl Beyond {
    /// Returns the corrections for a signal whose tokens have the correlation `r` at infinite width.
    pub(super) fn new(Coupling { ln_own, pair }: Coupling, r: f64, gradient: &LeadingGradient) -> Self {
        Self { ln_own, pair: pair - r * levels(&gradient.kernel).1 }
    }

    /// Returns ln of the factor by which these corrections change E dW² of a linear map of `x`. `gradient` is the
    /// gradient at the output of the map.
    pub(super) fn added(self, gradient: &LeadingGradient, x: &Signal) -> f64 {
        self.of_sums(sums(&gradient.kernel, Some(&x.kernel)), &gradient.kernel)
    }

    /// Returns ln of the factor by which these corrections change E db² of biases that are added to a signal.
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

    /// Returns the value of `pair` with which [`Self::added`] returns `added`.
    pub(super) fn pair_for(self, added: f64, gradient: &LeadingGradient, x: &Signal) -> f64 {
        let [own, pairs] = sums(&gradient.kernel, Some(&x.kernel));
        if own <= 0.0 || own + pairs <= 0.0 {
            return self.pair;
        }
        (added - self.ln_own).exp_m1() * (own + pairs) / (own * (x.kernel.positions.length - 1.0).max(1.0))
    }
}

/// Returns the corrections to the input `x` of a linear map and to the gradient at its output. `ln_own` is the
/// correction to ln E |g_a|² of the gradient, and `cosine` the cosine of the gradients of two tokens at finite width.
pub(super) fn finite_width(
    (x, slot): (&Signal, usize),
    fluctuations: &Fluctuations,
    (ln_own, cosine): (f64, f64),
    gradient: &LeadingGradient,
) -> FiniteWidth {
    let leading = PairMoments::of(x).correlation;
    let Levels { ln_level, correlation, .. } = fluctuations.levels(slot, None, leading);
    let gamma = concentration(&fluctuations.of(slot), leading + correlation).min(1.0);
    FiniteWidth {
        signal: Shift { ln_level, correlation },
        gradient: Shift { ln_level: ln_own, correlation: cosine - levels(&gradient.kernel).1 },
        concentration: (gamma - x.width.recip()).max(0.0),
        weights: 0.0,
    }
}

impl FiniteWidthPass {
    /// Returns the corrections of finite width to the gradients of the parameters of a component with input `x` and
    /// output `y`.
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
        let beyond = Beyond::new(coupling, PairMoments::of(with).correlation, &gradient.leading);
        let steps = || {
            let at_output = self.expansion.gradient(gradient.slot, applied.after());
            finite_width((x, gradient.slot), applied.before(), (at_output.0, at_output.1), &gradient.leading)
        };
        let is_asked = self.leading.steps && matches!(component, Component::Linear(_));
        let steps = if is_asked { steps() } else { FiniteWidth::default() };
        Added { weights: beyond.added(&gradient.leading, with), steps, ..alone }
    }

    /// Returns the correction to the gradient of the weights of a router that reads `x`. `scores` is the gradient at
    /// its scores.
    pub(super) fn of_router(
        &self,
        (x, slot): (&Signal, usize),
        fluctuations: &Fluctuations,
        scores: &LeadingGradient,
    ) -> Added {
        let leading = PairMoments::of(x).correlation;
        let r = leading + fluctuations.means(slot)[1];
        let coupling = Coupling::new(self.expansion.given(slot).clone(), slot, fluctuations, r);
        Added { weights: Beyond::new(coupling, leading, scores).added(scores, x), ..Added::default() }
    }

    /// Returns the correction to ln E dW² of the weights of values. Their gradient is Σ_a h_a z_aᵀ, where h_a is the
    /// gradient at the output of an attention for query a, and z_a the average of its inputs by the attention weights.
    pub(super) fn of_values(&self, attended: &ExpandedAttention, y: &Signal, gradient: &LeadingGradient) -> f64 {
        let coupling = self.expansion.coupling_behind(attended);
        Beyond::new(coupling, PairMoments::of(y).correlation, gradient).added(gradient, y)
    }

    /// Returns the corrections to the gradients of parameters that multiply no signal, such as biases and embeddings.
    pub(super) fn without_signal(&self, gradient: &Gradient, fluctuations: &Fluctuations) -> Added {
        if !self.expansion.has_gradients() {
            return Added::default();
        }
        let kernel = &gradient.leading.kernel;
        let (ln_own, cosine, _) = self.expansion.gradient(gradient.slot, fluctuations);
        let biases = Beyond { ln_own, pair: cosine - levels(kernel).1 }.added_alone(&gradient.leading);
        Added { weights: ln_own, biases, ..Added::default() }
    }

    /// Returns the correction to ln E |g_a|², the cosine of the gradients of two tokens, and the variance over networks
    /// of ln of the mean of |g_a|² over tokens. The variance is `None` inside queries, keys and values, and where the
    /// backward pass through the stream has not begun.
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
            // The end of a stream that others have read, before the backward pass through it begins.
            None => {
                let Arrived { ln_own, cosine, along } = gradient.arrived;
                let cosine = levels(&gradient.leading.kernel).1 + cosine;
                // `along` adds to single tokens only: products of two tokens do not have it.
                (ln_own + along, cosine * (1.0 - along), None)
            }
        }
    }
}
