//! One replicate: a network is sampled, run forward on a sampled input and backward on a sampled
//! gradient.

use std::sync::atomic::{AtomicBool, Ordering};

use serde::{Deserialize, Serialize};
use sigprop_stack::{
    Component, EmbeddingTerm, Fan, Gaussian, GradientSeed, Interpreter, Linear, Multiplied, Norm, PositionBias, Site,
    Source, Stack, Stream, Tensor, run,
};

use crate::{
    Sampling, Settings,
    array::Array,
    components::{
        activation, attention, concat, convolution, dropout, embedding, linear, linear::conditional, mixture,
        mixture::ThroughRouter, norm, pool, prepend, product, recurrence, rotary, scale, select, sum,
    },
    plan::{Plan, PlannedIds},
    random::{Changes, Purpose, Random, Streams},
    scalar::Scalar,
    signal::Signal,
    statistics::Moments,
    steps::{FirstStep, Taken},
    weights::{ByTensor, TensorGradient, WeightGradients},
};

/// The sums of one replicate over the rows and tensors of its plan, as a journal keeps them. If the range of f32 is
/// left, the pass ends and the vectors are shorter.
#[derive(Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Replicate {
    /// Sums of the signal at each row, in forward order.
    pub(crate) signals: Vec<Moments>,
    /// Sums of the gradient at each row that it reaches, in backward order.
    pub(crate) gradients: Vec<Moments>,
    /// Sums of the gradient of each tensor; `None` if it is incomplete or outside the range of f32.
    pub(crate) weights: Vec<Option<Moments>>,
    /// Sums of the Gaussian sources and of the gradient at the end, if they are to be control variates.
    pub(crate) inputs: Vec<Moments>,
    /// The first site outside the range of f32.
    pub(crate) overflow: Option<Overflow>,
}

/// A site outside the range of f32.
#[derive(Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Overflow {
    /// Number of sites visited before it, forward and backward.
    pub step: usize,
    /// Its path.
    pub site: String,
}

/// The distribution of the gradient at the end of a stream.
pub(crate) fn seed_gradient(seed: &GradientSeed, width: usize) -> Gaussian {
    Gaussian { width, mean: 0.0, variance: 1.0, correlation: seed.correlation }
}

/// Samples replicate `index`; `None` if it was cancelled.
pub(crate) fn replicate(
    stack: &Stack,
    plan: &Plan,
    settings: &Settings,
    index: usize,
    cancelled: &AtomicBool,
) -> Option<Replicate> {
    let mut sampler = Sampler::<f32>::new(plan, settings, index, cancelled);
    match run(stack, &mut sampler) {
        Ok(()) | Err(Stop::Overflow) => Some(sampler.finish()),
        Err(Stop::Cancelled) => None,
    }
}

/// The reason why a pass ends early.
#[derive(Debug)]
pub(crate) enum Stop {
    Cancelled,
    Overflow,
}

/// The interpreter that carries sampled arrays.
pub(crate) struct Sampler<'a, T: Scalar> {
    plan: &'a Plan,
    settings: &'a Settings,
    cancelled: &'a AtomicBool,
    random: Random,
    /// Number of the replicate.
    index: usize,
    /// Number of sites visited so far.
    steps: usize,
    replicate: Replicate,
    weights: WeightGradients<'a, T>,
    /// The record of a first step, if one is to be taken.
    taken: Option<Taken<'a, T>>,
}

impl<'a, T: Scalar> Sampler<'a, T> {
    pub(crate) fn new(plan: &'a Plan, settings: &'a Settings, index: usize, cancelled: &'a AtomicBool) -> Self {
        Self {
            plan,
            settings,
            cancelled,
            random: Random::new(settings.seed, index),
            index,
            steps: 0,
            replicate: Replicate::default(),
            weights: WeightGradients::new(plan),
            taken: None,
        }
    }

    /// Returns the same sampler, which also records a first step. If there are `changes`, its network has the changed
    /// parameters.
    pub(crate) fn stepping(self, step: FirstStep<'a>, changes: Option<Changes>) -> Self {
        let random = changes.map_or(self.random.clone(), |changes| self.random.changed(changes));
        Self { taken: Some(Taken::new(step)), weights: self.weights.keeping(), random, ..self }
    }

    /// Returns the recorded step and the gradients of all parameters; an error if the range of f32 has been left.
    pub(crate) fn into_step(self) -> Result<(Taken<'a, T>, ByTensor<T>), Overflow> {
        let taken = self.taken.expect("a first step was to be taken");
        self.replicate.overflow.map_or(Ok((taken, self.weights.into_kept())), Err)
    }

    pub(crate) fn finish(mut self) -> Replicate {
        self.replicate.weights = self.weights.moments();
        self.replicate
    }

    /// Called before every piece of work. Returns an error if the run was cancelled or has left the range of f32.
    fn proceed(&self) -> Result<(), Stop> {
        if self.cancelled.load(Ordering::Relaxed) {
            return Err(Stop::Cancelled);
        }
        if self.replicate.overflow.is_some() { Err(Stop::Overflow) } else { Ok(()) }
    }

    /// Returns the sums over an array; `None` if the range of f32 has been left here or before.
    fn look(&mut self, at: &Site, moments: Moments) -> Option<Moments> {
        if self.replicate.overflow.is_some() {
            return None;
        }
        if !moments.in_range() {
            self.replicate.overflow = Some(Overflow { step: self.steps, site: at.to_string() });
            return None;
        }
        self.steps += 1;
        Some(moments)
    }

    /// Records the sums of a Gaussian array that a replicate starts with, for control variates.
    fn control(&mut self, input: &Array<T>) {
        if self.settings.controls {
            self.replicate.inputs.push(Moments::of(input));
        }
    }

    fn tells_softmax(&self, at: &Site) -> bool {
        self.settings.all_sites && at.is_observed()
    }

    fn has_row(&self, at: &Site) -> bool {
        self.settings.all_sites || at.is_stream_site()
    }

    /// Returns the raw sums over an array. If the site has no row, only a few tokens are added, enough to see whether
    /// the array is in range.
    fn moments(&self, at: &Site, array: &Array<T>) -> Moments {
        if self.has_row(at) { Moments::of(array) } else { Moments::of_some(array) }
    }

    /// Returns true if the backward pass of a component needs its input.
    fn reads_input(&self, component: &Component) -> bool {
        match component {
            Component::Linear(_) => self.settings.weights,
            Component::Convolution(_) | Component::Activation(_) | Component::Pool(_) => true,
            // Norms keep their input themselves.
            Component::Norm(_)
            | Component::Prepend(_)
            | Component::Dropout(_)
            | Component::Scale(_)
            | Component::Rotary(_)
            | Component::Embedding(_)
            | Component::Select(_) => false,
        }
    }

    /// The random numbers of a site: experts have their own.
    fn random(&self, at: &Site) -> Random {
        self.random.of_expert(at.expert())
    }

    fn masks(&self, at: &Site) -> Streams {
        self.random(at).streams(Purpose::Mask, &at.to_string())
    }

    /// The ids and segments of the tokens of a stream, the same in every call.
    fn tokens(&self, at: &Site) -> embedding::Tokens {
        let stream = self.plan.stream(at);
        match &stream.ids {
            PlannedIds::None => embedding::Tokens::positions(stream.shape),
            PlannedIds::Given(sequences) => {
                embedding::Tokens::given(stream.shape, sequences, self.index * self.plan.batch)
            }
            PlannedIds::Cumulative(cumulative) => {
                let mut generator = self.random.streams(Purpose::Input, &stream.ids_of).stream(0);
                embedding::Tokens::draw(stream.shape, cumulative, &mut generator)
            }
        }
    }

    fn norm(
        &mut self,
        at: &Site,
        norm: Norm,
        random: &Random,
        input: Signal<T>,
    ) -> Result<(Signal<T>, Vec<Signal<T>>), Stop> {
        if let Some((norm, init)) = norm.biased() {
            let (output, kept) = self.norm(at, norm, random, input)?;
            let (bias, random) = (Tensor { name: at.bias(), init }, random.clone());
            let add = move |output: &mut Array<T>| linear::add_bias(Some(&bias), norm.groups, &random, output);
            return Ok((changed(at, output, add), kept));
        }
        if let Some(gains) = random.changed_gains(&at.gain(), norm.gain, input.width()) {
            let (output, kept) = self.normalised(at, Norm { gain: 1.0, ..norm }, input)?;
            return Ok((changed(at, output, move |output| output.multiply_rows(&gains)), kept));
        }
        self.normalised(at, norm, input)
    }

    fn normalised(&mut self, at: &Site, norm: Norm, input: Signal<T>) -> Result<(Signal<T>, Vec<Signal<T>>), Stop> {
        let Some(steps) = norm.steps() else {
            let kept = vec![input.clone()];
            return Ok((signal(at, move || norm::forward(&norm, &input)), kept));
        };
        steps.iter().try_fold((input, Vec::new()), |(input, mut kept), step| {
            let (output, of_step) = self.apply(at, step, input)?;
            kept.extend(of_step);
            Ok((output, kept))
        })
    }

    fn table_gradients(&mut self, terms: &[EmbeddingTerm], tokens: &embedding::Tokens, gradient: &Array<T>) {
        for term in terms {
            let Some(table) = term.table() else { continue };
            let sequences = (0..gradient.shape().batch)
                .map(|sequence| TensorGradient::Rows(embedding::table_gradient(term, tokens, sequence, gradient)));
            self.weights.add(&table.name, None, sequences);
        }
    }

    fn linear_gradients(&mut self, at: &Site, linear: &Linear, input: &Array<T>, gradient: &Array<T>) {
        let random = self.random(at);
        let of_weight = |x: &[T], dy: &[T]| linear::weight_gradient(linear, &random, x, dy);
        self.map_gradients(at, linear, [input, gradient], of_weight);
    }

    /// Adds the gradients of a map; `of_weight` returns dW from the input and the gradient of one sequence.
    fn map_gradients(
        &mut self,
        at: &Site,
        linear: &Linear,
        [input, gradient]: [&Array<T>; 2],
        of_weight: impl Fn(&[T], &[T]) -> Vec<T>,
    ) {
        let sequences = input.sequences().zip(gradient.sequences());
        let sequences = sequences.map(|(x, dy)| TensorGradient::Dense(of_weight(x, dy)));
        self.weights.add(&linear.weight.name, at.expert(), sequences);
        if let Some(bias) = &linear.bias {
            let sequences = gradient.sequences();
            let sequences = sequences.map(|dy| TensorGradient::Dense(linear::bias_gradient(linear, dy)));
            self.weights.add(&bias.name, at.expert(), sequences);
        }
    }
}

impl<T: Scalar> Interpreter<'_> for Sampler<'_, T> {
    type Signal = Signal<T>;
    type Gradient = Array<T>;
    /// The input of a component, or the outputs of the parts of a fan.
    type Kept = Vec<Signal<T>>;
    type Error = Stop;

    fn source(&mut self, at: &Site, stream: &Stream) -> Result<Signal<T>, Stop> {
        self.proceed()?;
        let shape = self.plan.stream(at).shape;
        Ok(Signal::from(match &stream.source {
            Source::Embedding(embedding) => embedding::forward(embedding, &self.tokens(at), shape, &self.random),
            Source::Gaussian(gaussian) => {
                let streams = self.random.streams(Purpose::Input, &at.to_string());
                let input = embedding::gaussian(shape, gaussian, &streams);
                self.control(&input);
                input
            }
        }))
    }

    fn source_backward(&mut self, at: &Site, stream: &Stream, gradient: Array<T>) -> Result<(), Stop> {
        self.proceed()?;
        match &stream.source {
            Source::Embedding(embedding) if self.settings.weights => {
                let tokens = self.tokens(at);
                self.table_gradients(&embedding.terms, &tokens, &gradient);
            }
            Source::Embedding(_) | Source::Gaussian(_) => {}
        }
        Ok(())
    }

    fn seed(&mut self, at: &Site, seed: &GradientSeed, output: &Signal<T>) -> Result<Array<T>, Stop> {
        self.proceed()?;
        let streams = self.random.streams(Purpose::Gradient, &at.to_string());
        let gradient = embedding::gaussian(output.shape(), &seed_gradient(seed, output.width()), &streams);
        self.control(&gradient);
        if let Some(taken) = &mut self.taken {
            taken.end = Some([(**output).clone(), gradient.clone()]);
        }
        Ok(gradient)
    }

    fn apply(
        &mut self,
        at: &Site,
        component: &Component,
        input: Signal<T>,
    ) -> Result<(Signal<T>, Vec<Signal<T>>), Stop> {
        self.proceed()?;
        let mut kept = if self.reads_input(component) { vec![input.clone()] } else { Vec::new() };
        let random = self.random(at);
        let output = match component.clone() {
            Component::Linear(linear) => match self.settings.sampler {
                Sampling::Direct => signal(at, move || linear::forward(&linear, &random, &input)),
                Sampling::Conditional => {
                    let (output, basis) = conditional::forward(&linear, &random, &input);
                    kept.push(basis.into());
                    output.into()
                }
            },
            Component::Convolution(conv) => signal(at, move || convolution::forward(&conv, &random, &input)),
            Component::Pool(pool) => signal(at, move || pool::forward(&pool, &input)),
            Component::Prepend(token) => signal(at, move || prepend::forward(&token, &random, &input)),
            Component::Norm(norm) => return self.norm(at, norm, &random, input),
            Component::Activation(activation) => signal(at, move || activation::forward(activation, &input)),
            Component::Dropout(dropout) => {
                let masks = self.masks(at);
                changed(at, input, move |output| dropout::apply(dropout, &masks, output))
            }
            Component::Scale(scale) => changed(at, input, move |output| scale::apply(scale, output)),
            Component::Rotary(rotary) => changed(at, input, move |output| rotary::apply(&rotary, output, false)),
            Component::Select(select) => signal(at, move || select::forward(select, &input)),
            Component::Embedding(term) => changed(at, input, move |output| {
                let tokens = embedding::Tokens::positions(output.shape());
                embedding::add(&term, &tokens, &random, output);
            }),
        };
        Ok((output, kept))
    }

    fn apply_backward(
        &mut self,
        at: &Site,
        component: &Component,
        mut kept: Vec<Signal<T>>,
        mut gradient: Array<T>,
    ) -> Result<Array<T>, Stop> {
        self.proceed()?;
        let random = self.random(at);
        Ok(match component {
            Component::Linear(linear) => {
                let basis = match self.settings.sampler {
                    Sampling::Direct => None,
                    Sampling::Conditional => kept.pop(),
                };
                if let Some(input) = kept.first() {
                    self.linear_gradients(at, linear, input, &gradient);
                    if let Some(taken) = &mut self.taken {
                        taken.map(linear, &random, input, &gradient);
                    }
                }
                match basis {
                    None => linear::backward(linear, &random, &gradient),
                    Some(basis) => conditional::backward(linear, &random, &basis, &gradient),
                }
            }
            Component::Convolution(conv) => {
                if self.settings.weights {
                    let windows = convolution::windows(conv, &kept[0]);
                    let of_weight = |x: &[T], dy: &[T]| convolution::weight_gradient(conv, &random, x, dy);
                    self.map_gradients(at, &convolution::of_windows(conv), [&windows, &gradient], of_weight);
                }
                convolution::backward(conv, &random, kept[0].shape(), &gradient)
            }
            Component::Prepend(prepend) => {
                let width = gradient.width();
                let firsts = gradient.sequences().map(|dy| TensorGradient::Dense(dy[..width].to_vec()));
                self.weights.add(&prepend.token.name, at.expert(), firsts);
                prepend::backward(&gradient)
            }
            Component::Norm(norm) => {
                if self.settings.weights && norm.has_own_gains() {
                    let sequences = kept[0].sequences().zip(gradient.sequences());
                    let width = gradient.width();
                    let sequences =
                        sequences.map(|(x, dy)| TensorGradient::Dense(norm::gain_gradient(norm, width, x, dy)));
                    self.weights.add(&at.gain(), at.expert(), sequences);
                }
                match norm.steps() {
                    None => norm::backward(norm, &kept[0], &gradient),
                    // The kept signal is the input of the function.
                    Some(steps) => steps
                        .iter()
                        .rev()
                        .try_fold(gradient, |gradient, step| self.apply_backward(at, step, kept.clone(), gradient))?,
                }
            }
            Component::Activation(activation) => activation::backward(*activation, &kept[0], gradient),
            Component::Pool(pool) => pool::backward(pool, &kept[0], &gradient),
            Component::Dropout(dropout) => {
                dropout::apply(*dropout, &self.masks(at), &mut gradient);
                gradient
            }
            Component::Scale(scale) => {
                scale::apply(*scale, &mut gradient);
                gradient
            }
            Component::Rotary(rotary) => {
                rotary::apply(rotary, &mut gradient, true);
                gradient
            }
            Component::Select(select) => select::backward(*select, &gradient),
            Component::Embedding(term) => {
                if self.settings.weights {
                    let tokens = embedding::Tokens::positions(gradient.shape());
                    self.table_gradients(std::slice::from_ref(term), &tokens, &gradient);
                }
                gradient
            }
        })
    }

    fn fork(&mut self, at: &Site, fan: Fan, input: &Signal<T>, part: usize) -> Signal<T> {
        match fan {
            Fan::Mixture(mixture) if mixture.weights_multiply == Multiplied::Inputs => {
                mixture::weighed(mixture, &self.random(at), input, part).into()
            }
            Fan::Sum(_)
            | Fan::Product(_)
            | Fan::Concat(_)
            | Fan::Attention(_)
            | Fan::Recurrence(_)
            | Fan::Mixture(_) => input.clone(),
        }
    }

    fn merge(
        &mut self,
        at: &Site,
        fan: Fan,
        input: Signal<T>,
        parts: Vec<Signal<T>>,
    ) -> Result<(Signal<T>, Vec<Signal<T>>), Stop> {
        self.proceed()?;
        let random = self.random(at);
        Ok(match fan {
            Fan::Sum(sum) => {
                let coefficients = sum::coefficients(sum, &self.masks(at), self.plan.batch);
                (signal(at, move || sum::forward(&coefficients, &parts)), Vec::new())
            }
            Fan::Product(_) => {
                let kept = parts.clone();
                (signal(at, move || product::forward(&parts)), kept)
            }
            Fan::Concat(concat) => {
                let (concat, kept) = (concat.clone(), parts.clone());
                (signal(at, move || concat::forward(&concat, &parts)), kept)
            }
            Fan::Attention(attention) if self.tells_softmax(at) && !at.recomputing() => {
                let (output, moments) = attention::forward(attention, &random, &self.masks(at), &parts, true);
                if let Some(moments) = moments.and_then(|moments| self.look(at, moments)) {
                    self.replicate.signals.push(moments);
                }
                (output.into(), parts)
            }
            Fan::Attention(attention) => {
                let (attention, masks, kept) = (attention.clone(), self.masks(at), parts.clone());
                (signal(at, move || attention::forward(&attention, &random, &masks, &parts, false).0), kept)
            }
            Fan::Mixture(mixture) => {
                let (mixture, kept) = (mixture.clone(), [&input].into_iter().chain(&parts).cloned().collect());
                (signal(at, move || mixture::forward(&mixture, &random, &input, &parts)), kept)
            }
            Fan::Recurrence(recurrence) => {
                let (recurrence, site, kept) = (recurrence.clone(), at.parameter(""), parts.clone());
                (signal(at, move || recurrence::forward(&recurrence, &random, &site, &parts)), kept)
            }
        })
    }

    fn split(
        &mut self,
        at: &Site,
        fan: Fan,
        kept: &mut Vec<Signal<T>>,
        gradient: Array<T>,
    ) -> Result<Vec<Array<T>>, Stop> {
        self.proceed()?;
        let random = self.random(at);
        Ok(match fan {
            Fan::Sum(sum) => {
                let coefficients = sum::coefficients(sum, &self.masks(at), self.plan.batch);
                sum::backward(&coefficients, gradient)
            }
            Fan::Product(_) => product::backward(kept, &gradient),
            Fan::Concat(concat) => {
                let widths: Vec<usize> = kept.iter().map(|part| part.width()).collect();
                concat::backward(concat, &widths, &gradient)
            }
            Fan::Attention(attention) => {
                let (masks, observed) = (self.masks(at), self.tells_softmax(at));
                let backward = attention::backward(attention, &random, &masks, kept, &gradient, observed);
                if let Some(moments) = backward.moments.and_then(|moments| self.look(at, moments)) {
                    self.replicate.gradients.push(moments);
                }
                if let Some(PositionBias::Relative { table, .. }) = &attention.bias {
                    self.weights.add(&table.name, at.expert(), backward.bias.into_iter().map(TensorGradient::Dense));
                }
                for (name, gradients) in backward.positions {
                    self.weights.add(&name, at.expert(), gradients.into_iter().map(TensorGradient::Dense));
                }
                if let Some(sink) = &attention.sink {
                    self.weights.add(&sink.name, at.expert(), backward.sink.into_iter().map(TensorGradient::Dense));
                }
                backward.parts
            }
            Fan::Mixture(mixture) => {
                let (input, experts) = kept.split_first().expect("a mixture keeps its input and its experts");
                let backward = mixture::backward(mixture, &random, input, experts, &gradient);
                if let Some(ThroughRouter { input: through, scores }) = backward.router {
                    if self.settings.weights {
                        let router = mixture::router(mixture, input.width());
                        self.linear_gradients(at, &router, input, &scores);
                    }
                    *kept = vec![through.into()];
                }
                backward.experts
            }
            Fan::Recurrence(recurrence) => {
                let backward = recurrence::backward(recurrence, &random, &at.parameter(""), kept, &gradient);
                let skips = backward.skips.into_iter().map(TensorGradient::Dense);
                self.weights.add(&at.parameter(".skip"), at.expert(), skips);
                backward.parts
            }
        })
    }

    fn join(
        &mut self,
        at: &Site,
        fan: Fan,
        mut kept: Vec<Signal<T>>,
        mut parts: Vec<Array<T>>,
    ) -> Result<Array<T>, Stop> {
        if let Fan::Mixture(mixture) = fan
            && mixture.weights_multiply == Multiplied::Inputs
        {
            let input = kept.swap_remove(0);
            let ThroughRouter { input: through, scores } =
                mixture::backward_weighed(mixture, &self.random(at), &input, &mut parts);
            if self.settings.weights {
                let router = mixture::router(mixture, input.width());
                self.linear_gradients(at, &router, &input, &scores);
            }
            kept = vec![through.into()];
        }
        let sum = parts.into_iter().reduce(|sum, part| plus(sum, &part)).expect("a checked fan has parts");
        Ok(match fan {
            // The gradient through the router.
            Fan::Mixture(_) => kept.into_iter().fold(sum, |sum, more| plus(sum, &more)),
            Fan::Sum(_) | Fan::Product(_) | Fan::Concat(_) | Fan::Attention(_) | Fan::Recurrence(_) => sum,
        })
    }

    fn arrive(&mut self, sum: Option<Array<T>>, more: Array<T>) -> Result<Array<T>, Stop> {
        Ok(match sum {
            Some(sum) => plus(sum, &more),
            None => more,
        })
    }

    fn observe(&mut self, at: &Site, signal: &Signal<T>) {
        if let Some(moments) = self.look(at, self.moments(at, signal)).filter(|_| self.has_row(at)) {
            self.replicate.signals.push(moments);
        }
    }

    fn observe_gradient(&mut self, at: &Site, gradient: &Array<T>) {
        if let Some(moments) = self.look(at, self.moments(at, gradient)).filter(|_| self.has_row(at)) {
            self.replicate.gradients.push(moments);
        }
    }

    fn keeps(&self, at: &Site) -> bool {
        !self.plan.recomputed.contains(at.path())
    }
}

/// The output of a node; in a recomputation it is computed only when it is read.
fn signal<T: Scalar>(at: &Site, work: impl FnOnce() -> Array<T> + 'static) -> Signal<T> {
    if at.recomputing() { Signal::later(work) } else { work().into() }
}

/// The output of a node that changes its input in place.
fn changed<T: Scalar>(at: &Site, input: Signal<T>, change: impl FnOnce(&mut Array<T>) + 'static) -> Signal<T> {
    signal(at, move || {
        let mut output = input.into_array();
        change(&mut output);
        output
    })
}

fn plus<T: Scalar>(sum: Array<T>, more: &Array<T>) -> Array<T> {
    sum.zip(more, |sum, more| sum + more)
}
