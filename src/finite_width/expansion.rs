//! The expansion of all live streams through the forward and the backward pass of a network.

use sigprop_stack::Attention;

use super::attention::{AtPath, Attending, Leading, ScoreMoments};
use super::backward::Conditional;
use super::component::{Answer, Context};
use super::fan::FanContext;
use super::forward::{Fluctuations, Levels, Step};
use super::gradients::{Both, Common, Cosines, Ends, Gradients};
use super::map::{Gain, Map};
use super::mixed::Mixed;
use super::noise::Noise;
use super::preserved::Through;
use super::quadratic::Quadratic;
use super::stream::Stream;
use super::variables::{Matrix, R_AB, U, U_A, U_B};

/// Fluctuations of all live streams, with their gradients in the backward pass.
#[derive(Clone, Debug)]
pub(crate) struct Expansion {
    length: f64,
    fluctuations: Fluctuations,
    /// The gradients; `None` before the backward pass.
    gradients: Option<Gradients>,
}

/// The state of a component that its backward pass needs.
#[derive(Debug)]
pub(crate) struct Applied {
    slot: usize,
    /// The covariance of the noise that the input's entries added to the variables before the component; `None` if they
    /// added none.
    drawn: Option<Matrix>,
    /// Fluctuations at the input, including `drawn`.
    before: Fluctuations,
    /// The width of the input, and the correlation of two of its tokens.
    width: f64,
    correlation: f64,
    step: Step,
    gain: Gain,
    answer: Answer,
    /// Fluctuations at the output.
    after: Fluctuations,
}

/// The state of an attention that its backward pass needs.
#[derive(Debug)]
pub(crate) struct ExpandedAttention {
    slot: usize,
    step: Step,
    attending: Attending,
    /// Fluctuations at the input.
    before: Fluctuations,
    /// Fluctuations after the map, before the noise of the attention.
    behind: Fluctuations,
    /// Fluctuations at the output.
    after: Fluctuations,
    /// The correlation of two tokens of the output.
    correlation: f64,
    /// The width of the input.
    width: f64,
    /// The gradient at the output, its cosine after the average over all tokens, and its numbers ρ, α and k (see
    /// `mixed.rs`); `None` before the backward pass.
    output: Option<(Conditional, f64, Mixed)>,
}

/// The state of a sum or product of branches that its backward pass needs.
#[derive(Debug)]
pub(crate) struct Merged {
    slots: Vec<usize>,
    drawn: Vec<Option<Matrix>>,
    step: Step,
    gains: Vec<Gain>,
    answers: Vec<Answer>,
    noise: Matrix,
    /// The common part of the gradients of every two branches, per E g_a² and per E g_a g_b of the output.
    common: Vec<Common>,
    /// The correlation of two tokens of the output.
    correlation: f64,
    /// The gradient at the output; `None` before the backward pass.
    output: Option<Both>,
}

/// Products of gradients with signals, E |g_a|²|x_a|² and E g_a·g_b x_a·x_b.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Coupling {
    /// ln of E |g_a|²|x_a|² over its value at infinite width.
    pub(crate) ln_own: f64,
    /// E g_a·g_b x_a·x_b over E |g_a|²|x_a|².
    pub(crate) pair: f64,
}

impl Expansion {
    /// The expansion at the start of one stream of `length` tokens.
    pub(crate) fn new(length: f64) -> Self {
        Self { length, fluctuations: Fluctuations::none(), gradients: None }
    }

    /// Returns the mean and the covariance of the variables of all live streams at this point of the network.
    pub(crate) fn fluctuations(&self) -> &Fluctuations {
        &self.fluctuations
    }

    /// Returns the mean square, correlation and variance of a stream at finite width. `slot` is the index of the stream
    /// among the live streams.
    pub(crate) fn levels(&self, slot: usize, stream: &Stream) -> Levels {
        self.fluctuations.levels(slot, stream.pending(self.length).as_ref(), stream.leading)
    }

    /// Returns ln of E x over its value at infinite width. The mean of a token's entries scales with the length of the
    /// token's vector.
    pub(crate) fn ln_mean(&self, slot: usize) -> f64 {
        0.5 * self.fluctuations.mean_of(slot)[U_A] + self.fluctuations.of(slot)[(U_A, U_A)] / 8.0
    }

    /// Returns the variance over networks of ln V, where V is the variance of all entries of a stream.
    pub(crate) fn variance(&self, slot: usize, stream: &Stream) -> f64 {
        // The mean of all entries is a Gaussian variable, whose square is subtracted.
        let mean = (stream.ones[0] + (self.length - 1.0) * stream.ones[1]) / (self.length * stream.width);
        let of_mean = 2.0 * mean * mean;
        of_mean
            + match stream.variance {
                Some(entries) => self.fluctuations.of(slot)[(U, U)] + entries,
                None => self.levels(slot, stream).variance,
            }
    }

    /// Adds a copy of a stream and returns the index of the copy.
    pub(crate) fn fork(&mut self, slot: usize) -> usize {
        self.fluctuations.fork(slot);
        self.fluctuations.streams() - 1
    }

    /// Adds the noise of a stream's entries that is not yet in the covariance. Returns the covariance of this noise, or
    /// `None` if there is none.
    fn draw(&mut self, slot: usize, stream: &mut Stream) -> Option<Matrix> {
        let pending = stream.pending(self.length)?;
        stream.drawn = None;
        self.fluctuations.add(slot, &pending, stream.leading);
        stream.correlation = stream.leading + self.fluctuations.means(slot)[1];
        Some(pending.covariance)
    }

    /// Adds the noise of a stream's entries that is not yet in the covariance, before a fork. Returns the stream with
    /// this noise, and the covariance of the noise (`None` if there is none).
    pub(crate) fn draw_before_fork(&mut self, slot: usize, stream: &Stream) -> (Stream, Option<Matrix>) {
        let mut stream = stream.clone();
        let noise = self.draw(slot, &mut stream);
        (stream, noise)
    }

    /// Returns E u_a and E r_ab of a stream, less their values at infinite width.
    pub(crate) fn means(&self, slot: usize) -> [f64; 2] {
        self.fluctuations.means(slot)
    }

    /// Goes forward through a component. `map` returns its map and gain for the given means of the input; `answer`
    /// returns its other finite-width terms. `mixes_entries` is false if it works entry by entry.
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
        let mut answer = answer(&Context { x: &x, r, length: self.length, covariance });
        if !mixes_entries {
            answer.less(&Through::new(&step, &gain, &[&x]));
        }
        let jacobian = step.part(slot);
        let stream = Stream {
            width: answer.width,
            leading,
            correlation: r,
            entries: answer.entries,
            centred: answer.centred,
            fixed: answer.fixed,
            drawn: if mixes_entries { answer.drawn } else { Some(x.behind(&step, self.length)) },
            is_preserved: if mixes_entries {
                answer.drawn.is_some_and(|noise| !noise.is_none())
            } else {
                x.is_preserved
            },
            ones: answer.ones,
            susceptibility: x.susceptible(&jacobian, gain.cosine.value),
            variance: answer.variance,
        };
        self.fluctuations.add(slot, &Noise { drift: answer.drift, ..Noise::none() }, leading);
        let after = self.fluctuations.clone();
        let (width, correlation) = (x.width, x.correlation);
        (stream, Applied { slot, drawn, before, width, correlation, step, gain, answer, after })
    }

    /// Starts the backward pass at the end of a stream. `ln_own` is the correction of ln E |g_a|² by finite width so
    /// far, `cosine` is E g_a·g_b/E |g_a|².
    pub(crate) fn seed(&mut self, [ln_own, cosine]: [f64; 2], width: f64) {
        let mut gradients = Gradients::seed(cosine, width, self.length);
        gradients.of[0].given.ln_own.value = ln_own;
        self.gradients = Some(gradients);
    }

    /// Returns the covariance S of a stream, including the pending noise of its entries.
    pub(crate) fn covariance(&self, slot: usize, stream: &Stream) -> Matrix {
        let pending = stream.pending(self.length).map_or(Matrix::zeros(), |noise| noise.covariance);
        self.fluctuations.of(slot) + pending
    }

    /// Returns true if the backward pass has begun.
    pub(crate) fn has_gradients(&self) -> bool {
        self.gradients.is_some()
    }

    /// Returns the gradient of a stream, given the variables of all streams.
    pub(crate) fn given(&self, slot: usize) -> &Conditional {
        &self.gradients.as_ref().expect("the way back has begun").of[slot].given
    }

    /// Returns the finite-width correction of ln E |g_a|² at the output of an attention, and the number ρ of this
    /// gradient (see `mixed.rs`). ρ is limited to at least 0, because the omitted terms may make it negative.
    pub(crate) fn behind(&self, attended: &ExpandedAttention) -> [f64; 2] {
        let ExpandedAttention { slot, after, .. } = attended;
        let radial = self.gradients.as_ref().expect("the way back has begun").of[*slot].mixed.radial;
        [self.gradient(*slot, after).0, radial.max(0.0)]
    }

    fn gradients(&mut self) -> &mut Gradients {
        self.gradients.as_mut().expect("the way back has begun")
    }

    /// Returns three numbers of the gradient of one stream: ln E |g_a|² relative to infinite width, the cosine E
    /// g_a·g_b/E |g_a|², and the variance of ln mean |g_a|². `fluctuations` are those of the signals.
    pub(crate) fn gradient(&self, slot: usize, fluctuations: &Fluctuations) -> (f64, f64, f64) {
        self.gradients.as_ref().expect("the way back has begun").at(slot, fluctuations)
    }

    /// Goes forward through an attention whose queries read `x`, to an output of this width. The noise of the entries
    /// of `x` must already be in the covariance. `keys` are the covariance and the correlation of the keys' input;
    /// `is_apart` is true if the keys read another stream than `x`.
    pub(crate) fn attend(
        &mut self,
        (slot, x): (usize, &Stream),
        (keys, is_apart): ((&Matrix, f64), bool),
        (attention, scores): (&Attention, ScoreMoments),
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

    /// Returns the coupling of the output of an attention with the gradient there, before the noise of the output's
    /// entries is added.
    pub(crate) fn coupling_behind(&self, attended: &ExpandedAttention) -> Coupling {
        let ExpandedAttention { slot, after, correlation, .. } = attended;
        Coupling::new(self.given(*slot).clone(), *slot, after, *correlation)
    }

    /// Goes back through an attention and returns the gradients at its queries, keys and values. `leading` are these
    /// gradients at infinite width.
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

    /// Goes back to the input of an attention from the gradients of its queries, keys and values. `levels` are their
    /// ln E |g|² at infinite width.
    pub(crate) fn attend_join(&mut self, attended: &ExpandedAttention, paths: [&Conditional; 3], levels: [f64; 3]) {
        let (output, cosine, mixed) = attended.output.as_ref().expect("it was split");
        let (given, mixed, levels) = attended.attending.join((paths, levels), output, (*cosine, *mixed));
        self.gradients().attend(attended.slot, given, mixed, levels, attended.width);
    }

    /// Returns the coupling of the gradient at the output of a component with the component's input if `with_input` is
    /// true, and with its output otherwise.
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
        // Gradients of gains are E Σ_i (g x)_ai (g x)_bi, to which c_aa c_bb and c_ab c_ba of the same entries add
        // their excess.
        let squares = (gradient.mixed.squares / width).ln_1p();
        Coupling { ln_own: ln_own + squares, pair: (pair + 2.0 * gradient.mixed.pairs / width) * (-squares).exp() }
    }

    /// Goes back through a component, from the gradients at its output to those at its input.
    pub(crate) fn apply_backward(&mut self, applied: Applied, cosines: Cosines) {
        let Applied { slot, drawn, width, step, gain, answer, .. } = applied;
        let gradients = self.gradients();
        gradients.apply(slot, &step, (&gain, cosines), &answer, width);
        if let Some(noise) = drawn {
            gradients.noise(slot, &noise);
        }
    }

    /// Goes back through noise that was added to a stream before a fork.
    pub(crate) fn settle_backward(&mut self, slot: usize, noise: Option<&Matrix>) {
        if let Some(noise) = noise {
            self.gradients().noise(slot, noise);
        }
    }

    /// Goes forward through a sum of branches. `ratio` is E y² of the output over E x² of the common input; `means` is
    /// (E f)²/E f² for the output f of each branch.
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
        // The derivative of u of a sum with respect to u of a part is the share of the part.
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

    /// Goes forward through a product of branches. `mean_share` is (E y)²/E y² of the output; `ratio` is E y² over E x²
    /// of the common input.
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
        let answer = |(own, gain): (usize, &Gain)| {
            let mut answer = fan.part_of_product(own);
            answer.less(&Through::new(&step, gain, &streams));
            answer
        };
        let answers = gains.iter().enumerate().map(answer).collect();
        let common = fan.commons(|_, _| ratio);
        (stream, Merged::new(slots, step, (gains, answers), common, r))
    }

    fn means_of(&self, slots: &[usize]) -> Vec<[f64; 2]> {
        slots.iter().map(|&slot| self.means(slot)).collect()
    }

    /// Goes back through a sum or product, from its output to its branches.
    pub(crate) fn split(&mut self, merged: &mut Merged, is_product: bool, cosines: &[Cosines]) {
        let Merged { slots, drawn, step, gains, answers, noise, common, output: at_output, correlation } = merged;
        let gradients = self.gradients();
        gradients.noise(slots[0], noise);
        let output = gradients.of[slots[0]].clone();
        // A part of a product has the c_ab of the output. A part of a sum has a share of the excess of the output's
        // c_ab over an isotropic one.
        let [radial, cross] =
            [output.mixed.radial, output.mixed.cross].map(|of| if is_product { of } else { of - 1.0 });
        // The average of c_aa c_bb and c_ab c_ba of two parts.
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

    /// Goes back through the forks before a sum or product: the gradients of the branches are summed at the common
    /// input, which has this width. `forks` are the indices of the streams that were copied.
    pub(crate) fn join(&mut self, merged: &Merged, forks: &[usize], width: f64, ends: &Ends) {
        let output = merged.output.as_ref().expect("the fan was split");
        self.gradients().join(&merged.slots, forks, width, &merged.common, (output, ends));
    }
}

impl Coupling {
    /// Returns the coupling of a gradient, given the variables, with the signal of a stream of correlation `r`.
    pub(crate) fn new(mut given: Conditional, slot: usize, fluctuations: &Fluctuations, r: f64) -> Self {
        // |x_a|² enters in the logarithm, and x_a·x_b over it is r_ab e^((u_b − u_a)/2).
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
    /// Returns the largest derivatives of two cosines with respect to the overlap of two keys: of the cosine between
    /// the gradients of the two keys, and of the cosine between the gradients of their values. For keys it is the
    /// response of scores, for values that of rows to scores.
    pub(crate) fn largest_slopes(&self) -> [f64; 2] {
        self.attending.largest_slopes()
    }

    /// Returns the relative addition to E |g_b|² of the value path that keys and values cause together, if both read
    /// another stream than the queries; 0 before `attend_split`.
    pub(crate) fn shared_by_keys(&self) -> f64 {
        self.output.as_ref().map_or(0.0, |(_, cosine, _)| self.attending.shared_by_keys(*cosine))
    }

    /// Returns the fluctuations at the input.
    pub(crate) fn before(&self) -> &Fluctuations {
        &self.before
    }
}

impl Applied {
    /// Returns the fluctuations at the input, including the noise of its entries.
    pub(crate) fn before(&self) -> &Fluctuations {
        &self.before
    }

    /// Returns the fluctuations at the output.
    pub(crate) fn after(&self) -> &Fluctuations {
        &self.after
    }

    /// Returns the width of the output.
    pub(crate) fn width(&self) -> f64 {
        self.answer.width
    }
}

impl Merged {
    /// The state of a sum or product that adds no noise. `correlation` is that of two tokens of its output.
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

    /// Returns the indices of the branches among the live streams.
    pub(crate) fn slots(&self) -> &[usize] {
        &self.slots
    }
}
