//! The network of finite width as an interpreter of stacks: the infinitely wide one, and the expansion about it.

use std::sync::Arc;

use foldhash::{HashMap, HashMapExt};
use nalgebra::{DMatrix, Matrix2, Vector2};
use sigprop_stack::{
    Activation, Attention, Component, Fan, GradientSeed, Interpreter, Linear, Mixture, Node, Norm, NormKind, Op, Site,
    Source, Stack, Stream, Sum, Tensor, run,
};

use super::mean_field::{not_followed, pooled, rule};
use super::rows::{Rows, WeightNote};
use super::{PredictError, Sites};
use crate::domain::Pooled;
use crate::finite_width::attention;
use crate::finite_width::attention::averages::Table;
use crate::finite_width::backward::Conditional;
use crate::finite_width::chart::{self, About, Gain, Map, correlation};
use crate::finite_width::component::{Answer, Place};
use crate::finite_width::entries::EntryMoments;
use crate::finite_width::expansion::{Applied, Attended, Coupling, Expansion, Merged};
use crate::finite_width::forward::Fluctuations;
use crate::finite_width::jet::Jet;
use crate::finite_width::noise::Matrix;
use crate::finite_width::stream;
use crate::mean_field;
use crate::mean_field::attention::View;
use crate::mean_field::component::{Fan as LeadingFan, MeanField, Parameter};
use crate::mean_field::dual::{Dual, function};
use crate::mean_field::embedding;
use crate::mean_field::gradient::{Gradient as Leading, Next};
use crate::mean_field::kernel::Kernel;
use crate::mean_field::positions::{Positions, layout::hides_nothing};
use crate::mean_field::signal::Signal as Moments;
use crate::rules::attention::Sharpness;

/// A stream: its moments at infinite width, its entries, and its place among all that are live.
#[derive(Clone)]
pub(super) struct Signal {
    moments: Arc<Moments<f64>>,
    stream: Arc<stream::Stream>,
    place: usize,
    /// Of queries, keys and values, which belong to their attention: the expansion as if they were the stream.
    inside: Option<Arc<Expansion>>,
}

/// Its gradient: moments at infinite width, the rest is in the expansion.
pub(super) struct Gradient {
    leading: Leading<f64>,
    place: usize,
    /// Of queries, keys and values: what it is given the input of their attention.
    inside: Option<Inside>,
}

/// The gradient of queries, keys or values.
struct Inside {
    given: Conditional,
    /// Of keys, whose products with the input nearly cancel: that of the queries, and E dW² of the weights of keys over that of queries.
    queries: Option<(Conditional, f64)>,
}

/// What the backward pass of a node needs.
pub(super) enum Kept {
    Apply {
        x: Arc<Moments<f64>>,
        y: Arc<Moments<f64>>,
        applied: Box<Applied>,
    },
    /// Of a norm that is made of others.
    Steps(Vec<Kept>),
    /// Of a map of queries, keys or values: fluctuations at the input of their attention.
    Inside {
        x: Signal,
        y: Arc<Moments<f64>>,
        fluctuations: Fluctuations,
    },
    Fan(Box<KeptFan>),
    Attention(Box<KeptAttention>),
}

/// What that of an attention needs.
pub(super) struct KeptAttention {
    x: Signal,
    attended: mean_field::attention::Attended<f64>,
    expanded: Attended,
    forked: Forked,
}

/// What that of a fan needs.
pub(super) struct KeptFan {
    x: Signal,
    parts: Vec<Arc<Moments<f64>>>,
    merged: Merged,
    forked: Forked,
}

/// What forks of a fan did.
#[derive(Default)]
pub(super) struct Forked {
    /// To the common input.
    drawn: Option<Matrix>,
    jacobians: Vec<DMatrix<f64>>,
}

/// The walk.
pub(super) struct Walk {
    sites: Sites,
    rows: Rows,
    activations: HashMap<function::Words, Dual>,
    moments: HashMap<(function::Words, i64, i64), Arc<EntryMoments>>,
    averages: Table,
    expansion: Expansion,
    /// Fans that are open.
    forks: Vec<Forked>,
    /// Fluctuations at the sites that were observed, for the way back.
    observed: Vec<Fluctuations>,
}

impl Walk {
    /// What is found in `stack`.
    pub(super) fn through(sites: Sites, stack: &Stack) -> Result<Rows, PredictError> {
        let mut walk = Self {
            sites,
            rows: Rows::default(),
            activations: HashMap::new(),
            moments: HashMap::new(),
            averages: Table::default(),
            expansion: Expansion::new(1.0),
            forks: Vec::new(),
            observed: Vec::new(),
        };
        run(stack, &mut walk)?;
        Ok(walk.rows)
    }

    fn tells(&self, at: &Site) -> bool {
        self.sites == Sites::All || at.is_stream_site()
    }

    fn activation(&mut self, activation: Activation) -> Dual {
        let words = function::words(activation);
        self.activations.entry(words).or_insert_with(|| Dual::new(activation)).clone()
    }

    /// Moments of entries of `x` behind an activation, on a grid that terms of order 1/width do not see.
    fn entries(&mut self, activation: Activation, x: About<'_>) -> Arc<EntryMoments> {
        /// Of ln E x² and of r.
        const STEPS: [f64; 2] = [16.0, 64.0];
        let (level, ln_unit) = x.level();
        let level = level.ln() + ln_unit;
        let level = if function::homogeneous(activation).is_some() { 0.0 } else { (level * STEPS[0]).round() };
        let r = (x.correlation() * STEPS[1]).round();
        let key = (function::words(activation), level as i64, r as i64);
        let new = || Arc::new(EntryMoments::new(activation, (level / STEPS[0]).exp(), r / STEPS[1]));
        Arc::clone(self.moments.entry(key).or_insert_with(new))
    }

    /// Forward through a component whose rule is known for numbers and for jets.
    fn applied<C>(&mut self, c: &C, x: &Signal, of_overlaps: bool, answer: Question<'_>) -> (Signal, Kept)
    where
        C: MeanField<f64> + MeanField<Jet<3>> + ?Sized,
    {
        let y = Arc::new(MeanField::<f64>::forward(c, &x.moments));
        let answer = |place: &Place<'_>| answer(place, &x.moments, &y);
        let map = |means| chart::component(c, About { x: &x.moments, means }, &y);
        let (stream, applied) = self.expansion.apply((x.place, &x.stream), of_overlaps, map, answer);
        let kept = Kept::Apply { x: Arc::clone(&x.moments), y: Arc::clone(&y), applied: Box::new(applied) };
        (Signal { moments: y, stream: Arc::new(stream), place: x.place, inside: None }, kept)
    }

    /// ln E dW² of parameters of a component, and the gradient at its input at infinite width.
    fn returned<C>(
        &mut self,
        at: &Site,
        c: &C,
        kept: (&Moments<f64>, &Moments<f64>, Applied),
        gradient: &Leading<f64>,
    ) -> Leading<f64>
    where
        C: MeanField<f64> + ?Sized,
    {
        let (x, y, applied) = kept;
        let back = c.backward(x, y, gradient);
        let weights = c.weights(x, y, gradient);
        if !weights.is_empty() {
            let is_gain = matches!(weights[0].0, Parameter::Gain);
            let with = self.expansion.coupling(&applied, !is_gain);
            let with = coupled(gradient, with, if is_gain { &y.kernel } else { &x.kernel });
            let alone = self.expansion.gradient(applied.place(), applied.after());
            let alone = coupled(gradient, Coupling { ln_own: alone.0, pair: alone.1 }, &ones(&y.kernel));
            self.write_weights(at, c.weights(x, y, &with), c.weights(x, y, &alone));
        }
        self.expansion.apply_backward(applied);
        back
    }

    /// Forward through a component of queries, keys or values.
    fn inside(&mut self, at: &Site, component: &Component, x: &Signal) -> Result<(Signal, Kept), PredictError> {
        let Component::Linear(linear) = component else {
            return Err(not_followed(at, "other than linear maps of queries, keys and values"));
        };
        let y = Arc::new(MeanField::<f64>::forward(linear, &x.moments));
        let mut expansion = x.inside.as_deref().expect("it is inside").clone();
        let answer = |place: &Place<'_>| place.linear(linear, without_bias(linear, &y));
        let map = |means| chart::component(linear, About { x: &x.moments, means }, &y);
        let (stream, _) = expansion.apply((x.place, &x.stream), true, map, answer);
        let kept =
            Kept::Inside { x: x.clone(), y: Arc::clone(&y), fluctuations: self.expansion.fluctuations().clone() };
        let inside = Some(Arc::new(expansion));
        Ok((Signal { moments: y, stream: Arc::new(stream), place: x.place, inside }, kept))
    }

    /// Back through a map of queries, keys or values.
    fn inside_backward(
        &mut self,
        at: &Site,
        linear: &Linear,
        (x, y, fluctuations): (&Signal, &Moments<f64>, &Fluctuations),
        gradient: Gradient,
    ) -> Gradient {
        let Gradient { leading, place, inside } = gradient;
        let Inside { mut given, queries } = inside.expect("it is inside");
        let r = correlation(&x.moments.kernel) + fluctuations.means(place)[1];
        let (of, factor) = queries.unwrap_or_else(|| (given.clone(), 1.0));
        let mut with = Coupling::new(of, place, fluctuations, r);
        with.ln_own += factor.ln();
        let with = Leading { next: Next::Anything, ..coupled(&leading, with, &x.moments.kernel) };
        let (ln_own, pair) = given.at(fluctuations);
        let alone = coupled(&leading, Coupling { ln_own, pair }, &ones(&y.kernel));
        self.write_weights(at, linear.weights(&x.moments, y, &with), linear.weights(&x.moments, y, &alone));
        let back = linear.backward(&x.moments, y, &leading);
        let one = MeanField::<f64>::backward(linear, &x.moments, y, &Leading::independent(ones(&y.kernel)));
        given.ln_own.value += one.kernel.own[0].ln() + one.kernel.ln_unit;
        Gradient { leading: back, place, inside: Some(Inside { given, queries: None }) }
    }

    /// Through an attention whose parts are linear maps of `x`: of two tagged tokens among others, of rows that integrals reach.
    fn attend(
        &mut self,
        at: &Site,
        attention: &Attention,
        x: Signal,
        parts: &[Signal],
    ) -> Result<(Signal, Kept), PredictError> {
        let length = x.moments.kernel.positions.length as usize;
        if !hides_nothing(attention.mask, length) || attention.bias.is_some() || attention.memory.is_some() {
            return Err(not_followed(at, "masks, biases of positions and memories"));
        }
        if length < FEWEST {
            return Err(not_followed(at, "attention of fewer than four tokens"));
        }
        let forked = self.forks.pop().expect("the fan was opened");
        let linear = || not_followed(at, "other than linear maps of queries, keys and values");
        let [query, key, value] = [0, 1, 2].map(|part: usize| Arc::clone(&parts[part].moments));
        let score = attention.scale.powi(2) * attention.d_head as f64 * (ln_level(&query) + ln_level(&key)).exp();
        let attended = mean_field::attention::Attended::new(attention, &[(1.0, View::Everywhere)], [query, key, value]);
        self.write_attention(at, &attended);
        let y = attended.output();
        let means = self.expansion.means(x.place);
        let about = About { x: &x.moments, means };
        let score = score * (2.0 * means[0]).exp();
        let apart = 1.0 - about.correlation();
        if apart < LEAST {
            return Err(not_followed(at, "attention of tokens that are copies"));
        }
        if score * apart > SHARPEST {
            return Err(not_followed(at, "scores of a variance above 100"));
        }
        let leading = attention::Leading::new(attention, about, &y.kernel).ok_or_else(linear)?;
        let keys = y.kernel.positions.length;
        let of = (attention, [score, keys]);
        let rows = &mut self.averages;
        let averages = |w, rho| rows.at(w, rho, keys);
        let input = stream::Stream { correlation: x.stream.leading + means[1], ..(*x.stream).clone() };
        let (stream, expanded) = self.expansion.attend((x.place, &input), of, leading, y.width, averages);
        let place = x.place;
        let kept = Kept::Attention(Box::new(KeptAttention { x, attended, expanded, forked }));
        Ok((Signal { moments: y, stream: Arc::new(stream), place, inside: None }, kept))
    }

    fn write_attention(&mut self, at: &Site, attended: &mean_field::attention::Attended<f64>) {
        let [ln_score, attended_keys, in_view] = attended.sharpness();
        self.rows.attention(at, Sharpness { ln_score, attended: attended_keys, in_view });
        if self.sites == Sites::All {
            let weights = attended.weights();
            let pooled = Pooled { ends: None, ..pooled(&weights.kernel, |node| weights.mean(node)) };
            self.rows.signal((at.layer(), at.sibling("softmax")), false, pooled, Matrix2::zeros());
        }
    }

    /// Writes what weights of a component collect with their input, and its biases alone.
    fn write_weights<'p>(
        &mut self,
        at: &Site,
        with: impl IntoIterator<Item = (Parameter<'p>, f64)>,
        alone: impl IntoIterator<Item = (Parameter<'p>, f64)>,
    ) {
        for (with, alone) in with.into_iter().zip(alone) {
            let (parameter, ln) = if matches!(with.0, Parameter::Bias(_)) { alone } else { with };
            self.write_weight(at, parameter, ln);
        }
    }

    fn write_weight(&mut self, at: &Site, parameter: Parameter<'_>, ln_second_moment: f64) {
        let (tensor, variance) = match parameter {
            Parameter::Tensor(Tensor { name, init }) | Parameter::Bias(Tensor { name, init }) => {
                (name.clone(), init.variance())
            }
            Parameter::Gain => (at.gain(), 0.0),
        };
        self.rows.weight(WeightNote { layer: at.layer(), tensor, variance, ln_second_moment });
    }
}

/// How many tokens an attention has at least.
const FEWEST: usize = 4;
/// The largest variance of what scores of one row differ in.
const SHARPEST: f64 = 100.0;
/// What two tokens differ in at least, of what they have.
const LEAST: f64 = 1e-9;

/// What a component answers, from its place and its moments.
type Question<'q> = &'q dyn Fn(&Place<'_>, &Moments<f64>, &Moments<f64>) -> Answer;

/// E x² on a scale of logarithms.
fn ln_level(x: &Moments<f64>) -> f64 {
    x.kernel.own[0].ln() + x.kernel.ln_unit
}

/// The share of the square of the mean.
fn mean_share(x: &Moments<f64>) -> f64 {
    if x.kernel.own[0] > 0.0 { x.mean(0).powi(2) / x.kernel.own[0] } else { 0.0 }
}

/// The share of E y² that does not come from the bias.
fn without_bias(linear: &Linear, y: &Moments<f64>) -> f64 {
    let bias = linear.bias.as_ref().map_or(0.0, |bias| bias.init.variance());
    if bias > 0.0 { 1.0 - bias * (-ln_level(y)).exp() } else { 1.0 }
}

/// E dW² of the weights of keys over that of queries: with M = Σ_ab dL/ds_ab x_b x_aᵀ they are W_Q Mᵀ and W_K M, and what M
/// knows of either is of higher order.
fn weights_of_keys(attention: &Attention) -> f64 {
    let variance = |body: &[Node]| match body.last().map(|node| &node.op) {
        Some(Op::Apply(Component::Linear(linear))) => linear.weight.init.variance(),
        _ => 1.0,
    };
    let group = attention.n_heads as f64 / attention.n_kv_heads as f64;
    group * variance(&attention.query) / variance(&attention.key)
}

/// A kernel of ones.
fn ones(like: &Kernel<f64>) -> Kernel<f64> {
    Kernel::new(&like.positions, |_| 1.0, |_| 1.0)
}

/// A gradient of which products with a signal are these, over E x² of a signal with this kernel.
fn coupled(gradient: &Leading<f64>, Coupling { ln_own, pair }: Coupling, x: &Kernel<f64>) -> Leading<f64> {
    /// Of two tokens, below which products of pairs count as those of single ones.
    const SMALL: f64 = 1e-6;
    let positions = &x.positions;
    let r = correlation(x);
    let (own, pair) = if r.abs() > SMALL { (1.0, pair / r) } else { (1.0 + (positions.length - 1.0) * pair, 0.0) };
    let kernel = Kernel { ln_unit: ln_own, ..Kernel::new(positions, |_| own, |_| pair) };
    Leading { kernel, ..gradient.clone() }
}

/// A fan of up to four parts.
fn fan<F>(fan: &F, parts: &[About<'_>], y: &Moments<f64>) -> (Map, Vec<Gain>)
where
    F: LeadingFan<Jet<3>> + LeadingFan<Jet<6>> + LeadingFan<Jet<9>> + LeadingFan<Jet<12>>,
{
    match parts.len() {
        1 => chart::fan::<3, _>(fan, parts, y),
        2 => chart::fan::<6, _>(fan, parts, y),
        3 => chart::fan::<9, _>(fan, parts, y),
        _ => chart::fan::<12, _>(fan, parts, y),
    }
}

/// E x²/(E x² + ε) of what a norm divides by.
fn normed_share(norm: &Norm, x: &Moments<f64>) -> f64 {
    let share = if norm.kind == NormKind::LayerNorm { 1.0 - mean_share(x) } else { 1.0 };
    let ln_second = ln_level(x) + share.ln();
    1.0 / (1.0 + (norm.eps.ln() - ln_second).exp())
}

impl Interpreter<'_> for Walk {
    type Signal = Signal;
    type Gradient = Gradient;
    type Kept = Kept;
    type Error = PredictError;

    fn source(&mut self, _: &Site, stream: &Stream) -> Result<Signal, PredictError> {
        let Source::Gaussian(gaussian) = &stream.source else {
            return Err(PredictError::NotFollowed { site: stream.name.clone(), what: "embeddings of ids" });
        };
        let length = stream.seq_len as f64;
        let positions = Arc::new(Positions::groups(&[length], None));
        let moments = Arc::new(embedding::gaussian(gaussian, &positions));
        self.expansion = Expansion::new(length);
        let stream = Arc::new(stream::Stream::drawn(moments.width, [correlation(&moments.kernel); 2], 0.0));
        Ok(Signal { moments, stream, place: 0, inside: None })
    }

    fn source_backward(&mut self, _: &Site, _: &Stream, _: Gradient) -> Result<(), PredictError> {
        Ok(())
    }

    fn seed(&mut self, _: &Site, seed: &GradientSeed, output: &Signal) -> Result<Gradient, PredictError> {
        self.expansion.seed(seed.correlation, output.moments.width);
        let kernel = Kernel::new(&output.moments.kernel.positions, |_| 1.0, |_| seed.correlation);
        Ok(Gradient { leading: Leading::independent(kernel), place: output.place, inside: None })
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
        if x.inside.is_some() {
            return self.inside(at, component, &x);
        }
        Ok(match component {
            Component::Linear(linear) => {
                self.applied(linear, &x, true, &|place, _, y| place.linear(linear, without_bias(linear, y)))
            }
            Component::Norm(norm) => {
                self.applied(norm, &x, true, &|place, x, _| place.norm(norm, normed_share(norm, x)))
            }
            Component::Dropout(dropout) => self.applied(dropout, &x, false, &|place, _, _| place.dropout(*dropout)),
            Component::Scale(scale) => self.applied(scale, &x, false, &|place, _, _| place.scale()),
            Component::Activation(activation) => {
                let means = self.expansion.means(x.place);
                let moments = self.entries(*activation, About { x: &x.moments, means });
                let dual = self.activation(*activation);
                self.applied(&dual, &x, false, &|place, _, y| place.activation(&moments, mean_share(y)))
            }
            Component::Embedding(_) => return Err(not_followed(at, "embeddings")),
            Component::Rotary(_) => return Err(not_followed(at, "rotations")),
            Component::Convolution(_) => return Err(not_followed(at, "convolutions")),
            Component::Prepend(_) => return Err(not_followed(at, "prepended tokens")),
        })
    }

    fn apply_backward(
        &mut self,
        at: &Site,
        component: &Component,
        kept: Kept,
        gradient: Gradient,
    ) -> Result<Gradient, PredictError> {
        if let (Component::Linear(linear), Kept::Inside { x, y, fluctuations }) = (component, &kept) {
            return Ok(self.inside_backward(at, linear, (x, y, fluctuations), gradient));
        }
        let Gradient { leading, place, .. } = gradient;
        let leading = match (component, kept) {
            (Component::Activation(activation), Kept::Apply { x, y, applied }) => {
                let dual = self.activation(*activation);
                self.returned(at, &dual, (&x, &y, *applied), &leading)
            }
            (Component::Norm(norm), Kept::Steps(kept)) => {
                let steps = norm.steps().expect("steps are kept of a norm that has some");
                let backward = |gradient, (step, kept)| self.apply_backward(at, step, kept, gradient);
                let gradient = Gradient { leading, place, inside: None };
                return steps.iter().zip(kept).rev().try_fold(gradient, backward);
            }
            (_, Kept::Apply { x, y, applied }) => {
                let rule = rule(at, component, &x.kernel.positions)?;
                self.returned(at, rule, (&x, &y, *applied), &leading)
            }
            (_, Kept::Steps(_) | Kept::Inside { .. } | Kept::Fan(_) | Kept::Attention(_)) => {
                unreachable!("apply keeps what fits the component")
            }
        };
        Ok(Gradient { leading, place, inside: None })
    }

    fn fork(&mut self, _: &Site, fan: Fan, input: &Signal, part: usize) -> Signal {
        let mut stream = (*input.stream).clone();
        let mut place = input.place;
        let is_inside = matches!(fan, Fan::Attention(_));
        if part == 0 {
            let (settled, drawn) = self.expansion.settle(place, &stream);
            stream = settled;
            self.forks.push(Forked { drawn, jacobians: Vec::new() });
        } else if !is_inside {
            let (copy, jacobian) = self.expansion.fork(place);
            self.forks.last_mut().expect("the first part opened it").jacobians.push(jacobian);
            place = copy;
        }
        let stream = Arc::new(stream::Stream { drawn: None, susceptibility: [1.0; 2], ..stream });
        let inside = is_inside.then(|| Arc::new(self.expansion.clone()));
        Signal { moments: Arc::clone(&input.moments), stream, place, inside }
    }

    fn merge(&mut self, at: &Site, of: Fan, x: Signal, parts: Vec<Signal>) -> Result<(Signal, Kept), PredictError> {
        if let Fan::Attention(attention) = of {
            return self.attend(at, attention, x, &parts);
        }
        let places: Vec<usize> = parts.iter().map(|part| part.place).collect();
        let streams: Vec<stream::Stream> = parts.iter().map(|part| (*part.stream).clone()).collect();
        let parts: Vec<Arc<Moments<f64>>> = parts.into_iter().map(|part| part.moments).collect();
        if parts.len() > 4 {
            return Err(not_followed(at, "more than four branches"));
        }
        let about = |means: &[[f64; 2]]| -> Vec<About<'_>> {
            parts.iter().zip(means).map(|(x, &means)| About { x, means }).collect()
        };
        let forked = self.forks.pop().expect("the fan was opened");
        let ratio = |y: &Moments<f64>| (ln_level(y) - ln_level(&x.moments)).exp();
        let (y, stream, merged) = match of {
            Fan::Sum(sum) => {
                if sum.branches.iter().any(|branch| branch.drop_rate > 0.0) {
                    return Err(not_followed(at, "dropped branches"));
                }
                let y = LeadingFan::<f64>::merge(sum, &x.moments, &parts);
                let map = |means: &[[f64; 2]]| fan::<Sum>(sum, &about(means), &y);
                let (stream, merged) = self.expansion.sum(&x.stream, &places, streams, map, ratio(&y));
                (y, stream, merged)
            }
            Fan::Product(product) => {
                let y = LeadingFan::<f64>::merge(product, &x.moments, &parts);
                let map = |means: &[[f64; 2]]| fan(product, &about(means), &y);
                let of = [mean_share(&y), ratio(&y)];
                let (stream, merged) = self.expansion.product(&x.stream, &places, &streams, map, of);
                (y, stream, merged)
            }
            Fan::Attention(_) => unreachable!("it has a rule of its own"),
            Fan::Concat(_) => return Err(not_followed(at, "concatenation")),
            Fan::Mixture(_) => return Err(not_followed(at, "mixtures")),
        };
        let kept = Kept::Fan(Box::new(KeptFan { x, parts, merged, forked }));
        Ok((Signal { moments: Arc::new(y), stream: Arc::new(stream), place: places[0], inside: None }, kept))
    }

    fn split(&mut self, _: &Site, of: Fan, kept: &mut Kept, gradient: Gradient) -> Result<Vec<Gradient>, PredictError> {
        if let (Fan::Attention(attention), Kept::Attention(kept)) = (of, &mut *kept) {
            let KeptAttention { x, attended, expanded, .. } = &mut **kept;
            let leading = attended.split(attention, &gradient.leading);
            let [query, key, value] = self.expansion.attend_split(expanded);
            let factor = weights_of_keys(attention);
            let queries = factor.is_finite().then(|| (query.clone(), factor));
            let parts = [(query, None), (key, queries), (value, None)];
            let part = |(leading, (given, queries))| Gradient {
                leading,
                place: x.place,
                inside: Some(Inside { given, queries }),
            };
            return Ok(leading.into_iter().zip(parts).map(part).collect());
        }
        let Kept::Fan(kept) = kept else { unreachable!("merge keeps what fits the fan") };
        let KeptFan { x, parts, merged, .. } = &mut **kept;
        self.expansion.split(merged, matches!(of, Fan::Product(_)));
        let leading = match of {
            Fan::Sum(sum) => sum.split(&x.moments, parts, &gradient.leading),
            Fan::Product(product) => product.split(&x.moments, parts, &gradient.leading),
            Fan::Attention(_) | Fan::Concat(_) | Fan::Mixture(_) => unreachable!("merge refuses them"),
        };
        let places = merged.places();
        Ok(leading.into_iter().zip(places).map(|(leading, &place)| Gradient { leading, place, inside: None }).collect())
    }

    fn join(&mut self, _: &Site, _: Fan, kept: Kept, parts: Vec<Gradient>) -> Result<Gradient, PredictError> {
        if let Kept::Attention(kept) = kept {
            let KeptAttention { x, expanded, forked, .. } = *kept;
            let of = |part: &Gradient| part.inside.as_ref().expect("parts of an attention are inside").given.clone();
            let [query, key, value] = [&parts[0], &parts[1], &parts[2]].map(of);
            self.expansion.attend_join(&expanded, [&query, &key, &value]);
            self.expansion.settle_backward(x.place, forked.drawn.as_ref());
            let parts: Vec<Leading<f64>> = parts.into_iter().map(|part| part.leading).collect();
            return Ok(Gradient { leading: Leading::sum(&parts), place: x.place, inside: None });
        }
        let Kept::Fan(kept) = kept else { unreachable!("merge keeps what fits the fan") };
        let KeptFan { x, merged, forked, .. } = *kept;
        self.expansion.join(&merged, &forked.jacobians, x.moments.width);
        self.expansion.settle_backward(x.place, forked.drawn.as_ref());
        let parts: Vec<Leading<f64>> = parts.into_iter().map(|part| part.leading).collect();
        Ok(Gradient { leading: Leading::sum(&parts), place: x.place, inside: None })
    }

    fn accumulate(&mut self, sum: Gradient, _: Gradient) -> Result<Gradient, PredictError> {
        Ok(sum)
    }

    fn experts(&self, _: &Mixture) -> usize {
        1
    }

    fn observe(&mut self, at: &Site, signal: &Signal) {
        self.observed.push(self.expansion.fluctuations().clone());
        if !self.tells(at) {
            return;
        }
        let expansion = signal.inside.as_deref().unwrap_or(&self.expansion);
        let levels = expansion.levels(signal.place, &signal.stream);
        let leading = pooled(&signal.moments.kernel, |node| signal.moments.mean(node));
        let second = leading.second * levels.ln_level.exp();
        let end = (leading.mean * expansion.ln_mean(signal.place).exp(), second);
        let spread = expansion.variance(signal.place, &signal.stream);
        let cross = leading.cross.map(|_| second * (signal.stream.leading + levels.correlation));
        let pooled = Pooled { mean: end.0, second, cross, ends: Some([end; 2]), spread: Some(spread), ..leading };
        self.rows.signal((at.layer(), at.path().to_owned()), at.is_stream_site(), pooled, Matrix2::zeros());
    }

    fn observe_gradient(&mut self, at: &Site, gradient: &Gradient) {
        let fluctuations = self.observed.pop().expect("the way back observes what the way there did");
        if !self.tells(at) {
            return;
        }
        let (ln_unit, cosine, spread) = if let Some(Inside { given, .. }) = &gradient.inside {
            let (ln_own, cosine) = given.at(&fluctuations);
            (ln_own, cosine, None)
        } else {
            let (ln_own, cosine, variance) = self.expansion.gradient(gradient.place, &fluctuations);
            (ln_own, cosine, Some(variance))
        };
        let cross = (gradient.leading.kernel.positions.length > 1.0).then_some(cosine);
        let ends = Some([(0.0, 1.0); 2]);
        let pooled = Pooled { ln_unit, mean: 0.0, second: 1.0, cross, ends, spread };
        self.rows.gradient(at.path(), pooled, Vector2::zeros());
    }
}
