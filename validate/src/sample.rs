//! One replicate: a network is sampled, run forward on a sampled input and backward on a sampled
//! gradient.

use std::{
    rc::Rc,
    sync::atomic::{AtomicBool, Ordering},
};

use sigprop_stack::{Component, Embedding, Fan, GradientSeed, Interpreter, Linear, Site, Source, Stack, run};

use crate::{
    Settings,
    array::Array,
    components::{activation, attention, dropout, embedding, linear, norm, product, sum},
    plan::Plan,
    random::{Purpose, Random, Streams},
    scalar::Scalar,
    statistics::Moments,
    weights::{TensorGradient, WeightGradients},
};

/// What one replicate says of the rows and tensors of its plan. Where the range of f32 is left the
/// walk ends, and the vectors end early.
#[derive(Default)]
pub(crate) struct Replicate {
    /// Of each row, in forward order.
    pub signals: Vec<Moments>,
    /// Of each row of the stream where the gradient starts, in backward order.
    pub gradients: Vec<Moments>,
    /// Of each tensor.
    pub weights: Vec<Option<Moments>>,
    /// Where the range of f32 was left.
    pub overflow: Option<Overflow>,
}

/// A site outside the range of f32.
pub(crate) struct Overflow {
    /// How many sites were met before it, forward and backward.
    pub step: usize,
    /// Its path.
    pub site: String,
}

/// Samples replicate `index`; none if it was cancelled.
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

/// Why a walk ends early.
#[derive(Debug)]
pub(crate) enum Stop {
    Cancelled,
    Overflow,
}

/// The interpreter that carries sampled arrays.
pub(crate) struct Sampler<'a, T> {
    plan: &'a Plan,
    settings: &'a Settings,
    cancelled: &'a AtomicBool,
    random: Random,
    /// Streams started so far.
    streams: usize,
    /// Sites met so far.
    steps: usize,
    replicate: Replicate,
    weights: WeightGradients<'a, T>,
    /// Where weights are drawn.
    scratch: Vec<T>,
}

type Shared<T> = Rc<Array<T>>;

impl<'a, T: Scalar> Sampler<'a, T> {
    pub(crate) fn new(plan: &'a Plan, settings: &'a Settings, index: usize, cancelled: &'a AtomicBool) -> Self {
        Self {
            plan,
            settings,
            cancelled,
            random: Random::new(settings.seed, index),
            streams: 0,
            steps: 0,
            replicate: Replicate::default(),
            weights: WeightGradients::new(plan),
            scratch: Vec::new(),
        }
    }

    pub(crate) fn finish(mut self) -> Replicate {
        self.replicate.weights = self.weights.moments();
        self.replicate
    }

    /// Asked before every piece of work.
    fn proceed(&self) -> Result<(), Stop> {
        if self.cancelled.load(Ordering::Relaxed) {
            return Err(Stop::Cancelled);
        }
        if self.replicate.overflow.is_some() { Err(Stop::Overflow) } else { Ok(()) }
    }

    /// The sums over an array, unless the range of f32 has been left here or before.
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

    fn has_row(&self, at: &Site) -> bool {
        self.settings.all_sites || at.is_stream_site()
    }

    fn masks(&self, at: &Site) -> Streams {
        self.random.streams(Purpose::Mask, &at.to_string())
    }

    /// What was drawn for the tokens of the stream at hand: the same when asked again.
    fn tokens(&self, at: &Site, stream: usize) -> embedding::Tokens {
        let mut generator = self.random.streams(Purpose::Input, &at.to_string()).stream(0);
        embedding::Tokens::draw(self.plan.shape, &self.plan.cumulative[stream], &mut generator)
    }

    fn table_gradients(&mut self, embedding: &Embedding, tokens: &embedding::Tokens, gradient: &Array<T>) {
        for term in &embedding.terms {
            let Some(table) = term.table() else { continue };
            let sequences = (0..gradient.shape().batch)
                .map(|sequence| TensorGradient::Rows(embedding::table_gradient(term, tokens, sequence, gradient)));
            self.weights.add(&table.name, sequences);
        }
    }

    fn linear_gradients(&mut self, linear: &Linear, input: &Array<T>, gradient: &Array<T>) {
        let sequences = input.sequences().zip(gradient.sequences());
        let sequences = sequences.map(|(x, dy)| TensorGradient::Dense(linear::weight_gradient(linear, x, dy)));
        self.weights.add(&linear.weight.name, sequences);
        if let Some(bias) = &linear.bias {
            let sequences = gradient.sequences();
            let sequences = sequences.map(|dy| TensorGradient::Dense(linear::bias_gradient(linear, dy)));
            self.weights.add(&bias.name, sequences);
        }
    }
}

impl<T: Scalar> Interpreter for Sampler<'_, T> {
    type Signal = Shared<T>;
    type Gradient = Array<T>;
    /// Inputs, or outputs of the parts.
    type Kept = Vec<Shared<T>>;
    type Error = Stop;

    fn source(&mut self, at: &Site, source: &Source) -> Result<Shared<T>, Stop> {
        self.proceed()?;
        let stream = self.streams;
        self.streams += 1;
        let shape = self.plan.shape;
        Ok(Rc::new(match source {
            Source::Embedding(embedding) => {
                embedding::forward(embedding, &self.tokens(at, stream), shape, &self.random)
            }
            Source::Gaussian(gaussian) => embedding::gaussian(
                shape,
                gaussian.width,
                gaussian.variance.sqrt(),
                gaussian.correlation,
                &self.random.streams(Purpose::Input, &at.to_string()),
            ),
        }))
    }

    fn source_backward(&mut self, at: &Site, source: &Source, gradient: Array<T>) -> Result<(), Stop> {
        self.proceed()?;
        match source {
            Source::Embedding(embedding) if self.settings.weights => {
                let tokens = self.tokens(at, self.plan.seeded);
                self.table_gradients(embedding, &tokens, &gradient);
            }
            Source::Embedding(_) | Source::Gaussian(_) => {}
        }
        Ok(())
    }

    fn seed(&mut self, at: &Site, seed: &GradientSeed, output: &Shared<T>) -> Result<Array<T>, Stop> {
        self.proceed()?;
        let streams = self.random.streams(Purpose::Gradient, &at.to_string());
        Ok(embedding::gaussian(output.shape(), output.width(), 1.0, seed.correlation, &streams))
    }

    fn apply(
        &mut self,
        at: &Site,
        component: &Component,
        input: Shared<T>,
    ) -> Result<(Shared<T>, Vec<Shared<T>>), Stop> {
        self.proceed()?;
        let (output, kept) = match component {
            Component::Linear(linear) => {
                let output = linear::forward(linear, &self.random, &mut self.scratch, &input);
                (output, if self.settings.weights { vec![input] } else { Vec::new() })
            }
            Component::Norm(norm) => (norm::forward(norm, &input), vec![input]),
            Component::Activation(activation) => (activation::forward(*activation, &input), vec![input]),
            Component::Dropout(dropout) => {
                let mut output = Rc::unwrap_or_clone(input);
                dropout::apply(*dropout, &self.masks(at), &mut output);
                (output, Vec::new())
            }
        };
        Ok((Rc::new(output), kept))
    }

    fn apply_backward(
        &mut self,
        at: &Site,
        component: &Component,
        kept: Vec<Shared<T>>,
        mut gradient: Array<T>,
    ) -> Result<Array<T>, Stop> {
        self.proceed()?;
        Ok(match component {
            Component::Linear(linear) => {
                if let Some(input) = kept.first() {
                    self.linear_gradients(linear, input, &gradient);
                }
                linear::backward(linear, &self.random, &mut self.scratch, &gradient)
            }
            Component::Norm(norm) => norm::backward(norm, &kept[0], &gradient),
            Component::Activation(activation) => activation::backward(*activation, &kept[0], &gradient),
            Component::Dropout(dropout) => {
                dropout::apply(*dropout, &self.masks(at), &mut gradient);
                gradient
            }
        })
    }

    fn fork(&mut self, _: &Site, input: &Shared<T>) -> Shared<T> {
        Rc::clone(input)
    }

    fn merge(
        &mut self,
        at: &Site,
        fan: Fan,
        _: Shared<T>,
        parts: Vec<Shared<T>>,
    ) -> Result<(Shared<T>, Vec<Shared<T>>), Stop> {
        self.proceed()?;
        let (output, kept) = match fan {
            Fan::Sum(sum) => (sum::forward(sum, &self.masks(at), &parts), Vec::new()),
            Fan::Product(_) => (product::forward(&parts), parts),
            Fan::Attention(attention) => {
                let mut softmax = SoftmaxMoments::new(self.settings.all_sites && !at.recomputing(), self.plan);
                let output = attention::forward(attention, &self.masks(at), &parts, |a| softmax.look(a));
                if let Some(moments) = softmax.moments.and_then(|moments| self.look(at, moments)) {
                    self.replicate.signals.push(moments);
                }
                (output, parts)
            }
        };
        Ok((Rc::new(output), kept))
    }

    fn split(
        &mut self,
        at: &Site,
        fan: Fan,
        kept: &mut Vec<Shared<T>>,
        gradient: Array<T>,
    ) -> Result<Vec<Array<T>>, Stop> {
        self.proceed()?;
        Ok(match fan {
            Fan::Sum(sum) => sum::backward(sum, &self.masks(at), &gradient),
            Fan::Product(_) => product::backward(kept, &gradient),
            Fan::Attention(attention) => {
                let mut softmax = SoftmaxMoments::new(self.settings.all_sites, self.plan);
                let parts = attention::backward(attention, &self.masks(at), kept, &gradient, |da| softmax.look(da));
                if let Some(moments) = softmax.moments.and_then(|moments| self.look(at, moments)) {
                    self.replicate.gradients.push(moments);
                }
                parts
            }
        })
    }

    fn join(&mut self, _: &Site, _: Fan, _: Vec<Shared<T>>, parts: Vec<Array<T>>) -> Result<Array<T>, Stop> {
        let sum = parts.into_iter().reduce(|mut sum, part| {
            sum.add(&part);
            sum
        });
        Ok(sum.expect("a checked fan has parts"))
    }

    fn observe(&mut self, at: &Site, signal: &Shared<T>) {
        if let Some(moments) = self.look(at, Moments::of(signal)).filter(|_| self.has_row(at)) {
            self.replicate.signals.push(moments);
        }
    }

    fn observe_gradient(&mut self, at: &Site, gradient: &Array<T>) {
        if let Some(moments) = self.look(at, Moments::of(gradient)).filter(|_| self.has_row(at)) {
            self.replicate.gradients.push(moments);
        }
    }
}

/// Sums over the attention matrices of all heads, if they are asked for.
struct SoftmaxMoments {
    moments: Option<Moments>,
    columns: Vec<[f64; 2]>,
}

impl SoftmaxMoments {
    fn new(wanted: bool, plan: &Plan) -> Self {
        Self { moments: wanted.then(Moments::default), columns: vec![[0.0; 2]; plan.shape.seq_len] }
    }

    /// Rows belong to query tokens.
    fn look<T: Scalar>(&mut self, matrix: &[T]) {
        if let Some(moments) = &mut self.moments {
            *moments += Moments::of_sequence(matrix, &mut self.columns);
        }
    }
}
