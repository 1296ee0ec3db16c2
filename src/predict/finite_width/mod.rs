//! The network of finite width as an interpreter of stacks: the infinitely wide network and the expansion about it.
//!
//! The pass at infinite width follows every position. The expansion follows two tagged tokens with the average moments
//! of a sequence. Its corrections to second moments, correlations and weight gradients are added at every position.

mod fans;
mod forward;
mod inside;
mod weights;

use std::sync::Arc;

use foldhash::{HashMap, HashMapExt};
use sigprop_stack::{
    Component, EmbeddingTerm, Fan, GradientSeed, Init, Interpreter, Mixture, Norm, Site, Stack, Stream, Tensor, run,
};

use self::fans::{Forked, KeptFan};
use self::inside::Inside;
use self::weights::Arrived;
use super::PredictError;
use super::masks::Masks;
use super::mean_field::{self, PASSES, last_step};
use super::pooled::Pooled;
use super::rows::Rows;
use crate::caveat::Condition;
use crate::finite_width::entries::EntryMoments;
use crate::finite_width::expansion::{Applied, Expansion};
use crate::finite_width::forward::Fluctuations;
use crate::finite_width::gradients::Cosines;
use crate::finite_width::stream;
use crate::finite_width::variables::{PairMoments, U_A, levels};
use crate::mean_field::component::Parameter;
use crate::mean_field::dual::function;
use crate::mean_field::embedding;
use crate::mean_field::gradient::Gradient as LeadingGradient;
use crate::mean_field::signal::Signal as LeadingSignal;

/// The signal at a point of the network: its moments at infinite width, the state of its entries in the expansion, and
/// `slot`, the index of its stream among the streams that exist at this point (such as a skip connection and a branch).
#[derive(Clone)]
pub(super) struct Signal {
    leading: Arc<LeadingSignal>,
    moments: PairMoments,
    stream: Arc<stream::Stream>,
    slot: usize,
    /// In the queries, keys or values of an attention: an expansion in which they replace the stream. `None` elsewhere.
    inside: Option<Arc<Expansion>>,
}

impl Signal {
    fn new(leading: Arc<LeadingSignal>, stream: stream::Stream, slot: usize) -> Self {
        Self { moments: PairMoments::of(&leading), leading, stream: Arc::new(stream), slot, inside: None }
    }
}

/// The gradient of a signal at infinite width. Its corrections of finite width are in the expansion, except those in
/// the fields `inside` and `arrived`.
pub(super) struct Gradient {
    leading: LeadingGradient,
    slot: usize,
    /// The gradient of queries, keys or values given the input of their attention; `None` outside attention.
    inside: Option<Inside>,
    /// The corrections of finite width to the gradient at the end of a stream that other streams read; zero elsewhere.
    arrived: Arrived,
}

impl Gradient {
    fn new(leading: LeadingGradient, slot: usize, inside: Option<Inside>) -> Self {
        Self { leading, slot, inside, arrived: Arrived::default() }
    }
}

/// The data that the backward pass of a node needs.
pub(super) enum Kept {
    Apply(mean_field::Kept, Box<Applied>),
    /// A norm that consists of several components, such as DyT.
    Steps(Vec<Kept>),
    /// A component that subtracts means: the subtraction, and the rest of the component.
    Centred(Box<Applied>, Box<Kept>),
    /// A norm with biases: the norm without them, and the addition of the biases, which is `None` inside an attention.
    Biased(Box<Kept>, Option<Box<Applied>>),
    /// A component of queries, keys or values, with the fluctuations at the input of their attention.
    Inside(mean_field::Kept, Fluctuations),
    Fan(mean_field::Kept, Box<KeptFan>),
}

/// A pass through a stack at finite width.
pub(super) struct FiniteWidthPass {
    leading: mean_field::MeanFieldPass,
    moments: HashMap<(function::Words, i64, i64), Arc<EntryMoments>>,
    /// The expansion of the current stream. `stream` is the name of the current stream, and `away` are the other
    /// streams in the order of the stack.
    pub(super) expansion: Expansion,
    stream: String,
    away: Vec<Away>,
    /// The fans that have been forked and not yet merged.
    forks: Vec<Forked>,
    /// Fluctuations at the reported sites of the current stream, for the backward pass.
    observed: Vec<Fluctuations>,
    /// The largest variance of ln |x|² so far, and the path of the site where it occurs.
    largest: (f64, String),
}

/// The result for a stack.
pub(super) enum Found {
    Rows(Rows),
    /// Signals fluctuate too much for an expansion: the site, the standard deviation of ln |x|² there, and rows of
    /// which only the standard deviations between networks (±) can be used.
    Diverges(String, f64, Rows),
}

/// Limits of the variance of ln |x|²: above `LARGE`, second order is off by percents; above `LARGEST`, it is of no use.
const LARGE: f64 = 0.25;
const LARGEST: f64 = 1.0;

/// A stream other than the current one, with its state.
struct Away {
    name: String,
    expansion: Expansion,
    observed: Vec<Fluctuations>,
}

impl FiniteWidthPass {
    /// Returns a pass that expands about `leading`, a pass at infinite width.
    pub(super) fn new(leading: mean_field::MeanFieldPass) -> Self {
        Self {
            leading,
            moments: HashMap::new(),
            expansion: Expansion::new(1.0),
            stream: String::new(),
            away: Vec::new(),
            forks: Vec::new(),
            observed: Vec::new(),
            largest: (0.0, String::new()),
        }
    }

    /// Returns the signal at the start of a stream; `name` is empty if there is only one stream.
    pub(super) fn enter(&mut self, name: &str, stream: &Stream) -> Signal {
        let leading = self.leading.enter(stream);
        let before = std::mem::replace(&mut self.expansion, Expansion::new(stream.seq_len as f64));
        let name = std::mem::replace(&mut self.stream, name.to_owned());
        self.away.push(Away { name, expansion: before, observed: std::mem::take(&mut self.observed) });
        let correlation = PairMoments::of(&leading).correlation;
        let fixed = embedding::fixed(&stream.source, &leading.kernel);
        let start = stream::Stream::start(leading.width, correlation, fixed);
        Signal::new(leading, start, 0)
    }

    /// Returns E x² of a signal, averaged over positions. Where |x|² varies too much between networks for an expansion,
    /// the value at infinite width is used.
    pub(super) fn second_moment(&self, signal: &Signal) -> f64 {
        let variance = self.expansion.fluctuations().of(signal.slot)[(U_A, U_A)];
        let finite =
            if variance <= LARGEST { self.expansion.levels(signal.slot, &signal.stream).ln_level } else { 0.0 };
        mean_field::second_moment(&signal.leading) * finite.exp()
    }

    /// Passes through `stack` and returns the result.
    pub(super) fn through(mut self, stack: &Stack) -> Result<Found, PredictError> {
        self.leading.masks = Masks::told_on(PASSES);
        let mut passes = Vec::new();
        loop {
            run(stack, &mut self)?;
            passes.push((self.leading.masks.weight(), std::mem::take(&mut self.leading.rows)));
            self.away.clear();
            self.stream.clear();
            self.observed.clear();
            if !self.leading.again() {
                break;
            }
        }
        let (variance, site) = self.largest;
        let mut rows = Rows::of_all(passes);
        if variance.is_nan() || variance > LARGEST {
            return Ok(Found::Diverges(site, variance.sqrt(), rows));
        }
        if let Some(site) = rows.not_finite().map(str::to_owned) {
            return Ok(Found::Diverges(site, f64::NAN, rows));
        }
        rows.caveat_at(&site, (variance > LARGE).then(|| Condition::SecondOrder(variance.sqrt())));
        Ok(Found::Rows(rows))
    }

    /// Writes E dW² of the gains of a norm that consists of several components. The gains are the factors of the last
    /// component.
    fn write_gains(&mut self, at: &Site, steps: &[Component], kept: &[Kept], gradient: &Gradient) {
        let x = match kept.last() {
            Some(Kept::Apply(mean_field::Kept::Apply([x, y]), last)) => {
                self.start(at, gradient, y.width);
                self.leading.added = self.added(&steps[steps.len() - 1], last, [x, y], gradient);
                x
            }
            Some(Kept::Inside(mean_field::Kept::Apply([x, _]), _)) => x,
            _ => unreachable!("steps keep both ends"),
        };
        let ln_gain = gradient.leading.kernel.ln_contracted(&x.kernel);
        self.leading.write_weights(at, [(Parameter::Gain, ln_gain)]);
    }

    /// Adds the biases of a norm to its output `y`.
    fn biased(&mut self, norm: &Norm, y: Signal, kept: Kept) -> (Signal, Kept) {
        let leading = Arc::new(last_step(norm, &y.leading));
        let moments = PairMoments::of(&leading);
        if y.inside.is_some() {
            return (Signal { leading, moments, ..y }, Kept::Biased(Box::new(kept), None));
        }
        let table = Tensor { name: String::new(), init: norm.bias };
        let term = Component::Embedding(EmbeddingTerm::Constant { table, rows: 1 });
        let (stream, applied) = self.expanded(&term, &y, &moments);
        (Signal::new(leading, stream, y.slot), Kept::Biased(Box::new(kept), Some(Box::new(applied))))
    }

    /// Gives up the expansion if one of the `numbers`, which were computed at site `at`, is not finite.
    fn follow(&mut self, at: &Site, numbers: [f64; 2]) {
        if numbers.iter().any(|number| !number.is_finite()) {
            self.largest = (f64::NAN, at.path().to_owned());
        }
    }

    /// Makes the stream of a site the current one.
    fn switch_stream(&mut self, at: &Site) {
        let wanted = |away: &&mut Away| away.name == at.stream();
        if self.stream != at.stream()
            && let Some(away) = self.away.iter_mut().find(wanted)
        {
            std::mem::swap(&mut self.stream, &mut away.name);
            std::mem::swap(&mut self.expansion, &mut away.expansion);
            std::mem::swap(&mut self.observed, &mut away.observed);
        }
    }

    /// Starts the backward pass through the stream of site `at` with this gradient, unless it has already started.
    fn start(&mut self, at: &Site, gradient: &Gradient, width: f64) {
        self.switch_stream(at);
        if !self.expansion.has_gradients() {
            let Arrived { ln_own, cosine, along: _ } = gradient.arrived;
            self.expansion.seed([ln_own, levels(&gradient.leading.kernel).1 + cosine], width);
        }
    }
}

fn without_bias(norm: &Norm) -> Norm {
    Norm { bias: Init::Zero, ..*norm }
}

impl Interpreter<'_> for FiniteWidthPass {
    type Signal = Signal;
    type Gradient = Gradient;
    type Kept = Kept;
    type Error = PredictError;

    fn source(&mut self, at: &Site, stream: &Stream) -> Result<Signal, PredictError> {
        Ok(self.enter(at.stream(), stream))
    }

    fn source_backward(&mut self, at: &Site, stream: &Stream, gradient: Gradient) -> Result<(), PredictError> {
        self.switch_stream(at);
        self.leading.added = self.without_signal(&gradient, &Fluctuations::none());
        self.leading.source_backward(at, stream, gradient.leading)
    }

    fn seed(&mut self, at: &Site, seed: &GradientSeed, output: &Signal) -> Result<Gradient, PredictError> {
        let gradient = Gradient::new(self.leading.seed(at, seed, &output.leading)?, output.slot, None);
        self.start(at, &gradient, output.leading.width);
        Ok(gradient)
    }

    fn apply(&mut self, at: &Site, component: &Component, x: Signal) -> Result<(Signal, Kept), PredictError> {
        if let Component::Norm(norm) = component
            && norm.bias.variance() > 0.0
        {
            let (y, kept) = self.apply(at, &Component::Norm(without_bias(norm)), x)?;
            return Ok(self.biased(norm, y, kept));
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
        if forward::centres(component) && x.inside.is_none() && x.moments.mean_share() > 0.0 {
            let (centred, applied) = self.centred(&x);
            let (y, kept) = self.apply(at, component, centred)?;
            return Ok((y, Kept::Centred(Box::new(applied), Box::new(kept))));
        }
        let (leading, kept) = self.leading.apply(at, component, Arc::clone(&x.leading))?;
        if x.inside.is_some() {
            return Ok(self.apply_inside(component, x, leading, kept));
        }
        let (stream, applied) = self.expanded(component, &x, &PairMoments::of(&leading));
        Ok((Signal::new(leading, stream, x.slot), Kept::Apply(kept, Box::new(applied))))
    }

    fn apply_backward(
        &mut self,
        at: &Site,
        component: &Component,
        kept: Kept,
        gradient: Gradient,
    ) -> Result<Gradient, PredictError> {
        match kept {
            Kept::Apply(kept, applied) => {
                let mean_field::Kept::Apply([x, y]) = &kept else { unreachable!("components keep both ends") };
                self.start(at, &gradient, y.width);
                self.leading.added = self.added(component, &applied, [x, y], &gradient);
                let Gradient { leading, slot, .. } = gradient;
                let output = levels(&leading.kernel).1;
                let leading = self.leading.apply_backward(at, component, kept, leading)?;
                let input = levels(&leading.kernel).1;
                self.expansion.apply_backward(*applied, Cosines { output, input });
                Ok(Gradient::new(leading, slot, None))
            }
            Kept::Centred(applied, kept) => {
                let gradient = self.apply_backward(at, component, *kept, gradient)?;
                let cosine = levels(&gradient.leading.kernel).1;
                self.expansion.apply_backward(*applied, Cosines { output: cosine, input: cosine });
                Ok(gradient)
            }
            Kept::Biased(kept, applied) => {
                let Component::Norm(norm) = component else { unreachable!("norms alone have biases of their own") };
                if let Some(applied) = applied {
                    self.start(at, &gradient, applied.width());
                    let cosine = levels(&gradient.leading.kernel).1;
                    self.expansion.apply_backward(*applied, Cosines { output: cosine, input: cosine });
                }
                self.apply_backward(at, &Component::Norm(without_bias(norm)), *kept, gradient)
            }
            Kept::Inside(kept, fluctuations) => {
                self.apply_backward_inside(at, component, kept, &fluctuations, gradient)
            }
            Kept::Steps(kept) => {
                let Component::Norm(norm) = component else { unreachable!("norms alone have steps") };
                let steps = norm.steps().expect("steps are kept of a norm that has some");
                if norm.has_own_gains() {
                    self.write_gains(at, &steps, &kept, &gradient);
                }
                let backward = |gradient, (step, kept)| self.apply_backward(at, step, kept, gradient);
                steps.iter().zip(kept).rev().try_fold(gradient, backward)
            }
            Kept::Fan(..) => unreachable!("apply keeps what fits the component"),
        }
    }

    fn fork(&mut self, at: &Site, fan: Fan, input: &Signal, part: usize) -> Signal {
        self.part_input(at, fan, input, part)
    }

    fn merge(&mut self, at: &Site, fan: Fan, x: Signal, parts: Vec<Signal>) -> Result<(Signal, Kept), PredictError> {
        self.merge_parts(at, fan, x, parts)
    }

    fn split(
        &mut self,
        at: &Site,
        fan: Fan,
        kept: &mut Kept,
        gradient: Gradient,
    ) -> Result<Vec<Gradient>, PredictError> {
        let Kept::Fan(kept, of_fan) = kept else { unreachable!("merge keeps what fits the fan") };
        self.split_parts(at, fan, (kept, of_fan), gradient)
    }

    fn join(&mut self, at: &Site, fan: Fan, kept: Kept, parts: Vec<Gradient>) -> Result<Gradient, PredictError> {
        let Kept::Fan(kept, of_fan) = kept else { unreachable!("merge keeps what fits the fan") };
        self.join_parts(at, fan, (kept, *of_fan), parts)
    }

    fn arrive(&mut self, sum: Option<Gradient>, more: Gradient) -> Result<Gradient, PredictError> {
        let of_more = more.inside.as_ref().map_or_else(Arrived::default, Inside::arrives);
        let Some(sum) = sum else {
            return Ok(Gradient { arrived: of_more, ..Gradient::new(more.leading, 0, None) });
        };
        let [before, now] = [&sum, &more].map(|part| levels(&part.leading.kernel).0);
        let share = 1.0 / (1.0 + (before - now).exp());
        let arrived = sum.arrived.mixed(of_more, share);
        let leading = self.leading.arrive(Some(sum.leading), more.leading)?;
        Ok(Gradient { arrived, ..Gradient::new(leading, 0, None) })
    }

    fn experts(&self, mixture: &Mixture) -> usize {
        self.leading.experts(mixture)
    }

    fn observe(&mut self, at: &Site, signal: &Signal) {
        if self.leading.tells(at) {
            self.observed.push(self.expansion.fluctuations().clone());
        }
        let variance = self.expansion.fluctuations().of(signal.slot)[(U_A, U_A)];
        if variance > self.largest.0 {
            self.largest = (variance, at.path().to_owned());
        }
        self.follow(at, [variance; 2]);
        if !self.leading.tells(at) {
            return;
        }
        let expansion = signal.inside.as_deref().unwrap_or(&self.expansion);
        let levels = expansion.levels(signal.slot, &signal.stream);
        let (level, mean) = (levels.ln_level.exp(), expansion.ln_mean(signal.slot).exp());
        let leading = mean_field::observed(&signal.leading);
        let end = |(of_mean, second): (f64, f64)| (of_mean * mean, second * level);
        let pooled = Pooled {
            mean: leading.mean * mean,
            second: leading.second * level,
            cross: leading.cross.map(|cross| level * (cross + leading.second * levels.correlation)),
            ends: leading.ends.map(|ends| ends.map(end)),
            spread: Some(expansion.variance(signal.slot, &signal.stream)),
            ..leading
        };
        let site = (at.layer(), at.path().to_owned());
        self.leading.rows.signal(site, at.is_stream_site(), pooled);
    }

    fn observe_gradient(&mut self, at: &Site, gradient: &Gradient) {
        self.switch_stream(at);
        if !self.leading.tells(at) {
            return;
        }
        let fluctuations = self.observed.pop().expect("the way back observes what the way there did");
        let leading = self.leading.pooled_gradient(at, &gradient.leading);
        let (added, cosine, spread) = self.observed_gradient(gradient, &fluctuations);
        let spread = spread.filter(|_| at.expert().is_none());
        self.follow(at, [added, cosine]);
        let cross = leading.cross.map(|_| leading.second * cosine);
        let pooled = Pooled { ln_unit: leading.ln_unit + added, cross, spread, ..leading };
        self.leading.rows.gradient(at.path(), pooled);
    }
}
