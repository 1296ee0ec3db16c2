//! How long single tokens are in one network, where nothing but a norm brings them back to one length.
//!
//! # Formula
//!
//! Levels ([`super::Fluctuation`]) are all that tokens have in common; in networks of linear maps, activations, norms and dropout
//! alone tokens stray by themselves, too, and far from Gaussian: behind SiLU long ones are multiplied by more. Given the weights
//! before, s = ln σ² of a token is a Markov chain, and ln |g|² at given s has a mean A, a variance and a third cumulant, functions
//! of s that are followed backward along the same chain. A component ([`Step`]) that makes e^F(s) of σ² and e^G(s) of |g|², with n
//! entries, has
//!
//! ```text
//! s' = F(s) + ε      A(s) = G(s) + η + E [ln (1 + K R'/n) + A'(s')]      R(s) = E [(f R' + (r − f) X²)/(1 + K R'/n)]
//!
//!               F                  n Var ε       G                   n Var η       K                   f            r
//! linear map    ln (n_in s_w² σ²   0             ln n_out s_w² − h/n 2             h = d F/ds          h            1
//!               + s_b²)
//! activation    ln E φ²            κ             ln E φ'²            3 κ' + …      E φ²φ'²/E φ²E φ'²−1 (E uφφ')²/   E u²φ'²/
//!                                                                                                      σ²E φ²E φ'²  σ²E φ'²
//! norm          e = σ²/(σ² + ε)    0             −ln (σ² + ε)        0             −1 + (1 − e)²       (1 − e)²     (1 − e)²
//! dropout       −ln (1 − p)        o E x⁴/E²x²   −ln (1 − p)         3 o           o = p/(1 − p)       1            1
//! ```
//!
//! κ and κ' those of φ² and φ'² (E φ⁴/(E φ²)² − 1); ε and η have the covariance K/n. R = n (x·g)²/(|x|² |g|²), how much of a gradient
//! lies along its signal, grows through depth, and the gradient with it, in all layers by the same X: x·g is a Gaussian number for
//! every token, so that all is followed for three values of X².
//!
//! What the weights have in common for all tokens moves those at s by v(s) and their ln |g|² by w(s) standard deviations of a Gaussian
//! number of the network each: the covariance of two tokens at s_a and s_b is v(s_a) v(s_b). What was moved is carried along, and
//! two tokens of the same length and cosine c(s) draw in common:
//!
//! ```text
//! v'(s')² = E [∂s'/∂s v | s']² + E [√Cov (ε_a, ε_b) | s']²      √c'(s') = E [√κ(c) | s']
//! w(s)² = E [w'(s')]² + a² Cov (ε_a, ε_b) + 2a Cov (ε_a, η_b) + Cov (η_a, η_b)      a = E dA'/ds'
//! ```
//!
//! with what squares of φ and φ' and cosines of signals and gradients have in common, less what gradients draw where signals drew it
//! (Y of [`super::Fluctuation`]). Tokens whose gradients grow more are moved by more: Cov (w, ln |g|²) at given s goes along, from
//! every draw half of what a gradient's variance gains with s. In one network ln Σ_a |x_a|² strays like that of tokens which are
//! drawn from the law ([`Law`]) with Gaussian scores that are correlated as far as v moves them there.
//!
//! Sampled at widths 64 and 256, 12 and 24 layers, 16 tokens: within 14 % wherever networks stray, by a percent or by e⁴ (SiLU, GELU,
//! ReLU, tanh and nine more, norms, dropout), 18 % with uniform biases; two moments of lengths were 55 % too small. 256 tokens: within
//! 19 %, most within 8 %; of SiLU 17 % (one covariance for all pairs: 24 % too small).
//!
//! # Assumptions
//!
//! One token, independent entries at given s, gradients that know nothing of the signal at the output; third cumulants of fresh
//! draws (order 1/n²) and fourth ones of ln |g|² at given s are left out; pairs of gradients have their average cosine. One number
//! moves all tokens, as if what several layers draw went together (C of SiLU's signals 16 % too large after 12 layers). From a
//! source of Gaussian entries on; not the averages of |x|² and |g|² (for |g|² they would need how R and |g|² stray together).
//!
//! # Source
//!
//! Markov chain of norms: Hanin & Nica 2018, for ReLU. The rest is ours.

mod law;

use std::sync::{Arc, LazyLock};

use law::Law;

use smallvec::SmallVec;

use super::square;
use crate::moments::{Token, ratio};
use crate::quadrature::{FIVE_HERMITE_NODES as NODES, trapezoidal_nodes};

/// What a component does to one token of given s, with draws of `width` entries, and to two of that length.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Step {
    pub(crate) width: f64,
    /// To s, and to ln |g|² on the way back, on average.
    pub(crate) ln_gains: [f64; 2],
    /// `width` times the variances of what is drawn of either.
    pub(crate) drawn: [f64; 2],
    /// The same of their covariance: K, by which a gradient along the signal is multiplied by more than others.
    pub(crate) together: f64,
    /// f and r.
    pub(crate) radial: [f64; 2],
    /// Of both tokens, behind.
    pub(crate) cosine: f64,
    /// `width` times the covariances of what is drawn of the one and of the other: of s, of s and ln |g|², of ln |g|².
    pub(crate) in_common: [f64; 3],
}

/// Of a signal whose tokens are exchangeable.
#[derive(Clone, Debug)]
pub(crate) struct Lengths {
    /// Of s.
    law: Law,
    /// v at every place.
    common: Vec<f64>,
    /// √c at every place, c the cosine of two tokens that are both there.
    alike: Vec<f64>,
    fresh: Fresh,
}

/// Gaussian entries that are still to be drawn.
#[derive(Clone, Copy, Debug)]
struct Fresh {
    /// What they add to the variance of ln |x|².
    variance: f64,
    /// Of cosines, in units of (1 − c²)².
    concentration: f64,
}

impl Fresh {
    const NONE: Self = Self { variance: 0.0, concentration: 0.0 };

    /// Drawing them, by tokens of this cosine.
    fn step(self, cosine: f64) -> Step {
        Step {
            width: self.variance.recip(),
            ln_gains: [0.0; 2],
            drawn: [1.0, 0.0],
            together: 0.0,
            radial: [1.0; 2],
            cosine,
            in_common: [square(cosine, self.concentration), 0.0, 0.0],
        }
    }
}

impl Lengths {
    /// Of a token whose entries are drawn, and two with this `cosine`.
    pub(crate) fn source(token: &Token, cosine: f64) -> Option<Self> {
        let (law, [common]) = Law::of(&[(token.ln_second, 1.0, [0.0])])?;
        let fresh = Fresh { variance: token.entry_variance, concentration: 0.0 };
        Some(Self { law, common, alike: vec![root(cosine)], fresh })
    }

    /// With `width` entries to be drawn, of tokens whose cosines stray by this `concentration`.
    pub(crate) fn with_entries(self, width: f64, concentration: f64) -> Self {
        Self { fresh: Fresh { variance: 2.0 / width, concentration }, ..self }
    }

    /// Behind a component that takes this step from ln |x|²/width and the cosine of two tokens that are as long.
    pub(crate) fn behind(&self, step: impl Fn(f64, f64) -> Option<Step>) -> Option<Self> {
        self.with_entries_drawn()?.behind_entries(step)
    }

    /// The same of one that takes it from s, and entries that are Gaussian.
    pub(crate) fn behind_entries(&self, step: impl Fn(f64, f64) -> Option<Step>) -> Option<Self> {
        let steps = self.steps(step)?;
        let drawn = |step: &Step| root(step.in_common[0] / step.width);
        if let [(place, step)] = steps[..] {
            let variance = step.drawn[0] / step.width;
            let law = Law::gaussian(place + step.ln_gains[0] - 0.5 * variance, variance)?;
            let [common, alike] = [drawn(&step), root(step.cosine)].map(|value| vec![value; law.places().len()]);
            return Some(Self { law, common, alike, fresh: Fresh::NONE });
        }
        let widest = steps.iter().map(|(_, step)| step.drawn[0] / step.width).fold(0.0, f64::max);
        let nodes = if widest > WIDE * self.law.variance() { FINE.as_slice() } else { &NODES };
        let behind: Vec<Vec<_>> = steps.iter().map(|(place, step)| step.places(*place, nodes).collect()).collect();
        let of_one = |(index, (_, share)): (usize, (f64, f64))| {
            let (below, above) = (index.saturating_sub(1), (index + 1).min(steps.len() - 1));
            let (step, common) = (&steps[index].1, self.common[index]);
            let distance = steps[above].0 - steps[below].0;
            let around = behind[below].iter().zip(&behind[index]).zip(&behind[above]);
            around.map(move |((below, here), above)| {
                let slope = (above.0 - below.0) / distance;
                (here.0, share * here.2, [slope * common, drawn(step), root(step.cosine)])
            })
        };
        let points: Vec<_> = self.law.points().enumerate().flat_map(of_one).collect();
        let (law, [moved, drawn, alike]) = Law::of(&points)?;
        let common = moved.iter().zip(&drawn).map(|(moved, drawn)| moved.hypot(*drawn)).collect();
        Some(Self { law, common, alike, fresh: Fresh::NONE })
    }

    /// The law of ln |x|²/width.
    fn with_entries_drawn(&self) -> Option<Self> {
        if self.fresh.variance > 0.0 {
            self.behind_entries(|_, cosine| Some(self.fresh.step(cosine)))
        } else {
            Some(self.clone())
        }
    }

    /// Those taken from every place.
    fn steps(&self, step: impl Fn(f64, f64) -> Option<Step>) -> Option<Vec<(f64, Step)>> {
        let pairs = self.law.places().zip(&self.alike);
        pairs.map(|(place, alike)| Some((place, step(place, squared(*alike))?))).collect()
    }

    /// Var ln Σ |x|² over `count` tokens, if there are such numbers.
    pub(crate) fn variance_of_all(&self, count: f64) -> Option<f64> {
        self.with_entries_drawn().map(|drawn| drawn.law.variance_of_ln_sum(count, &drawn.common))
    }
}

/// Of what is drawn over that of what is there: more, and [`NODES`] show.
const WIDE: f64 = 2.0;

/// Nodes as close as places.
static FINE: LazyLock<Vec<(f64, f64)>> = LazyLock::new(|| {
    let nodes = trapezoidal_nodes(Law::DISTANCE, 5.0);
    let all: f64 = nodes.iter().map(|(_, weight)| weight).sum();
    nodes.into_iter().map(|(z, weight)| (z, weight / all)).collect()
});

/// √x and x² with the sign of x.
fn root(x: f64) -> f64 {
    x.abs().sqrt().copysign(x)
}

fn squared(x: f64) -> f64 {
    x * x.abs()
}

impl Step {
    /// From `place`: places behind, what they are off by for the draw, and the probabilities.
    fn places(&self, place: f64, nodes: &[(f64, f64)]) -> impl Iterator<Item = (f64, f64, f64)> {
        let variance = self.drawn[0] / self.width;
        let middle = place + self.ln_gains[0] - 0.5 * variance;
        nodes.iter().map(move |(z, weight)| {
            let off = variance.sqrt() * z;
            (middle + off, off, *weight)
        })
    }

    /// A(s) and R(s) at `place`, from the answers behind.
    fn answered(&self, place: f64, amplitude: f64, answer: impl Fn(f64) -> Answer) -> Answer {
        let Self { width, ln_gains, drawn, together, radial, .. } = *self;
        // What is drawn on the way back beside what was drawn before, and for itself.
        let again = if drawn[0] > 0.0 { together / drawn[0] } else { 0.0 };
        let back = drawn[1] / width;
        let own = (back - again * together / width).max(0.0);
        let met = |(place, off, weight)| {
            let after = answer(place);
            let before = after.radial.max(0.0);
            let known = (1.0 + together * before / width).max(LEAST);
            let kept = (radial[0] * before + (radial[1] - radial[0]) * amplitude) / known * (1.0 + back);
            (weight, off, Answer { mean: after.mean + known.ln() + again * off, radial: kept, ..after })
        };
        let met: SmallVec<[(f64, f64, Answer); NODES.len()]> = self.places(place, &NODES).map(met).collect();
        let average =
            |of: &dyn Fn(&Answer) -> f64| met.iter().map(|(weight, _, after)| weight * of(after)).sum::<f64>();
        // E f' of a Gaussian number is E z f.
        let slope_of = |of: &dyn Fn(&Answer) -> f64| {
            ratio(met.iter().map(|(weight, off, after)| weight * off * of(after)).sum::<f64>(), drawn[0] / width)
        };
        let mean = average(&|after| after.mean);
        let squares = |after: &Answer| after.variance + (after.mean - mean).powi(2);
        let slope = slope_of(&|after| after.mean) - again;
        let [values, both, derivatives] = self.in_common.map(|covariance| covariance / width);
        let before = average(&|after| after.common);
        let common = root(squared(before) + slope * (slope * values + 2.0 * both) + derivatives);
        let lean = before.abs() * average(&|after| after.lean + (after.common - before) * (after.mean - mean))
            + (slope * values + both) * 0.5 * slope_of(&squares);
        Answer {
            mean: ln_gains[1] - 0.5 * back + mean,
            variance: own + average(&squares),
            third: average(&|after| {
                let off = after.mean - mean;
                after.third + 3.0 * off * after.variance + off.powi(3)
            }),
            radial: average(&|after| after.radial),
            common,
            lean: ratio(lean, common.abs()),
        }
    }
}

/// What is left of a gradient that all but lies along its signal, where a norm takes that off.
const LEAST: f64 = 0.05;

/// What ln |g|² is at a given s and X.
#[derive(Clone, Copy, Debug, Default)]
struct Answer {
    mean: f64,
    variance: f64,
    /// Third cumulant.
    third: f64,
    /// R.
    radial: f64,
    /// w, and its covariance with ln |g|².
    common: f64,
    lean: f64,
}

/// Of a gradient, at every place of the law of the signal.
#[derive(Clone, Debug)]
pub(crate) struct Answers {
    lengths: Arc<Lengths>,
    /// For each of [`AMPLITUDES`].
    given: [Vec<Answer>; 3],
}

/// X² and its probabilities: of the same nodes.
const AMPLITUDES: [(f64, f64); 3] = [
    (0.0, 8.0 / 15.0),
    (1.837_722_339_831_62, 0.444_151_844_011_225_2),
    (8.162_277_660_168_38, 0.022_514_822_655_441_42),
];

impl Answers {
    /// Of `width` entries that know nothing of the signal, and two tokens with this `cosine`.
    pub(crate) fn drawn(lengths: &Arc<Lengths>, width: f64, cosine: f64) -> Self {
        let variance = 2.0 / width;
        let places = lengths.law.places().len();
        let common = cosine.abs() * variance.sqrt();
        let alone = |(radial, _)| Answer { mean: -0.5 * variance, variance, radial, common, ..Answer::default() };
        let given = AMPLITUDES.map(|amplitude| vec![alone(amplitude); places]);
        Self { lengths: Arc::clone(lengths), given }
    }

    /// Before a component that takes this step from ln |x|²/width and the cosine of two tokens that are as long.
    pub(crate) fn before(&self, lengths: &Arc<Lengths>, step: impl Fn(f64, f64) -> Option<Step>) -> Option<Self> {
        let fresh = lengths.fresh;
        if fresh.variance <= 0.0 {
            return self.before_entries(lengths, step);
        }
        let met = self.before_entries(&Arc::new(lengths.with_entries_drawn()?), step)?;
        met.before_entries(lengths, |_, cosine| Some(fresh.step(cosine)))
    }

    /// The same of one that takes it from s, and entries that are Gaussian.
    pub(crate) fn before_entries(
        &self,
        lengths: &Arc<Lengths>,
        step: impl Fn(f64, f64) -> Option<Step>,
    ) -> Option<Self> {
        let steps = lengths.steps(step)?;
        let given = [0, 1, 2].map(|index| {
            let ((amplitude, _), answers) = (AMPLITUDES[index], &self.given[index]);
            let answer = |place: f64| self.between(answers, place);
            steps.iter().map(|(place, step)| step.answered(*place, amplitude, answer)).collect()
        });
        Some(Self { lengths: Arc::clone(lengths), given })
    }

    fn between(&self, answers: &[Answer], place: f64) -> Answer {
        let (first, weights) = self.lengths.law.around(place);
        answers[first..].iter().zip(weights).fold(Answer::default(), |sum, (answer, weight)| Answer {
            mean: sum.mean + weight * answer.mean,
            variance: sum.variance + weight * answer.variance,
            third: sum.third + weight * answer.third,
            radial: sum.radial + weight * answer.radial,
            common: sum.common + weight * answer.common,
            lean: sum.lean + weight * answer.lean,
        })
    }

    /// Var ln Σ |g|² over `count` tokens, if there are such numbers.
    pub(crate) fn variance_of_all(&self, count: f64) -> Option<f64> {
        let mut points = Vec::new();
        for (answers, (_, weight)) in self.given.iter().zip(AMPLITUDES) {
            let slopes =
                |of: &dyn Fn(&Answer) -> f64| self.lengths.law.slopes(&answers.iter().map(of).collect::<Vec<_>>());
            let (of_mean, of_variance) = (slopes(&|answer| answer.mean), slopes(&|answer| answer.variance));
            for (index, (_, share)) in self.lengths.law.points().enumerate() {
                let (answer, common) = (&answers[index], self.lengths.common[index]);
                let moved = [of_mean[index] * common, 0.5 * of_variance[index] * common];
                points.extend(answer.drawn().map(|(place, part)| {
                    let at = |[common, lean]: [f64; 2]| {
                        (common + ratio(lean, answer.variance) * (place - answer.mean)).max(common.min(0.0))
                    };
                    (place, weight * share * part, [at(moved), at([answer.common, answer.lean])])
                }));
            }
        }
        let (law, [moved, own]) = Law::of(&points)?;
        let common = moved.iter().zip(own).map(|(moved, own)| (moved * moved + squared(own)).max(0.0).sqrt());
        let common: Vec<f64> = common.collect();
        Some(law.variance_of_ln_sum(count, &common))
    }
}

impl Answer {
    /// As a z + b (z² − 1) of a Gaussian z, which has the variance a² + 2b² and the third cumulant 6a²b + 8b³.
    fn drawn(&self) -> impl Iterator<Item = (f64, f64)> + use<> {
        const ROUNDS: usize = 6;
        let variance = self.variance.max(0.0);
        let most = 0.99 * (0.5 * variance).sqrt();
        let mut bend = 0.0;
        if variance > 0.0 {
            for _ in 0..ROUNDS {
                let beyond = 6.0 * variance * bend - 4.0 * bend.powi(3) - self.third;
                bend = (bend - beyond / (6.0 * variance - 12.0 * bend * bend)).clamp(-most, most);
            }
        }
        let linear = (variance - 2.0 * bend * bend).max(0.0).sqrt();
        let mean = self.mean;
        FINE.iter().map(move |(z, weight)| (mean + linear * z + bend * (z * z - 1.0), *weight))
    }
}
