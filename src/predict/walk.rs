//! The predictor as an interpreter of stacks: it carries moments.

mod fans;
mod weights;

use std::collections::HashMap;
use std::iter::repeat_n;
use std::mem::take;
use std::sync::Arc;

use sigprop_stack::{
    Component, Fan, GradientSeed, Ids, Init, Interpreter, Mixture, Norm, Site, Source, Stack, Stream, Tensor, run,
};

use super::masks::Masks;
use super::rows::Rows;
use super::{PredictError, Sites};
use crate::domain::{Answers, Concentration, Domain, Exchangeable, Fluctuation, Fork, Gradient, Later, Pooled, Signal};
use crate::moments::{Token, TokenGradient};
use crate::rules::activation::Profiles;
use crate::rules::attention::Attended;
use crate::rules::embedding::positions;
use crate::rules::linear::centring::Centring;
use crate::rules::mixture::Routing;
use crate::rules::softmax::Overlaps;
use crate::rules::{PairRule, convolution, dropout, embedding, linear, norm, prepend, rotary, scale, sum};

/// Carries moments through a stack and writes down what it sees.
pub(crate) struct Moments {
    sites: Sites,
    domain: Domain,
    /// The ids of one sequence per stream, in the Gram domain.
    ids: Vec<Vec<u32>>,
    /// Names of the streams entered so far.
    streams: Vec<String>,
    profiles: Profiles,
    overlaps: HashMap<usize, Overlaps>,
    routings: Vec<(Mixture, f64, Arc<Routing>)>,
    /// Experts that one stands for, inside mixtures.
    experts: f64,
    /// Inside a mixture on the way back: how pairs of tokens are chosen together because they are alike.
    chosen: Option<Arc<[f64]>>,
    /// The gradients at the outputs of the fans under way, the innermost last.
    splits: Vec<Gradient>,
    /// Whether what steps along gradients do is worked out.
    steps: bool,
    /// Correlation of the gradients that the backward pass starts with, of tokens of equal ids, if it is another.
    same_ids: Option<f64>,
    /// Of none where a walk stands for all.
    masks: Masks,
    rows: Rows,
}

/// A rule, what it was applied to, and what came out.
pub(crate) struct Applied {
    rule: Box<dyn PairRule>,
    x: Arc<Signal>,
    y: Arc<Signal>,
}

/// What the backward pass of a node needs; boxed what is large, for there is one of every node.
pub(crate) enum Kept {
    Apply(Applied),
    /// Of a standardised map: its centring, and itself.
    Standardised(Box<[Applied; 2]>),
    Convolution {
        x: Arc<Signal>,
        y: Arc<Signal>,
    },
    /// Of a norm that is made of others, or of a norm and its biases.
    Steps(Vec<Kept>),
    Prepend,
    Sum(Box<(sum::Rule, Fork)>),
    Product(Box<Fork>),
    Concat(Box<Fork>),
    Mixture {
        routing: Arc<Routing>,
        /// What it multiplies the squares of an expert by.
        ln_gain: f64,
        x: Arc<Signal>,
        expert: Arc<Signal>,
        router_gradient: Option<Box<Gradient>>,
    },
    Attention(Box<Attended>, Arc<Signal>),
}

impl Moments {
    /// With exchangeable tokens; the smaller of two segments has each of these `shares` as often.
    pub(crate) fn exchangeable(sites: Sites, shares: &'static [f64]) -> Self {
        let before = Exchangeable { segments: shares, ..Exchangeable::plain(1.0, Vec::new()) };
        Self::new(sites, Domain::Exchangeable(before), Vec::new())
    }

    /// In the Gram domain with the `ids` of one sequence per stream, whose tokens the stack treats `alike` or not.
    pub(crate) fn by_position(sites: Sites, ids: Vec<Vec<u32>>, alike: bool) -> Self {
        Self::new(sites, Domain::Gram { alike }, ids)
    }

    fn new(sites: Sites, domain: Domain, ids: Vec<Vec<u32>>) -> Self {
        Self {
            sites,
            domain,
            ids,
            streams: Vec::new(),
            profiles: Profiles::default(),
            overlaps: HashMap::new(),
            routings: Vec::new(),
            experts: 1.0,
            chosen: None,
            splits: Vec::new(),
            steps: false,
            same_ids: None,
            masks: Masks::told_on(1),
            rows: Rows::default(),
        }
    }

    /// The same, working out what steps along gradients do if that is asked for, under a seed of this
    /// correlation between tokens of equal ids.
    pub(super) fn asked(self, steps: bool, same_ids: Option<f64>) -> Self {
        Self { steps, same_ids, ..self }
    }

    /// Whether two tokens of a stream have equal ids, or the pairs of their class.
    fn have_same_ids(&self, at: &Site, pair: [usize; 2], class: usize) -> bool {
        match &self.domain {
            Domain::Exchangeable(domain) => domain.classes[class].same_id,
            Domain::Gram { .. } => {
                let stream = self.streams.iter().position(|name| name == at.stream());
                let ids = &self.ids[stream.expect("the stream was entered")];
                let [first, second] = pair.map(|token| ids.get(token));
                first.is_some() && first == second
            }
        }
    }

    /// Walks `stack`, as often as there are masks to be told apart.
    pub(super) fn walk(mut self, stack: &Stack) -> Result<Rows, PredictError> {
        /// Of tokens that are exchangeable, and where all pairs of positions are followed.
        const MOST: [usize; 2] = [64, 16];
        self.masks = Masks::told_on(MOST[usize::from(self.domain.is_gram())]);
        let mut walks = Vec::new();
        loop {
            self.streams.clear();
            run(stack, &mut self)?;
            walks.push((self.masks.weight(), take(&mut self.rows)));
            if !self.masks.next() {
                return Ok(Rows::of_all(walks));
            }
        }
    }

    /// The signal at the start of a stream.
    pub(crate) fn enter(&mut self, source: &Source, seq_len: usize) -> Signal {
        let stream = self.streams.len().saturating_sub(1);
        let exchangeable = |(domain, signal)| (Domain::Exchangeable(domain), signal);
        let (domain, signal) = match (&self.domain, source) {
            (Domain::Gram { .. }, Source::Gaussian(gaussian)) => {
                (self.domain.clone(), positions::gaussian_source(gaussian, seq_len))
            }
            (Domain::Gram { .. }, Source::Embedding(embedding)) => {
                (self.domain.clone(), positions::embedded(embedding, &self.ids[stream]))
            }
            (Domain::Exchangeable(_), Source::Gaussian(gaussian)) => {
                exchangeable(embedding::gaussian_source(gaussian, seq_len))
            }
            (Domain::Exchangeable(before), Source::Embedding(embedding)) => {
                let Ids::PowerLaw(law) = &embedding.ids else { unreachable!("given ids take the Gram domain") };
                exchangeable(embedding::source(embedding, *law, seq_len, before.segments))
            }
        };
        self.domain = domain;
        let drawn = self.domain.alike(&signal, 0.0).drawn(signal.token().entry_variance);
        let scale = signal.fluctuation.scale;
        Signal { fluctuation: Fluctuation { scale, ..Fluctuation::drawn(drawn) }, ..signal }
    }

    fn tells(&self, at: &Site) -> bool {
        self.sites == Sites::All || at.is_stream_site()
    }

    /// The rule of a component that acts on every token by itself.
    fn rule(&mut self, component: &Component, x: &Signal) -> Option<Box<dyn PairRule>> {
        Some(match component {
            Component::Linear(linear) => Box::new(linear::Rule::new(linear)),
            Component::Norm(norm) => Box::new(norm::Rule::new(norm)),
            Component::Activation(activation) => Box::new(self.profiles.rule(*activation, &x.tokens)),
            Component::Dropout(dropout) => Box::new(dropout::Rule::new(*dropout)),
            Component::Scale(scale) => Box::new(scale::Rule::new(*scale)),
            Component::Rotary(rotary) => Box::new(rotary::Rule::new(rotary, x.tokens.len())),
            Component::Embedding(term) => {
                Box::new(positions::Rule::new(term, x.token().width as usize, x.tokens.len()))
            }
            Component::Convolution(_) | Component::Prepend(_) => return None,
        })
    }

    fn ruled(&mut self, at: &Site, rule: Box<dyn PairRule>, x: Arc<Signal>) -> (Arc<Signal>, Applied) {
        self.rows.caveat(at, rule.caveat(&x.tokens));
        let y = Arc::new(self.domain.apply(rule.as_ref(), &x));
        (Arc::clone(&y), Applied { rule, x, y })
    }

    fn ruled_backward(&mut self, at: &Site, component: &Component, applied: &Applied, gradient: &Gradient) -> Gradient {
        let Applied { rule, x, y } = applied;
        self.write_weights_of(at, component, [x, y], gradient);
        self.domain.apply_backward(rule.as_ref(), x, y, gradient)
    }

    /// Of a norm of several steps; gradients of biases are not written down.
    fn norm_backward(
        &mut self,
        at: &Site,
        norm: &Norm,
        mut kept: Vec<Kept>,
        gradient: Gradient,
    ) -> Result<Gradient, PredictError> {
        if let Some((unbiased, _)) = norm.biased()
            && let (Some(Kept::Apply(Applied { rule, x, y })), Some(normed)) = (kept.pop(), kept.pop())
        {
            let gradient = self.domain.apply_backward(rule.as_ref(), &x, &y, &gradient);
            return self.apply_backward(at, &Component::Norm(unbiased), normed, gradient);
        }
        if let Some(Kept::Apply(Applied { x, .. })) = kept.last().filter(|_| norm.has_own_gains()) {
            let ln_gradient = norm::ln_gain_gradient(&self.domain, x, &gradient);
            self.write_weight(at, &Tensor { name: at.gain(), init: Init::Zero }, ln_gradient);
        }
        let steps = norm.steps().expect("steps are kept of a norm that has some");
        let backward = |gradient, (step, kept)| self.apply_backward(at, step, kept, gradient);
        steps.iter().zip(kept).rev().try_fold(gradient, backward)
    }
}

impl Interpreter<'_> for Moments {
    type Signal = Arc<Signal>;
    type Gradient = Gradient;
    type Kept = Kept;
    type Error = PredictError;

    fn source(&mut self, at: &Site, stream: &Stream) -> Result<Arc<Signal>, PredictError> {
        self.streams.push(at.stream().to_owned());
        Ok(Arc::new(self.enter(&stream.source, stream.seq_len)))
    }

    fn source_backward(&mut self, at: &Site, stream: &Stream, gradient: Gradient) -> Result<(), PredictError> {
        match &stream.source {
            Source::Embedding(embedding) => {
                let stream = self.streams.iter().position(|name| name == at.stream());
                self.write_tables(at, embedding, stream.expect("the stream was entered"), &gradient);
            }
            Source::Gaussian(_) => {}
        }
        Ok(())
    }

    fn seed(&mut self, at: &Site, seed: &GradientSeed, output: &Arc<Signal>) -> Result<Gradient, PredictError> {
        let count = output.tokens.len();
        let cosines = self.domain.map(count, |i, j, place| match self.same_ids {
            Some(correlation) if self.have_same_ids(at, [i, j], place) => correlation,
            Some(_) | None => seed.correlation,
        });
        let width = output.token().width;
        let tokens = repeat_n(TokenGradient::isotropic(0.0), count).collect();
        let concentration = Concentration::fresh(width);
        let across = self.domain.follows_levels().then_some(1.0);
        let lengths = output.lengths.as_ref().map(|lengths| Arc::new(Answers::drawn(lengths, width, seed.correlation)));
        let later = self.domain.follows_levels().then_some(Later::NONE);
        let gradient = Gradient { across, concentration, lengths, later, ..Gradient::new(tokens, cosines) };
        let fluctuation = Fluctuation::drawn(self.domain.alike(&gradient, 0.0).drawn(2.0 / width));
        Ok(Gradient { fluctuation, ..gradient })
    }

    fn apply(&mut self, at: &Site, component: &Component, x: Arc<Signal>) -> Result<(Arc<Signal>, Kept), PredictError> {
        if let Component::Norm(norm) = component
            && let Some((norm, bias)) = norm.biased()
        {
            let (normed, kept) = self.apply(at, &Component::Norm(norm), x)?;
            let (y, added) = self.ruled(at, Box::new(positions::Rule::constant(bias, &normed)), normed);
            return Ok((y, Kept::Steps(vec![kept, Kept::Apply(added)])));
        }
        if let Component::Norm(norm) = component
            && let Some(steps) = norm.steps()
        {
            let (mut y, mut kept) = (x, Vec::with_capacity(steps.len()));
            for step in &steps {
                let (output, of_step) = self.apply(at, step, y)?;
                kept.push(of_step);
                y = output;
            }
            return Ok((y, Kept::Steps(kept)));
        }
        if let Component::Linear(linear) = component
            && linear.standardised.is_some()
        {
            let (centred, centring) = self.ruled(at, Box::new(Centring::new()), x);
            let (y, map) = self.ruled(at, Box::new(linear::Rule::new(linear)), centred);
            return Ok((y, Kept::Standardised(Box::new([centring, map]))));
        }
        let Some(rule) = self.rule(component, &x) else {
            return Ok(match component {
                Component::Convolution(conv) => {
                    let y = Arc::new(convolution::forward(conv, &x));
                    (Arc::clone(&y), Kept::Convolution { x, y })
                }
                Component::Prepend(token) => (Arc::new(prepend::forward(token, &x)), Kept::Prepend),
                Component::Linear(_)
                | Component::Norm(_)
                | Component::Activation(_)
                | Component::Dropout(_)
                | Component::Scale(_)
                | Component::Rotary(_)
                | Component::Embedding(_) => unreachable!("has a rule"),
            });
        };
        let (y, applied) = self.ruled(at, rule, x);
        Ok((y, Kept::Apply(applied)))
    }

    fn apply_backward(
        &mut self,
        at: &Site,
        component: &Component,
        kept: Kept,
        gradient: Gradient,
    ) -> Result<Gradient, PredictError> {
        Ok(match (component, kept) {
            (_, Kept::Apply(applied)) => self.ruled_backward(at, component, &applied, &gradient),
            (_, Kept::Standardised(applied)) => {
                let [centring, map] = *applied;
                let gradient = self.ruled_backward(at, component, &map, &gradient);
                self.domain.apply_backward(centring.rule.as_ref(), &centring.x, &centring.y, &gradient)
            }
            (Component::Norm(norm), Kept::Steps(kept)) => self.norm_backward(at, norm, kept, gradient)?,
            (Component::Convolution(conv), Kept::Convolution { x, y }) => {
                self.write_weights_of(at, component, [&x, &y], &gradient);
                convolution::backward(conv, &x, &y, &gradient)
            }
            (Component::Prepend(token), Kept::Prepend) => {
                self.write_weight(at, &token.token, gradient.token().ln_second);
                prepend::backward(&gradient)
            }
            _ => unreachable!("apply keeps what fits the component"),
        })
    }

    fn fork(&mut self, _: &Site, _: Fan, input: &Arc<Signal>, _: usize) -> Arc<Signal> {
        let tokens = input.tokens.iter().map(|token| Token { sensitivity: 1.0, ..*token }).collect();
        let concentration = Concentration { inherited: 1.0, ..input.concentration };
        let (cosines, fluctuation) = (Arc::clone(&input.cosines), input.fluctuation.forked());
        Arc::new(Signal {
            tokens,
            cosines,
            concentration,
            fluctuation,
            centring: input.centring,
            lengths: None,
            parts: None,
        })
    }

    fn merge(
        &mut self,
        at: &Site,
        fan: Fan,
        x: Arc<Signal>,
        parts: Vec<Arc<Signal>>,
    ) -> Result<(Arc<Signal>, Kept), PredictError> {
        Ok(self.merged(at, fan, x, parts))
    }

    fn split(
        &mut self,
        at: &Site,
        fan: Fan,
        kept: &mut Kept,
        gradient: Gradient,
    ) -> Result<Vec<Gradient>, PredictError> {
        self.splits.push(gradient.clone());
        Ok(self.parts(at, fan, kept, &gradient))
    }

    fn join(&mut self, _: &Site, fan: Fan, kept: Kept, mut parts: Vec<Gradient>) -> Result<Gradient, PredictError> {
        if let (Fan::Mixture(mixture), Kept::Mixture { router_gradient: Some(router), .. }) = (fan, &kept) {
            self.experts /= mixture.n_experts as f64;
            self.chosen = None;
            parts.push(Gradient::clone(router));
        }
        let gradient = self.splits.pop().expect("what joins was split");
        Ok(fans::joined(&self.domain, &kept, &gradient, &parts))
    }

    fn arrive(&mut self, sum: Option<Gradient>, more: Gradient) -> Result<Gradient, PredictError> {
        Ok(match sum {
            Some(sum) => fans::accumulated(&self.domain, &[sum, more]),
            None => more,
        })
    }

    /// All experts are alike.
    fn experts(&self, _: &Mixture) -> usize {
        1
    }

    fn observe(&mut self, at: &Site, signal: &Arc<Signal>) {
        if self.tells(at) {
            if at.is_stream_site() {
                self.rows.caveat(at, signal.fluctuation.caveat(self.domain.shared(signal.as_ref())));
            }
            // How far levels stray was sampled on the stream alone.
            let spread = at.is_stream_site().then(|| self.domain.spread(signal));
            let pooled = Pooled { spread, ..self.domain.pool(signal) };
            self.rows.signal(
                (at.layer(), at.path().to_owned()),
                at.is_stream_site(),
                pooled,
                signal.fluctuation.total(),
            );
        }
    }

    fn observe_gradient(&mut self, at: &Site, gradient: &Gradient) {
        if self.tells(at) {
            let pooled = self.domain.pool_gradient(gradient);
            // One expert has its part of what reaches all.
            let ln_part = if at.expert().is_some() { -self.experts.ln() } else { 0.0 };
            let (spread, answers) = at.is_stream_site().then(|| self.domain.spread_of_gradient(gradient)).unzip();
            let pooled = Pooled { ln_unit: pooled.ln_unit + ln_part, spread, ..pooled };
            self.rows.gradient(at.path(), pooled, answers.unwrap_or_default());
        }
    }

    /// A matrix per place would not fit for every block.
    fn keeps(&self, at: &Site) -> bool {
        !(self.domain.is_gram() && at.is_stream_site())
    }
}
