//! The forward pass of the expansion through a component or a fan, about its moments at infinite width.

use std::sync::Arc;

use sigprop_stack::{Activation, Attention, Component, EmbeddingTerm, Fan, Mixture, Norm, NormKind, PoolKind, Site};

use super::fans::{Joined, Memory};
use super::{FiniteWidthPass, Signal};
use crate::finite_width::attention::{Between, Leading, ScoreMoments};
use crate::finite_width::component::{Answer, Context, without_bias};
use crate::finite_width::entries::EntryMoments;
use crate::finite_width::expansion::Applied;
use crate::finite_width::map::{Gain, Map, component, fan};
use crate::finite_width::stream::Stream;
use crate::finite_width::variables::{ExpansionPoint, PairMoments};
use crate::mean_field::attention::Attended;
use crate::mean_field::batch_norm::BatchNorm;
use crate::mean_field::component::MeanField;
use crate::mean_field::dual::function;
use crate::mean_field::mixture::{Routed, Routing};
use crate::mean_field::pool;
use crate::mean_field::signal::Signal as LeadingSignal;
use crate::predict::tables::Tables;

/// The least number of keys with which attention is expanded. If fewer are in view, this number replaces theirs.
const FEWEST: f64 = 4.0;
/// The largest score variance for which averages over rows are used. The part that all scores of a row have in common
/// does not count.
const SHARPEST: f64 = 100.0;
/// The least 1 − r for which averages over rows are used, where r is the correlation of the inputs of two keys.
const LEAST: f64 = 1e-9;

/// Returns E x²/(E x² + ε), the share of E x² in the square that a norm divides by.
fn normed_share(norm: &Norm, x: &PairMoments) -> f64 {
    1.0 / (1.0 + (norm.eps.ln() - x.ln_level()).exp())
}

/// Returns true if a component subtracts the mean over features.
pub(super) fn centres(component: &Component) -> bool {
    match component {
        Component::Norm(norm) => norm.kind == NormKind::LayerNorm,
        Component::Linear(linear) => linear.standardised.is_some(),
        Component::Activation(_)
        | Component::Convolution(_)
        | Component::Dropout(_)
        | Component::Embedding(_)
        | Component::Pool(_)
        | Component::Prepend(_)
        | Component::Rotary(_)
        | Component::Scale(_)
        | Component::Select(_) => false,
    }
}

impl FiniteWidthPass {
    /// Returns the moments of single entries of the output of an activation for the input `x`. Its second moment and
    /// correlation are rounded to a grid, so that results can be reused. The rounding has no visible effect on terms of
    /// order 1/width.
    fn entries(&mut self, activation: Activation, x: ExpansionPoint<'_>) -> Arc<EntryMoments> {
        /// Grid points per unit of ln E x², and per unit of the correlation of two tokens.
        const STEPS: [f64; 2] = [16.0, 64.0];
        let (level, ln_unit) = x.level();
        let level = level.ln() + ln_unit;
        let level = if function::homogeneous(activation).is_some() { 0.0 } else { (level * STEPS[0]).round() };
        let r = (x.correlation() * STEPS[1]).round();
        let key = (function::words(activation), level as i64, r as i64);
        let new = || Arc::new(EntryMoments::new(activation, (level / STEPS[0]).exp(), r / STEPS[1]));
        Arc::clone(self.moments.entry(key).or_insert_with(new))
    }

    /// Applies a component whose map of the variables follows from its `rule` at infinite width. The variables are ln
    /// |x_a|² and the correlations of tokens, as in `src/finite_width/variables.rs`.
    fn through_rule(
        &mut self,
        rule: &dyn MeanField,
        x: &Signal,
        mixes_entries: bool,
        y: &PairMoments,
        answer: Question<'_>,
    ) -> (Stream, Applied) {
        let map = |means| component(rule, ExpansionPoint { x: &x.moments, means }, y);
        self.expansion.apply((x.slot, &x.stream), mixes_entries, map, answer)
    }

    /// Applies a component that leaves the variables unchanged. `is_drawn` is true if it mixes entries by random
    /// weights.
    fn unchanged(&mut self, x: &Signal, is_drawn: bool, y: &PairMoments, answer: Question<'_>) -> (Stream, Applied) {
        let map = |means| (Map::same(y.correlation, means), Gain::same());
        self.expansion.apply((x.slot, &x.stream), is_drawn, map, answer)
    }

    /// Returns a signal minus its mean over features, and the data that the backward pass needs.
    pub(super) fn centred(&mut self, x: &Signal) -> (Signal, Applied) {
        let leading = Arc::new(LeadingSignal::centred(x.leading.width, x.leading.centred_kernel()));
        let (moments, mean) = (PairMoments::of(&leading), x.moments.mean_share());
        let map = |means| (Map::centred(moments.correlation, means, mean), Gain::same());
        let (stream, applied) = self.expansion.apply((x.slot, &x.stream), false, map, |slot| slot.centred(mean));
        (Signal::new(leading, stream, x.slot), applied)
    }

    /// Applies a component to the signal `x`. `y` has the moments of its output at infinite width. Returns the stream
    /// after the component, and the data that the backward pass needs.
    pub(super) fn expanded(&mut self, component: &Component, x: &Signal, y: &PairMoments) -> (Stream, Applied) {
        if x.moments.is_zero() || y.is_zero() {
            let map = |_| (Map::nothing(y.correlation), Gain::same());
            return self.expansion.apply((x.slot, &x.stream), true, map, |slot| slot.drawn(y.width));
        }
        match component {
            Component::Linear(linear) => {
                let kept = without_bias(linear, y);
                let answer = |slot: &Context<'_>| slot.linear(linear, kept);
                // Without biases, second moments and gradients are only multiplied by factors.
                if kept < 1.0 || linear.standardised.is_some() {
                    self.through_rule(linear, x, true, y, &answer)
                } else {
                    self.unchanged(x, true, y, &answer)
                }
            }
            Component::Norm(norm @ Norm { kind: NormKind::BatchNorm { .. }, .. }) => {
                let about = ExpansionPoint { x: &x.moments, means: self.expansion.means(x.slot) };
                let map = Map::batch_norm(y.correlation, about.correlation(), x.leading.kernel.positions.length);
                let jacobian = map.jacobians[0];
                let map = |_| (map, Gain::batch_norm());
                let squares = BatchNorm::square_variance(norm, &x.leading.kernel);
                self.expansion.apply((x.slot, &x.stream), false, map, |slot| slot.batch_norm(&jacobian, squares))
            }
            Component::Norm(norm) => {
                let share = normed_share(norm, &x.moments);
                self.through_rule(norm, x, true, y, &|slot| slot.norm(norm, share))
            }
            Component::Dropout(dropout) => self.through_rule(dropout, x, false, y, &|slot| slot.dropout(*dropout)),
            // Sinusoidal waves depend on positions.
            Component::Embedding(EmbeddingTerm::SinusoidalPosition { .. }) => {
                let share = (x.moments.ln_level() - y.ln_level()).exp();
                let fixed = (y.correlation - share * x.moments.correlation) / (1.0 - share);
                let map = |means| (Map::diluted(y.correlation, means, share), Gain::same());
                let answer = |slot: &Context<'_>| slot.fixed([1.0 - share, fixed]);
                self.expansion.apply((x.slot, &x.stream), false, map, answer)
            }
            Component::Embedding(term) => {
                let share = (x.moments.ln_level() - y.ln_level()).exp();
                self.through_rule(term, x, false, y, &|slot| slot.added(share))
            }
            Component::Activation(activation) => {
                let means = self.expansion.means(x.slot);
                let moments = self.entries(*activation, ExpansionPoint { x: &x.moments, means });
                let dual = Tables::dual(*activation);
                self.through_rule(&*dual, x, false, y, &|slot| slot.activation(&moments, y.mean_share()))
            }
            Component::Convolution(convolution) => {
                let bias = convolution.bias.as_ref().map_or(0.0, |bias| bias.init.variance());
                let share = if bias > 0.0 { 1.0 - bias * (-y.ln_level()).exp() } else { 1.0 };
                let taps = convolution.image.map_or(1.0, |_| convolution.taps() as f64);
                let map = |means| (Map::of_windows(y.correlation, means, share, taps), Gain::same());
                self.expansion.apply((x.slot, &x.stream), true, map, |slot| slot.convolution(convolution))
            }
            Component::Select(select) => self.unchanged(x, false, y, &|slot| slot.select(*select)),
            Component::Pool(pool) => {
                let count = pool.sliding().taps() as f64;
                let map = |means| (Map::of_windows(y.correlation, means, 1.0, count), Gain::same());
                match pool.kind {
                    PoolKind::Average => {
                        let answer = |slot: &Context<'_>| slot.unchanged();
                        self.expansion.apply((x.slot, &x.stream), false, map, answer)
                    }
                    PoolKind::Max { activation } => {
                        let rule = pool::Rule::new(pool, &x.leading.kernel.positions);
                        let four_points = [0.0, 1.0].map(|centre| rule.four_point(&x.leading, activation, centre));
                        let windows = pool.sliding().windows(x.leading.kernel.positions.length as usize) as f64;
                        let answer = |slot: &Context<'_>| slot.maximum(four_points, y.mean_share(), windows);
                        self.expansion.apply((x.slot, &x.stream), false, map, answer)
                    }
                }
            }
            Component::Rotary(_) | Component::Prepend(_) | Component::Scale(_) => {
                self.unchanged(x, false, y, &|slot| slot.unchanged())
            }
        }
    }

    /// Applies an attention to the input `x`. `attended` has its moments at infinite width, and `y` those of its
    /// output. `memory` has the moments of the stream of keys and values, if this is not the stream of `x`.
    pub(super) fn attended(
        &mut self,
        attention: &Attention,
        x: &Signal,
        ([query, key], memory): ([&Signal; 2], Option<&Memory>),
        attended: &Attended,
        y: &PairMoments,
    ) -> (Stream, Joined) {
        let means = self.expansion.means(x.slot);
        let queries = ExpansionPoint { x: &x.moments, means };
        let keys = memory.map_or(queries, |Memory { moments, means, .. }| ExpansionPoint { x: moments, means: *means });
        let of_keys = memory.map_or_else(|| self.expansion.covariance(x.slot, &x.stream), |memory| memory.covariance);
        let r = keys.correlation();
        let apart = 1.0 - r;
        let moved = means[0] + keys.means[0];
        let [_, _, in_view] = attended.sharpness();
        let count = in_view.max(FEWEST);
        let [of_query, of_key] = [query, key].map(|part| part.moments.ln_level());
        let score = attention.scale.powi(2) * attention.d_head as f64 * (of_query + of_key + moved).exp();
        let is_in_range = apart > LEAST && score * apart <= SHARPEST;
        let leading = is_in_range.then(|| Leading::new(attention, Between { queries, keys }, y, count)).flatten();
        let Some(leading) = leading else {
            let map = |means| {
                let map = if memory.is_some() { Map::nothing(y.correlation) } else { Map::same(y.correlation, means) };
                (map, Gain::same())
            };
            let (stream, applied) = self.expansion.apply((x.slot, &x.stream), true, map, |slot| slot.drawn(y.width));
            return (stream, Joined::Redrawn(Box::new(applied)));
        };
        let leading = if memory.is_some() { leading.constant() } else { leading };
        let (turned, contents) = (attended.rotation_in_view(), attended.content_shares());
        let scores = ScoreMoments { variance: score, keys: count, turned, contents };
        let (stream, expanded) = self.expansion.attend(
            (x.slot, &x.stream),
            ((&of_keys, r), memory.is_some()),
            (attention, scores),
            leading,
            y.width,
        );
        (stream, Joined::Attention(Box::new(expanded)))
    }

    /// Applies a recurrence to the input `x`; `y` are the moments of its output at infinite width. The output counts as
    /// newly sampled entries whose size does not depend on `x`, as it does not after a norm.
    pub(super) fn recurred(&mut self, x: &Signal, y: &PairMoments) -> (Stream, Joined) {
        let map = |_| (Map::nothing(y.correlation), Gain::same());
        let (stream, applied) = self.expansion.apply((x.slot, &x.stream), true, map, |slot| slot.drawn(y.width));
        (stream, Joined::Redrawn(Box::new(applied)))
    }

    /// Applies a mixture. `parts` are the input of its router and the output of the expert that represents all experts.
    pub(super) fn routed(
        &mut self,
        (mixture, routing): (&Mixture, &Routing),
        parts: [&Signal; 2],
        y: &PairMoments,
    ) -> (Stream, Joined) {
        let before = self.expansion.fluctuations().clone();
        let rule = Routed(mixture, routing);
        let map = |means: &[[f64; 2]]| {
            let about = [0, 1].map(|part: usize| ExpansionPoint { x: &parts[part].moments, means: means[part] });
            fan(&rule, &about, y)
        };
        let streams = parts.map(|part| (*part.stream).clone());
        let means = parts.map(|part| part.moments.mean_share());
        let ratio = (y.ln_level() - parts[0].moments.ln_level()).exp();
        let x = &streams[0].clone();
        let slots = parts.map(|part| part.slot);
        let (stream, merged) = self.expansion.sum(x, &slots, streams.into(), map, (ratio, &means));
        (stream, Joined::Routed(Box::new(merged), before))
    }

    /// Merges the outputs `parts` of the chains of a sum, a product or a concatenation with the input `x`.
    pub(super) fn merged(
        &mut self,
        at: &Site,
        of: Fan,
        x: &Signal,
        parts: &[Signal],
        y: &PairMoments,
    ) -> (Stream, Joined) {
        let slots: Vec<usize> = parts.iter().map(|part| part.slot).collect();
        let streams: Vec<Stream> = parts.iter().map(|part| (*part.stream).clone()).collect();
        let about = |means: &[[f64; 2]]| -> Vec<ExpansionPoint<'_>> {
            parts.iter().zip(means).map(|(part, &means)| ExpansionPoint { x: &part.moments, means }).collect()
        };
        let means: Vec<f64> = parts.iter().map(|part| part.moments.mean_share()).collect();
        let ratio = (y.ln_level() - x.moments.ln_level()).exp();
        let (stream, merged) = match of {
            Fan::Sum(sum) => {
                let sum = self.leading.with_kept_branches(at, sum);
                let map = |means: &[[f64; 2]]| fan(&sum, &about(means), y);
                self.expansion.sum(&x.stream, &slots, streams, map, (ratio, &means))
            }
            Fan::Concat(concat) => {
                let map = |means: &[[f64; 2]]| fan(concat, &about(means), y);
                self.expansion.sum(&x.stream, &slots, streams, map, (ratio, &means))
            }
            Fan::Product(product) => {
                let map = |means: &[[f64; 2]]| fan(product, &about(means), y);
                self.expansion.product(&x.stream, &slots, &streams, map, [y.mean_share(), ratio])
            }
            Fan::Mixture(_) | Fan::Attention(_) | Fan::Recurrence(_) => unreachable!("they have rules of their own"),
        };
        (stream, Joined::Parts(Box::new(merged)))
    }
}

/// A function that returns the terms of finite width that a component adds to its map of the variables.
type Question<'q> = &'q dyn Fn(&Context<'_>) -> Answer;
