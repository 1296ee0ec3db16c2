//! The predictor as an interpreter of stacks: it carries moments.

use std::collections::HashMap;
use std::iter::repeat_n;
use std::sync::Arc;

use nalgebra::{Matrix2, Vector2};
use sigprop_stack::{
    Component, Embedding, Fan, GradientSeed, Ids, Init, Interpreter, Mixture, Site, Source, Stream, Tensor,
};

use super::rows::{LinearNote, Rows, WeightNote};
use super::{PredictError, Sites};
use crate::domain::{
    Concentration, Domain, Exchangeable, Flow, Fluctuation, Fork, Gradient, Pooled, Signal, Term, levels_covariance,
    weights,
};
use crate::moments::{Token, TokenGradient, ln_sum};
use crate::rules::activation::Profiles;
use crate::rules::attention::Attended;
use crate::rules::embedding::positions;
use crate::rules::mixture::Routing;
use crate::rules::softmax::Overlaps;
use crate::rules::{
    PairRule, concat, convolution, dropout, embedding, linear, norm, prepend, product, rotary, scale, sum,
};

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
    /// The gradients at the outputs of the fans under way, the innermost last.
    splits: Vec<Gradient>,
    /// Whether what steps along gradients do is worked out.
    steps: bool,
    pub(super) rows: Rows,
}

/// What the backward pass of a node needs.
pub(crate) enum Kept {
    Apply {
        rule: Box<dyn PairRule>,
        x: Signal,
        y: Signal,
    },
    Convolution {
        x: Signal,
        y: Signal,
    },
    /// Of a norm that is made of others.
    Steps(Vec<Kept>),
    Prepend,
    Sum {
        rule: sum::Rule,
        x: Signal,
        branches: Vec<Signal>,
        output: Signal,
        maps: Vec<Matrix2<f64>>,
    },
    Product {
        x: Signal,
        factors: Vec<Signal>,
        output: Signal,
        maps: Vec<Matrix2<f64>>,
    },
    Concat {
        x: Signal,
        parts: Vec<Signal>,
        output: Signal,
        maps: Vec<Matrix2<f64>>,
    },
    Mixture {
        routing: Arc<Routing>,
        x: Signal,
        expert: Signal,
        router_gradient: Option<Gradient>,
    },
    Attention(Box<Attended>, Signal),
}

impl Moments {
    /// With exchangeable tokens.
    pub(crate) fn exchangeable(sites: Sites) -> Self {
        Self::new(sites, Domain::Exchangeable(Exchangeable::plain(1.0, Vec::new())), Vec::new())
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
            splits: Vec::new(),
            steps: false,
            rows: Rows::default(),
        }
    }

    /// The same, working out what steps along gradients do.
    pub(super) fn with_steps(self, steps: bool) -> Self {
        Self { steps, ..self }
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
            (Domain::Exchangeable(_), Source::Embedding(embedding)) => {
                let Ids::PowerLaw(law) = &embedding.ids else { unreachable!("given ids take the Gram domain") };
                exchangeable(embedding::source(embedding, *law, seq_len))
            }
        };
        self.domain = domain;
        let (shared, squares) = self.domain.shared_and_squares(&signal, 0.0);
        let drawn = signal.token().entry_variance * levels_covariance(1.0, shared, squares);
        let scale = signal.fluctuation.scale;
        Signal { fluctuation: Fluctuation { scale, ..Fluctuation::drawn(drawn) }, ..signal }
    }

    fn tells(&self, at: &Site) -> bool {
        self.sites == Sites::All || at.is_stream_site()
    }

    fn write_weight(&mut self, at: &Site, tensor: &Tensor, ln_second_moment: f64) {
        let ln_second_moment = ln_second_moment - if at.expert().is_some() { self.experts.ln() } else { 0.0 };
        self.rows.weight(WeightNote {
            layer: at.layer(),
            tensor: tensor.name.clone(),
            variance: tensor.init.variance(),
            ln_second_moment,
        });
    }

    fn write_tables(&mut self, at: &Site, embedding: &Embedding, stream: usize, gradient: &Gradient) {
        for term in embedding.terms.iter().rev() {
            let ln_gradient = match &self.domain {
                Domain::Exchangeable(domain) => embedding::ln_weight_gradient(term, embedding, domain, gradient),
                Domain::Gram { .. } => {
                    let vocabulary = (embedding.ids.vocab_size(), self.ids[stream].as_slice());
                    positions::ln_weight_gradient(term, Some(vocabulary), gradient)
                }
            };
            if let (Some(ln_gradient), Some(table)) = (ln_gradient, term.table()) {
                self.write_weight(at, table, ln_gradient);
            }
        }
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

    /// The routing of a mixture whose input is `x`, at the mean scale of its tokens.
    fn routing(&mut self, mixture: &Mixture, x: &Signal) -> Arc<Routing> {
        /// Relative distance of standard deviations that are not told apart.
        const REACH: f64 = 0.01;
        let pooled = self.domain.pool(x);
        let std = (x.token().width * mixture.router.init.variance() * pooled.second * pooled.ln_unit.exp()).sqrt();
        let alike = |known: &(Mixture, f64, Arc<Routing>)| {
            known.0.n_experts == mixture.n_experts
                && known.0.top_k == mixture.top_k
                && known.0.weighting == mixture.weighting
                && known.0.normalised == mixture.normalised
                && (known.1 - std).abs() <= REACH * std
        };
        if let Some((_, _, routing)) = self.routings.iter().find(|known| alike(known)) {
            return Arc::clone(routing);
        }
        let routing = Arc::new(Routing::new(mixture, std));
        self.routings.push((mixture.clone(), std, Arc::clone(&routing)));
        routing
    }

    /// What a weight's gradient is made of, noted down.
    fn write_weights_of(&mut self, at: &Site, component: &Component, [x, y]: [&Signal; 2], gradient: &Gradient) {
        match component {
            Component::Linear(linear) => {
                if let Some(bias) = &linear.bias {
                    let ln_gradient = self.domain.ln_summed(gradient);
                    self.write_weight(at, bias, ln_gradient);
                }
                let ln_gradient = self.domain.ln_collected(x, gradient);
                self.write_weight(at, &linear.weight, ln_gradient);
                // Experts see some of the tokens.
                if self.steps && at.expert().is_none() {
                    let ln_output = ln_sum(y.levels()) - (y.tokens.len() as f64).ln();
                    let ln_moved = linear::ln_moved(linear, &self.domain, x, gradient);
                    self.rows
                        .linear(LinearNote { tensor: linear.weight.name.clone(), ln_levels: [ln_output, ln_moved] });
                }
            }
            Component::Convolution(conv) => {
                if let Some(bias) = &conv.bias {
                    let ln_gradient = self.domain.ln_summed(gradient);
                    self.write_weight(at, bias, ln_gradient);
                }
                let ln_gradient = convolution::ln_weight_gradient(conv, x, gradient);
                self.write_weight(at, &conv.weight, ln_gradient);
            }
            Component::Embedding(term) => {
                let ln_gradient = positions::ln_weight_gradient(term, None, gradient);
                if let (Some(ln_gradient), Some(table)) = (ln_gradient, term.table()) {
                    self.write_weight(at, table, ln_gradient);
                }
            }
            Component::Prepend(prepend) => self.write_weight(at, &prepend.token, gradient.token().ln_second),
            Component::Norm(norm) => {
                if norm.has_own_gains() {
                    let ln_gradient = norm::ln_gain_gradient(norm, &self.domain, [x, y], gradient);
                    self.write_weight(at, &Tensor { name: at.gain(), init: Init::Zero }, ln_gradient);
                }
            }
            Component::Activation(_) | Component::Dropout(_) | Component::Scale(_) | Component::Rotary(_) => {}
        }
    }

    fn attend(
        &mut self,
        at: &Site,
        attention: &sigprop_stack::Attention,
        x: &Signal,
        parts: Vec<Signal>,
    ) -> (Signal, Kept) {
        let parts: [Signal; 3] = parts.try_into().expect("attention has the parts query, key, value");
        let length = self.domain.length(parts[1].tokens.len());
        let overlaps = self.overlaps.entry(length as usize).or_insert_with(|| Overlaps::new(length));
        let attended = Attended::new(attention, &self.domain, overlaps, x, parts);
        self.rows.caveat(at, attended.caveat());
        self.rows.attention(at, attended.sharpness(&self.domain));
        if self.sites == Sites::All && !at.recomputing() {
            let probabilities = attended.probabilities(&self.domain);
            let pooled = Pooled { ends: None, ..self.domain.pool(&probabilities) };
            self.rows.signal((at.layer(), at.sibling("softmax")), false, pooled, Matrix2::zeros());
        }
        (attended.output().clone(), Kept::Attention(Box::new(attended), x.clone()))
    }
}

/// The tokens of all parts at each position, from those of each part.
fn by_position(parts: &[Signal]) -> Vec<Vec<Token>> {
    (0..parts[0].tokens.len()).map(|i| parts.iter().map(|part| part.tokens[i]).collect()).collect()
}

impl Interpreter for Moments {
    type Signal = Signal;
    type Gradient = Gradient;
    type Kept = Kept;
    type Error = PredictError;

    fn source(&mut self, at: &Site, stream: &Stream) -> Result<Signal, PredictError> {
        if !self.domain.is_gram() {
            self.rows.caveat_at(&at.sibling(&stream.body[0].name), embedding::caveat(&stream.source));
        }
        self.streams.push(at.stream().to_owned());
        Ok(self.enter(&stream.source, stream.seq_len))
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

    fn seed(&mut self, _: &Site, seed: &GradientSeed, output: &Signal) -> Result<Gradient, PredictError> {
        let count = output.tokens.len();
        let cosines = self.domain.map(count, |_, _, _| seed.correlation);
        let width = output.token().width;
        let tokens = repeat_n(TokenGradient::isotropic(0.0), count).collect();
        let concentration = Concentration::fresh(width);
        let gradient = Gradient { concentration, ..Gradient::new(tokens, cosines) };
        let (shared, squares) = self.domain.shared_and_squares(&gradient, 0.0);
        let drawn = levels_covariance(2.0, shared, 2.0 * squares) / width;
        let fluctuation = Fluctuation::drawn(drawn);
        Ok(Gradient { fluctuation, ..gradient })
    }

    fn apply(&mut self, at: &Site, component: &Component, x: Signal) -> Result<(Signal, Kept), PredictError> {
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
        let Some(rule) = self.rule(component, &x) else {
            return Ok(match component {
                Component::Convolution(conv) => {
                    let y = convolution::forward(conv, &x);
                    (y.clone(), Kept::Convolution { x, y })
                }
                Component::Prepend(token) => (prepend::forward(token, &x), Kept::Prepend),
                Component::Linear(_)
                | Component::Norm(_)
                | Component::Activation(_)
                | Component::Dropout(_)
                | Component::Scale(_)
                | Component::Rotary(_)
                | Component::Embedding(_) => unreachable!("has a rule"),
            });
        };
        self.rows.caveat(at, rule.caveat(&x.tokens));
        let y = self.domain.apply(rule.as_ref(), &x);
        Ok((y.clone(), Kept::Apply { rule, x, y }))
    }

    fn apply_backward(
        &mut self,
        at: &Site,
        component: &Component,
        kept: Kept,
        gradient: Gradient,
    ) -> Result<Gradient, PredictError> {
        Ok(match (component, kept) {
            (_, Kept::Apply { rule, x, y }) => {
                self.write_weights_of(at, component, [&x, &y], &gradient);
                let coupled = matches!(component, Component::Norm(_) | Component::Rotary(_) | Component::Scale(_));
                let coupling = if coupled { gradient.coupling } else { 0.0 };
                Gradient { coupling, ..self.domain.apply_backward(rule.as_ref(), &x, &y, &gradient) }
            }
            (Component::Norm(norm), Kept::Steps(kept)) => {
                if let Some(Kept::Apply { x, .. }) = kept.last().filter(|_| norm.has_own_gains()) {
                    let ln_gradient = self.domain.ln_collected(x, &gradient);
                    self.write_weight(at, &Tensor { name: at.gain(), init: Init::Zero }, ln_gradient);
                }
                let steps = norm.steps().expect("steps are kept of a norm that has some");
                steps
                    .iter()
                    .zip(kept)
                    .rev()
                    .try_fold(gradient, |gradient, (step, kept)| self.apply_backward(at, step, kept, gradient))?
            }
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

    fn fork(&mut self, _: &Site, input: &Signal) -> Signal {
        let tokens = input.tokens.iter().map(|token| Token { sensitivity: 1.0, ..*token }).collect();
        let concentration = Concentration { inherited: 1.0, ..input.concentration };
        Signal { tokens, concentration, fluctuation: input.fluctuation.forked(), ..input.clone() }
    }

    fn merge(&mut self, at: &Site, fan: Fan, x: Signal, parts: Vec<Signal>) -> Result<(Signal, Kept), PredictError> {
        // What the parts have from the fork, the fork has from the one before.
        let before = x.clone();
        let inherit = |mut y: Signal| {
            let scaled =
                |(token, x): (&Token, &Token)| Token { sensitivity: token.sensitivity * x.sensitivity, ..*token };
            y.tokens = y.tokens.iter().zip(before.tokens.iter()).map(scaled).collect();
            y.concentration.inherited *= before.concentration.inherited;
            y.fluctuation.kept *= before.fluctuation.kept;
            y
        };
        Ok(match fan {
            Fan::Sum(sum) => {
                let rule = sum::Rule::new(sum);
                let tokens: Arc<[Token]> =
                    x.tokens.iter().zip(by_position(&parts)).map(|(x, parts)| rule.token(x, &parts)).collect();
                let (y, maps) = rule.signal(&self.domain, &x, &parts, tokens);
                let output = y.clone();
                (y, Kept::Sum { rule, x, branches: parts, output, maps })
            }
            Fan::Product(_) => {
                let tokens = by_position(&parts).iter().map(|factors| product::token(factors)).collect();
                let cosines = product::cosines(&self.domain, &x, &parts);
                let y = Signal::new(tokens, cosines);
                let (fluctuation, maps) = product::fluctuation(&self.domain, &x, &parts, &y);
                let concentration = product::concentration(&parts, &y, &|signal| self.domain.mean_cosine(signal));
                let y = Signal { concentration, fluctuation, ..y };
                (inherit(y.clone()), Kept::Product { x, factors: parts, output: y, maps })
            }
            Fan::Concat(concat) => {
                let (y, maps) = concat::forward(concat, &self.domain, &x, &parts);
                (inherit(y.clone()), Kept::Concat { x, parts, output: y, maps })
            }
            Fan::Attention(attention) => {
                let (output, kept) = self.attend(at, attention, &x, parts);
                (inherit(output), kept)
            }
            Fan::Mixture(mixture) => {
                let routing = self.routing(mixture, &x);
                let expert = parts.into_iter().next().expect("one expert stands for all");
                let ln_gain = 2.0 * mixture.scale.abs().ln() + routing.own().ln();
                let tokens = expert
                    .tokens
                    .iter()
                    .map(|token| Token { ln_second: token.ln_second + ln_gain, ..Token::gaussian(token.width, 0.0) });
                let cosines = self.domain.map(expert.tokens.len(), |_, _, place| {
                    expert.cosines[place] * routing.overlap(x.cosines[place]) / routing.own()
                });
                let y = Signal { tokens: tokens.collect(), cosines, ..expert.clone() };
                // Tokens of different experts have different weights.
                let (shared, squares) = self.domain.shared_and_squares(&y, 0.0);
                let entries = levels_covariance(2.0, shared, 2.0 * squares) / y.token().width;
                let fluctuation = Fluctuation { entries, centred: entries[(1, 1)], ..expert.fluctuation };
                let y = Signal { fluctuation, ..y };
                (inherit(y), Kept::Mixture { routing, x, expert, router_gradient: None })
            }
        })
    }

    fn split(
        &mut self,
        at: &Site,
        fan: Fan,
        kept: &mut Kept,
        gradient: Gradient,
    ) -> Result<Vec<Gradient>, PredictError> {
        self.splits.push(gradient.clone());
        Ok(match (fan, kept) {
            (Fan::Sum(_), Kept::Sum { rule, branches, output, maps, .. }) => {
                let positions = by_position(branches);
                let part = |index: usize| {
                    let tokens = positions.iter().zip(output.tokens.iter()).zip(gradient.tokens.iter());
                    let tokens = tokens.map(|((parts, output), g)| rule.split(index, parts, output, g)).collect();
                    let concentration = Concentration { inherited: 1.0, ..gradient.concentration };
                    Gradient {
                        tokens,
                        cosines: Arc::clone(&gradient.cosines),
                        coupling: 0.0,
                        concentration,
                        fluctuation: rule.dropped(index, gradient.fluctuation.forked()),
                        response: maps[index] * gradient.response,
                    }
                };
                (0..branches.len()).map(part).collect()
            }
            (Fan::Product(_), Kept::Product { factors, maps, .. }) => {
                let positions = by_position(factors);
                let part = |index: usize| {
                    let tokens = positions.iter().zip(gradient.tokens.iter());
                    let tokens: Arc<[TokenGradient]> =
                        tokens.map(|(factors, g)| product::split(factors, index, g)).collect();
                    let cosines = self.domain.map(tokens.len(), |_, _, place| {
                        let others = factors.iter().enumerate().filter(|(i, _)| *i != index);
                        gradient.cosines[place] * others.map(|(_, factor)| factor.cosines[place]).product::<f64>()
                    });
                    let concentration = Concentration { inherited: 1.0, ..gradient.concentration };
                    let part = Gradient { concentration, ..Gradient::new(tokens, cosines) };
                    let fluctuation = product::split_fluctuation(&self.domain, factors, index, &gradient, &part);
                    Gradient { fluctuation, response: maps[index].transpose() * gradient.response, ..part }
                };
                (0..factors.len()).map(part).collect()
            }
            (Fan::Concat(concat), Kept::Concat { parts, maps, .. }) => concat::split(concat, parts, maps, &gradient),
            (Fan::Attention(attention), Kept::Attention(attended, _)) => {
                if self.sites == Sites::All && at.is_observed() {
                    let backward = attended.probabilities_backward(attention, &gradient);
                    let pooled = Pooled { ends: None, ..self.domain.pool_gradient(&backward) };
                    self.rows.gradient(&at.sibling("softmax"), pooled, Vector2::zeros());
                }
                attended.split(attention, &self.domain, &gradient).into()
            }
            (Fan::Mixture(mixture), Kept::Mixture { routing, x, expert, router_gradient }) => {
                let overlap = |place: usize| routing.overlap(x.cosines[place]) / routing.own();
                let ln_scale = 2.0 * mixture.scale.abs().ln();
                let scores = gradient.tokens.iter().zip(expert.tokens.iter()).map(|(g, f)| {
                    let ln_second = g.ln_second + f.ln_second + (routing.jacobian * f.width).ln() + ln_scale;
                    TokenGradient::isotropic(ln_second - (mixture.n_experts as f64).ln())
                });
                let cosines = self.domain.map(x.tokens.len(), |_, _, place| {
                    gradient.cosines[place] * expert.cosines[place] * overlap(place)
                });
                let scores = Gradient::new(scores.collect(), cosines);
                let ln_gradient = self.domain.ln_collected(x, &scores);
                self.write_weight(at, &mixture.router, ln_gradient);
                let ln_router = (mixture.n_experts as f64 * mixture.router.init.variance()).ln();
                let tokens = scores.tokens.iter().map(|token| token.scaled(ln_router)).collect();
                *router_gradient = Some(Gradient { tokens, ..scores });
                let tokens = gradient.tokens.iter().map(|token| token.scaled(ln_scale + routing.own().ln()));
                let cosines = self.domain.map(x.tokens.len(), |_, _, place| gradient.cosines[place] * overlap(place));
                self.experts *= mixture.n_experts as f64;
                vec![Gradient {
                    concentration: Concentration { inherited: 1.0, ..gradient.concentration },
                    fluctuation: gradient.fluctuation.forked(),
                    response: gradient.response,
                    ..Gradient::new(tokens.collect(), cosines)
                }]
            }
            (Fan::Sum(_) | Fan::Product(_) | Fan::Concat(_) | Fan::Attention(_) | Fan::Mixture(_), _) => {
                unreachable!("merge keeps what fits the fan")
            }
        })
    }

    fn join(&mut self, _: &Site, fan: Fan, kept: Kept, mut parts: Vec<Gradient>) -> Result<Gradient, PredictError> {
        if let (Fan::Mixture(mixture), Kept::Mixture { router_gradient: Some(router), .. }) = (fan, &kept) {
            self.experts /= mixture.n_experts as f64;
            parts.push(router.clone());
        }
        let gradient = self.splits.pop().expect("what joins was split");
        let count = parts[0].tokens.len();
        let mut tokens = Vec::with_capacity(count);
        let mut roots: Vec<Vec<f64>> = parts.iter().map(|_| Vec::with_capacity(count)).collect();
        for i in 0..count {
            let at: Vec<TokenGradient> = parts.iter().map(|part| part.tokens[i]).collect();
            let (token, weight) = match &kept {
                Kept::Sum { rule, x, branches, output, .. } => {
                    let branches: Vec<Token> = branches.iter().map(|branch| branch.tokens[i]).collect();
                    rule.join(&x.tokens[i], &branches, &output.tokens[i], &gradient.tokens[i], &at)
                }
                Kept::Product { x, factors, .. } => {
                    let factors: Vec<Token> = factors.iter().map(|factor| factor.tokens[i]).collect();
                    product::join(&x.tokens[i], &factors, &gradient.tokens[i], &at)
                }
                Kept::Attention(..) | Kept::Concat { .. } | Kept::Mixture { .. } => TokenGradient::join(&at),
                Kept::Apply { .. } | Kept::Steps(_) | Kept::Convolution { .. } | Kept::Prepend => {
                    unreachable!("no fan")
                }
            };
            tokens.push(token);
            roots.iter_mut().zip(weight).for_each(|(roots, weight)| roots.push(weight.sqrt()));
        }
        let cosines = self.domain.map(count, |i, j, place| {
            roots.iter().zip(&parts).map(|(roots, part)| roots[i] * roots[j] * part.cosines[place]).sum()
        });
        let shares = weights(&parts);
        let (x, fork) = match &kept {
            Kept::Sum { x, branches: parts, output, maps, .. }
            | Kept::Product { x, factors: parts, output, maps }
            | Kept::Concat { x, parts, output, maps } => (x, Some(Fork { x, parts, maps, output })),
            Kept::Attention(_, x) | Kept::Mixture { x, .. } => (x, None),
            Kept::Apply { .. } | Kept::Steps(_) | Kept::Convolution { .. } | Kept::Prepend => unreachable!("no fan"),
        };
        let width = x.token().width;
        let concentration = Domain::joined_concentration(&parts, gradient.concentration, width);
        let terms: Vec<Term> = parts
            .iter()
            .zip(&shares)
            .map(|(part, &share)| Term { share, cosines: &part.cosines, fluctuation: part.fluctuation })
            .collect();
        let levels = tokens.iter().map(|token| token.ln_second);
        let (fluctuation, _) = self.domain.joined(gradient.fluctuation, &terms, &levels, &cosines, width);
        let (fluctuation, response) = match fork {
            Some(fork) => {
                let met = fluctuation.met(fork.fresh(&shares), gradient.response);
                (met, fork.response(&gradient, &parts, &shares))
            }
            None => (fluctuation, parts.iter().zip(&shares).map(|(part, share)| part.response * *share).sum()),
        };
        Ok(Gradient { concentration, fluctuation, response, ..Gradient::new(tokens.into(), cosines) })
    }

    fn accumulate(&mut self, sum: Gradient, more: Gradient) -> Result<Gradient, PredictError> {
        let parts = [sum, more];
        let joined: Vec<(TokenGradient, Vec<f64>)> = (0..parts[0].tokens.len())
            .map(|i| TokenGradient::join(&[parts[0].tokens[i], parts[1].tokens[i]]))
            .collect();
        let cosines = self.domain.map(joined.len(), |i, j, place| {
            (0..2).map(|p| (joined[i].1[p] * joined[j].1[p]).sqrt() * parts[p].cosines[place]).sum()
        });
        // What strays is told of the larger one: their deviations together are not followed.
        let larger = usize::from(weights(&parts)[1] > 0.5);
        let Gradient { concentration, fluctuation, response, .. } = parts[larger];
        let tokens = joined.into_iter().map(|(token, _)| token).collect();
        Ok(Gradient { concentration, fluctuation, response, ..Gradient::new(tokens, cosines) })
    }

    /// All experts are alike.
    fn experts(&self, _: &Mixture) -> usize {
        1
    }

    fn observe(&mut self, at: &Site, signal: &Signal) {
        if self.tells(at) {
            self.rows.caveat(at, signal.fluctuation.caveat().filter(|_| at.is_stream_site()));
            // How far levels stray was sampled on the stream alone.
            let spread = at.is_stream_site().then(|| self.domain.spread(signal));
            let pooled = Pooled { spread, ..self.domain.pool(signal) };
            self.rows.signal((at.layer(), at.to_string()), at.is_stream_site(), pooled, signal.fluctuation.total());
        }
    }

    fn observe_gradient(&mut self, at: &Site, gradient: &Gradient) {
        if self.tells(at) {
            let pooled = self.domain.pool_gradient(gradient);
            // One expert has its part of what reaches all.
            let ln_part = if at.expert().is_some() { -self.experts.ln() } else { 0.0 };
            let spread = at.is_stream_site().then(|| gradient.fluctuation.of_second());
            let pooled = Pooled { ln_unit: pooled.ln_unit + ln_part, spread, ..pooled };
            self.rows.gradient(at.path(), pooled, gradient.response);
        }
    }

    /// A matrix per place would not fit for every block.
    fn keeps(&self, at: &Site) -> bool {
        !(self.domain.is_gram() && at.is_stream_site())
    }
}
