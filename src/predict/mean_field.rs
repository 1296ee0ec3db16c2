//! The infinitely wide network as an interpreter of stacks.

use std::mem::take;
use std::sync::Arc;

use sigprop_stack::{
    Activation, Attention, Branch, Component, Fan, GradientSeed, Interpreter, Linear, Mixture, Norm, PositionBias,
    ScaleParameter, Site, Source, Stack, Stream, Sum, Tensor, run,
};

use super::masks::Masks;
use super::pooled::Pooled;
use super::reads::joined;
use super::rows::{LinearNote, Rows, ScaleNote, Sharpness, WeightNote};
use super::tables::Tables;
use super::{PredictError, Sites};
use crate::caveat::Condition;
use crate::mean_field::attention::{self, Attended, FlatWeights, Operators, Rotated, View, sinks, slopes};
use crate::mean_field::batch_norm::BatchNorm;
use crate::mean_field::component::{MeanFieldFan as _, Parameter};
use crate::mean_field::dual::shape::shape;
use crate::mean_field::embedding;
use crate::mean_field::gradient::Gradient;
use crate::mean_field::heads::Shares;
use crate::mean_field::kernel::Kernel;
use crate::mean_field::mixture::{self, Routing};
use crate::mean_field::pool;
use crate::mean_field::positions::{
    Chart, Grading, Positions,
    layout::{Layout, hides_nothing},
};
use crate::mean_field::recurrence::Recurred;
use crate::mean_field::rule::Rule;
use crate::mean_field::shifted::Shifted;
use crate::mean_field::signal::Signal;
use crate::mean_field::steps::{FiniteWidth, Steps};

/// The largest number of passes with different masks of stochastic depth.
pub(super) const PASSES: usize = 64;

/// The score variance up to which attention was compared with sampled networks.
const LARGEST_SCORE: f64 = 16.0;
/// The largest score variance of the common part of neighbouring keys that has no caveat. Beyond it, predictions for
/// rows whose keys are equal are off by 10 % or more.
const LARGEST_SMOOTH_SCORE: f64 = 0.7;
/// The largest mean, relative to the root of the second moment, that has no caveat.
const SMALL_MEAN: f64 = 1e-3;

/// The share of the output of a recurrence below which its state counts as idle.
const IDLE: f64 = 0.01;

/// The largest share by which a norm after few heads of a recurrence may be off and has no caveat, and the largest share
/// of a value that later writes erase.
const FEW_HEADS: f64 = 0.1;
const ERASED: f64 = 0.4;

/// A pass of the moments of the infinitely wide network through a stack.
pub(crate) struct MeanFieldPass {
    sites: Sites,
    /// The correlation between tokens of equal ids in the gradients that start the backward pass; `None` if it is the
    /// same as between other tokens.
    same_ids: Option<f64>,
    /// The positions that every stream distinguishes.
    layouts: Vec<Layout>,
    /// The number of streams entered in this pass. `positions` are the positions of all streams entered so far in any
    /// pass.
    streams: usize,
    positions: Vec<Arc<Positions>>,
    tables: Arc<Tables>,
    /// The routings computed so far: the mixture, the standard deviation of its scores, and its routing.
    routings: Vec<(Mixture, f64, Arc<Routing>)>,
    /// Inside a mixture, the number of experts that the one traversed expert represents.
    experts: f64,
    pub(super) masks: Masks,
    /// True if the effects of first optimiser steps are predicted.
    pub(super) steps: bool,
    /// The variance of the cosine of two tokens between networks, at the input of the recurrence that is next; 0 at
    /// infinite width.
    pub(super) cosine_variance: f64,
    /// Corrections of finite width for the parameters that are written next.
    pub(super) added: Added,
    pub(super) rows: Rows,
}

/// Corrections of finite width for the parameters of a component: to ln E dW² of `weights` that multiply a signal, and
/// to ln E db² of `biases` that are added to a signal.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Added {
    pub(super) weights: f64,
    pub(super) biases: f64,
    /// Corrections to the effects of first optimiser steps.
    pub(super) steps: FiniteWidth,
    /// 1 − ρ at the output of an attention, where ρ is the second moment of the gradient along this output, relative to
    /// an isotropic gradient.
    pub(super) lacking: f64,
}

/// The data that the backward pass of a node needs.
pub(crate) enum Kept {
    Apply([Arc<Signal>; 2]),
    /// A norm that consists of several components, such as DyT.
    Steps(Vec<Kept>),
    Fan(Arc<Signal>, Vec<Arc<Signal>>),
    Attention(Arc<Attended>),
    Recurrence(Arc<Recurred>),
    /// A mixture: its routing; the signals at its input and at the outputs of its representative expert; and the
    /// gradient from the router, which is `None` before the backward pass.
    Mixture(Arc<Routing>, (Arc<Signal>, Vec<Arc<Signal>>), Option<Box<Gradient>>),
}

impl MeanFieldPass {
    /// Returns a pass before the first stream of `stack`. `ids` are the given ids, one sequence per stream, empty where
    /// ids are sampled.
    pub(crate) fn new(
        stack: &Stack,
        sites: Sites,
        grading: Option<Grading>,
        (same_ids, segment): (Option<f64>, Option<f64>),
        ids: &[Vec<u32>],
    ) -> Self {
        let layouts = (0..stack.streams.len()).map(|index| layout(stack, index, (grading, segment), ids)).collect();
        Self {
            sites,
            same_ids,
            layouts,
            streams: 0,
            positions: Vec::new(),
            tables: Arc::default(),
            routings: Vec::new(),
            experts: 1.0,
            masks: Masks::told_on(1),
            steps: false,
            cosine_variance: 0.0,
            added: Added::default(),
            rows: Rows::default(),
        }
    }

    /// Returns this pass with `tables`, which other passes use, too.
    pub(super) fn sharing(self, tables: &Arc<Tables>) -> Self {
        Self { tables: Arc::clone(tables), ..self }
    }

    /// Sets if the effects of first optimiser steps are predicted.
    pub(crate) fn asked(self, steps: bool) -> Self {
        Self { steps, ..self }
    }

    /// Passes through `stack` and returns the rows, averaged over masks of stochastic depth.
    pub(crate) fn through(mut self, stack: &Stack) -> Result<Rows, PredictError> {
        self.masks = Masks::told_on(PASSES);
        let mut passes = Vec::new();
        loop {
            run(stack, &mut self)?;
            passes.push((self.masks.weight(), take(&mut self.rows)));
            if !self.again() {
                return Ok(Rows::of_all(passes));
            }
        }
    }

    /// Starts the next pass, which drops other branches. Returns false if no pass is left.
    pub(super) fn again(&mut self) -> bool {
        self.streams = 0;
        self.masks.next()
    }

    /// Returns the signal at the start of a stream.
    pub(super) fn enter(&mut self, stream: &Stream) -> Arc<Signal> {
        let place = self.streams;
        self.streams += 1;
        if place == self.positions.len() {
            self.positions.push(self.tables.positions(&self.layouts[place]));
        }
        let positions = Arc::clone(&self.positions[place]);
        if positions.chart.is_some() && positions.nodes() < stream.seq_len {
            self.rows.graded(positions.nodes(), stream.seq_len);
        }
        Arc::new(match &stream.source {
            Source::Gaussian(gaussian) => embedding::gaussian(gaussian, &positions),
            Source::Embedding(source) => embedding::embedded(source, &positions),
        })
    }

    /// Returns true if sites inside blocks are reported.
    pub(super) fn follows_parts(&self) -> bool {
        self.sites == Sites::All
    }

    pub(super) fn tells(&self, at: &Site) -> bool {
        self.follows_parts() || at.is_stream_site()
    }

    /// Returns the output of a component with one input, and the data for its backward pass.
    fn through_component(&mut self, component: &Component, x: Arc<Signal>) -> (Arc<Signal>, Kept) {
        if let Component::Norm(norm) = component
            && let Some(steps) = norm.steps()
        {
            let (mut y, mut kept) = (x, Vec::with_capacity(steps.len()));
            for step in &steps {
                let (output, of_step) = self.through_component(step, y);
                kept.push(of_step);
                y = output;
            }
            return (Arc::new(last_step(norm, &y)), Kept::Steps(kept));
        }
        let y = Arc::new(self.rule(component, &x).forward(&x));
        (Arc::clone(&y), Kept::Apply([x, y]))
    }

    /// Returns the rule of a component with the input `x`.
    pub(super) fn rule<'c>(&self, component: &'c Component, x: &Signal) -> Rule<'c> {
        match component {
            Component::Linear(linear) => Rule::Component(linear),
            Component::Norm(norm) => BatchNorm::of(norm).map_or(Rule::Component(norm), Rule::BatchNorm),
            Component::Dropout(dropout) => Rule::Component(dropout),
            Component::Scale(scale) => Rule::Component(scale),
            Component::Embedding(term) => Rule::Component(term),
            Component::Prepend(prepend) => Rule::Component(prepend),
            Component::Select(select) => Rule::Component(select),
            Component::Activation(activation) if follows_mean(x) => Rule::Shared(Arc::new(Shifted(*activation))),
            Component::Activation(activation) => Rule::Shared(Tables::dual(*activation)),
            Component::Rotary(rotary) => Rule::Shared(Arc::new(self.tables.turn(rotary, chart(x)))),
            Component::Pool(pool) => Rule::Shared(Arc::new(pool::Rule::new(pool, &x.kernel.positions))),
            Component::Convolution(convolution) => {
                Rule::Shared(self.tables.convolution(convolution, &x.kernel.positions))
            }
        }
    }

    fn attend(&mut self, at: &Site, attention: &Attention, parts: Vec<Arc<Signal>>) -> Result<Attended, PredictError> {
        let has_slopes = matches!(attention.bias, Some(PositionBias::Alibi { .. }));
        if has_slopes && attention.memory.is_some() {
            return Err(not_followed(at, "ALiBi towards another stream"));
        }
        if attention.sink.is_some() && attention.memory.is_some() {
            return Err(not_followed(at, "attention sinks towards another stream"));
        }
        if attention.sink.is_some() && has_slopes {
            return Err(not_followed(at, "attention sinks with ALiBi"));
        }
        let parts: [Arc<Signal>; 3] = parts.try_into().expect("attention has the parts query, key, value");
        let views = self.views(attention, [&parts[0], &parts[1]]);
        let is_everywhere =
            attention.memory.is_none() && views.iter().all(|(_, view)| matches!(view, View::Everywhere));
        if matches!(attention.bias, Some(PositionBias::Disentangled(_))) && !is_everywhere {
            return Err(not_followed(at, "scores with relative positions where some keys are not seen"));
        }
        let attended = Attended::new(attention, &views, parts);
        let [ln_score, attended_keys, in_view] = attended.sharpness();
        self.rows.attention(at, Sharpness { ln_score, attended: attended_keys, in_view });
        self.rows.caveat(at, (ln_score > LARGEST_SCORE.ln()).then(|| Condition::SharpAttention(ln_score.exp())));
        let smooth = attended.smooth_variance();
        self.rows.caveat(at, (smooth > LARGEST_SMOOTH_SCORE).then_some(Condition::SmoothScores(smooth)));
        if self.follows_parts() && !at.recomputing() {
            let weights = attended.weights();
            let pooled = Pooled { ends: None, ..pooled(&weights.kernel, |node| weights.mean(node)) };
            self.rows.signal((at.layer(), at.sibling("softmax")), false, pooled);
        }
        Ok(attended)
    }

    /// Returns the views of the heads of an attention, each with the share of heads that have it. A view is the set of
    /// keys that a query attends to, with their decay by ALiBi and the weight of a sink.
    fn views(&self, attention: &Attention, parts: [&Signal; 2]) -> Vec<(f64, View)> {
        let slopes = match &attention.bias {
            Some(PositionBias::Alibi { slopes }) => slopes::few(slopes),
            Some(PositionBias::Relative { .. } | PositionBias::Disentangled(_)) | None => vec![(1.0, 0.0)],
        };
        let sinks = attention.sink.as_ref().map_or_else(|| vec![(1.0, 0.0)], |sink| sinks::few(sink.init.variance()));
        let mask = attention.mask;
        let views = slopes.into_iter().flat_map(|(share, slope)| {
            sinks.iter().map(move |(of_sink, sink)| (share * of_sink, FlatWeights { mask, slope, sink: *sink }))
        });
        views.map(|(share, weights)| (share, self.view(weights, parts))).collect()
    }

    fn view(&self, weights: FlatWeights, [query, key]: [&Signal; 2]) -> View {
        let rotation = attention::rotation(query, key);
        let Some(chart) = &query.kernel.positions.chart else { return View::Everywhere };
        let is_flat = weights.slope <= 0.0 && weights.sink <= 0.0;
        if rotation.is_none() && is_flat && hides_nothing(weights.mask, chart.length) {
            return View::Everywhere;
        }
        let sums = self.tables.sums(chart, weights);
        let rotated = rotation.map(|rotation| {
            let sums = rotation.rules().map(|(_, turn)| self.tables.rotated(chart, weights, turn)).collect();
            Rotated::new(chart, rotation, sums)
        });
        View::Masked(Operators { sums, rotated })
    }

    /// Returns the routing of a mixture with this input.
    fn routing(&mut self, mixture: &Mixture, x: &Signal) -> Arc<Routing> {
        /// The largest relative difference between the score standard deviations of two mixtures that share a routing.
        const REACH: f64 = 0.01;
        let std = Routing::std(mixture, x);
        let alike = |(known, known_std, _): &&(Mixture, f64, Arc<Routing>)| {
            let choice = |mixture: &Mixture| (mixture.n_experts, mixture.top_k, mixture.weighting, mixture.normalised);
            let is_same = choice(known) == choice(mixture) && known.weights_multiply == mixture.weights_multiply;
            is_same && (known_std - std).abs() <= REACH * std
        };
        if let Some((.., routing)) = self.routings.iter().find(alike) {
            return Arc::clone(routing);
        }
        let routing = Arc::new(Routing::new(mixture, std));
        self.routings.push((mixture.clone(), std, Arc::clone(&routing)));
        routing
    }

    /// Returns `sum` with each branch whose mask is fixed in this pass either kept or dropped.
    pub(super) fn with_kept_branches(&self, at: &Site, sum: &Sum) -> Sum {
        with_kept(sum, self.masks.settled(at.path()))
    }

    /// Returns the output of a sum. Masks that change E y² much are fixed first.
    fn summed(&mut self, at: &Site, sum: &Sum, x: &Signal, parts: &[Arc<Signal>]) -> Signal {
        /// The largest variance of ln |y|² by one mask that has no caveat.
        const LARGE: f64 = 0.01;
        loop {
            let settled = self.with_kept_branches(at, sum);
            let y = settled.merge(x, parts);
            let variances =
                (0..parts.len()).map(|index| (index, ln_square_variance(&settled.branches[index], &parts[index], &y)));
            let Some((index, variance)) = variances.max_by(|a, b| a.1.total_cmp(&b.1)).filter(|&(_, most)| most > 0.0)
            else {
                return y;
            };
            if !self.masks.tell(at.path(), index, sum.branches[index].drop_rate, variance) {
                self.rows.caveat(at, (variance > LARGE).then_some(Condition::AveragedBranches(variance)));
                return y;
            }
        }
    }

    /// Returns the reported moments of a gradient. Inside a mixture they are the share of one expert.
    pub(super) fn pooled_gradient(&self, at: &Site, gradient: &Gradient) -> Pooled {
        let pooled = pooled(&gradient.kernel, |_| 0.0);
        let experts = if at.expert().is_some() { self.experts.ln() } else { 0.0 };
        Pooled { ln_unit: pooled.ln_unit - experts, ..pooled }
    }

    /// Writes ln E dW² of the parameters of a site, with the corrections of finite width.
    pub(super) fn write_weights<'p>(&mut self, at: &Site, weights: impl IntoIterator<Item = (Parameter<'p>, f64)>) {
        for (parameter, ln_second_moment) in weights {
            let (tensor, variance) = match parameter {
                Parameter::Tensor(Tensor { name, init }) | Parameter::Bias(Tensor { name, init }) => {
                    (name.clone(), init.variance())
                }
                Parameter::Gain => (at.gain(), 0.0),
                Parameter::Skip => (at.parameter(".skip"), 0.0),
            };
            let added = if matches!(parameter, Parameter::Bias(_)) { self.added.biases } else { self.added.weights };
            let ln_second_moment =
                ln_second_moment + added - if at.expert().is_some() { self.experts.ln() } else { 0.0 };
            self.rows.weight(WeightNote { layer: at.layer(), tensor, variance, ln_second_moment });
        }
    }
}

impl MeanFieldPass {
    /// Writes the gradients of factors on branches that are parameters, from the outputs f of the branches. One factor
    /// α for all features has E (dL/dα)² = width Σ_ab E f_a f_b E g_a g_b, a factor per feature has the sum alone.
    /// These gradients have no corrections of finite width.
    fn write_scales(&mut self, at: &Site, sum: &Sum, parts: &[Arc<Signal>], gradient: &Gradient) {
        if !self.steps || at.expert().is_some() {
            return;
        }
        for (branch, part) in sum.branches.iter().zip(parts) {
            let entries = match branch.scale_parameter {
                ScaleParameter::Constant => continue,
                ScaleParameter::Scalar => 1,
                ScaleParameter::PerFeature => part.width as usize,
            };
            let Pooled { ln_unit, second, .. } = pooled(&part.kernel, |_| 0.0);
            self.rows.scale(ScaleNote {
                layer: at.layer(),
                name: at.scale(),
                scale: branch.scale,
                entries,
                ln_output: second.ln() + ln_unit,
                ln_second_moment: gradient.kernel.ln_contracted(&part.kernel) + (part.width / entries as f64).ln(),
            });
        }
    }

    /// Writes the effect of first steps of a linear map. Experts are left out, because they see only some of the
    /// tokens.
    fn write_steps(&mut self, at: &Site, linear: &Linear, [x, y]: [&Signal; 2], gradient: &Gradient) {
        if !self.steps || at.expert().is_some() {
            return;
        }
        let finite = FiniteWidth { weights: self.added.weights, ..self.added.steps };
        let Pooled { ln_unit, second, .. } = pooled(&y.kernel, |_| 0.0);
        let ln_output = second.ln() + ln_unit;
        let bias = linear.bias.as_ref().map_or(0.0, |bias| bias.init.variance());
        let product = if bias > 0.0 { 1.0 - bias * (-ln_output).exp() } else { 1.0 };
        self.rows.linear(LinearNote {
            tensor: linear.weight.name.clone(),
            ln_output: ln_output + (product * finite.signal.ln_level.exp_m1()).ln_1p(),
            steps: Steps::of(linear, x, gradient, finite),
        });
    }
}

/// Returns the layout of the stream with this index. `ids` are the given ids of all streams.
fn layout(stack: &Stack, index: usize, (grading, segment): (Option<Grading>, Option<f64>), ids: &[Vec<u32>]) -> Layout {
    let joined = joined(stack, index);
    let given = joined.iter().find_map(|stream| ids.get(*stream).filter(|ids| !ids.is_empty()));
    let streams: Vec<&Stream> = joined.iter().map(|stream| &stack.streams[*stream]).collect();
    Layout::of(&streams, grading, segment, given.map(Vec::as_slice))
}

/// Returns the output of a norm that consists of several components, from the output `y` of the last component.
pub(super) fn last_step(norm: &Norm, y: &Signal) -> Signal {
    Signal { kernel: y.kernel.clone().shifted(norm.bias.variance()), ..y.clone() }
}

/// Returns a sum given the masks of some branches, each with true if it is kept.
fn with_kept(sum: &Sum, known: impl Iterator<Item = (usize, bool)>) -> Sum {
    let shell = |branch: &Branch| Branch { body: Vec::new(), ..*branch };
    let mut branches: Vec<Branch> = sum.branches.iter().map(shell).collect();
    for (index, kept) in known {
        let Branch { scale, drop_rate, .. } = branches[index];
        branches[index].scale = if kept { scale / (1.0 - drop_rate) } else { 0.0 };
        branches[index].drop_rate = 0.0;
    }
    Sum { branches }
}

/// Returns the variance of ln |y|² that the mask of a branch causes.
fn ln_square_variance(branch: &Branch, part: &Signal, y: &Signal) -> f64 {
    /// The largest ratio of |y|² with the branch to |y|² without it. A branch that is all of the stream has this ratio.
    const LARGEST: f64 = 1e3;
    let level = |kernel: &Kernel| kernel.positions.sum(|node| kernel.own[node]);
    let unit = (part.kernel.ln_unit - y.kernel.ln_unit).exp();
    let kept = (branch.scale / (1.0 - branch.drop_rate)).powi(2) * unit * level(&part.kernel) / level(&y.kernel);
    let rest = 1.0 - kept * (1.0 - branch.drop_rate);
    let ratio = if rest > 0.0 { (1.0 + kept / rest).min(LARGEST) } else { LARGEST };
    branch.drop_rate * (1.0 - branch.drop_rate) * ratio.ln().powi(2)
}

/// Refuses a formula over which no averages are finite.
fn refuse_unfit(at: &Site, activation: Activation) -> Result<(), PredictError> {
    let Activation::Expression(expression) = activation else { return Ok(()) };
    match shape(expression).unfit {
        Some(reason) => {
            Err(PredictError::Expression { site: at.path().to_owned(), formula: expression.text(), reason })
        }
        None => Ok(()),
    }
}

pub(super) fn not_followed(at: &Site, what: &'static str) -> PredictError {
    PredictError::NotFollowed { site: at.path().to_owned(), what }
}

/// Returns the chart of the positions of `x`, which has one because positions differ.
fn chart(x: &Signal) -> &Arc<Chart> {
    x.kernel.positions.chart.as_ref().expect("positions differ in rotations and recurrences")
}

/// Returns true if signals have the same positions.
fn are_joined(parts: &[Arc<Signal>]) -> bool {
    let of = |part: &Arc<Signal>| (part.kernel.own.len(), part.kernel.pairs.len());
    parts.windows(2).all(|pair| of(&pair[0]) == of(&pair[1]))
}

/// Returns true if the rule of an activation uses the mean of `x`, which it does for the pixels of images.
fn follows_mean(x: &Signal) -> bool {
    x.kernel.positions.is_of_pixels && x.means.is_some()
}

/// Returns the largest |E x|/√(E x²) of all positions.
fn mean_share(signal: &Signal) -> f64 {
    let share = |(node, own): (usize, &f64)| signal.mean(node).abs() / own.sqrt();
    signal.kernel.own.iter().enumerate().map(share).fold(0.0, f64::max)
}

/// Returns E x², averaged over positions.
pub(super) fn second_moment(signal: &Signal) -> f64 {
    let Pooled { ln_unit, second, .. } = pooled(&signal.kernel, |_| 0.0);
    second * ln_unit.exp()
}

/// Returns the reported moments of a signal, after its rotation if there is one.
pub(super) fn observed(signal: &Signal) -> Pooled {
    let kernel = signal.rotation.as_ref().map(|rotation| signal.kernel.turned(rotation));
    pooled(kernel.as_ref().unwrap_or(&signal.kernel), |node| signal.mean(node))
}

/// Returns the averages of a kernel over tokens and over pairs of tokens. `mean` returns E x at a node.
pub(super) fn pooled(kernel: &Kernel, mean: impl Fn(usize) -> f64) -> Pooled {
    let positions = &kernel.positions;
    let count = positions.length;
    let end = |node: usize| (mean(node), kernel.own[node]);
    let cross = |()| positions.sum_pairs(|point| kernel.pairs[point]) / (count * (count - 1.0));
    Pooled {
        ln_unit: kernel.ln_unit,
        mean: positions.sum(&mean) / count,
        second: positions.sum(|node| kernel.own[node]) / count,
        cross: (count > 1.0).then_some(()).map(cross),
        ends: Some([end(0), end(positions.nodes() - 1)]),
        spread: None,
    }
}

impl Interpreter<'_> for MeanFieldPass {
    type Signal = Arc<Signal>;
    type Gradient = Gradient;
    type Kept = Kept;
    type Error = PredictError;

    fn source(&mut self, _: &Site, stream: &Stream) -> Result<Self::Signal, PredictError> {
        Ok(self.enter(stream))
    }

    fn source_backward(&mut self, at: &Site, stream: &Stream, gradient: Gradient) -> Result<(), PredictError> {
        if let Source::Embedding(source) = &stream.source {
            self.write_weights(at, embedding::weights(source, &gradient));
        }
        Ok(())
    }

    fn seed(&mut self, _: &Site, seed: &GradientSeed, output: &Self::Signal) -> Result<Self::Gradient, PredictError> {
        let positions = &output.kernel.positions;
        let pair = |point: usize| match self.same_ids {
            Some(correlation) if positions.has_same_ids(point) => correlation,
            Some(_) | None => seed.correlation,
        };
        Ok(Gradient::independent(Kernel::new(positions, |_| 1.0, pair)))
    }

    fn apply(
        &mut self,
        at: &Site,
        component: &Component,
        x: Self::Signal,
    ) -> Result<(Self::Signal, Kept), PredictError> {
        if let Component::Activation(activation) = component {
            refuse_unfit(at, *activation)?;
            let mean = mean_share(&x);
            let condition =
                if follows_mean(&x) { Condition::MeanOfPixels(mean) } else { Condition::MeanAtActivation(mean) };
            self.rows.caveat(at, (mean > SMALL_MEAN).then_some(condition));
        }
        if let (Component::Norm(norm), Some(heads)) = (component, x.heads) {
            let Shares { second_moment, gradient } = heads.shares(norm, &x.kernel);
            let is_large = second_moment.max(gradient) > FEW_HEADS;
            self.rows.caveat(at, is_large.then_some(Condition::FewHeads(second_moment, gradient)));
        }
        if let (Component::Select(_), Some(parts)) = (component, &x.parts)
            && parts.iter().any(|part| (part.squares / part.features - 1.0).abs() > SMALL_MEAN)
        {
            return Err(not_followed(at, "a selection of features from parts of different sizes"));
        }
        Ok(self.through_component(component, x))
    }

    fn apply_backward(
        &mut self,
        at: &Site,
        component: &Component,
        kept: Kept,
        gradient: Gradient,
    ) -> Result<Gradient, PredictError> {
        match (component, kept) {
            (_, Kept::Apply([x, y])) => {
                let rule = self.rule(component, &x);
                self.write_weights(at, rule.weights(&x, &y, &gradient));
                if let Component::Linear(linear) = component {
                    self.write_steps(at, linear, [&x, &y], &gradient);
                }
                Ok(rule.backward(&x, &y, &gradient))
            }
            (Component::Norm(norm), Kept::Steps(kept)) => {
                let steps = norm.steps().expect("steps are kept of a norm that has some");
                if let (true, Some(Kept::Apply([x, _]))) = (norm.has_own_gains(), kept.last()) {
                    self.write_weights(at, [(Parameter::Gain, gradient.kernel.ln_contracted(&x.kernel))]);
                }
                let backward = |gradient, (step, kept)| self.apply_backward(at, step, kept, gradient);
                steps.iter().zip(kept).rev().try_fold(gradient, backward)
            }
            (_, Kept::Steps(_) | Kept::Fan(..) | Kept::Attention(_) | Kept::Recurrence(_) | Kept::Mixture(..)) => {
                unreachable!("apply keeps what fits the component")
            }
        }
    }

    fn fork(&mut self, _: &Site, fan: Fan, input: &Self::Signal, part: usize) -> Self::Signal {
        match fan {
            Fan::Mixture(mixture) => self.routing(mixture, input).input(part, input),
            Fan::Sum(_) | Fan::Product(_) | Fan::Concat(_) | Fan::Attention(_) | Fan::Recurrence(_) => {
                Arc::clone(input)
            }
        }
    }

    fn merge(
        &mut self,
        at: &Site,
        fan: Fan,
        x: Self::Signal,
        parts: Vec<Self::Signal>,
    ) -> Result<(Self::Signal, Kept), PredictError> {
        let y = match fan {
            Fan::Attention(attention) => {
                let attended = self.attend(at, attention, parts)?;
                return Ok((attended.output(), Kept::Attention(Arc::new(attended))));
            }
            Fan::Recurrence(_) if parts.iter().any(|part| part.kernel.own.iter().any(|own| own.is_nan())) => {
                return Err(PredictError::NotANumber { site: at.path().to_owned(), quantity: "variance" });
            }
            Fan::Recurrence(recurrence) => {
                let recurred =
                    Recurred::new(recurrence, self.tables.ladder(chart(&parts[0])), &parts, self.cosine_variance);
                let share = recurred.state_share();
                self.rows.caveat(at, (share < IDLE).then_some(Condition::IdleState(share)));
                let erased = recurred.erased_share();
                self.rows.caveat(at, (erased > ERASED).then_some(Condition::LongErasing(erased)));
                return Ok((recurred.output(), Kept::Recurrence(Arc::new(recurred))));
            }
            Fan::Sum(_) | Fan::Product(_) | Fan::Concat(_) if !are_joined(&parts) => {
                return Err(not_followed(at, "a part that reads tokens of other positions"));
            }
            Fan::Sum(sum) => self.summed(at, sum, &x, &parts),
            Fan::Product(product) => product.merge(&x, &parts),
            Fan::Concat(concat) => concat.merge(&x, &parts),
            Fan::Mixture(mixture) => {
                /// The largest relative deviation of the output by the weight that has no caveat.
                const LARGE: f64 = 0.05;
                let routing = self.routing(mixture, &x);
                let deviation = routing.deviation(&parts);
                self.rows.caveat(at, (deviation > LARGE).then_some(Condition::WeighedInputs(deviation)));
                let y = Arc::new(mixture::merge(mixture, &routing, &x, &parts));
                return Ok((y, Kept::Mixture(routing, (x, parts), None)));
            }
        };
        Ok((Arc::new(y), Kept::Fan(x, parts)))
    }

    fn split(
        &mut self,
        at: &Site,
        fan: Fan,
        kept: &mut Kept,
        gradient: Gradient,
    ) -> Result<Vec<Gradient>, PredictError> {
        Ok(match (fan, kept) {
            (Fan::Attention(attention), Kept::Attention(attended)) => {
                if self.sites == Sites::All && at.is_observed() {
                    let pooled = pooled(&attended.weights_backward(attention, &gradient).kernel, |_| 0.0);
                    let along = attended.along_output() * self.added.lacking / attention.n_heads as f64;
                    let [second, cross] = [Some(pooled.second), pooled.cross].map(|of| of.map(|of| of * (1.0 - along)));
                    let second = second.expect("gradients have second moments");
                    let ln_unit = pooled.ln_unit + self.added.weights;
                    let pooled = Pooled { ln_unit, second, cross, ends: None, ..pooled };
                    self.rows.gradient(&at.sibling("softmax"), pooled);
                }
                if let Some(sink) = &attention.sink {
                    let ln_second_moment = attended.ln_sink_gradient(attention, &gradient);
                    self.write_weights(at, [(Parameter::Tensor(sink), ln_second_moment)]);
                }
                let positions = attended.position_weights(attention, &gradient);
                self.write_weights(at, positions.iter().map(|(tensor, ln)| (Parameter::Tensor(tensor), *ln)));
                attended.split(attention, &gradient)
            }
            (Fan::Recurrence(recurrence), Kept::Recurrence(recurred)) => {
                if recurrence.skip.is_some() {
                    self.write_weights(at, [(Parameter::Skip, recurred.ln_skip_gradient(recurrence, &gradient))]);
                }
                recurred.split(recurrence, &gradient)
            }
            (Fan::Mixture(mixture), Kept::Mixture(routing, (x, parts), back)) => {
                let (scores, experts) = mixture::split(mixture, routing, (x, parts), &gradient);
                let ln_router = scores.kernel.ln_contracted(&x.kernel);
                self.write_weights(at, [(Parameter::Tensor(&mixture.router), ln_router)]);
                *back = Some(Box::new(mixture::router_backward(mixture, &scores)));
                self.experts *= mixture.n_experts as f64;
                experts
            }
            (Fan::Concat(concat), Kept::Fan(x, parts)) => concat.split(x, parts, &gradient),
            (Fan::Sum(sum), Kept::Fan(x, parts)) => {
                self.write_scales(at, sum, parts, &gradient);
                self.with_kept_branches(at, sum).split(x, parts, &gradient)
            }
            (Fan::Product(product), Kept::Fan(x, parts)) => product.split(x, parts, &gradient),
            _ => unreachable!("merge keeps what fits the fan"),
        })
    }

    fn join(&mut self, _: &Site, fan: Fan, kept: Kept, mut parts: Vec<Gradient>) -> Result<Gradient, PredictError> {
        if let (Fan::Mixture(mixture), Kept::Mixture(routing, _, router)) = (fan, kept) {
            self.experts /= mixture.n_experts as f64;
            parts = routing.backward(&parts);
            parts.extend(router.map(|gradient| *gradient));
        }
        Ok(Gradient::sum(&parts))
    }

    fn arrive(&mut self, sum: Option<Gradient>, more: Gradient) -> Result<Gradient, PredictError> {
        Ok(match sum {
            Some(sum) => Gradient::sum(&[sum, more]),
            None => more,
        })
    }

    fn experts(&self, mixture: &Mixture) -> usize {
        mixture::inputs(mixture)
    }

    fn observe(&mut self, at: &Site, signal: &Self::Signal) {
        if self.tells(at) {
            let site = (at.layer(), at.path().to_owned());
            self.rows.signal(site, at.is_stream_site(), observed(signal));
        }
    }

    fn observe_gradient(&mut self, at: &Site, gradient: &Gradient) {
        if self.tells(at) {
            self.rows.gradient(at.path(), self.pooled_gradient(at, gradient));
        }
    }
}
