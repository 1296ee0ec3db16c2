//! The expansion of all live streams on its way through a network, forward and backward.

use sigprop_stack::Attention;

use super::attention::{AtPath, Attending, Leading};
use super::backward::Conditional;
use super::component::{Answer, Context};
use super::fan::FanContext;
use super::forward::{Fluctuations, Levels, Step};
use super::gradients::{Both, Common, Cosines, Ends, Gradients};
use super::map::{Gain, Map};
use super::mixed::Mixed;
use super::noise::Noise;
use super::quadratic::Quadratic;
use super::stream::Stream;
use super::variables::{Matrix, R_AB, U, U_A, U_B};

/// Fluctuations of all live streams, and their gradients on the way back.
#[derive(Clone, Debug)]
pub(crate) struct Expansion {
    length: f64,
    fluctuations: Fluctuations,
    gradients: Option<Gradients>,
}

/// What the backward pass of a component needs.
#[derive(Debug)]
pub(crate) struct Applied {
    slot: usize,
    /// What the entries of the input added first.
    drawn: Option<Matrix>,
    /// Behind that.
    before: Fluctuations,
    /// The width of the input, and the correlation of two of its tokens.
    width: f64,
    correlation: f64,
    step: Step,
    gain: Gain,
    answer: Answer,
    /// Behind the component.
    after: Fluctuations,
}

/// What the backward pass of an attention needs.
#[derive(Debug)]
pub(crate) struct ExpandedAttention {
    slot: usize,
    step: Step,
    attending: Attending,
    /// Fluctuations at the input, behind the map alone, and at the output.
    before: Fluctuations,
    behind: Fluctuations,
    after: Fluctuations,
    /// The correlation of two tokens of the output.
    correlation: f64,
    /// Of the input.
    width: f64,
    /// On the way back, the gradient at the output, its cosine where all tokens are gathered, ρ, α and k.
    output: Option<(Conditional, f64, Mixed)>,
}

/// What the backward pass of a fan needs.
#[derive(Debug)]
pub(crate) struct Merged {
    slots: Vec<usize>,
    drawn: Vec<Option<Matrix>>,
    step: Step,
    gains: Vec<Gain>,
    answers: Vec<Answer>,
    noise: Matrix,
    /// Of every two parts, what c_a of both have in common per E g_a² of the output, and c_b per E g_a g_b.
    common: Vec<Common>,
    /// Of two tokens of the output.
    correlation: f64,
    /// On the way back, the gradient at the output.
    output: Option<Both>,
}

/// E of |g_a|²|x_a|² over E |x_a|² at infinite width, and of g_a·g_b x_a·x_b over that.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Coupling {
    pub(crate) ln_own: f64,
    pub(crate) pair: f64,
}

impl Expansion {
    /// Of one stream of so many tokens.
    pub(crate) fn new(length: f64) -> Self {
        Self { length, fluctuations: Fluctuations::none(), gradients: None }
    }

    /// Fluctuations of all variables here.
    pub(crate) fn fluctuations(&self) -> &Fluctuations {
        &self.fluctuations
    }

    /// The levels of a stream.
    pub(crate) fn levels(&self, slot: usize, stream: &Stream) -> Levels {
        self.fluctuations.levels(slot, stream.pending(self.length).as_ref(), stream.leading)
    }

    /// ln of what E x is times that of infinite width, for means go with lengths.
    pub(crate) fn ln_mean(&self, slot: usize) -> f64 {
        0.5 * self.fluctuations.mean_of(slot)[U_A] + self.fluctuations.of(slot)[(U_A, U_A)] / 8.0
    }

    /// The variance over networks of ln of the variance of all entries of a stream.
    pub(crate) fn variance(&self, slot: usize, stream: &Stream) -> f64 {
        // The square of the mean of all entries, which is subtracted, is one of a Gaussian variable.
        let mean = (stream.ones[0] + (self.length - 1.0) * stream.ones[1]) / (self.length * stream.width);
        let of_mean = 2.0 * mean * mean;
        of_mean
            + match stream.variance {
                Some(entries) => self.fluctuations.of(slot)[(U, U)] + entries,
                None => self.levels(slot, stream).variance,
            }
    }

    /// A copy of a stream, and its slot.
    pub(crate) fn fork(&mut self, slot: usize) -> usize {
        self.fluctuations.fork(slot);
        self.fluctuations.streams() - 1
    }

    /// Adds what entries of a stream are still to add.
    fn draw(&mut self, slot: usize, stream: &mut Stream) -> Option<Matrix> {
        let pending = stream.pending(self.length)?;
        stream.drawn = None;
        self.fluctuations.add(slot, &pending, stream.leading);
        stream.correlation = stream.leading + self.fluctuations.means(slot)[1];
        Some(pending.covariance)
    }

    /// Adds what entries are still to add before a fork; what they did.
    pub(crate) fn draw_before_fork(&mut self, slot: usize, stream: &Stream) -> (Stream, Option<Matrix>) {
        let mut stream = stream.clone();
        let noise = self.draw(slot, &mut stream);
        (stream, noise)
    }

    /// E u_a and E r_ab of a stream, less what they are at infinite width.
    pub(crate) fn means(&self, slot: usize) -> [f64; 2] {
        self.fluctuations.means(slot)
    }

    /// Goes through a component with this map; `mixes_entries` unless it takes entry by entry.
    pub(crate) fn apply(
        &mut self,
        (slot, x): (usize, &Stream),
        mixes_entries: bool,
        map: impl FnOnce([f64; 2]) -> (Map, Gain),
        answer: impl FnOnce(&Context<'_>) -> Answer,
    ) -> (Stream, Applied) {
        let mut x = x.clone();
        let drawn = if mixes_entries { self.draw(slot, &mut x) } else { None };
        let before = self.fluctuations.clone();
        let (map, gain) = map(self.means(slot));
        let leading = map.leading;
        let step = self.fluctuations.map(&[slot], map);
        let r = leading + self.means(slot)[1];
        let covariance = if mixes_entries { self.fluctuations.of(slot) } else { before.of(slot) };
        let answer = answer(&Context { x: &x, r, length: self.length, covariance });
        let jacobian = step.part(slot);
        let stream = Stream {
            width: answer.width,
            leading,
            correlation: r,
            entries: answer.entries,
            centred: answer.centred,
            fixed: answer.fixed,
            drawn: if mixes_entries { answer.drawn() } else { Some(x.behind(&step, self.length)) },
            ones: answer.ones,
            susceptibility: x.susceptible(&jacobian, gain.cosine.value),
            variance: answer.variance,
        };
        self.fluctuations.add(slot, &Noise { drift: answer.drift, ..Noise::none() }, leading);
        let after = self.fluctuations.clone();
        let (width, correlation) = (x.width, x.correlation);
        (stream, Applied { slot, drawn, before, width, correlation, step, gain, answer, after })
    }

    /// Starts the way back at the end of a stream, with a gradient that finite width has added to.
    pub(crate) fn seed(&mut self, [ln_own, cosine]: [f64; 2], width: f64) {
        let mut gradients = Gradients::seed(cosine, width, self.length);
        gradients.of[0].given.ln_own.value = ln_own;
        self.gradients = Some(gradients);
    }

    /// S of a stream, with what its entries are still to add.
    pub(crate) fn covariance(&self, slot: usize, stream: &Stream) -> Matrix {
        let pending = stream.pending(self.length).map_or(Matrix::zeros(), |noise| noise.covariance);
        self.fluctuations.of(slot) + pending
    }

    /// Whether the way back has begun.
    pub(crate) fn has_gradients(&self) -> bool {
        self.gradients.is_some()
    }

    /// The gradient of a stream, given the variables of all.
    pub(crate) fn given(&self, slot: usize) -> &Conditional {
        &self.gradients.as_ref().expect("the way back has begun").of[slot].given
    }

    /// What is added to ln E |g_a|² at the output of an attention, and ρ there (at least 0, terms that are left out are of either sign).
    pub(crate) fn behind(&self, attended: &ExpandedAttention) -> [f64; 2] {
        let ExpandedAttention { slot, after, .. } = attended;
        let radial = self.gradients.as_ref().expect("the way back has begun").of[*slot].mixed.radial;
        [self.gradient(*slot, after).0, radial.max(0.0)]
    }

    fn gradients(&mut self) -> &mut Gradients {
        self.gradients.as_mut().expect("the way back has begun")
    }

    /// ln E |g_a|², E g_a·g_b over it, and the variance of ln mean |g_a|², given the fluctuations of variables.
    pub(crate) fn gradient(&self, slot: usize, fluctuations: &Fluctuations) -> (f64, f64, f64) {
        self.gradients.as_ref().expect("the way back has begun").at(slot, fluctuations)
    }

    /// Goes through an attention of `x`, whose settled input this is, to keys of this covariance and correlation, other than those of
    /// `x` if `is_apart`; to an output of this width.
    pub(crate) fn attend(
        &mut self,
        (slot, x): (usize, &Stream),
        (keys, is_apart): ((&Matrix, f64), bool),
        (attention, scores): (&Attention, [f64; 3]),
        leading: Leading,
        width: f64,
    ) -> (Stream, ExpandedAttention) {
        let Leading { mut map, paths } = leading;
        let correlation = map.leading;
        let r = correlation + map.moved[1];
        let at = (slot, keys.0);
        let attending = Attending::new((attention, scores), paths, x.width, at, [keys.1, r]);
        if !is_apart {
            attending.correlate_rows(&mut map);
        }
        let before = self.fluctuations.clone();
        let step = self.fluctuations.map(&[slot], map);
        let behind = self.fluctuations.clone();
        self.fluctuations.add(slot, &attending.noise, correlation);
        let after = self.fluctuations.clone();
        let variance = self.fluctuations.of(slot)[(R_AB, R_AB)];
        let jacobian = step.part(slot);
        let r = [correlation, correlation + self.means(slot)[1]];
        let stream = Stream { susceptibility: x.susceptible(&jacobian, 1.0), ..Stream::drawn(width, r, variance) };
        let attended = ExpandedAttention {
            slot,
            step,
            attending,
            before,
            behind,
            after,
            correlation: r[1],
            width: x.width,
            output: None,
        };
        (stream, attended)
    }

    /// E of the gradient at the output of an attention with the output, before values are drawn.
    pub(crate) fn coupling_behind(&self, attended: &ExpandedAttention) -> Coupling {
        let ExpandedAttention { slot, after, correlation, .. } = attended;
        Coupling::new(self.given(*slot).clone(), *slot, after, *correlation)
    }

    /// Back through an attention, to its queries, keys and values, whose gradients are like this at infinite width.
    pub(crate) fn attend_split(&mut self, attended: &mut ExpandedAttention, leading: [AtPath; 3]) -> [Conditional; 3] {
        let ExpandedAttention { slot, step, attending, behind, output, .. } = attended;
        let gradients = self.gradients();
        let responses = gradients.of[*slot].given.responses(*slot);
        gradients.noise(*slot, &attending.noise.covariance);
        let mut gathered = gradients.of[*slot].given.clone();
        gathered.gather(*slot, behind);
        let (_, cosine) = gathered.at(behind);
        gathered.map(step);
        for gradient in &mut gradients.of {
            gradient.given.map(step);
        }
        let Both { given, mixed, .. } = &gradients.of[*slot];
        *output = Some((given.clone(), cosine, *mixed));
        attending.split([given, &gathered], responses, *mixed, leading)
    }

    /// Back to the input of an attention, from what its queries, keys and values send back.
    pub(crate) fn attend_join(&mut self, attended: &ExpandedAttention, paths: [&Conditional; 3], levels: [f64; 3]) {
        let (output, cosine, mixed) = attended.output.as_ref().expect("it was split");
        let (given, mixed, levels) = attended.attending.join((paths, levels), output, (*cosine, *mixed));
        self.gradients().attend(attended.slot, given, mixed, levels, attended.width);
    }

    /// E of the gradient at the output of a component, with its input if `with_input`, with its output otherwise.
    pub(crate) fn coupling(&mut self, applied: &Applied, with_input: bool) -> Coupling {
        let Applied { slot, before, after, width, correlation, step, answer, .. } = applied;
        let gradient = &self.gradients().of[*slot];
        let mut given = gradient.given.clone();
        let (fluctuations, r) = if with_input {
            given.map(step);
            (before, *correlation)
        } else {
            (after, answer.correlation)
        };
        let Coupling { ln_own, pair } = Coupling::new(given, *slot, fluctuations, r);
        if with_input {
            return Coupling { ln_own, pair };
        }
        // What gains read is E Σ_i (g x)_ai (g x)_bi: c_aa c_bb and c_ab c_ba, of the same entries, add their excess.
        let squares = (gradient.mixed.squares / width).ln_1p();
        Coupling { ln_own: ln_own + squares, pair: (pair + 2.0 * gradient.mixed.pairs / width) * (-squares).exp() }
    }

    /// Back through a component.
    pub(crate) fn apply_backward(&mut self, applied: Applied, cosines: Cosines) {
        let Applied { slot, drawn, width, step, gain, answer, .. } = applied;
        let gradients = self.gradients();
        gradients.apply(slot, &step, (&gain, cosines), &answer, width);
        if let Some(noise) = drawn {
            gradients.noise(slot, &noise);
        }
    }

    /// Back through what was added to a stream before a fork.
    pub(crate) fn settle_backward(&mut self, slot: usize, noise: Option<&Matrix>) {
        if let Some(noise) = noise {
            self.gradients().noise(slot, noise);
        }
    }

    /// Goes through a sum with this ratio of E y² and that of the common input, of parts of whose E x² these shares are (E x)².
    pub(crate) fn sum(
        &mut self,
        x: &Stream,
        slots: &[usize],
        mut parts: Vec<Stream>,
        map: impl FnOnce(&[[f64; 2]]) -> (Map, Vec<Gain>),
        (ratio, means): (f64, &[f64]),
    ) -> (Stream, Merged) {
        let drawn = slots.iter().zip(&mut parts).map(|(&slot, part)| self.draw(slot, part)).collect();
        let before = self.fluctuations.clone();
        let (map, gains) = map(&self.means_of(slots));
        let leading = map.leading;
        // ∂u of a sum by that of a part is its share.
        let shares: Vec<f64> = map.jacobians.iter().map(|of_part| of_part[(U_A, U_A)]).collect();
        let step = self.fluctuations.map(slots, map);
        let r = leading + self.means(slots[0])[1];
        let streams: Vec<&Stream> = parts.iter().collect();
        let fan = FanContext { x, parts: &streams, leading, r, length: self.length };
        let (mut stream, noise) = fan.sum(&step, [&shares, means], &before);
        let answers = shares.iter().map(|&share| fan.part_of_sum(share)).collect();
        let common = fan.commons(|i, j| shares[i] * shares[j] * ratio);
        self.fluctuations.add(slots[0], &noise, leading);
        stream.correlation = leading + self.means(slots[0])[1];
        (stream, Merged { drawn, noise: noise.covariance, ..Merged::new(slots, step, (gains, answers), common, r) })
    }

    /// Goes through a product with this share (E y)²/E y² of means, E y² over that of the common input.
    pub(crate) fn product(
        &mut self,
        x: &Stream,
        slots: &[usize],
        parts: &[Stream],
        map: impl FnOnce(&[[f64; 2]]) -> (Map, Vec<Gain>),
        [mean_share, ratio]: [f64; 2],
    ) -> (Stream, Merged) {
        let (map, gains) = map(&self.means_of(slots));
        let leading = map.leading;
        let step = self.fluctuations.map(slots, map);
        let r = leading + self.means(slots[0])[1];
        let streams: Vec<&Stream> = parts.iter().collect();
        let fan = FanContext { x, parts: &streams, leading, r, length: self.length };
        let stream = fan.product(&step, mean_share);
        let answers = (0..parts.len()).map(|own| fan.part_of_product(own)).collect();
        let common = fan.commons(|_, _| ratio);
        (stream, Merged::new(slots, step, (gains, answers), common, r))
    }

    fn means_of(&self, slots: &[usize]) -> Vec<[f64; 2]> {
        slots.iter().map(|&slot| self.means(slot)).collect()
    }

    /// Back through a fan, to its parts.
    pub(crate) fn split(&mut self, merged: &mut Merged, is_product: bool, cosines: &[Cosines]) {
        let Merged { slots, drawn, step, gains, answers, noise, common, output: at_output, correlation } = merged;
        let gradients = self.gradients();
        gradients.noise(slots[0], noise);
        let output = gradients.of[slots[0]].clone();
        // c of the parts of a product is that of the output, of parts of a sum a share of what it has beyond isotropy.
        let [radial, cross] =
            [output.mixed.radial, output.mixed.cross].map(|of| if is_product { of } else { of - 1.0 });
        // Of products c_aa c_bb of two parts and c_ab c_ba, on average.
        let cosine = if is_product { 0.5 * output.given.cosine.value } else { 0.0 };
        for common in common {
            common.own *= radial;
            common.cross *= cross;
            common.pair *= cross;
            common.pairs *= output.mixed.pairs + cosine * (*correlation + common.cosine_factor);
        }
        *at_output = Some(output);
        let gains: Vec<(Gain, Cosines)> = gains.drain(..).zip(cosines.iter().copied()).collect();
        gradients.split(slots, step, &gains, answers);
        for (&slot, noise) in slots.iter().zip(drawn).rev() {
            self.settle_backward(slot, noise.as_ref());
        }
    }

    /// Back through the forks of a fan whose input has this width.
    pub(crate) fn join(&mut self, merged: &Merged, forks: &[usize], width: f64, ends: &Ends) {
        let output = merged.output.as_ref().expect("the fan was split");
        self.gradients().join(&merged.slots, forks, width, &merged.common, (output, ends));
    }
}

impl Coupling {
    /// Of a gradient, given the variables, with the signal of a stream of correlation `r`, and their fluctuations.
    pub(crate) fn new(mut given: Conditional, slot: usize, fluctuations: &Fluctuations, r: f64) -> Self {
        // |x_a|² in logarithms, and r_ab e^((u_b − u_a)/2) beside it.
        given.ln_own.value += fluctuations.means(slot)[0];
        given.ln_own.gradient[slot][U_A] += 1.0;
        let mut product = Quadratic::constant(0.0, given.ln_own.streams());
        (product.gradient[slot][U_A], product.gradient[slot][U_B]) = (-0.5, 0.5);
        let mut product = product.exp(r);
        product.gradient[slot][R_AB] = 1.0;
        product.hessian.add_entry((slot, R_AB), (slot, U_A), -0.5);
        product.hessian.add_entry((slot, R_AB), (slot, U_B), 0.5);
        given.cosine = given.cosine.times(&product);
        let (ln_own, pair) = given.at(fluctuations);
        Self { ln_own, pair }
    }
}

impl ExpandedAttention {
    /// What cosines of keys' and of values' gradients answer to the overlap of two keys at most: as scores do, and as much as rows
    /// answer to scores.
    pub(crate) fn largest_slopes(&self) -> [f64; 2] {
        self.attending.largest_slopes()
    }

    /// The share of E |g_b|² along values that keys and values of another stream add to it together, once it was split.
    pub(crate) fn shared_by_keys(&self) -> f64 {
        self.output.as_ref().map_or(0.0, |(_, cosine, _)| self.attending.shared_by_keys(*cosine))
    }

    /// Fluctuations at the input.
    pub(crate) fn before(&self) -> &Fluctuations {
        &self.before
    }
}

impl Applied {
    /// Fluctuations at the input, with what its entries add.
    pub(crate) fn before(&self) -> &Fluctuations {
        &self.before
    }

    /// Fluctuations at the output.
    pub(crate) fn after(&self) -> &Fluctuations {
        &self.after
    }

    /// Of the output.
    pub(crate) fn width(&self) -> f64 {
        self.answer.width
    }
}

impl Merged {
    /// Of a fan that draws nothing, to an output of the correlation `correlation`.
    fn new(
        slots: &[usize],
        step: Step,
        (gains, answers): (Vec<Gain>, Vec<Answer>),
        common: Vec<Common>,
        correlation: f64,
    ) -> Self {
        let (drawn, noise) = (vec![None; slots.len()], Matrix::zeros());
        Self { slots: slots.to_vec(), drawn, step, gains, answers, noise, common, correlation, output: None }
    }

    /// The slots of the parts.
    pub(crate) fn slots(&self) -> &[usize] {
        &self.slots
    }
}

impl Answer {
    /// What entries have added where overlaps were taken: nothing of those drawn anew, all of others.
    fn drawn(&self) -> Option<Noise> {
        matches!(self.gradient, super::component::GradientEntries::Drawn).then(Noise::none)
    }
}
