//! The search over the gains: sequential least squares.
//!
//! # Formula
//!
//! The excesses e are taken as linear in a step d from the gains x, with slopes J from finite differences. A step
//! solves
//!
//! ```text
//! minimise over d  |D (x + d)|² + p Σ max(0, e + J d)²
//! ```
//!
//! by Newton's method on the demands that are exceeded, which ends after as many steps as that set changes. Steps are
//! shorter where the excesses are less linear. Excesses have edges, where another tensor or block becomes the worst.
//! The linear models at the last places count too, so that both sides of an edge are known (as in bundle methods).

use std::{collections::VecDeque, iter, mem};

use nalgebra::{SMatrix, SVector};
use rayon::prelude::*;

use crate::schemes::Scheme;

/// Number of gains that are searched.
const COUNT: usize = 5;
/// Square roots of the weights of the squared logarithms. The ratio has a quarter of the weight of a gain.
const WEIGHTS: [f64; COUNT] = [1.0, 1.0, 1.0, 1.0, 0.5];
/// Penalties on squared excesses. The search begins with the small penalty, because the first gains may be far from
/// meeting the demands.
const PENALTIES: [f64; 2] = [10.0, 1e4];
/// The largest number of steps with each penalty.
const STEPS: usize = 60;
/// The largest entry that a step may have, in ln.
const LONGEST: f64 = 1.0;
/// The search ends after a step whose largest entry is below this, in ln.
const SHORTEST: f64 = 3e-4;
/// Number of earlier gains whose linear models are kept.
const OTHERS: usize = 16;

/// A difference of gains, in ln.
pub(super) type Step = SVector<f64, COUNT>;
type Matrix = SMatrix<f64, COUNT, COUNT>;

/// The logarithms of the five arguments of the scheme `gains`: qk, value, ffn, embedding and ratio.
#[derive(Clone, Copy, Debug)]
pub(super) struct Gains(Step);

impl Gains {
    /// The start of a search: LeCun's gains, and a ratio with which all branches together contribute as much as the
    /// input of the stream.
    pub(super) fn start(n_layers: usize) -> Self {
        Self(Step::from([0.0, 0.0, 0.0, 0.0, -0.5 * (n_layers as f64).ln()]))
    }

    /// The scheme with these gains as its arguments.
    pub(super) fn scheme(&self) -> Scheme {
        self.scheme_with(|value| value)
    }

    /// The scheme with four significant digits of each gain.
    pub(super) fn rounded(&self) -> Scheme {
        self.scheme_with(|value| format!("{value:.3e}").parse().expect("a number"))
    }

    fn scheme_with(&self, digits: impl Fn(f64) -> f64) -> Scheme {
        let values: Vec<String> = self.0.iter().map(|ln| digits(ln.exp()).to_string()).collect();
        Scheme::parse(&format!("gains:{}", values.join(","))).expect("exponentials are positive and finite")
    }

    /// Returns the step from `other` to these gains.
    pub(super) fn away_from(self, other: Self) -> Step {
        self.0 - other.0
    }

    fn moved(self, step: Step) -> Self {
        /// The largest |ln| that a gain may have.
        const FARTHEST: f64 = 30.0;
        Self((self.0 + step).map(|ln| ln.clamp(-FARTHEST, FARTHEST)))
    }
}

/// Finds the gains of smallest distance for which no `excess` is above zero. If there are none, it finds the gains with
/// the smallest excesses. Returns the gains with their excesses. The search starts at `nearby` gains for other demands,
/// if they are given.
pub(super) fn search<E>(
    n_layers: usize,
    nearby: Option<&Gains>,
    excess: impl Fn(&Gains) -> Result<Vec<f64>, E> + Sync,
) -> Result<(Gains, Vec<f64>), E>
where
    E: Send,
{
    let mut here = Told::at(nearby.copied().unwrap_or_else(|| Gains::start(n_layers)), &excess)?;
    let mut others: VecDeque<Told> = VecDeque::new();
    for penalty in PENALTIES {
        let mut longest = LONGEST;
        for _ in 0..STEPS {
            let near = others.iter().filter(|other| other.is_near(here.at));
            let step = step(&here, near, penalty, longest);
            let there = Told::at(here.at.moved(step), &excess)?;
            let other = if there.cost(penalty) < here.cost(penalty) {
                longest = (2.0 * longest).min(LONGEST);
                mem::replace(&mut here, there)
            } else {
                longest = 0.5 * step.amax();
                there
            };
            others.push_front(other);
            others.truncate(OTHERS);
            if step.amax() < SHORTEST {
                break;
            }
        }
    }
    Ok((here.at, here.excesses))
}

/// The linear model of the excesses around the gains `at`.
struct Told {
    at: Gains,
    excesses: Vec<f64>,
    /// The slope of each excess in each gain: one step per excess. It is zero if the excess does not exist.
    slopes: Vec<Step>,
}

impl Told {
    fn at<E: Send>(at: Gains, excess: impl Fn(&Gains) -> Result<Vec<f64>, E> + Sync) -> Result<Self, E> {
        /// The width of the finite differences, in ln of a gain.
        const WIDTH: f64 = 1e-3;
        let aside = |place: usize| at.moved(Step::from_fn(|of, _| if of == place { WIDTH } else { 0.0 }));
        let places: Vec<Gains> = iter::once(at).chain((0..COUNT).map(aside)).collect();
        let found: Vec<Result<Vec<f64>, E>> = places.par_iter().map(&excess).collect();
        let mut found = found.into_iter();
        let excesses = found.next().expect("the place itself is the first")?;
        let mut slopes = vec![Step::zeros(); excesses.len()];
        for (place, moved) in found.enumerate() {
            for (slope, (there, here)) in slopes.iter_mut().zip(moved?.iter().zip(&excesses)) {
                let told = (there - here) / WIDTH;
                slope[place] = if told.is_finite() { told } else { 0.0 };
            }
        }
        Ok(Self { at, excesses, slopes })
    }

    /// The objective: the squared distance, and a penalty on the exceeded demands.
    fn cost(&self, penalty: f64) -> f64 {
        let exceeded: f64 = self.excesses.iter().map(|excess| excess.max(0.0).powi(2)).sum();
        self.at.0.component_mul(&Step::from(WEIGHTS)).norm_squared() + penalty * exceeded
    }

    /// Returns true if `gains` are so close that the linear model still applies there.
    fn is_near(&self, gains: Gains) -> bool {
        /// The largest difference of one gain, in ln.
        const NEAR: f64 = 0.3;
        (self.at.0 - gains.0).amax() < NEAR
    }

    /// Returns the excesses that this linear model predicts at the gains of `here`, and its slopes. A predicted excess
    /// that is larger than the true one in `here` is replaced by the true one.
    fn of(&self, here: &Self) -> impl Iterator<Item = (f64, Step)> {
        let away = here.at.0 - self.at.0;
        let told =
            self.excesses.iter().zip(&self.slopes).map(move |(excess, slope)| (excess + slope.dot(&away), *slope));
        told.zip(&here.excesses).map(|((told, slope), here)| (told.min(*here), slope))
    }
}

/// Returns the step d that solves the minimisation in the header. `longest` limits its largest entry, in ln.
fn step<'a>(here: &'a Told, others: impl Iterator<Item = &'a Told>, penalty: f64, longest: f64) -> Step {
    /// The largest number of sets of exceeded demands that are tried.
    const SETS: usize = 32;
    let lines: Vec<(f64, Step)> = iter::once(here).chain(others).flat_map(|told| told.of(here)).collect();
    let weights = Step::from(WEIGHTS).map(|weight| weight * weight);
    let mut step = Step::zeros();
    let mut exceeded = Vec::new();
    for set in 0..SETS {
        let is_exceeded = |(excess, slope): &(f64, Step)| excess + slope.dot(&step) > 0.0;
        let now: Vec<bool> = lines.iter().map(is_exceeded).collect();
        if set > 0 && now == exceeded {
            break;
        }
        let mut hessian = Matrix::from_diagonal(&weights);
        let mut gradient = weights.component_mul(&here.at.0);
        for ((excess, slope), _) in lines.iter().zip(&now).filter(|(_, exceeded)| **exceeded) {
            hessian += penalty * slope * slope.transpose();
            gradient += penalty * *excess * slope;
        }
        step = -hessian.cholesky().expect("weights are above zero").solve(&gradient);
        exceeded = now;
    }
    step * (longest / step.amax()).min(1.0)
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;

    use super::*;

    fn close(gains: &Gains, expected: [f64; COUNT]) {
        assert!((gains.0 - Step::from(expected)).amax() < 1.1e-4, "{gains:?}");
    }

    /// For the single demand ln qk ≤ −1, ln qk is −1 and the other gains are 0. Of two demands that exclude each other,
    /// both are violated equally. Two curved demands that can hold together are both at their limits. The penalty
    /// leaves an error of 1e-4.
    #[test]
    fn the_nearest_gains_are_found() {
        let Ok((gains, _)) = search::<Infallible>(1, None, |gains| Ok(vec![gains.0[0] + 1.0]));
        close(&gains, [-1.0, 0.0, 0.0, 0.0, 0.0]);
        let Ok((torn, excesses)) = search::<Infallible>(1, None, |gains| Ok(vec![gains.0[2] - 1.0, 3.0 - gains.0[2]]));
        assert!((torn.0[2] - 2.0).abs() < 1.1e-4, "{torn:?}");
        assert_eq!(excesses, [torn.0[2] - 1.0, 3.0 - torn.0[2]]);
        let curved = |gains: &Gains| Ok(vec![gains.0[1].exp() + gains.0[2] - 2.0, 1.0 - gains.0[1] * gains.0[3]]);
        let Ok((curved, _)) = search::<Infallible>(9, Some(&Gains(Step::from([0.0, 2.0, 0.0, 2.0, 0.0]))), curved);
        let [_, value, ffn, embedding, _] = curved.0.into();
        assert!((value * embedding - 1.0).abs() < 3e-4 && (value.exp() + ffn - 2.0).abs() < 3e-4, "{curved:?}");
    }
}
