//! The infinitely wide network as an interpreter of stacks.

use std::sync::Arc;

use foldhash::{HashMap, HashMapExt};
use nalgebra::{Matrix2, Vector2};
use sigprop_stack::{
    Activation, Attention, Component, Embedding, EmbeddingTerm, Fan, GradientSeed, Ids, Interpreter, Mask, Mixture,
    PositionBias, Site, Source, Stack, Stream, Tensor, run,
};

use super::rows::{Rows, WeightNote};
use super::{Options, PredictError, Sites};
use crate::domain::Pooled;
use crate::mean_field::activation::{self, function::Words};
use crate::mean_field::attention::{self, Attended, Operators, View, slopes};
use crate::mean_field::mixture::{self, Routing};
use crate::mean_field::moments::{Gradient, Kernel, Signal};
use crate::mean_field::positions::{Chart, Grading, Positions, hides_nothing};
use crate::mean_field::rotary::Rotation;
use crate::mean_field::{Fan as _, MeanField, Parameter, embedding};
use crate::rules::attention::Sharpness;

/// Moments of the infinitely wide network on their way through a stack.
pub(crate) struct Walk<'w> {
    sites: Sites,
    positions: Option<super::Positions>,
    /// Correlation of the gradients that the backward pass starts with, of tokens of equal ids, if it is another.
    same_ids: Option<f64>,
    /// The share of the first of two segments, if there are two.
    segment: Option<f64>,
    /// The ids of one sequence per stream, of those where they are given.
    ids: &'w [Vec<u32>],
    /// How many streams were entered.
    streams: usize,
    activations: HashMap<Words, activation::Rule>,
    operators: Vec<Known>,
    /// Mixtures with the standard deviation of their scores.
    routings: Vec<(Mixture, f64, Arc<Routing>)>,
    /// Experts that one stands for, inside mixtures.
    experts: f64,
    rows: Rows,
}

/// The sums of an attention that were worked out before.
struct Known {
    chart: Arc<Chart>,
    mask: Mask,
    slope: f64,
    rotation: Option<Rotation>,
    operators: Arc<Operators>,
}

/// What the backward pass of a node needs.
pub(crate) enum Kept {
    Apply([Arc<Signal<f64>>; 2]),
    /// Of a norm that is made of others.
    Steps(Vec<Kept>),
    Fan(Arc<Signal<f64>>, Vec<Arc<Signal<f64>>>),
    Attention(Box<Attended<f64>>),
    /// With its input, the expert that stands for all, and on the way back what the router sends back.
    Mixture(Arc<Routing>, [Arc<Signal<f64>>; 2], Option<Gradient<f64>>),
}

impl<'w> Walk<'w> {
    /// Before the first stream.
    pub(crate) fn new(options: &Options, same_ids: Option<f64>, segment: Option<f64>, ids: &'w [Vec<u32>]) -> Self {
        Self {
            sites: options.sites,
            positions: options.positions,
            same_ids,
            segment,
            ids,
            streams: 0,
            activations: HashMap::new(),
            operators: Vec::new(),
            routings: Vec::new(),
            experts: 1.0,
            rows: Rows::default(),
        }
    }

    /// What is found in `stack`.
    pub(crate) fn through(mut self, stack: &Stack) -> Result<Rows, PredictError> {
        run(stack, &mut self)?;
        Ok(self.rows)
    }

    /// The signal at the start of a stream.
    pub(super) fn enter(&mut self, site: &str, stream: &Stream) -> Result<Arc<Signal<f64>>, PredictError> {
        let place = self.streams;
        self.streams += 1;
        let ids = match &stream.source {
            Source::Embedding(Embedding { ids: Ids::Given(_), .. }) => Some(self.ids[place].as_slice()),
            Source::Embedding(_) | Source::Gaussian(_) => None,
        };
        let grading = self.positions.map(|positions| match positions {
            super::Positions::Coarse => Grading::COARSE,
            super::Positions::Fine => Grading::FINE,
            super::Positions::All => Grading::all(stream.seq_len),
        });
        let positions = Arc::new(Positions::of(stream, grading, self.segment, ids));
        Ok(Arc::new(match &stream.source {
            Source::Gaussian(gaussian) => embedding::gaussian(gaussian, &positions),
            Source::Embedding(source) => {
                let is_segment = |term: &EmbeddingTerm| matches!(term, EmbeddingTerm::Segment { .. });
                if positions.chart.is_some() && source.terms.iter().any(is_segment) {
                    let (site, what) = (site.to_owned(), "segments where positions differ");
                    return Err(PredictError::NotFollowed { site, what });
                }
                embedding::embedded(source, &positions)
            }
        }))
    }

    fn tells(&self, at: &Site) -> bool {
        self.sites == Sites::All || at.is_stream_site()
    }

    fn activation(&mut self, activation: Activation) -> activation::Rule {
        let words = activation::function::words(activation);
        self.activations.entry(words).or_insert_with(|| activation::Rule::new(activation)).clone()
    }

    fn attend(
        &mut self,
        at: &Site,
        attention: &Attention,
        parts: Vec<Arc<Signal<f64>>>,
    ) -> Result<Attended<f64>, PredictError> {
        let has_slopes = matches!(attention.bias, Some(PositionBias::Alibi { .. }));
        if has_slopes && (attention.mask != Mask::CAUSAL || attention.memory.is_some()) {
            return Err(not_followed(at, "ALiBi with other than a causal mask"));
        }
        let parts: [Arc<Signal<f64>>; 3] = parts.try_into().expect("attention has the parts query, key, value");
        let views = self.views(attention, [&parts[0], &parts[1]]);
        let attended = Attended::new(attention, &views, parts);
        let [ln_score, attended_keys, in_view] = attended.sharpness();
        self.rows.attention(at, Sharpness { ln_score, attended: attended_keys, in_view });
        if self.sites == Sites::All && !at.recomputing() {
            let weights = attended.weights();
            let pooled = Pooled { ends: None, ..pooled(&weights.kernel, |node| weights.mean(node)) };
            self.rows.signal((at.layer(), at.sibling("softmax")), false, pooled, Matrix2::zeros());
        }
        Ok(attended)
    }

    /// What queries of an attention see of keys, and the share of the heads that see it.
    fn views(&mut self, attention: &Attention, parts: [&Signal<f64>; 2]) -> Vec<(f64, View)> {
        let slopes = match &attention.bias {
            Some(PositionBias::Alibi { slopes }) => slopes::few(slopes),
            Some(PositionBias::Relative { .. }) | None => vec![(1.0, 0.0)],
        };
        slopes.into_iter().map(|(share, slope)| (share, self.view(attention.mask, slope, parts))).collect()
    }

    fn view(&mut self, mask: Mask, slope: f64, [query, key]: [&Signal<f64>; 2]) -> View {
        let rotation = attention::rotation(query, key);
        let rotation = rotation.as_ref();
        let Some(chart) = &query.kernel.positions.chart else { return View::Everywhere };
        if rotation.is_none() && slope <= 0.0 && hides_nothing(mask, chart.length) {
            return View::Everywhere;
        }
        let is_same = |known: &&Known| {
            let numbers = known.mask == mask && known.slope.total_cmp(&slope).is_eq();
            numbers && Arc::ptr_eq(&known.chart, chart) && known.rotation.as_ref() == rotation
        };
        if let Some(known) = self.operators.iter().find(is_same) {
            return View::Masked(Arc::clone(&known.operators));
        }
        let operators = Arc::new(Operators::new(chart, mask, slope, rotation));
        let view = View::Masked(Arc::clone(&operators));
        self.operators.push(Known { chart: Arc::clone(chart), mask, slope, rotation: rotation.cloned(), operators });
        view
    }

    /// The routing of a mixture with this input.
    fn routing(&mut self, mixture: &Mixture, x: &Signal<f64>) -> Arc<Routing> {
        /// Relative distance of standard deviations that are not told apart.
        const REACH: f64 = 0.01;
        let std = Routing::std(mixture, x);
        let alike = |(known, known_std, _): &&(Mixture, f64, Arc<Routing>)| {
            let choice = |mixture: &Mixture| (mixture.n_experts, mixture.top_k, mixture.weighting, mixture.normalised);
            choice(known) == choice(mixture) && (known_std - std).abs() <= REACH * std
        };
        if let Some((.., routing)) = self.routings.iter().find(alike) {
            return Arc::clone(routing);
        }
        let routing = Arc::new(Routing::new(mixture, std));
        self.routings.push((mixture.clone(), std, Arc::clone(&routing)));
        routing
    }

    fn write_weights<'p>(&mut self, at: &Site, weights: impl IntoIterator<Item = (Parameter<'p>, f64)>) {
        for (parameter, ln_second_moment) in weights {
            let (tensor, variance) = match parameter {
                Parameter::Tensor(Tensor { name, init }) => (name.clone(), init.variance()),
                Parameter::Gain => (at.gain(), 0.0),
            };
            let ln_second_moment = ln_second_moment - if at.expert().is_some() { self.experts.ln() } else { 0.0 };
            self.rows.weight(WeightNote { layer: at.layer(), tensor, variance, ln_second_moment });
        }
    }
}

/// The rule of a component with one input; activations have tables.
fn rule<'c>(
    at: &Site,
    component: &'c Component,
    positions: &Positions,
) -> Result<&'c dyn MeanField<f64>, PredictError> {
    Ok(match component {
        Component::Linear(linear) => linear,
        Component::Norm(norm) => norm,
        Component::Dropout(dropout) => dropout,
        Component::Scale(scale) => scale,
        Component::Embedding(term) => term,
        Component::Activation(_) => unreachable!("activations have tables"),
        Component::Rotary(rotary) => rotary,
        Component::Convolution(convolution) => {
            if convolution.padding > 0 || convolution.stride != convolution.kernel || positions.nodes() > 1 {
                return Err(not_followed(at, "convolutions of neighbours"));
            }
            convolution
        }
        Component::Prepend(prepend) => {
            if positions.chart.is_some() {
                return Err(not_followed(at, "a learned token where positions differ"));
            }
            prepend
        }
    })
}

fn not_followed(at: &Site, what: &'static str) -> PredictError {
    PredictError::NotFollowed { site: at.path().to_owned(), what }
}

/// E x², averaged over positions.
pub(super) fn second_moment(signal: &Signal<f64>) -> f64 {
    let Pooled { ln_unit, second, .. } = pooled(&signal.kernel, |_| 0.0);
    second * ln_unit.exp()
}

/// Averages over tokens and pairs of tokens.
fn pooled(kernel: &Kernel<f64>, mean: impl Fn(usize) -> f64) -> Pooled {
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

impl Interpreter<'_> for Walk<'_> {
    type Signal = Arc<Signal<f64>>;
    type Gradient = Gradient<f64>;
    type Kept = Kept;
    type Error = PredictError;

    fn source(&mut self, at: &Site, stream: &Stream) -> Result<Self::Signal, PredictError> {
        self.enter(at.path(), stream)
    }

    fn source_backward(&mut self, at: &Site, stream: &Stream, gradient: Gradient<f64>) -> Result<(), PredictError> {
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
        if let Component::Norm(norm) = component
            && let Some(steps) = norm.steps()
        {
            let (mut y, mut kept) = (x, Vec::with_capacity(steps.len()));
            for step in &steps {
                let (output, of_step) = self.apply(at, step, y)?;
                kept.push(of_step);
                y = output;
            }
            let kernel = y.kernel.clone().shifted(norm.bias.variance());
            return Ok((Arc::new(Signal { kernel, ..(*y).clone() }), Kept::Steps(kept)));
        }
        let y = Arc::new(match component {
            Component::Activation(activation) => self.activation(*activation).forward(&x),
            _ => rule(at, component, &x.kernel.positions)?.forward(&x),
        });
        Ok((Arc::clone(&y), Kept::Apply([x, y])))
    }

    fn apply_backward(
        &mut self,
        at: &Site,
        component: &Component,
        kept: Kept,
        gradient: Gradient<f64>,
    ) -> Result<Gradient<f64>, PredictError> {
        match (component, kept) {
            (Component::Activation(activation), Kept::Apply([x, y])) => {
                Ok(self.activation(*activation).backward(&x, &y, &gradient))
            }
            (_, Kept::Apply([x, y])) => {
                let rule = rule(at, component, &x.kernel.positions)?;
                self.write_weights(at, rule.weights(&x, &y, &gradient));
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
            (_, Kept::Steps(_) | Kept::Fan(..) | Kept::Attention(_) | Kept::Mixture(..)) => {
                unreachable!("apply keeps what fits the component")
            }
        }
    }

    fn fork(&mut self, _: &Site, input: &Self::Signal) -> Self::Signal {
        Arc::clone(input)
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
                return Ok((attended.output(), Kept::Attention(Box::new(attended))));
            }
            Fan::Sum(sum) => {
                let dropped = sum.branches.iter().map(|branch| branch.drop_rate).fold(0.0, f64::max);
                let caveat =
                    "branches that are dropped are averaged over where they add up, not behind the norms that follow";
                self.rows.caveat(at, (dropped > 0.0).then(|| (caveat, format!("rate {dropped}"))));
                sum.merge(&x, &parts)
            }
            Fan::Product(product) => product.merge(&x, &parts),
            Fan::Concat(concat) => concat.merge(&x, &parts),
            Fan::Mixture(mixture) => {
                let [expert] = parts.try_into().expect("one expert stands for all");
                let routing = self.routing(mixture, &x);
                let y = Arc::new(mixture::merge(mixture, &routing, &x, &expert));
                return Ok((y, Kept::Mixture(routing, [x, expert], None)));
            }
        };
        Ok((Arc::new(y), Kept::Fan(x, parts)))
    }

    fn split(
        &mut self,
        at: &Site,
        fan: Fan,
        kept: &mut Kept,
        gradient: Gradient<f64>,
    ) -> Result<Vec<Gradient<f64>>, PredictError> {
        Ok(match (fan, kept) {
            (Fan::Attention(attention), Kept::Attention(attended)) => {
                if self.sites == Sites::All && at.is_observed() {
                    let pooled = pooled(&attended.weights_backward(attention, &gradient).kernel, |_| 0.0);
                    let pooled = Pooled { ends: None, ..pooled };
                    self.rows.gradient(&at.sibling("softmax"), pooled, Vector2::zeros());
                }
                attended.split(attention, &gradient)
            }
            (Fan::Mixture(mixture), Kept::Mixture(routing, [x, expert], back)) => {
                let [scores, experts] = mixture::split(mixture, routing, [x, expert], &gradient);
                let ln_router = scores.kernel.ln_contracted(&x.kernel);
                self.write_weights(at, [(Parameter::Tensor(&mixture.router), ln_router)]);
                *back = Some(mixture::router_backward(mixture, &scores));
                self.experts *= mixture.n_experts as f64;
                vec![experts]
            }
            (Fan::Concat(concat), Kept::Fan(x, parts)) => concat.split(x, parts, &gradient),
            (Fan::Sum(sum), Kept::Fan(x, parts)) => sum.split(x, parts, &gradient),
            (Fan::Product(product), Kept::Fan(x, parts)) => product.split(x, parts, &gradient),
            _ => unreachable!("merge keeps what fits the fan"),
        })
    }

    fn join(
        &mut self,
        _: &Site,
        fan: Fan,
        kept: Kept,
        mut parts: Vec<Gradient<f64>>,
    ) -> Result<Gradient<f64>, PredictError> {
        if let (Fan::Mixture(mixture), Kept::Mixture(.., router)) = (fan, kept) {
            self.experts /= mixture.n_experts as f64;
            parts.extend(router);
        }
        Ok(Gradient::sum(&parts))
    }

    fn accumulate(&mut self, sum: Gradient<f64>, more: Gradient<f64>) -> Result<Gradient<f64>, PredictError> {
        Ok(Gradient::sum(&[sum, more]))
    }

    fn experts(&self, _: &Mixture) -> usize {
        1
    }

    fn observe(&mut self, at: &Site, signal: &Self::Signal) {
        if self.tells(at) {
            let kernel = signal.rotation.as_ref().map(|rotation| rotation.of(&signal.kernel));
            let pooled = pooled(kernel.as_ref().unwrap_or(&signal.kernel), |node| signal.mean(node));
            self.rows.signal((at.layer(), at.path().to_owned()), at.is_stream_site(), pooled, Matrix2::zeros());
        }
    }

    fn observe_gradient(&mut self, at: &Site, gradient: &Gradient<f64>) {
        if self.tells(at) {
            self.rows.gradient(at.path(), pooled(&gradient.kernel, |_| 0.0), Vector2::zeros());
        }
    }
}
