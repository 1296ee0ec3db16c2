//! One head of a recurrence: its gates, its states position by position, and their gradients.

#![allow(clippy::inline_always)]

use sigprop_stack::{Decay, Recurrence, Write};

use super::{Parameters, Place, columns};
use crate::{
    array::Array,
    components::activation::{sigmoid, softplus},
    scalar::{Scalar, sum},
    vectorised::vectorised,
};

/// One head of one sequence, with one row per position in each of its arrays.
pub(super) struct Head<'a, T> {
    recurrence: &'a Recurrence,
    query: Vec<T>,
    key: Vec<T>,
    value: Vec<T>,
    /// dt, one per step of the head; 1 if the decay is fixed.
    steps: Vec<f64>,
    /// A, one per head or per channel of the keys.
    rates: &'a [f64],
    /// α, per channel of the keys.
    decay: Vec<T>,
    /// The input of η = factor · σ(·), else empty.
    strength: Vec<T>,
    /// η.
    writes: Vec<T>,
    /// D.
    skip: T,
}

/// The gradients of one head.
pub(super) struct HeadGradient<T> {
    /// Gradients of its columns of the parts.
    pub parts: Vec<Vec<T>>,
    /// Gradient of D.
    pub skip: T,
}

/// The gradients that the positions of one head add to.
struct Slopes<T> {
    query: Vec<T>,
    key: Vec<T>,
    value: Vec<T>,
    /// Gradients of α.
    decay: Vec<T>,
    /// Gradients of η.
    writes: Vec<T>,
    /// Gradient of D.
    skip: T,
}

impl<'a, T: Scalar> Head<'a, T> {
    pub(super) fn new(
        recurrence: &'a Recurrence,
        parameters: &'a Parameters,
        parts: &[&Array<T>],
        place: &Place,
    ) -> Self {
        let Recurrence { n_heads, d_key, d_value, .. } = *recurrence;
        let Place { sequence, head, key_head } = *place;
        let own = |numbers: &'a [f64]| &numbers[head * numbers.len() / n_heads..][..numbers.len() / n_heads];
        let (rates, biases) = (own(&parameters.rates), own(&parameters.biases));
        let seq_len = parts[0].shape().seq_len;
        let steps = match recurrence.decay {
            Decay::Fixed { .. } => vec![1.0; seq_len],
            Decay::Stepped(_) => {
                let inputs = columns(parts[3], sequence, head, biases.len());
                let biased = inputs.iter().zip(biases.iter().cycle()).map(|(a, b)| a.to_f64() + b);
                biased.map(softplus).collect()
            }
        };
        let count = steps.len() / seq_len;
        let step = |position: usize, channel: usize| steps[position * count + channel % count];
        let decay = (0..seq_len * d_key)
            .map(|place| (place / d_key, place % d_key))
            .map(|(position, channel)| -rates[channel % rates.len()] * step(position, channel))
            .map(|exponent| T::from_f64(libm::exp(exponent)))
            .collect();
        let (strength, writes) = match recurrence.write {
            Write::One => (Vec::new(), vec![T::from_f64(1.0); seq_len]),
            Write::Step => (Vec::new(), steps.iter().map(|&step| T::from_f64(step)).collect()),
            Write::Sigmoid { factor, .. } => {
                let strength = columns(parts[parts.len() - 1], sequence, head, 1);
                let writes = strength.iter().map(|&strength| T::from_f64(factor) * sigmoid(strength)).collect();
                (strength, writes)
            }
        };
        Self {
            recurrence,
            query: columns(parts[0], sequence, key_head, d_key),
            key: columns(parts[1], sequence, key_head, d_key),
            value: columns(parts[2], sequence, head, d_value),
            steps,
            rates,
            decay,
            strength,
            writes,
            skip: T::from_f64(parameters.skips[head]),
        }
    }

    fn seq_len(&self) -> usize {
        self.writes.len()
    }

    /// A state, or a gradient of a state, before the first position.
    fn zeros(&self) -> Vec<T> {
        vec![T::default(); self.recurrence.d_key * self.recurrence.d_value]
    }

    /// Returns y.
    pub(super) fn outputs(&self) -> Vec<T> {
        let mut state = self.zeros();
        let mut outputs: Vec<T> = self.value.iter().map(|&v| self.skip * v).collect();
        for (position, y) in outputs.chunks_exact_mut(self.recurrence.d_value).enumerate() {
            advance(self, position, &mut state);
            read(self, position, &state, y);
        }
        outputs
    }

    /// Returns the gradients from dy.
    pub(super) fn backward(&self, dy: &[T]) -> HeadGradient<T> {
        let mut slopes = Slopes {
            query: vec![T::default(); self.query.len()],
            key: vec![T::default(); self.key.len()],
            value: dy.iter().map(|&g| self.skip * g).collect(),
            decay: vec![T::default(); self.decay.len()],
            writes: vec![T::default(); self.writes.len()],
            skip: T::from_f64(sum(&self.value, dy, |v, g| v * g)),
        };
        let segment = self.seq_len().isqrt();
        let mut gradient = self.zeros();
        for (index, start) in self.starts(segment).into_iter().enumerate().rev() {
            let first = index * segment;
            let mut states = vec![start];
            for position in first..self.seq_len().min(first + segment) {
                let mut state = states[position - first].clone();
                advance(self, position, &mut state);
                states.push(state);
            }
            for (place, pair) in states.windows(2).enumerate().rev() {
                retreat(self, first + place, (&pair[0], &pair[1]), dy, &mut gradient, &mut slopes);
            }
        }
        let (step, strength) = self.through_gates(&slopes);
        let parts = [slopes.query, slopes.key, slopes.value].into_iter().chain(step).chain(strength);
        HeadGradient { parts: parts.collect(), skip: slopes.skip }
    }

    /// Returns the states before every `segment`-th position.
    fn starts(&self, segment: usize) -> Vec<Vec<T>> {
        let (mut state, mut starts) = (self.zeros(), Vec::new());
        for position in 0..self.seq_len() {
            if position % segment == 0 {
                starts.push(state.clone());
            }
            advance(self, position, &mut state);
        }
        starts
    }

    /// Returns the gradients of the inputs of steps and of strengths, where they exist.
    fn through_gates(&self, slopes: &Slopes<T>) -> (Option<Vec<T>>, Option<Vec<T>>) {
        let step = self.recurrence.stepped().map(|_| self.step_gradient(slopes));
        let strength = match self.recurrence.write {
            Write::One | Write::Step => None,
            Write::Sigmoid { factor, .. } => {
                let (one, factor) = (T::from_f64(1.0), T::from_f64(factor));
                let slope = |(&strength, &g): (&T, &T)| {
                    let s = sigmoid(strength);
                    factor * s * (one - s) * g
                };
                Some(self.strength.iter().zip(&slopes.writes).map(slope).collect())
            }
        };
        (step, strength)
    }

    /// da = σ(a + b) (dη if η = dt, less Σ A α dα over the channels of the step), where σ(a + b) = 1 − e^(−dt).
    fn step_gradient(&self, slopes: &Slopes<T>) -> Vec<T> {
        let d_key = self.recurrence.d_key;
        let count = self.steps.len() / self.seq_len();
        let mut gradients = vec![0.0; self.steps.len()];
        for (place, (decay, slope)) in self.decay.iter().zip(&slopes.decay).enumerate() {
            let (position, channel) = (place / d_key, place % d_key);
            let rate = self.rates[channel % self.rates.len()];
            gradients[position * count + channel % count] -= rate * decay.to_f64() * slope.to_f64();
        }
        if self.recurrence.write == Write::Step {
            for (gradient, slope) in gradients.iter_mut().zip(&slopes.writes) {
                *gradient += slope.to_f64();
            }
        }
        let steps = gradients.into_iter().zip(&self.steps);
        steps.map(|(gradient, step)| T::from_f64(-libm::expm1(-step) * gradient)).collect()
    }
}

vectorised! {
    /// Turns S_(t−1) into S_t, t = `position`.
    fn advance<T: Scalar>(head: &Head<'_, T>, position: usize, state: &mut [T]) {
        let key = row(&head.key, position, head.recurrence.d_key);
        let decay = row(&head.decay, position, head.recurrence.d_key);
        let update = update(head, position, state);
        for ((state, &decay), &key) in state.chunks_exact_mut(update.len()).zip(decay).zip(key) {
            let write = head.writes[position] * key;
            for (s, &u) in state.iter_mut().zip(&update) {
                *s = decay * *s + write * u;
            }
        }
    }
}

vectorised! {
    /// Adds scale · S_tᵀ q to `y`.
    fn read<T: Scalar>(head: &Head<'_, T>, position: usize, state: &[T], y: &mut [T]) {
        let scale = T::from_f64(head.recurrence.scale);
        let query = row(&head.query, position, head.recurrence.d_key);
        for (state, &query) in state.chunks_exact(y.len()).zip(query) {
            add_multiple(y, scale * query, state);
        }
    }
}

vectorised! {
    /// Turns the gradient at S_t from later positions into the gradient at S_(t−1), and adds the other gradients of
    /// position t to `slopes`. The states are S_(t−1) and S_t, `dy` has all positions.
    fn retreat<T: Scalar>(
        head: &Head<'_, T>,
        position: usize,
        states: (&[T], &[T]),
        dy: &[T],
        gradient: &mut [T],
        slopes: &mut Slopes<T>,
    ) {
        let Recurrence { d_key, d_value, delta, scale, .. } = *head.recurrence;
        let (before, after) = states;
        let dy = row(dy, position, d_value);
        let (query, key) = (row(&head.query, position, d_key), row(&head.key, position, d_key));
        let (decay, write) = (row(&head.decay, position, d_key), head.writes[position]);
        let (dq, dk) = (row_mut(&mut slopes.query, position, d_key), row_mut(&mut slopes.key, position, d_key));
        let dv = row_mut(&mut slopes.value, position, d_value);
        let d_decay = row_mut(&mut slopes.decay, position, d_key);
        let update = update(head, position, before);
        let mut du = vec![T::default(); d_value];
        let mut d_write = 0.0;
        for (channel, g) in gradient.chunks_exact_mut(d_value).enumerate() {
            dq[channel] = T::from_f64(scale * sum(row(after, channel, d_value), dy, |s, g| s * g));
            add_multiple(g, T::from_f64(scale) * query[channel], dy);
            let product = sum(g, &update, |g, u| g * u);
            d_write += key[channel].to_f64() * product;
            dk[channel] = write * T::from_f64(product);
            add_multiple(&mut du, write * key[channel], g);
        }
        for (channel, g) in gradient.chunks_exact_mut(d_value).enumerate() {
            let before = row(before, channel, d_value);
            if delta {
                dk[channel] = dk[channel] - decay[channel] * T::from_f64(sum(before, &du, |s, g| s * g));
                add_multiple(g, -key[channel], &du);
            }
            d_decay[channel] = T::from_f64(sum(g, before, |g, s| g * s));
            for g in g {
                *g *= decay[channel];
            }
        }
        add_multiple(dv, T::from_f64(1.0), &du);
        slopes.writes[position] = T::from_f64(d_write);
    }
}

/// Returns u of a position, where `before` is the state before it.
#[inline(always)]
fn update<T: Scalar>(head: &Head<'_, T>, position: usize, before: &[T]) -> Vec<T> {
    let Recurrence { d_key, d_value, delta, .. } = *head.recurrence;
    let mut update = row(&head.value, position, d_value).to_vec();
    if delta {
        let (key, decay) = (row(&head.key, position, d_key), row(&head.decay, position, d_key));
        for ((state, &key), &decay) in before.chunks_exact(d_value).zip(key).zip(decay) {
            add_multiple(&mut update, -(key * decay), state);
        }
    }
    update
}

/// sum += factor · x.
#[inline(always)]
pub(super) fn add_multiple<T: Scalar>(sum: &mut [T], factor: T, x: &[T]) {
    for (sum, &x) in sum.iter_mut().zip(x) {
        *sum += factor * x;
    }
}

#[inline(always)]
pub(super) fn row<T>(matrix: &[T], index: usize, width: usize) -> &[T] {
    &matrix[index * width..(index + 1) * width]
}

#[inline(always)]
pub(super) fn row_mut<T>(matrix: &mut [T], index: usize, width: usize) -> &mut [T] {
    &mut matrix[index * width..(index + 1) * width]
}
