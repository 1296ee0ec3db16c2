//! The laws of decays and writes: their moments, averaged over heads, channels and inputs.
//!
//! ```text
//! α = e^(−A dt), dt = softplus(x + b)          η = 1, dt or f σ(y)
//! ```
//!
//! where α is the decay of a state; η is the strength of a write; A is a rate; dt is a step; b is the bias of a step; x
//! is the output of the chain of steps; y is the output of the chain of strengths; f is the largest strength.
//!
//! x is Gaussian. A part of it is common to all positions of a head, with the mean product of two positions as its
//! variance; the rest is independent from position to position. Means over the independent part are moments of one law;
//! the laws of all heads, rates, biases and common parts are then collected on the rungs of the ladder of decays.
//!
//! Assumptions: all pairs of positions have the mean product; states are large, so that averages over channels are
//! expectations. Source: ours.

use sigprop_stack::{Decay, Rates, Recurrence, StepBias, Stepped, Write};

use super::ladder::{RUNGS, around, rate};
use crate::mean_field::attention::slopes;
use crate::mean_field::dual::function::{sigmoid, softplus};
use crate::mean_field::kernel::Kernel;
use crate::quadrature::trapezoidal_nodes;

/// The law of the decays of a rung, and of the writes that go with them.
#[derive(Clone, Debug)]
pub(super) struct Law {
    /// The share of the heads and channels. Shares of the cubics between rungs may be negative; their sum is 1.
    pub(super) share: f64,
    /// The rung with the mean decay a = E α.
    pub(super) rung: usize,
    /// E α².
    pub(super) square_decay: f64,
    /// E η.
    pub(super) mean_write: f64,
    /// E η_t η_s of two positions.
    pub(super) pair_write: f64,
    /// E η².
    pub(super) own_write: f64,
    /// E η_s η_t α_t of two positions.
    pub(super) joint: f64,
    /// E (∂η/∂x)², E (∂α/∂x)² and E ∂η/∂x ∂α/∂x, where x is the input of the step.
    pub(super) slopes: [f64; 3],
}

/// The moments of all decays and writes.
#[derive(Clone, Debug)]
pub(super) struct Laws {
    pub(super) rungs: Vec<Law>,
    /// E (∂η/∂y)², where y is the input of the strength; 0 without one.
    pub(super) strength_slope: f64,
}

/// The first moments of the strength of a write: E η, E η_t η_s, E η² and E (∂η/∂y)².
struct Strength {
    mean: f64,
    pair: f64,
    own: f64,
    slope: f64,
}

impl Laws {
    /// Returns the laws for the kernels of steps and strengths, where the recurrence has them. `erased` is the share r
    /// of a state that a key other than its own erases (delta rule), else 0.
    pub(super) fn new(recurrence: &Recurrence, step: Option<&Kernel>, strength: Option<&Kernel>, erased: f64) -> Self {
        let strength = Strength::new(&recurrence.write, strength);
        let [kept, kept_square, erased_joint] = [
            1.0 - strength.mean * erased,
            1.0 - (2.0 * strength.mean - strength.own) * erased,
            strength.own * strength.mean * erased,
        ];
        let given = |decay: f64, square_decay: f64| Law {
            share: 1.0,
            rung: 0,
            square_decay: square_decay * kept_square,
            mean_write: strength.mean,
            pair_write: strength.pair,
            own_write: strength.own,
            joint: decay * (strength.pair - erased_joint),
            slopes: [0.0; 3],
        };
        let mut collected = Collected { rungs: [None; RUNGS] };
        match (&recurrence.decay, step) {
            (Decay::Fixed { rates }, _) => {
                for rate in rates {
                    let decay = (-rate).exp();
                    collected.add((rates.len() as f64).recip(), decay * kept, &given(decay, decay * decay));
                }
            }
            (Decay::Stepped(stepped), Some(step)) => {
                for (share, moments) in stepped_moments(recurrence, stepped, step) {
                    let [decay, square, write, own_write, joint] = moments.of;
                    let law = given(decay, square);
                    let law = match recurrence.write {
                        Write::Step => {
                            let (pair_write, joint) = (write * write, joint * write);
                            Law { mean_write: write, pair_write, own_write, joint, slopes: moments.slopes, ..law }
                        }
                        Write::One | Write::Sigmoid { .. } => Law { slopes: [0.0, moments.slopes[1], 0.0], ..law },
                    };
                    collected.add(share, decay * kept, &law);
                }
            }
            (Decay::Stepped(_), None) => unreachable!("a decay with steps has a chain for them"),
        }
        Self { rungs: collected.laws(), strength_slope: strength.slope }
    }
}

/// Sums of shares, and of shares times moments, per rung.
struct Collected {
    rungs: [Option<[f64; 9]>; RUNGS],
}

impl Collected {
    fn add(&mut self, share: f64, decay: f64, law: &Law) {
        let Law { square_decay, mean_write, pair_write, own_write, joint, slopes, .. } = law;
        let [write_slope, decay_slope, both] = slopes;
        for (rung, weight) in around(decay) {
            // A rung of another decay keeps the share that the variance of α has of its bound a (1 − a), and the ratio
            // of the joint moment to the decay. Ratios E α²/a² have no bound where decays are fast.
            let ratio = rate(rung) / decay.max(f64::MIN_POSITIVE);
            let numbers = [
                1.0,
                (square_decay - decay * decay) / (decay * (1.0 - decay)).max(f64::MIN_POSITIVE),
                *mean_write,
                *pair_write,
                *own_write,
                joint * ratio,
                *write_slope,
                *decay_slope,
                *both,
            ];
            let sums = self.rungs[rung].get_or_insert([0.0; 9]);
            for (sum, number) in sums.iter_mut().zip(numbers) {
                *sum += share * weight * number;
            }
        }
    }

    fn laws(self) -> Vec<Law> {
        let law = |(rung, sums): (usize, [f64; 9])| {
            let share = sums[0];
            let mean = |index: usize| sums[index] / share;
            let decay = rate(rung);
            Law {
                share,
                rung,
                square_decay: (decay * decay + decay * (1.0 - decay) * mean(1)).clamp(decay * decay, 1.0),
                mean_write: mean(2),
                pair_write: mean(3),
                own_write: mean(4),
                joint: mean(5),
                slopes: [mean(6), mean(7), mean(8)],
            }
        };
        let used = self.rungs.into_iter().enumerate().filter_map(|(rung, sums)| Some((rung, sums?)));
        used.filter(|(_, sums)| sums[0].abs() > 1e-9).map(law).collect()
    }
}

impl Strength {
    fn new(write: &Write, kernel: Option<&Kernel>) -> Self {
        let (Write::Sigmoid { factor, .. }, Some(kernel)) = (write, kernel) else {
            return Self { mean: 1.0, pair: 1.0, own: 1.0, slope: 0.0 };
        };
        let mut sums = Self { mean: 0.0, pair: 0.0, own: 0.0, slope: 0.0 };
        for (share, inputs) in common_and_own(kernel) {
            let mean = |of: &dyn Fn(f64) -> f64| inputs.iter().map(|&(y, weight)| weight * of(y)).sum::<f64>();
            let first = factor * mean(&sigmoid);
            sums.mean += share * first;
            sums.pair += share * first * first;
            sums.own += share * mean(&|y| (factor * sigmoid(y)).powi(2));
            sums.slope += share * mean(&|y| (factor * sigmoid(y) * (1.0 - sigmoid(y))).powi(2));
        }
        sums
    }
}

/// Moments of a law with steps.
struct Moments {
    /// E α, E α², E dt, E dt² and E dt α.
    of: [f64; 5],
    /// E (∂dt/∂x)², E (∂α/∂x)² and E ∂dt/∂x ∂α/∂x.
    slopes: [f64; 3],
}

/// Returns the moments of all laws of a decay with steps, each with its share.
fn stepped_moments(recurrence: &Recurrence, stepped: &Stepped, step: &Kernel) -> Vec<(f64, Moments)> {
    let rates = slopes::few(&match stepped.rates {
        Rates::Counted => {
            let count = if stepped.rate_per_channel { recurrence.d_key } else { recurrence.n_heads };
            (1..=count).map(|rate| rate as f64).collect::<Vec<f64>>()
        }
        Rates::Uniform { low, high } => middles(low, high),
    });
    let biases: Vec<(f64, f64)> = match stepped.bias {
        StepBias::Value(bias) => vec![(1.0, bias)],
        StepBias::LogUniform { low, high } => {
            let steps: Vec<f64> = middles(low.ln(), high.ln()).into_iter().map(f64::exp).collect();
            slopes::few(&steps).into_iter().map(|(share, step)| (share, step.exp_m1().ln())).collect()
        }
    };
    let inputs = common_and_own(step);
    let mut laws = Vec::new();
    for (rate_share, rate) in rates {
        for &(bias_share, bias) in &biases {
            for (share, inputs) in &inputs {
                laws.push((rate_share * bias_share * share, Moments::new(rate, bias, inputs)));
            }
        }
    }
    laws
}

impl Moments {
    fn new(rate: f64, bias: f64, inputs: &[(f64, f64)]) -> Self {
        let mut moments = Self { of: [0.0; 5], slopes: [0.0; 3] };
        for &(x, weight) in inputs {
            let step = softplus(x + bias);
            let slope = sigmoid(x + bias);
            let decay = (-rate * step).exp();
            let of_decay = -rate * slope * decay;
            for (sum, number) in moments.of.iter_mut().zip([decay, decay * decay, step, step * step, step * decay]) {
                *sum += weight * number;
            }
            for (sum, number) in moments.slopes.iter_mut().zip([slope * slope, of_decay * of_decay, slope * of_decay]) {
                *sum += weight * number;
            }
        }
        moments
    }
}

/// Returns nodes of the part of an input that all positions share, each with its share and with nodes and weights of
/// the input given this part.
fn common_and_own(kernel: &Kernel) -> Vec<(f64, Vec<(f64, f64)>)> {
    /// The common part, as a share of the variance, below which it has no effect.
    const NONE: f64 = 1e-6;
    /// The largest unit, whose square still is a number.
    const LARGEST: f64 = 300.0;
    let (positions, unit) = (&kernel.positions, kernel.ln_unit.min(LARGEST).exp());
    let pairs = positions.length * (positions.length - 1.0);
    let variance = positions.sum(|node| kernel.own[node]) / positions.length * unit;
    let common = if pairs > 0.0 { positions.sum_pairs(|point| kernel.pairs[point]) / pairs * unit } else { 0.0 };
    let (common, variance) = (common.clamp(0.0, variance.max(0.0)), variance.max(0.0));
    let own = (variance - common).sqrt();
    let given = |shift: f64| trapezoidal_nodes(0.5, 6.0).into_iter().map(|(z, w)| (shift + own * z, w)).collect();
    if common <= NONE * variance {
        return vec![(1.0, given(0.0))];
    }
    // The three-point Gauss rule of a normal variable.
    let far = (3.0 * common).sqrt();
    [(1.0 / 6.0, -far), (2.0 / 3.0, 0.0), (1.0 / 6.0, far)].map(|(share, shift)| (share, given(shift))).into()
}

/// Returns the middles of equal parts of an interval.
fn middles(low: f64, high: f64) -> Vec<f64> {
    const PARTS: usize = 128;
    let width = (high - low) / PARTS as f64;
    (0..PARTS).map(|part| low + (part as f64 + 0.5) * width).collect()
}
