//! Stacks in which several sites use one tensor, such as ALBERT with its one block, for exchangeable tokens, and stacks
//! in which several parts read one signal, such as the first one before every block.
//!
//! Vectors of the network are correlated if both come from one tensor or from one signal. The pass of
//! [`super::mean_field`] takes branches and gradients as uncorrelated; this pass adds the covariances C to its sums:
//!
//! ```text
//! sums         y = Σ_i β_i x_i       E y_a y_b = … + Σ_i≠j β_i β_j C^ij_ab        C(y, z) = Σ_i β_i C(x_i, z)
//! norms        y = c (x − E x)       C(y, z) = c C(x, z)                          scales and dropout likewise
//! two uses     C(y, y') = E y y' − E y E y' by the rule of the component, from E x x' = C(x, x') + E x E x'
//! others       C = 0
//! weights      E dW² = Σ_lm Σ_ab E g^l_a g^m_b E x^l_a x^m_b                      gains of norms likewise, with y/gain
//! reads        g = g_stream + Σ_r g_r at the signal that is read, a sum as above
//! ```
//!
//! where a, b are positions of tokens; E is the average over random weights and over features; β_i is the factor of a
//! branch; c is the gain of a norm over the root of the second moment; C(x, z)_ab is E x_a z_b − E x_a E z_b; C^ij is
//! C(x_i, x_j); two uses are two linear maps with one tensor, or two activations, products or attentions of the same
//! kind, with the inputs x, x' and the outputs y, y'; l, m are uses of W with the inputs x^l and the gradients g^l at
//! the output; r are the parts that read a signal; g, g_stream, g_r are the gradient at this signal, the gradient from
//! the node after it, and the gradient from part r. Gradients follow the same lines backward.
//!
//! The rule of a component for two uses is its rule for two tokens, one from each use. Attention mixes tokens and has a
//! rule of its own, [`Attended::between`].
//!
//! Assumptions: the network is infinitely wide, where vectors that come from different tensors are independent, and so
//! are W forward and its transpose backward. Where tensors are followed, tokens are exchangeable, so that C_ab = C_ba.
//! Where reads alone are followed, tokens may differ by position, C_ab is averaged with C_ba, and C is 0 between the
//! outputs of two activations, products or attentions whose inputs are correlated. Source: Yang 2020.

use std::mem::take;
use std::sync::Arc;

use foldhash::{HashMap, HashMapExt};
use sigprop_stack::{
    Attention, Component, Fan, GradientSeed, Interpreter, Linear, Mixture, Node, Norm, NormKind, Op, PositionBias,
    Product, Scale, Site, Stack, Stream, run,
};

use super::masks::Masks;
use super::mean_field::{self, MeanFieldPass, PASSES};
use super::reads::{count, reads};
use super::rows::Rows;
use super::{PredictError, sequences, tensors};
use crate::mean_field::attention::Attended;
use crate::mean_field::batch_norm::BatchNorm;
use crate::mean_field::component::MeanFieldFan as _;
use crate::mean_field::few::Few;
use crate::mean_field::gradient::Gradient;
use crate::mean_field::kernel::Kernel;
use crate::mean_field::positions::Positions;
use crate::mean_field::signal::Signal;

/// The part of a stack that this pass follows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Follows {
    /// The uses of tensors, and reads.
    Uses,
    /// Reads alone.
    Reads,
}

impl Follows {
    /// Returns the part of `stack` that this pass follows; `None` if there is none.
    pub(super) fn of(stack: &Stack) -> Option<Self> {
        if has_rules_for_uses(stack) {
            return Some(Self::Uses);
        }
        reads(stack).next().map(|_| Self::Reads)
    }
}

/// Returns true if several sites of `stack` use one tensor and this pass has all rules for it.
fn has_rules_for_uses(stack: &Stack) -> bool {
    /// The largest number of nodes. Time and memory grow as its square.
    const MOST: usize = 500;
    let nodes = || stack.streams.iter().flat_map(|stream| &stream.body);
    tensors::shared_tensors(stack).is_some()
        && sequences::is_exchangeable(stack)
        && nodes().all(has_rule)
        && nodes().map(count).sum::<usize>() <= MOST
}

fn has_rule(node: &Node) -> bool {
    let itself = match &node.op {
        Op::Apply(Component::Linear(linear)) => linear.standardised.is_none(),
        Op::Apply(Component::Norm(norm)) => norm.steps().is_none() && BatchNorm::of(norm).is_none(),
        Op::Sum(sum) => sum.branches.iter().all(|branch| branch.drop_rate == 0.0),
        Op::Attention(attention) => !matches!(attention.bias, Some(PositionBias::Disentangled(_))),
        Op::Mixture(_) | Op::Concat(_) | Op::Recurrence(_) => false,
        Op::Apply(_) | Op::Chain(_) | Op::Product(_) | Op::Read(_) => true,
    };
    itself && node.op.bodies().flatten().all(has_rule)
}

/// A signal or a gradient, and its index among the vectors of the pass.
#[derive(Clone)]
pub(super) struct Indexed<T> {
    index: usize,
    value: T,
}

/// A signal or a gradient of the network, in order of creation.
struct Vector<'s> {
    /// Its moments; a gradient has mean zero.
    signal: Arc<Signal>,
    /// The vectors that this one is the sum of, up to a constant; empty if it is no sum.
    terms: Vec<Term>,
    origin: Origin<'s>,
}

/// A vector times factor · e^`ln_unit`, with a factor per node.
#[derive(Clone)]
struct Term {
    index: usize,
    factors: Few<f64>,
    ln_unit: f64,
}

impl Term {
    /// Returns the covariance of this term with a vector, from the covariance of its vector with that vector.
    fn of(&self, covariance: &Kernel) -> Kernel {
        let own = covariance.own.iter().zip(&self.factors).map(|(own, factor)| own * factor).collect();
        let pairs = covariance.map_pairs(&self.factors, |_, [a, b], pair| pair * 0.5 * (a + b));
        covariance.with(covariance.ln_unit + self.ln_unit, own, pairs)
    }
}

/// The operation that a vector comes from.
#[derive(Clone)]
enum Origin<'s> {
    /// A source, the gradient at the end of the stream, or a sum.
    Start,
    /// The output of a component with the input `x`.
    Output {
        component: &'s Component,
        x: usize,
    },
    Product {
        product: &'s Product,
        parts: Vec<usize>,
    },
    /// The output of an attention; the parts are queries, keys and values.
    Attention {
        attention: &'s Attention,
        parts: [usize; 3],
        attended: Arc<Attended>,
    },
    /// The gradient at one of the inputs of the node whose output is the vector `of`, from the gradient there.
    Gradient {
        of: usize,
        part: usize,
        gradient: usize,
    },
}

/// A linear map or a norm that the backward pass has visited.
struct Use {
    output: usize,
    /// The gradient at the output.
    gradient: usize,
    /// The name of the gains, if it is a norm.
    gains: String,
}

/// A pass of the moments of the infinitely wide network through a stack with shared tensors.
pub(super) struct SharedPass<'s> {
    pass: MeanFieldPass,
    follows: Follows,
    vectors: Vec<Vector<'s>>,
    /// The covariances of two vectors that were needed so far; `None` if they are independent.
    covariances: HashMap<[usize; 2], Option<Kernel>>,
    /// The linear maps and norms that the backward pass has visited.
    uses: Vec<Use>,
}

impl<'s> SharedPass<'s> {
    pub(super) fn new(follows: Follows, pass: MeanFieldPass) -> Self {
        Self { pass, follows, vectors: Vec::new(), covariances: HashMap::new(), uses: Vec::new() }
    }

    /// Passes through `stack` and returns the rows, averaged over masks of stochastic depth.
    pub(super) fn through(mut self, stack: &'s Stack) -> Result<Rows, PredictError> {
        self.pass.masks = Masks::told_on(PASSES);
        let mut passes = Vec::new();
        loop {
            run(stack, &mut self)?;
            passes.push((self.pass.masks.weight(), take(&mut self.pass.rows)));
            if !self.pass.again() {
                return Ok(Rows::of_all(passes));
            }
            self.vectors.clear();
            self.covariances.clear();
            self.uses.clear();
        }
    }

    fn signal(&mut self, value: Arc<Signal>, terms: Vec<Term>, origin: Origin<'s>) -> Indexed<Arc<Signal>> {
        self.vectors.push(Vector { signal: Arc::clone(&value), terms, origin });
        Indexed { index: self.vectors.len() - 1, value }
    }

    fn gradient(&mut self, value: Gradient, terms: Vec<Term>, origin: Origin<'s>) -> Indexed<Gradient> {
        let signal = Arc::new(Signal::centred(1.0, value.kernel.clone()));
        Indexed { index: self.signal(signal, terms, origin).index, value }
    }

    fn positions(&self, vector: usize) -> &Arc<Positions> {
        &self.vectors[vector].signal.kernel.positions
    }

    fn times(&self, index: usize, factor: f64) -> Term {
        Term { index, factors: vec![factor; self.positions(index).nodes()].into(), ln_unit: 0.0 }
    }

    /// Returns the output of a component as its input times a factor; nothing if it is no multiple of its input.
    fn as_multiple(&self, component: &Component, input: usize) -> Vec<Term> {
        let sign = match component {
            Component::Dropout(_) | Component::Embedding(_) => return vec![self.times(input, 1.0)],
            Component::Norm(norm) if norm.steps().is_none() && BatchNorm::of(norm).is_none() => norm.gain.signum(),
            Component::Scale(Scale { factor }) => factor.signum(),
            Component::Linear(_)
            | Component::Norm(_)
            | Component::Activation(_)
            | Component::Rotary(_)
            | Component::Select(_)
            | Component::Convolution(_)
            | Component::Prepend(_)
            | Component::Pool(_) => return Vec::new(),
        };
        // A gradient has the same factor, and its kernel the square of it.
        let x = &self.vectors[input].signal;
        let ones = Gradient::independent(Kernel::new(self.positions(input), |_| 1.0, |_| 1.0));
        let square = self.pass.rule(component, x).backward(x, x, &ones).kernel;
        let factors = square.own.iter().map(|own| own.sqrt() * sign).collect();
        vec![Term { index: input, factors, ln_unit: 0.5 * square.ln_unit }]
    }

    /// Returns `kernel` plus the covariances of every two different terms.
    fn with_covariances(&mut self, mut kernel: Kernel, terms: &[Term]) -> Kernel {
        for (count, second) in terms.iter().enumerate() {
            for first in &terms[..count] {
                if let Some(covariance) = self.covariance(first.index, second.index) {
                    kernel = kernel.plus(&first.of(&second.of(&covariance)).scaled(2.0));
                }
            }
        }
        kernel
    }

    /// Returns E x_a y_b − E x_a E y_b of two vectors; `None` if they are independent.
    fn covariance(&mut self, x: usize, y: usize) -> Option<Kernel> {
        let [early, late] = [x.min(y), x.max(y)];
        if early == late {
            return Some(self.vectors[late].signal.centred_kernel());
        }
        if self.follows == Follows::Reads && self.vectors[late].terms.is_empty() {
            return None;
        }
        if let Some(known) = self.covariances.get(&[early, late]) {
            return known.clone();
        }
        let [sum, other] = if self.vectors[late].terms.is_empty() { [early, late] } else { [late, early] };
        let terms = self.vectors[sum].terms.clone();
        let covariance = if terms.is_empty() {
            self.of_uses([early, late], None)
        } else {
            let parts = terms.iter().filter_map(|term| Some(term.of(&self.covariance(term.index, other)?)));
            parts.reduce(|sum, part| sum.plus(&part))
        };
        self.covariances.insert([early, late], covariance.clone());
        covariance
    }

    /// Returns the covariance of two vectors that are no sums, by the rule of the operation that both come from. If
    /// there is a `gradient`, it is the covariance of the gradients at these vectors; then this function returns the
    /// covariance of the gradients at an input `part`.
    fn of_uses(&mut self, of: [usize; 2], gradient: Option<(usize, Kernel)>) -> Option<Kernel> {
        let centred = |gradient: Gradient| Signal::centred(1.0, gradient.kernel);
        let pairs = match of.map(|vector| self.vectors[vector].origin.clone()) {
            [Origin::Output { component, x }, Origin::Output { component: other, x: y }] => {
                let component = common(component, other)?;
                let x = self.paired([x, y]);
                let rule = self.pass.rule(&component, &x);
                let y = rule.forward(&x);
                match gradient {
                    Some((_, gradient)) => centred(rule.backward(&x, &y, &paired_gradient(&gradient))),
                    None => y,
                }
            }
            [Origin::Product { product, parts }, Origin::Product { parts: others, .. }] => {
                let both = parts.iter().zip(&others);
                let parts: Vec<Arc<Signal>> = both.map(|(x, y)| Arc::new(self.paired([*x, *y]))).collect();
                match gradient {
                    Some((part, gradient)) => {
                        let mut gradients = product.split(&parts[0], &parts, &paired_gradient(&gradient));
                        centred(gradients.swap_remove(part))
                    }
                    None => product.merge(&parts[0], &parts),
                }
            }
            [
                Origin::Attention { attention, parts, attended },
                Origin::Attention { parts: others, attended: other, .. },
            ] => {
                let [query, key, value] = [0, 1, 2].map(|part| [parts[part], others[part]]);
                self.covariance(value[0], value[1])?;
                let products = [query, key, value].map(|both| self.products(both));
                // Dropout masks are independent.
                let attention = Attention { dropout_rate: 0.0, ..attention.clone() };
                let between = Attended::between(&attention, [&attended, &other], products);
                return Some(match gradient {
                    Some((part, gradient)) => {
                        between.split(&attention, &Gradient::independent(gradient)).swap_remove(part).kernel
                    }
                    None => between.output().kernel.clone(),
                });
            }
            [
                Origin::Gradient { of, part, gradient },
                Origin::Gradient { of: other, part: other_part, gradient: other_gradient },
            ] if part == other_part => {
                let gradient = self.covariance(gradient, other_gradient)?;
                return self.of_uses([of, other], Some((part, gradient)));
            }
            [
                Origin::Start
                | Origin::Output { .. }
                | Origin::Product { .. }
                | Origin::Attention { .. }
                | Origin::Gradient { .. },
                _,
            ] => return None,
        };
        Some(self.unpaired(of[0], &pairs))
    }

    /// Returns E x_a y_b of two vectors.
    fn products(&mut self, [x, y]: [usize; 2]) -> Kernel {
        let covariance = self.covariance(x, y).unwrap_or_else(|| Kernel::zero(self.positions(x)));
        let [x, y] = [x, y].map(|index| &self.vectors[index].signal);
        let (Some(of_x), Some(of_y)) = (&x.means, &y.means) else { return covariance };
        let own = of_x.iter().zip(of_y).map(|(x, y)| x * y).collect();
        let pairs = (0..covariance.pairs.len()).map(|point| {
            let [of_x, of_y] = [of_x, of_y].map(|means| covariance.positions.ends(point, means));
            of_x[0] * of_y[1]
        });
        covariance.plus(&covariance.with(0.5 * (x.kernel.ln_unit + y.kernel.ln_unit), own, pairs.collect()))
    }

    /// Returns pairs of tokens, the first of the vector x and the second of the vector y: one pair of the same token
    /// for every node, and one for every point.
    fn paired(&mut self, vectors: [usize; 2]) -> Signal {
        let products = self.products(vectors);
        let [x, y] = vectors.map(|index| &self.vectors[index].signal);
        let ln_unit = x.kernel.ln_unit.max(y.kernel.ln_unit);
        let positions = &products.positions;
        let places = (0..positions.nodes()).map(|node| [node; 2]).chain((0..positions.points()).map(|point| {
            let (first, nodes) = positions.nodes_of(point);
            [first, nodes[0].0 as usize]
        }));
        let numbers = |of: &dyn Fn(&Signal, usize) -> f64| -> Few<f64> {
            places.clone().flat_map(|[first, second]| [of(y, second), of(x, first)]).collect()
        };
        let own = numbers(&|signal, node| signal.kernel.own[node] * (signal.kernel.ln_unit - ln_unit).exp());
        let means = numbers(&|signal, node| signal.mean(node) * (0.5 * (signal.kernel.ln_unit - ln_unit)).exp());
        let pairs = on_pairs(&products, ln_unit);
        let kernel = Kernel { positions: paired_positions(&products), ln_unit, own, pairs };
        Signal { means: means.iter().any(|mean| *mean != 0.0).then_some(means), ..Signal::centred(x.width, kernel) }
    }

    /// Returns the covariance of the vector `of` and another from pairs of their tokens.
    fn unpaired(&self, of: usize, pairs: &Signal) -> Kernel {
        let kernel = pairs.centred_kernel();
        let (own, points) = kernel.pairs.split_at(self.positions(of).nodes());
        Kernel {
            ln_unit: kernel.ln_unit,
            positions: Arc::clone(self.positions(of)),
            own: own.into(),
            pairs: points.into(),
        }
    }

    /// Adds the products of the gradients of this use of a linear map or norm with those of later uses to E dW².
    fn collect(&mut self, this: Use) {
        if self.follows == Follows::Reads {
            return;
        }
        let Origin::Output { component, x } = self.vectors[this.output].origin else { return };
        let mut uses = take(&mut self.uses);
        for later in &uses {
            let Origin::Output { component: other, x: y } = self.vectors[later.output].origin else { continue };
            if let (Component::Norm(norm), Component::Norm(_)) = (component, other) {
                if norm.has_own_gains() && this.gains == later.gains {
                    self.collect_gains([&this, later], norm, [x, y]);
                }
                continue;
            }
            let Some(Component::Linear(Linear { weight, bias, .. })) = common(component, other) else { continue };
            let [gradients, products] = [self.products([this.gradient, later.gradient]), self.products([x, y])];
            let ln_unit = gradients.ln_unit;
            let [of_weight, of_bias] = [gradients.contracted(&products), gradients.total()].map(|sum| 2.0 * sum);
            if let Some(bias) = bias {
                self.pass.rows.add_to_weight(&bias.name, of_bias, ln_unit);
            }
            self.pass.rows.add_to_weight(&weight.name, of_weight, ln_unit + products.ln_unit);
        }
        if matches!(component, Component::Linear(_) | Component::Norm(_)) {
            uses.push(this);
        }
        self.uses = uses;
    }

    /// Adds the product of the gradients of two uses of the gains of a norm, with these inputs, to E dgain².
    fn collect_gains(&mut self, uses: [&Use; 2], norm: &Norm, inputs: [usize; 2]) {
        let plain = Component::Norm(Norm { gain: 1.0, ..*norm });
        let mut products = match norm.kind {
            NormKind::LayerNorm => {
                let covariance = self.covariance(inputs[0], inputs[1]);
                covariance.unwrap_or_else(|| Kernel::zero(self.positions(inputs[0])))
            }
            NormKind::RmsNorm => self.products(inputs),
            NormKind::BatchNorm { .. } | NormKind::Dyt { .. } | NormKind::Derf { .. } => {
                unreachable!("stacks with such norms are not followed")
            }
        };
        for input in inputs {
            for term in self.as_multiple(&plain, input) {
                products = term.of(&products);
            }
        }
        let gradients = self.products(uses.map(|one| one.gradient));
        let more = 2.0 * gradients.contracted(&products);
        self.pass.rows.add_to_weight(&uses[0].gains, more, gradients.ln_unit + products.ln_unit);
    }
}

/// Returns the component that two uses have in common: a linear map with one tensor, or an activation.
fn common(first: &Component, second: &Component) -> Option<Component> {
    if let (Component::Linear(first), Component::Linear(second)) = (first, second) {
        let is_other = |name: &str| second.bias.as_ref().is_none_or(|bias| bias.name != name);
        let bias = first.bias.clone().filter(|bias| !is_other(&bias.name));
        return (first.weight.name == second.weight.name).then(|| Component::Linear(Linear { bias, ..first.clone() }));
    }
    (first == second && matches!(first, Component::Activation(_))).then(|| first.clone())
}

/// Returns gradients at pairs of tokens.
fn paired_gradient(covariance: &Kernel) -> Gradient {
    let positions = paired_positions(covariance);
    let pairs = on_pairs(covariance, covariance.ln_unit);
    Gradient::independent(Kernel { pairs, ln_unit: covariance.ln_unit, ..Kernel::zero(&positions) })
}

/// Returns the positions of a pair of tokens for every node and for every point of `kernel`.
fn paired_positions(kernel: &Kernel) -> Arc<Positions> {
    Arc::new(Positions::pairs(kernel.own.len() + kernel.pairs.len()))
}

/// Returns the numbers of a kernel at pairs of tokens, in units of e^`ln_unit`.
fn on_pairs(kernel: &Kernel, ln_unit: f64) -> Few<f64> {
    let unit = (kernel.ln_unit - ln_unit).exp();
    kernel.own.iter().chain(&kernel.pairs).map(|number| number * unit).collect()
}

impl<'s> Interpreter<'s> for SharedPass<'s> {
    type Signal = Indexed<Arc<Signal>>;
    type Gradient = Indexed<Gradient>;
    /// The output of a node, and the data of the other pass.
    type Kept = Indexed<mean_field::Kept>;
    type Error = PredictError;

    fn source(&mut self, at: &Site, stream: &'s Stream) -> Result<Self::Signal, PredictError> {
        let value = self.pass.source(at, stream)?;
        Ok(self.signal(value, Vec::new(), Origin::Start))
    }

    fn source_backward(&mut self, at: &Site, stream: &Stream, gradient: Self::Gradient) -> Result<(), PredictError> {
        self.pass.source_backward(at, stream, gradient.value)
    }

    fn seed(&mut self, at: &Site, seed: &GradientSeed, output: &Self::Signal) -> Result<Self::Gradient, PredictError> {
        let value = self.pass.seed(at, seed, &output.value)?;
        Ok(self.gradient(value, Vec::new(), Origin::Start))
    }

    fn apply(
        &mut self,
        at: &Site,
        component: &'s Component,
        x: Self::Signal,
    ) -> Result<(Self::Signal, Self::Kept), PredictError> {
        let (value, kept) = self.pass.apply(at, component, x.value)?;
        let terms = self.as_multiple(component, x.index);
        let y = self.signal(value, terms, Origin::Output { component, x: x.index });
        let kept = Indexed { index: y.index, value: kept };
        Ok((y, kept))
    }

    fn apply_backward(
        &mut self,
        at: &Site,
        component: &Component,
        kept: Self::Kept,
        gradient: Self::Gradient,
    ) -> Result<Self::Gradient, PredictError> {
        let value = self.pass.apply_backward(at, component, kept.value, gradient.value)?;
        self.collect(Use { output: kept.index, gradient: gradient.index, gains: at.gain() });
        let of_signal = self.vectors[kept.index].terms.iter();
        let terms = of_signal.map(|term| Term { index: gradient.index, ..term.clone() }).collect();
        let origin = Origin::Gradient { of: kept.index, part: 0, gradient: gradient.index };
        Ok(self.gradient(value, terms, origin))
    }

    fn fork(&mut self, at: &Site, fan: Fan, input: &Self::Signal, part: usize) -> Self::Signal {
        Indexed { index: input.index, value: self.pass.fork(at, fan, &input.value, part) }
    }

    fn experts(&self, mixture: &Mixture) -> usize {
        self.pass.experts(mixture)
    }

    fn merge(
        &mut self,
        at: &Site,
        fan: Fan<'s>,
        x: Self::Signal,
        parts: Vec<Self::Signal>,
    ) -> Result<(Self::Signal, Self::Kept), PredictError> {
        let (indices, values): (Vec<usize>, Vec<Arc<Signal>>) =
            parts.into_iter().map(|Indexed { index, value }| (index, value)).unzip();
        let (mut value, kept) = self.pass.merge(at, fan, x.value, values)?;
        let (terms, origin) = match (fan, &kept) {
            (Fan::Sum(sum), _) => {
                let settled = self.pass.with_kept_branches(at, sum);
                let terms =
                    settled.branches.iter().zip(&indices).map(|(branch, index)| self.times(*index, branch.scale));
                let terms: Vec<Term> = terms.collect();
                let kernel = self.with_covariances(value.kernel.clone(), &terms);
                // Means are in units of the kernel.
                let unit = (0.5 * (value.kernel.ln_unit - kernel.ln_unit)).exp();
                value = Arc::new(Signal { kernel, means: value.scaled_means(|_| unit), ..Signal::clone(&value) });
                (terms, Origin::Start)
            }
            (Fan::Product(product), _) => (Vec::new(), Origin::Product { product, parts: indices }),
            (Fan::Attention(attention), mean_field::Kept::Attention(attended)) => {
                let parts = indices.try_into().expect("attention has the parts query, key, value");
                (Vec::new(), Origin::Attention { attention, parts, attended: Arc::clone(attended) })
            }
            // Their uses are not followed, and their outputs are independent of other vectors.
            (Fan::Attention(_) | Fan::Concat(_) | Fan::Recurrence(_) | Fan::Mixture(_), _) => {
                (Vec::new(), Origin::Start)
            }
        };
        let y = self.signal(value, terms, origin);
        let kept = Indexed { index: y.index, value: kept };
        Ok((y, kept))
    }

    fn split(
        &mut self,
        at: &Site,
        fan: Fan,
        kept: &mut Self::Kept,
        gradient: Self::Gradient,
    ) -> Result<Vec<Self::Gradient>, PredictError> {
        let of = kept.index;
        let parts = self.pass.split(at, fan, &mut kept.value, gradient.value)?;
        let index = gradient.index;
        let part = |(part, value): (usize, Gradient)| {
            let terms = self.vectors[of].terms.get(part).map(|term| Term { index, ..term.clone() });
            self.gradient(value, terms.into_iter().collect(), Origin::Gradient { of, part, gradient: index })
        };
        Ok(parts.into_iter().enumerate().map(part).collect())
    }

    fn join(
        &mut self,
        at: &Site,
        fan: Fan,
        kept: Self::Kept,
        parts: Vec<Self::Gradient>,
    ) -> Result<Self::Gradient, PredictError> {
        let terms: Vec<Term> = parts.iter().map(|part| self.times(part.index, 1.0)).collect();
        let parts = parts.into_iter().map(|part| part.value).collect();
        let mut value = self.pass.join(at, fan, kept.value, parts)?;
        value.kernel = self.with_covariances(value.kernel, &terms);
        Ok(self.gradient(value, terms, Origin::Start))
    }

    fn arrive(&mut self, sum: Option<Self::Gradient>, more: Self::Gradient) -> Result<Self::Gradient, PredictError> {
        let Some(sum) = sum else { return Ok(more) };
        let terms = vec![self.times(sum.index, 1.0), self.times(more.index, 1.0)];
        let mut value = self.pass.arrive(Some(sum.value), more.value)?;
        value.kernel = self.with_covariances(value.kernel, &terms);
        Ok(self.gradient(value, terms, Origin::Start))
    }

    fn observe(&mut self, at: &Site, signal: &Self::Signal) {
        self.pass.observe(at, &signal.value);
    }

    fn observe_gradient(&mut self, at: &Site, gradient: &Self::Gradient) {
        self.pass.observe_gradient(at, &gradient.value);
    }
}
