//! Queries, keys and values, which the expansion treats as parts of their attention.

use std::sync::Arc;

use sigprop_stack::{Component, Fan, Interpreter, Site};

use super::weights::{Arrived, Beyond, finite_width};
use super::{FiniteWidthPass, Gradient, Kept, Signal};
use crate::finite_width::backward::Conditional;
use crate::finite_width::component::{Context, without_bias};
use crate::finite_width::expansion::{Coupling, ExpandedAttention};
use crate::finite_width::forward::Fluctuations;
use crate::finite_width::map::component;
use crate::finite_width::variables::{ExpansionPoint, PairMoments, levels};
use crate::mean_field::gradient::Gradient as LeadingGradient;
use crate::mean_field::signal::Signal as LeadingSignal;
use crate::mean_field::steps::FiniteWidth;
use crate::predict::PredictError;
use crate::predict::mean_field::{self, Added};

/// The gradient of queries, keys or values, given the input of their attention.
#[derive(Clone)]
pub(super) struct Inside {
    given: Conditional,
    /// The correction of finite width to ln E dW² of a linear map that reads the input of the attention; `None` if it
    /// is computed from this gradient.
    weights: Option<f64>,
    /// True for the gradient of keys. The part that all keys have in common gets no gradient, except through rotations.
    is_of_keys: bool,
    /// The average corrections of finite width to this gradient, which are used if it reaches the end of another
    /// stream.
    arrives: Arrived,
}

impl Inside {
    pub(super) fn new(given: Conditional) -> Self {
        Self { given, weights: None, is_of_keys: false, arrives: Arrived::default() }
    }

    pub(super) fn arrives(&self) -> Arrived {
        self.arrives
    }

    pub(super) fn given(&self) -> &Conditional {
        &self.given
    }
}

impl FiniteWidthPass {
    /// Applies a component of a chain that computes queries, keys or values.
    pub(super) fn apply_inside(
        &self,
        of: &Component,
        x: Signal,
        leading: Arc<LeadingSignal>,
        kept: mean_field::Kept,
    ) -> (Signal, Kept) {
        let y = PairMoments::of(&leading);
        let mut inside = x.inside.expect("it is inside");
        let mut stream = Arc::clone(&x.stream);
        // The expansion of queries, keys or values by themselves is only reported; nothing else depends on it.
        if let Component::Linear(linear) = of
            && self.leading.follows_parts()
        {
            let kept = without_bias(linear, &y);
            let mut expansion = (*inside).clone();
            let answer = |slot: &Context<'_>| slot.linear(linear, kept);
            let map = |means| component(linear, ExpansionPoint { x: &x.moments, means }, &y);
            stream = Arc::new(expansion.apply((x.slot, &x.stream), true, map, answer).0);
            inside = Arc::new(expansion);
        }
        let kept = Kept::Inside(kept, self.expansion.fluctuations().clone());
        (Signal { leading, moments: y, stream, slot: x.slot, inside: Some(inside) }, kept)
    }

    /// Goes back through a component of a chain that computes queries, keys or values.
    pub(super) fn apply_backward_inside(
        &mut self,
        at: &Site,
        component: &Component,
        kept: mean_field::Kept,
        fluctuations: &Fluctuations,
        gradient: Gradient,
    ) -> Result<Gradient, PredictError> {
        let Gradient { leading, slot, inside, .. } = gradient;
        let mut inside = inside.expect("it is inside");
        if let (Component::Linear(_), mean_field::Kept::Apply([x, _])) = (component, &kept) {
            let (ln_own, cosine) = inside.given.at(fluctuations);
            let of_input = || coupled(&inside.given, (x, slot), fluctuations, &leading).added(&leading, x);
            let weights = inside.weights.unwrap_or_else(of_input);
            let pair = cosine - levels(&leading.kernel).1;
            let alone = || Beyond { ln_own, pair }.added_alone(&leading);
            let biases = if inside.is_of_keys { ln_own } else { alone() };
            let steps = || finite_width((x, slot), fluctuations, (ln_own, cosine), &leading);
            let steps = if self.leading.steps { steps() } else { FiniteWidth::default() };
            self.leading.added = Added { weights, biases, steps, lacking: 0.0 };
        }
        let output = levels(&leading.kernel).1;
        let leading = self.leading.apply_backward(at, component, kept, leading)?;
        let input = levels(&leading.kernel).1;
        inside.given.cosine.value += input - output;
        Ok(Gradient::new(leading, slot, Some(inside)))
    }
}

/// Returns the gradients at the queries, keys and values of an attention on `x`, from their values at infinite width,
/// `parts`. `of_values` is the correction of finite width to ln E dW² of the weights of values.
///
/// With M = Σ_ab dL/ds_ab x_b x_aᵀ, the weights of keys and queries have the gradients W_Q Mᵀ and W_K M, which are
/// equally large. The weights of values have Σ_a h_a z_aᵀ, with h the gradients at the outputs and z_a = Σ_b A_ab x_b.
/// The corrections to ln E dW² of keys and values therefore follow from those of queries and of outputs. They determine
/// how the gradients of keys and values respond to the overlap of two inputs.
pub(super) fn parts(
    (x, fan): (&Signal, Fan),
    attended: &ExpandedAttention,
    (parts, of_values): (Vec<LeadingGradient>, f64),
    mut given: [Conditional; 3],
) -> Vec<Gradient> {
    let fluctuations = attended.before();
    let at = |given: &Conditional, part| coupled(given, (&x.leading, x.slot), fluctuations, part);
    let of_queries = at(&given[0], &parts[0]).added(&parts[0], &x.leading);
    let reads_x = matches!(fan, Fan::Attention(attention) if attention.memory.is_none());
    let known = [None, Some(of_queries), Some(of_values)];
    for (part, most) in (1..).zip(attended.largest_slopes()) {
        if let Some(known) = known[part].filter(|_| reads_x) {
            let found = at(&given[part], &parts[part]);
            let more = found.pair_for(known, &parts[part], &x.leading) - found.pair;
            given[part].add_pair_slope(x.slot, [more, most], fluctuations);
        }
    }
    let part = |(leading, (part, given)): (LeadingGradient, (usize, Conditional))| {
        let (ln_own, cosine) = given.at(fluctuations);
        let along = if part == 2 { attended.shared_by_keys() } else { 0.0 };
        let arrives = Arrived { ln_own, cosine: cosine - levels(&leading.kernel).1, along };
        let inside = Inside { given, weights: known[part], is_of_keys: part == 1, arrives };
        Gradient::new(leading, x.slot, Some(inside))
    };
    parts.into_iter().zip(given.into_iter().enumerate()).map(part).collect()
}

/// Returns the corrections of finite width to the products of a `gradient` with the signal `x`. `slot` is the index of
/// the stream of `x` among the live streams.
fn coupled(
    given: &Conditional,
    (x, slot): (&LeadingSignal, usize),
    fluctuations: &Fluctuations,
    gradient: &LeadingGradient,
) -> Beyond {
    let leading = PairMoments::of(x).correlation;
    let r = leading + fluctuations.means(slot)[1];
    Beyond::new(Coupling::new(given.clone(), slot, fluctuations, r), leading, gradient)
}
