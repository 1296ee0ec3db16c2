//! Recurrence y_t = scale S_tᵀ q_t + D v_t with states S_t = diag(α_t) S_(t−1) + η_t k_t v'_tᵀ: state-space models
//! (Mamba), linear attention (lightning, RetNet) and the gated delta rule.
//!
//! ```text
//! forward    E y_t y_s = scale² (d Q∘F[K∘V'] + d (d − 1) M^q∘F[M^k∘V']) + D² V + scale D (M + Mᵀ)
//! backward   values      Tᵀ scale² (d K∘Fᵀ[Q∘G] + d (d − 1) M^k∘Fᵀ[M^q∘G]) T + D² G + scale D (N + Nᵀ)
//!            queries     scale² n_v h G∘F[K∘V']          keys   scale² n_v h V'∘Fᵀ[Q∘G]
//!            strengths   n_v H_tt B_tt E η'²
//!            steps       n_v H_tt (B_tt E η'² + F_(t−1)(t−1) E α'² + 2 R_t E η'α')
//!            D           E dD² = n_v Σ_ts G_ts V_ts
//! ```
//!
//! where t, s are positions; Q, K, V are the kernels of queries, keys and values; V' is the kernel of the values v'
//! that are written, T V Tᵀ with the delta rule and V without; T is the map of [`erase`]; M^q, M^k are the products of
//! the means of queries and of keys; F is the map from the kernel of writes to the kernel of their state, and Fᵀ is
//! its adjoint ([`state`]); ∘ is the elementwise product; d is the width of a key; n_v is the width of a value; h is
//! the number of value heads per key head; G is the kernel of the gradient at y; M, N are the covariances of the state
//! and the skip ([`skip`]); D is the skip; H_tt is the second moment of the gradient at a state; B is the kernel of
//! writes, K∘V'; R_t is the product of the write at t with the state before it; α is the decay; η is the strength of a
//! write; α', η' are their derivatives with respect to the input of the step or of the strength.
//!
//! All moments of states are averages over the laws of decays and writes ([`laws`]). Steps and strengths get gradients
//! that are independent from position to position: pairs of positions add about a hundredth at the input.
//!
//! Example: one token, 64 features per key, queries, keys and values of variance 1, scale 1/8, η = 1: y has variance 64/64
//! = 1. A gradient of variance 1 at y becomes 1 at values and, for values of 64 features, 1 at queries.
//!
//! At finite width the cosine of two tokens fluctuates, with a variance of 1/width or more. Keys and values share it, so
//! that this variance times the number of positions in the state adds to E y².
//!
//! Assumptions: queries, keys, values, steps and strengths are independent given the input; keys have many features.
//! Source: ours; the recurrences are those of Mamba-2 (Dao & Gu 2024), lightning attention (Qin et al. 2024) and gated
//! DeltaNet (Yang et al. 2024).

mod erase;
mod ladder;
mod laws;
mod scores;
mod skip;
mod state;

use std::sync::Arc;

use sigprop_stack::Recurrence;

use self::erase::Erasure;
pub(crate) use self::ladder::Ladder;
use self::ladder::{Side, rate};
use self::laws::{Law, Laws};
use self::skip::Crossed;
use self::state::{Held, State};
use super::few::Few;
use super::gradient::Gradient;
use super::heads::Heads;
use super::kernel::Kernel;
use super::signal::Signal;

/// The state that the forward pass of a recurrence keeps for its backward pass.
pub(crate) struct Recurred {
    states: States,
    output: Arc<Signal>,
    /// The share of E y² that the state has.
    state_share: f64,
}

/// The states of all laws, and the signals that they are made of.
struct States {
    ladder: Arc<Ladder>,
    query: Arc<Signal>,
    key: Arc<Signal>,
    value: Arc<Signal>,
    strength_slope: f64,
    /// The product of two keys; `None` without the delta rule.
    product: Option<f64>,
    laws: Vec<OfLaw>,
    /// F[K∘V'], averaged over laws.
    held: Kernel,
}

/// The states of one law.
struct OfLaw {
    law: Law,
    /// V'.
    values: Kernel,
    held: Held,
    /// F[M^k∘V']; `None` if keys have no mean.
    held_means: Option<Held>,
}

impl Recurred {
    /// Runs the forward pass on the outputs of the chains of the recurrence: query, key, value and, where they exist,
    /// step and strength. `cosine_variance` is the variance of the cosine of two tokens of the input between networks.
    pub(crate) fn new(
        recurrence: &Recurrence,
        ladder: Arc<Ladder>,
        parts: &[Arc<Signal>],
        cosine_variance: f64,
    ) -> Self {
        let states = States::new(recurrence, ladder, parts, cosine_variance);
        let state = states.kernel(recurrence);
        let mut kernel = state.clone();
        if let Some(skip) = recurrence.skip {
            let value = &states.value.kernel;
            kernel = kernel.plus(&value.multiplied(skip * skip));
            if let Some(crossed) = states.crossed(Side::Earlier, value) {
                kernel = kernel.plus(&crossed.multiplied(recurrence.scale * skip * recurrence.d_key as f64));
            }
        }
        let level = |kernel: &Kernel| kernel.positions.sum(|node| kernel.own[node]).ln() + kernel.ln_unit;
        let state_share = (level(&state) - level(&kernel)).exp();
        let means = states.means(recurrence, kernel.ln_unit);
        let width = (recurrence.n_heads * recurrence.d_value) as f64;
        let variances = scores::variances(recurrence, &states, &kernel);
        let variance = kernel.positions.sum(|node| variances[node]) / kernel.positions.length;
        let heads = Some(Heads { variance, count: recurrence.n_key_heads });
        let output = Arc::new(Signal { means, heads, ..Signal::centred(width, kernel) });
        Self { states, output, state_share }
    }

    /// The output of the heads.
    pub(crate) fn output(&self) -> Arc<Signal> {
        Arc::clone(&self.output)
    }

    /// The share of E y² that the state has; the rest is the skip's.
    pub(crate) fn state_share(&self) -> f64 {
        self.state_share
    }

    /// The share of a value that later writes erase, averaged over states; 0 without the delta rule.
    pub(crate) fn erased_share(&self) -> f64 {
        let share = |of: &OfLaw| {
            let erased = erasure(&self.states.ladder, &of.law, self.states.product).map(|erasure| erasure.erased());
            let level = of.held.kernel.positions.sum(|node| of.held.kernel.own[node]) * of.held.kernel.ln_unit.exp();
            (of.law.share * level, of.law.share * level * erased.unwrap_or_default())
        };
        let [all, erased] = self
            .states
            .laws
            .iter()
            .map(share)
            .fold([0.0; 2], |[all, sum], (level, erased)| [all + level, sum + erased]);
        erased / all
    }

    /// Returns ln E dD² of the skip D of a head, for the gradient at the output.
    pub(crate) fn ln_skip_gradient(&self, recurrence: &Recurrence, gradient: &Gradient) -> f64 {
        gradient.kernel.ln_contracted(&self.states.value.kernel) + (recurrence.d_value as f64).ln()
    }

    /// Returns the gradients at the outputs of the chains, in their order.
    pub(crate) fn split(&self, recurrence: &Recurrence, gradient: &Gradient) -> Vec<Gradient> {
        let (states, gamma) = (&self.states, &gradient.kernel);
        let square = recurrence.scale * recurrence.scale;
        let group = (recurrence.n_heads / recurrence.n_key_heads * recurrence.d_value) as f64;
        let asked = states.query.kernel.times(gamma);
        let asked_means = means_product(&states.query).map(|means| means.times(gamma));
        let split = |of: &OfLaw| of.split(states, recurrence, (&asked, asked_means.as_ref()));
        let (shares, parts): (Vec<f64>, Vec<AtLaw>) = states.laws.iter().map(|of| (of.law.share, split(of))).unzip();
        let average = |part: &dyn Fn(&AtLaw) -> &Kernel| {
            averaged(shares.iter().zip(&parts).map(|(&share, of)| (share, part(of).clone())))
        };
        let mut values = average(&|of| &of.values).multiplied(square);
        if let Some(skip) = recurrence.skip {
            values = values.plus(&gamma.multiplied(skip * skip));
            if let Some(crossed) = states.crossed(Side::Later, gamma) {
                values = values.plus(&crossed.multiplied(recurrence.scale * skip * recurrence.d_key as f64));
            }
        }
        let queries = gamma.times(&states.held).multiplied(square * group);
        let keys = average(&|of| &of.keys).multiplied(square * group);
        let single = square * recurrence.d_value as f64;
        let mut all = vec![queries, keys, values];
        if let Some(stepped) = recurrence.stepped() {
            let channels = if stepped.step_per_channel { recurrence.d_key as f64 } else { 1.0 };
            all.push(average(&|of| &of.steps).multiplied(single / channels));
        }
        if recurrence.widths().count() > all.len() {
            all.push(average(&|of| &of.strengths).multiplied(single * states.strength_slope));
        }
        all.into_iter().map(Gradient::independent).collect()
    }
}

impl States {
    fn new(recurrence: &Recurrence, ladder: Arc<Ladder>, parts: &[Arc<Signal>], cosine_variance: f64) -> Self {
        let [query, key, value] = [0, 1, 2].map(|part: usize| Arc::clone(&parts[part]));
        let mut rest = parts[3..].iter().map(|part| &part.kernel);
        let step = recurrence.stepped().and_then(|_| rest.next());
        let product = product(recurrence, &key.kernel);
        let erased = product.map_or(0.0, |product| (1.0 - product) / recurrence.d_key as f64);
        let Laws { rungs, strength_slope } = Laws::new(recurrence, step, rest.next(), erased);
        let of_law = |law| OfLaw::new(&ladder, law, [&key, &value], (product, cosine_variance));
        let laws: Vec<OfLaw> = rungs.into_iter().map(of_law).collect();
        let held = averaged(laws.iter().map(|of| (of.law.share, of.held.kernel.clone())));
        Self { ladder, query, key, value, strength_slope, product, laws, held }
    }

    /// Returns the part of the output's kernel that states have.
    fn kernel(&self, recurrence: &Recurrence) -> Kernel {
        let features = recurrence.d_key as f64;
        let square = recurrence.scale * recurrence.scale;
        let kernel = self.query.kernel.times(&self.held).multiplied(features);
        let (Some(queries), Some(_)) = (means_product(&self.query), &self.key.means) else {
            return kernel.multiplied(square);
        };
        let held = self.laws.iter().filter_map(|of| Some((of.law.share, of.held_means.as_ref()?.kernel.clone())));
        let of_means = queries.times(&averaged(held)).multiplied(features * (features - 1.0));
        kernel.plus(&of_means).multiplied(square)
    }

    /// Returns the means of the output, in units of e^(`ln_unit`/2); `None` if all are zero.
    fn means(&self, recurrence: &Recurrence, ln_unit: f64) -> Option<Few<f64>> {
        let [query, key, value] = [&self.query, &self.key, &self.value];
        let unit =
            |of: &[&Arc<Signal>]| (0.5 * (of.iter().map(|part| part.kernel.ln_unit).sum::<f64>() - ln_unit)).exp();
        let values = value.means.as_ref()?;
        let mut means: Few<f64> =
            values.iter().map(|mean| recurrence.skip.unwrap_or_default() * mean * unit(&[value])).collect();
        if let (Some(queries), Some(keys)) = (&query.means, &key.means) {
            let factor = recurrence.scale * recurrence.d_key as f64 * unit(&[query, key, value]);
            for OfLaw { law, .. } in &self.laws {
                let values = match erasure(&self.ladder, law, self.product) {
                    Some(erasure) => erasure.means(values),
                    None => values.to_vec(),
                };
                let written: Vec<f64> = keys.iter().zip(values).map(|(key, value)| key * value).collect();
                let decay = rate(law.rung);
                let earlier = self.ladder.over_nodes(Side::Earlier, decay, &written);
                for (node, mean) in means.iter_mut().enumerate() {
                    let state = law.share * law.mean_write * (written[node] + decay * earlier[node]);
                    *mean += factor * queries[node] * state;
                }
            }
        }
        Some(means)
    }

    /// Returns M + Mᵀ or N + Nᵀ without the factor d, averaged over laws; `None` without means.
    fn crossed(&self, side: Side, kernel: &Kernel) -> Option<Kernel> {
        let (query, key) = (self.query.means.as_ref()?, self.key.means.as_ref()?);
        let (inner, outer) = match side {
            Side::Earlier => (key, query),
            Side::Later => (query, key),
        };
        let of_law = |OfLaw { law, .. }: &OfLaw| {
            (law.share, Crossed { ladder: &self.ladder, law, side, inner, outer }.of(kernel))
        };
        let units = 0.5 * (self.query.kernel.ln_unit + self.key.kernel.ln_unit);
        let sum = averaged(self.laws.iter().map(of_law));
        Some(sum.with(sum.ln_unit + units, sum.own.clone(), sum.pairs.clone()))
    }
}

/// The gradients of one law, without the factors that all laws share.
struct AtLaw {
    values: Kernel,
    keys: Kernel,
    steps: Kernel,
    strengths: Kernel,
}

impl OfLaw {
    fn new(
        ladder: &Ladder,
        law: Law,
        [key, value]: [&Signal; 2],
        (product, cosine_variance): (Option<f64>, f64),
    ) -> Self {
        let values = match erasure(ladder, &law, product) {
            Some(erasure) => erasure.forward(&value.kernel),
            None => value.kernel.clone(),
        };
        let state = State { ladder, law: &law };
        let held = state.forward(&written(key, &Signal { kernel: values.clone(), ..value.clone() }, cosine_variance));
        let held_means = means_product(key).map(|means| state.forward(&means.times(&values)));
        Self { law, values, held, held_means }
    }

    /// Returns the gradients for Q∘G and M^q∘G.
    fn split(
        &self,
        states: &States,
        recurrence: &Recurrence,
        (asked, asked_means): (&Kernel, Option<&Kernel>),
    ) -> AtLaw {
        let Self { law, values, held, held_means } = self;
        let (ladder, key) = (&*states.ladder, &*states.key);
        let features = recurrence.d_key as f64;
        let state = State { ladder, law };
        let back = state.backward(asked);
        let mut at_values = key.kernel.times(&back.kernel).multiplied(features);
        let writes = key.kernel.times(values);
        let [mut steps, mut strengths] =
            self.at_scores((&back.through, back.kernel.ln_unit), held, &writes, features, ladder);
        if let (Some(asked), Some(held), Some(means)) = (asked_means, held_means, means_product(key)) {
            let pairs = features * (features - 1.0);
            let back = state.backward(asked);
            at_values = at_values.plus(&means.times(&back.kernel).multiplied(pairs));
            let writes = means.times(values);
            let more = self.at_scores((&back.through, back.kernel.ln_unit), held, &writes, pairs, ladder);
            steps = steps.plus(&more[0]);
            strengths = strengths.plus(&more[1]);
        }
        let at_values = match erasure(ladder, law, states.product) {
            Some(erasure) => erasure.backward(&at_values),
            None => at_values,
        };
        AtLaw { values: at_values, keys: values.times(&back.kernel), steps, strengths }
    }

    /// Returns the gradients at steps and at strengths, the latter per E η'², for the second moments `through` of the
    /// gradient at the states.
    fn at_scores(
        &self,
        (through, ln_unit): (&[f64], f64),
        held: &Held,
        writes: &Kernel,
        features: f64,
        ladder: &Ladder,
    ) -> [Kernel; 2] {
        let [write, decay, both] = self.law.slopes;
        let before = ladder.chart.one_before(&held.kernel.own);
        let unit = (writes.ln_unit - held.kernel.ln_unit).exp();
        let own =
            |of: &dyn Fn(usize) -> f64| (0..through.len()).map(|node| features * through[node] * of(node)).collect();
        let earlier = |node: usize| 2.0 * self.law.mean_write * held.earlier[node];
        let steps: Few<f64> =
            own(&|node| unit * writes.own[node] * write + decay * before[node] + both * earlier(node));
        let strengths: Few<f64> = own(&|node| writes.own[node]);
        let none = || writes.pairs.iter().map(|_| 0.0).collect();
        [
            writes.with(held.kernel.ln_unit + ln_unit, steps, none()),
            writes.with(writes.ln_unit + ln_unit, strengths, none()),
        ]
    }
}

/// Returns the product of two keys, averaged over pairs, for keys of length 1; `None` without the delta rule.
fn product(recurrence: &Recurrence, key: &Kernel) -> Option<f64> {
    let positions = &key.positions;
    let pairs = positions.length * (positions.length - 1.0);
    let mean = if pairs > 0.0 { positions.sum_pairs(|point| key.pairs[point]) / pairs } else { 0.0 };
    recurrence.delta.then(|| (recurrence.d_key as f64 * mean * key.ln_unit.exp()).clamp(0.0, 1.0))
}

/// Returns the map from values to those that are written; `None` without the delta rule.
fn erasure<'e>(ladder: &'e Ladder, law: &Law, product: Option<f64>) -> Option<Erasure<'e>> {
    product.map(|product| Erasure::new(ladder, law, product))
}

/// Returns the kernel of writes, K∘V'. Keys and values of two tokens share the cosine of their inputs, whose variance adds
/// to the product.
fn written(key: &Signal, value: &Signal, cosine_variance: f64) -> Kernel {
    let writes = key.kernel.times(&value.kernel);
    if cosine_variance <= 0.0 {
        return writes;
    }
    let both = key.centred_kernel().times(&value.centred_kernel());
    let roots: Few<f64> = both.own.iter().map(|own| own.max(0.0).sqrt()).collect();
    let none = both.own.iter().map(|_| 0.0).collect();
    let pairs = both.map_pairs(&roots, |_, [a, b], _| a * b * cosine_variance);
    writes.plus(&both.with(both.ln_unit, none, pairs))
}

/// Returns the products of the means of a signal at two positions; `None` if they are zero.
fn means_product(signal: &Signal) -> Option<Kernel> {
    let means = signal.means.as_ref()?;
    let own = means.iter().map(|mean| mean * mean).collect();
    let pairs = (0..signal.kernel.pairs.len()).map(|point| signal.mean_product(point)).collect();
    Some(signal.kernel.with(signal.kernel.ln_unit, own, pairs))
}

/// Returns the sum of kernels, each times its share. Shares may be negative.
fn averaged(parts: impl Iterator<Item = (f64, Kernel)>) -> Kernel {
    let shared = parts.map(|(share, kernel)| kernel.multiplied(share));
    shared.reduce(|sum, part| sum.plus(&part)).expect("there is at least one law")
}

#[cfg(test)]
mod tests {
    use sigprop_stack::{Decay, Write};

    use super::*;
    use crate::mean_field::positions::{Chart, Grading, Positions};

    fn recurrence(rates: Vec<f64>) -> Recurrence {
        Recurrence {
            n_heads: rates.len(),
            n_key_heads: rates.len(),
            d_key: 64,
            d_value: 64,
            scale: 0.125,
            decay: Decay::Fixed { rates },
            write: Write::One,
            delta: false,
            skip: None,
            query: Vec::new(),
            key: Vec::new(),
            value: Vec::new(),
        }
    }

    fn parts(length: usize, correlation: f64) -> (Arc<Ladder>, Vec<Arc<Signal>>) {
        let chart = Arc::new(Chart::new(length, Grading::all(length), &[]));
        let positions = Arc::new(Positions::on(Arc::clone(&chart), None));
        let part = || Arc::new(Signal::centred(64.0, Kernel::new(&positions, |_| 1.0, |_| correlation)));
        (Arc::new(Ladder::new(&chart)), vec![part(), part(), part()])
    }

    #[test]
    fn example_of_the_header() {
        let (ladder, parts) = parts(1, 0.0);
        let recurrence = recurrence(vec![0.3]);
        let recurred = Recurred::new(&recurrence, ladder, &parts, 0.0);
        let own = |kernel: &Kernel| kernel.own[0] * kernel.ln_unit.exp();
        approx::assert_relative_eq!(own(&recurred.output().kernel), 1.0, max_relative = 1e-9);
        let positions = &parts[0].kernel.positions;
        let gradient = Gradient::independent(Kernel::new(positions, |_| 1.0, |_| 0.0));
        let [queries, keys, values] = &recurred.split(&recurrence, &gradient)[..] else { panic!("three parts") };
        for (part, expected) in [(queries, 1.0), (keys, 1.0), (values, 1.0)] {
            approx::assert_relative_eq!(own(&part.kernel), expected, max_relative = 1e-9);
        }
    }

    /// Without decay, of uncorrelated tokens: E y_t² is the number of tokens so far, times d scale² = 1.
    #[test]
    fn a_state_without_decay_holds_all_tokens() {
        let (ladder, parts) = parts(8, 0.0);
        let recurred = Recurred::new(&recurrence(vec![0.0]), ladder, &parts, 0.0);
        let kernel = &recurred.output().kernel;
        for (node, own) in kernel.own.iter().enumerate() {
            approx::assert_relative_eq!(own * kernel.ln_unit.exp(), (node + 1) as f64, max_relative = 1e-4);
        }
    }
}
