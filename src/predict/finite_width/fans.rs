//! Fans at finite width: parts fork from a common input and are merged; gradients are split and joined. A fan is an
//! operation with several chains on a common input, such as a sum or an attention (`Fan` in `stack/src/traverse.rs`).

use std::sync::Arc;

use sigprop_stack::{Component, Fan, Init, Interpreter, Mixture, Node, Op, Site};

use super::inside::{self, Inside};
use super::{FiniteWidthPass, Gradient, Kept, Signal};
use crate::caveat::Condition;
use crate::finite_width::attention::AtPath;
use crate::finite_width::expansion::{Applied, ExpandedAttention, Merged};
use crate::finite_width::forward::Fluctuations;
use crate::finite_width::gradients::{Cosines, Ends};
use crate::finite_width::stream;
use crate::finite_width::variables::{Matrix, PairMoments, R_AB, levels};
use crate::logarithms::ln_sum;
use crate::mean_field::gradient::Gradient as LeadingGradient;
use crate::mean_field::mixture;
use crate::predict::PredictError;
use crate::predict::mean_field::{self, Added};

/// The data of the forward pass of a fan that its backward pass needs.
pub(in crate::predict) struct KeptFan {
    x: Signal,
    merged: Joined,
    forked: Forked,
    /// ln E |g_a|² of the gradient g at the output of the fan, and the cosine E g_a·g_b/E |g_a|² of two tokens a and b,
    /// both at infinite width. They are set in the backward pass.
    output: (f64, f64),
}

/// The result of merging the parts of a fan, by the kind of fan.
pub(super) enum Joined {
    Parts(Box<Merged>),
    Attention(Box<ExpandedAttention>),
    /// An attention whose scores vary too much for averages over rows, or a recurrence. Its output counts as newly
    /// sampled entries.
    Redrawn(Box<Applied>),
    /// A mixture: the merged parts (input of the router, representative expert), and the fluctuations before the merge.
    Routed(Box<Merged>, Fluctuations),
    /// A fan inside the queries, keys or values of an attention.
    Inside,
}

/// The changes of the expansion when the input of a fan forks into the inputs of its parts.
#[derive(Default)]
pub(super) struct Forked {
    /// The covariance of the noise that the entries of the common input added before the fork; `None` if they added
    /// none.
    drawn: Option<Matrix>,
    copied: Vec<usize>,
    memory: Option<Memory>,
    /// The common input of the parts, after its entries have added their noise.
    settled: Option<Arc<stream::Stream>>,
    /// The fluctuations at the common input, with this noise; `None` before the fork.
    before: Option<Fluctuations>,
}

/// The moments of the memory of an attention: the stream of its keys and values, if its queries are from another
/// stream.
pub(super) struct Memory {
    pub(super) moments: PairMoments,
    pub(super) means: [f64; 2],
    pub(super) covariance: Matrix,
}

impl FiniteWidthPass {
    /// Returns the input of part number `part` of a fan, given the input of the fan.
    pub(super) fn part_input(&mut self, at: &Site, fan: Fan, input: &Signal, part: usize) -> Signal {
        let leading = self.leading.fork(at, fan, &input.leading, part);
        let moments = PairMoments::of(&leading);
        if input.inside.is_some() {
            return Signal { leading, moments, ..input.clone() };
        }
        let mut stream = (*input.stream).clone();
        let mut slot = input.slot;
        let memory = match fan {
            Fan::Attention(attention) => attention.memory.filter(|_| part > 0),
            Fan::Sum(_) | Fan::Product(_) | Fan::Concat(_) | Fan::Recurrence(_) | Fan::Mixture(_) => None,
        };
        let is_inside = matches!(fan, Fan::Attention(_) | Fan::Recurrence(_));
        if part == 0 {
            let (settled, drawn) = self.expansion.draw_before_fork(slot, &stream);
            stream = settled;
            let settled = Some(Arc::new(stream.clone()));
            let before = Some(self.expansion.fluctuations().clone());
            self.forks.push(Forked { drawn, settled, before, ..Forked::default() });
        }
        // The router of a mixture reads the input itself, and the expert a copy. The expert at its other inputs is
        // followed at infinite width alone.
        let is_mixture = matches!(fan, Fan::Mixture(_));
        let is_again = is_mixture && part > 0;
        let is_copy = if is_mixture { part == 0 } else { part > 0 && !is_inside };
        if is_copy {
            self.forks.last_mut().expect("the first part opened it").copied.push(slot);
            slot = self.expansion.fork(slot);
        }
        if memory.is_none() {
            stream = stream::Stream { drawn: None, susceptibility: [1.0; 3], ..stream };
        }
        let around = memory.map_or(&self.expansion, |memory| &self.away[memory + 1].expansion);
        if memory.is_some() {
            let (means, covariance) = (around.means(slot), around.covariance(slot, &stream));
            let memory = Memory { moments: input.moments, means, covariance };
            self.forks.last_mut().expect("the first part opened it").memory = Some(memory);
        }
        let inside = (is_inside || is_again).then(|| Arc::new(around.clone()));
        Signal { leading, moments, stream: Arc::new(stream), slot, inside }
    }

    /// Returns the variance of the cosine of two tokens at the input of a recurrence; 0 for other fans.
    fn cosine_variance(&self, fan: Fan, slot: usize) -> f64 {
        let settled = self.forks.last().and_then(|forked| forked.settled.as_ref());
        match (fan, settled) {
            (Fan::Recurrence(_), Some(stream)) => self.expansion.covariance(slot, stream)[(R_AB, R_AB)],
            (Fan::Recurrence(_), None)
            | (Fan::Sum(_) | Fan::Product(_) | Fan::Concat(_) | Fan::Attention(_) | Fan::Mixture(_), _) => 0.0,
        }
    }

    /// Returns the output of a fan, and the data for its backward pass.
    pub(super) fn merge_parts(
        &mut self,
        at: &Site,
        fan: Fan,
        x: Signal,
        parts: Vec<Signal>,
    ) -> Result<(Signal, Kept), PredictError> {
        let of_parts = parts.iter().map(|part| Arc::clone(&part.leading)).collect();
        self.leading.cosine_variance = self.cosine_variance(fan, x.slot);
        let (leading, kept) = self.leading.merge(at, fan, Arc::clone(&x.leading), of_parts)?;
        let y = PairMoments::of(&leading);
        if x.inside.is_some() {
            let fan = KeptFan { x, merged: Joined::Inside, forked: Forked::default(), output: (0.0, 0.0) };
            let part = parts.into_iter().next().expect("a fan has parts");
            return Ok((Signal { leading, moments: y, ..part }, Kept::Fan(kept, Box::new(fan))));
        }
        let mut forked = self.forks.pop().expect("the fan was opened");
        let stream = forked.settled.take().expect("the first part settled it");
        let x = Signal { stream, ..x };
        let (stream, merged) = match (fan, &kept) {
            (Fan::Attention(attention), mean_field::Kept::Attention(attended)) => {
                let without_sink = attention.sink.as_ref().map(|sink| {
                    let between_heads = (sink.init.variance() / attention.n_heads as f64).sqrt();
                    Condition::SinkWidth(between_heads.max((attention.d_head as f64).recip()))
                });
                self.leading.rows.caveat(at, without_sink);
                let is_orthogonal =
                    [&attention.query, &attention.key, &attention.value].into_iter().any(|body| has_orthogonal(body));
                let values = (attention.n_heads * attention.d_value) as f64;
                let as_gaussian = is_orthogonal.then(|| Condition::OrthogonalAttention((2.0 / values).sqrt()));
                self.leading.rows.caveat(at, as_gaussian);
                self.attended(attention, &x, ([&parts[0], &parts[1]], forked.memory.as_ref()), attended, &y)
            }
            (Fan::Recurrence(_), _) => {
                self.leading.rows.caveat(at, Some(Condition::RecurrenceWidth));
                self.recurred(&x, &y)
            }
            (Fan::Mixture(mixture), mean_field::Kept::Mixture(routing, (_, experts), _)) => {
                self.routed((mixture, &routing.of_one(experts)), [&x, &parts[0]], &y)
            }
            _ => self.merged(at, fan, &x, &parts, &y),
        };
        let slot = x.slot;
        let fan = KeptFan { x, merged, forked, output: (0.0, 0.0) };
        Ok((Signal::new(leading, stream, slot), Kept::Fan(kept, Box::new(fan))))
    }

    /// Returns the gradients at the outputs of the parts of a fan.
    pub(super) fn split_parts(
        &mut self,
        at: &Site,
        fan: Fan,
        (kept, of_fan): (&mut mean_field::Kept, &mut KeptFan),
        gradient: Gradient,
    ) -> Result<Vec<Gradient>, PredictError> {
        let KeptFan { x, merged, output: at_output, .. } = of_fan;
        self.start(at, &gradient, x.moments.width);
        *at_output = levels(&gradient.leading.kernel);
        let output = at_output.1;
        let Gradient { leading, inside, slot, .. } = gradient;
        let of_values = match (&*merged, &*kept) {
            (Joined::Attention(expanded), mean_field::Kept::Attention(attended)) => {
                self.of_values(expanded, &attended.output(), &leading)
            }
            _ => 0.0,
        };
        if let (Fan::Mixture(mixture), Joined::Routed(merged, fluctuations)) = (fan, &mut *merged) {
            self.split_mixture(mixture, kept, (merged, fluctuations), &leading);
        }
        if let Joined::Attention(expanded) = &*merged {
            let [weights, radial] = self.expansion.behind(expanded);
            self.leading.added = Added { weights, lacking: 1.0 - radial, ..Added::default() };
        }
        let parts = self.leading.split(at, fan, kept, leading)?;
        let cosine = |part: &LeadingGradient| Cosines { output, input: levels(&part.kernel).1 };
        let of = |leading, slot| Gradient::new(leading, slot, None);
        Ok(match merged {
            Joined::Parts(merged) => {
                let cosines: Vec<Cosines> = parts.iter().map(cosine).collect();
                self.expansion.split(merged, matches!(fan, Fan::Product(_)), &cosines);
                parts.into_iter().zip(merged.slots()).map(|(part, &slot)| of(part, slot)).collect()
            }
            Joined::Attention(attended) => {
                let of_path = |part: &LeadingGradient| AtPath {
                    cosines: cosine(part),
                    ln_gain: levels(&part.kernel).0 - at_output.0,
                };
                let leading = [0, 1, 2].map(|part: usize| of_path(&parts[part]));
                let given = self.expansion.attend_split(attended, leading);
                inside::parts((x, fan), attended, (parts, of_values), given)
            }
            Joined::Redrawn(_) => {
                let given = self.expansion.given(slot);
                let part = |leading: LeadingGradient| {
                    let (_, cosine) = levels(&leading.kernel);
                    Gradient::new(leading, slot, Some(Inside::new(given.with_cosine(cosine))))
                };
                parts.into_iter().map(part).collect()
            }
            Joined::Routed(merged, _) => {
                let expert = merged.slots()[1];
                let given = self.expansion.given(expert);
                let again = |leading: LeadingGradient| {
                    let (_, cosine) = levels(&leading.kernel);
                    Gradient::new(leading, expert, Some(Inside::new(given.with_cosine(cosine))))
                };
                let mut parts = parts.into_iter();
                let first = parts.next().map(|part| of(part, expert));
                first.into_iter().chain(parts.map(again)).collect()
            }
            Joined::Inside => parts.into_iter().map(|leading| Gradient::new(leading, slot, inside.clone())).collect(),
        })
    }

    /// Goes back from the output of a mixture to the scores of its router and to its representative expert. Sets the
    /// correction of finite width for the weights of the router.
    fn split_mixture(
        &mut self,
        mixture: &Mixture,
        kept: &mean_field::Kept,
        (merged, fluctuations): (&mut Merged, &Fluctuations),
        gradient: &LeadingGradient,
    ) {
        let mean_field::Kept::Mixture(routing, (x, experts), _) = kept else { unreachable!("of a mixture") };
        let (scores, experts) = mixture::split(mixture, routing, (x, experts), gradient);
        let output = levels(&gradient.kernel).1;
        let cosines = [&scores, &experts[0]].map(|part| Cosines { output, input: levels(&part.kernel).1 });
        self.expansion.split(merged, false, &cosines);
        self.leading.added = self.of_router((x, merged.slots()[0]), fluctuations, &scores);
    }

    /// Scales the gradients of the parts of a fan, whose ln E |g_a|² are `levels`, so that their relative sizes are
    /// those at finite width. The sum of E |g_a|² over the parts does not change.
    fn weigh(
        &self,
        (merged, forked): (&Joined, &Forked),
        inside: &[Option<Inside>],
        (parts, levels): (&mut [LeadingGradient], &[f64]),
    ) {
        let added: Vec<f64> = match merged {
            Joined::Parts(merged) => {
                let before = forked.before.as_ref().expect("the first part set it");
                let of_input = |&slot: &usize| {
                    let mut given = self.expansion.given(slot).clone();
                    forked.copied.iter().rev().for_each(|&copied| given.join_copy(copied));
                    given.at(before).0
                };
                merged.slots().iter().map(of_input).collect()
            }
            Joined::Attention(attended) => {
                let of_input =
                    |part: &Option<Inside>| part.as_ref().expect("it is inside").given().at(attended.before()).0;
                inside.iter().map(of_input).collect()
            }
            Joined::Redrawn(_) | Joined::Routed(..) | Joined::Inside => return,
        };
        let more = ln_sum(levels.iter().zip(&added).map(|(level, added)| level + added));
        let total = ln_sum(levels.iter().copied());
        if !(more - total).is_finite() {
            return;
        }
        for (part, added) in parts.iter_mut().zip(added) {
            part.kernel.ln_unit += added - (more - total);
        }
    }

    /// Returns the gradient at the input of a fan.
    pub(super) fn join_parts(
        &mut self,
        at: &Site,
        fan: Fan,
        (kept, of_fan): (mean_field::Kept, KeptFan),
        parts: Vec<Gradient>,
    ) -> Result<Gradient, PredictError> {
        let KeptFan { x, merged, forked, output } = of_fan;
        let of_parts: Vec<f64> = parts.iter().map(|part| levels(&part.leading.kernel).0).collect();
        let inside: Vec<Option<Inside>> = parts.iter().map(|part| part.inside.clone()).collect();
        let mut parts: Vec<LeadingGradient> = parts.into_iter().map(|part| part.leading).collect();
        let of_mixture = match &kept {
            mean_field::Kept::Mixture(routing, _, Some(back)) => {
                let experts = ln_sum(routing.backward(&parts).iter().map(|part| levels(&part.kernel).0));
                vec![levels(&back.kernel).0, experts]
            }
            _ => Vec::new(),
        };
        self.weigh((&merged, &forked), &inside, (&mut parts, &of_parts));
        let leading = self.leading.join(at, fan, kept, parts)?;
        let (own, cosine) = levels(&leading.kernel);
        match merged {
            Joined::Parts(merged) => {
                let ends = Ends { parts: of_parts, ln_ratio: output.0 - own };
                self.expansion.join(&merged, &forked.copied, x.moments.width, &ends);
            }
            Joined::Attention(attended) => {
                // Keys and values that read another stream send no gradient to this one.
                let part = |part: usize| inside.get(part).unwrap_or(&inside[0]).as_ref().expect("it is inside").given();
                let level = |part: usize| of_parts.get(part).copied().unwrap_or(f64::NEG_INFINITY);
                self.expansion.attend_join(&attended, [0, 1, 2].map(part), [0, 1, 2].map(level));
            }
            Joined::Redrawn(applied) => {
                self.expansion.apply_backward(*applied, Cosines { output: output.1, input: cosine });
            }
            Joined::Routed(merged, _) => {
                let ends = Ends { parts: of_mixture, ln_ratio: output.0 - own };
                self.expansion.join(&merged, &forked.copied, x.moments.width, &ends);
            }
            Joined::Inside => {
                let inside = inside.into_iter().next().expect("a fan has parts");
                return Ok(Gradient::new(leading, x.slot, inside));
            }
        }
        self.expansion.settle_backward(x.slot, forked.drawn.as_ref());
        Ok(Gradient::new(leading, x.slot, None))
    }
}

/// Returns true if a linear map in `body` has an orthogonal weight.
fn has_orthogonal(body: &[Node]) -> bool {
    let is_orthogonal = |node: &Node| matches!(&node.op, Op::Apply(Component::Linear(map)) if matches!(map.weight.init, Init::Orthogonal { .. }));
    body.iter().any(|node| is_orthogonal(node) || node.op.bodies().any(has_orthogonal))
}
