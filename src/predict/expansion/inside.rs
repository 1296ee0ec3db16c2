//! Queries, keys and values, which the expansion follows as parts of their attention.

use std::sync::Arc;

use sigprop_stack::{Component, Interpreter, Site};

use super::{Gradient, Kept, Signal, Walk};
use crate::finite_width::backward::Conditional;
use crate::finite_width::chart::{About, Moments, component, levels};
use crate::finite_width::component::Place;
use crate::finite_width::expansion::Coupling;
use crate::finite_width::forward::Fluctuations;
use crate::mean_field::gradient::Gradient as LeadingGradient;
use crate::mean_field::signal::Signal as LeadingSignal;
use crate::predict::PredictError;
use crate::predict::mean_field::{self, Added};

/// The gradient of queries, keys or values, given the input of their attention.
#[derive(Clone)]
pub(super) struct Inside {
    given: Conditional,
    /// Of keys, whose products with the input nearly cancel: what finite width adds to E dW² of queries. With M = Σ_ab dL/ds_ab x_b x_aᵀ
    /// weights have the gradients W_Q Mᵀ and W_K M, and what M knows of either is of higher order.
    queries: Option<f64>,
}

impl Inside {
    pub(super) fn new(given: Conditional) -> Self {
        Self { given, queries: None }
    }

    pub(super) fn given(&self) -> &Conditional {
        &self.given
    }
}

impl Walk<'_> {
    /// Forward through a component of queries, keys or values.
    pub(super) fn apply_inside(
        &self,
        of: &Component,
        x: Signal,
        leading: Arc<LeadingSignal<f64>>,
        kept: mean_field::Kept,
    ) -> (Signal, Kept) {
        let y = Moments::of(&leading);
        let mut inside = x.inside.expect("it is inside");
        let mut stream = Arc::clone(&x.stream);
        if let Component::Linear(linear) = of {
            let mut expansion = (*inside).clone();
            let answer = |place: &Place<'_>| place.linear(linear, super::forward::without_bias(linear, &y));
            let map = |means| component(linear, About { x: &x.moments, means }, &y);
            stream = Arc::new(expansion.apply((x.place, &x.stream), true, map, answer).0);
            inside = Arc::new(expansion);
        }
        let kept = Kept::Inside(kept, self.expansion.fluctuations().clone());
        (Signal { leading, moments: y, stream, place: x.place, inside: Some(inside) }, kept)
    }

    /// Back through a component of queries, keys or values.
    pub(super) fn apply_backward_inside(
        &mut self,
        at: &Site,
        component: &Component,
        kept: mean_field::Kept,
        fluctuations: &Fluctuations,
        gradient: Gradient,
    ) -> Result<Gradient, PredictError> {
        let Gradient { leading, place, inside } = gradient;
        let mut inside = inside.expect("it is inside");
        if let (Component::Linear(_), mean_field::Kept::Apply([x, _])) = (component, &kept) {
            let (ln_own, cosine) = inside.given.at(fluctuations);
            let weights = match inside.queries {
                Some(queries) => queries,
                None => weights(inside.given.clone(), (x, place), fluctuations, &leading),
            };
            let biases = super::weights::added(ln_own, cosine - levels(&leading.kernel).1, &leading.kernel, None);
            self.leading.added = Added { weights, biases };
        }
        let output = levels(&leading.kernel).1;
        let leading = self.leading.apply_backward(at, component, kept, leading)?;
        let input = levels(&leading.kernel).1;
        inside.given.cosine.value += input - output;
        Ok(Gradient { leading, place, inside: Some(inside) })
    }
}

/// Gradients at queries, keys and values of `x`.
pub(super) fn parts(
    x: &Signal,
    fluctuations: &Fluctuations,
    parts: Vec<LeadingGradient<f64>>,
    given: [Conditional; 3],
) -> Vec<Gradient> {
    let of_queries = weights(given[0].clone(), (&x.leading, x.place), fluctuations, &parts[0]);
    let inside = given.into_iter().enumerate();
    let inside = inside.map(|(part, given)| Inside { given, queries: (part == 1).then_some(of_queries) });
    let part = |(leading, inside)| Gradient { leading, place: x.place, inside: Some(inside) };
    parts.into_iter().zip(inside).map(part).collect()
}

/// What finite width adds to ln E dW² of a map of `x`.
fn weights(
    given: Conditional,
    (x, place): (&LeadingSignal<f64>, usize),
    fluctuations: &Fluctuations,
    gradient: &LeadingGradient<f64>,
) -> f64 {
    let leading = Moments::of(x).correlation;
    let r = leading + fluctuations.means(place)[1];
    let Coupling { ln_own, pair } = Coupling::new(given, place, fluctuations, r);
    let more = pair - leading * levels(&gradient.kernel).1;
    super::weights::added(ln_own, more, &gradient.kernel, Some(&x.kernel))
}
