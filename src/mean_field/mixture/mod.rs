//! Mixture of experts y = scale Σ_e w_e(x) f_e(x) over the experts with the largest scores s_e = r_e·x.
//!
//! The scores of two tokens are Gaussian with the correlation ρ of the tokens. An expert that serves both correlates
//! their outputs.
//!
//! ```text
//! forward    E y_a y_c = scale² Ω(ρ) E f_a f_c          Ω(ρ) = E Σ_e w_ae w_ce
//! backward   all experts together: G^f_ac = scale² Ω(ρ) G^y_ac
//!            router: G^s_ac = scale² J(ρ) n E f_a f_c G^y_ac/n_experts        J(ρ) = E Σ_ee' ∂w_ae/∂s_ae' ∂w_ce/∂s_ce'
//! ```
//!
//! where a, c are positions of tokens; e, e' are experts; E is the average over random weights and over features; ρ is
//! the correlation of two tokens; w_ae is the weight of expert e for token a; s_ae is the score of expert e for token
//! a; f_a is the output of one expert at token a; Ω(ρ) is the mean overlap of the weights of two tokens; J(ρ) is the
//! mean product of the Jacobians of the weights of two tokens; n is the number of features of y; n_experts is the
//! number of experts; G^y is the kernel E g_a g_b of the gradients at the output y; G^f is the sum of the kernels of
//! the gradients at the outputs of all experts; G^s is the kernel of the gradients at a score.
//!
//! Ω and J are averages over samples of the scores from a fixed seed, at equidistant angles arccos ρ with linear
//! interpolation. For the weights of one expert E dW² is 1/n_experts of the total.
//!
//! Example: 2 of 8 experts with the weights 1/2, 64 features, and experts whose outputs have variance 1 and correlation
//! 0.8: y has variance Ω(1) = 1/2. Two uncorrelated tokens share an expert by chance alone, so that Ω(0) = 1/8 and
//! their outputs have the correlation 0.8 · 1/8 / (1/2) = 0.2, up to an error of sampling. A gradient of variance 1 at
//! y becomes 1/2 at all experts together and 1/4 · 64/8 = 2 at a score, as J(1) = 1/4.
//!
//! If weights multiply inputs, y = scale Σ_e f_e(w_e x), where f_e has no biases. Three numbers v_i represent the
//! weights of all chosen experts (Gauss rule), and the expert is followed at the three inputs v_i x:
//!
//! ```text
//! forward    E y_a y_c = scale² Σ_i Ω_i(ρ) F_i          F_i = E f_a f_c at the input v_i x
//! backward   experts: G^f_ac of input i = scale² Ω_i(1) Ω(ρ)/Ω(1) G^y_ac; v_i² times its gradient reaches x
//!            router: G^s_ac = scale² Σ_i J_i(ρ) (p_i/2)² n F_i G^y_ac/n_experts          p = d ln F_aa/d ln v
//! Ω(ρ) = Σ_i Ω_i(ρ) (F_i)_aa
//! Ω_i(ρ) = E Σ_e l_i(√(w_ae w_ce))          J_i(ρ) = E Σ_ee' l_i(√(w_ae w_ce)) ∂ln w_ae/∂s_ae' ∂ln w_ce/∂s_ce'
//! ```
//!
//! where the sums are over the experts e that both tokens go to; l_i is the parabola that is 1 at v_i and 0 at the
//! other two; F_i is the kernel at input i; p_i is the exponent of E f² as a power of the weight.
//!
//! Assumption: experts are independent, and scores have one scale; if weights multiply inputs, E f_a f_c depends on the
//! product of both weights, and p decides E (df/dw)². Both are exact for powers of the weight; for a gate with SiLU the
//! gradient of the router is 1 to 2 % too small. Source: Shazeer et al. 2017 for the network, Llama 4 for inputs; the
//! rule is ours.

mod weights;

use std::f64::consts::{FRAC_PI_2, PI};
use std::sync::Arc;

use rand::SeedableRng;
use rand::rngs::ChaCha8Rng;
use rand_distr::{Distribution, StandardNormal};
use sigprop_stack::{Mixture, Multiplied, Scale};

pub(crate) use self::weights::Weights;
use super::attention::slopes::representatives;
use super::component::{MeanField, MeanFieldFan};
use super::gradient::Gradient;
use super::kernel::{Kernel, correlation};
use super::signal::Signal;

/// The number of samples of the scores.
const DRAWS: usize = 1 << 13;
/// The number of intervals of arccos ρ between 0 and π. Angles are used because Ω falls like √(1 − ρ) near ρ = 1.
const INTERVALS: usize = 16;

/// The number of inputs at which an expert is followed if weights multiply inputs.
const INPUTS: usize = 3;
/// The relative standard deviation of weights that are all equal, which are spread so that three of them differ.
const SPREAD: f64 = 3e-3;

/// Ω and J of a mixture for one standard deviation of the scores, with the factors v on the input of its expert.
#[derive(Clone, Debug)]
pub(crate) struct Routing(Vec<Route>);

/// Ω_i (`overlaps`) and J_i (`passed`) at equidistant angles arccos ρ, of an expert whose input is v_i x.
#[derive(Clone, Debug)]
struct Route {
    /// v_i; 1 if weights multiply outputs.
    factor: f64,
    overlaps: Vec<f64>,
    passed: Vec<f64>,
}

/// Returns how many times the expert of a mixture is followed.
pub(crate) fn inputs(mixture: &Mixture) -> usize {
    match mixture.weights_multiply {
        Multiplied::Outputs => 1,
        Multiplied::Inputs => INPUTS,
    }
}

impl Routing {
    /// Samples Ω and J for scores of the standard deviation `std`.
    pub(crate) fn new(mixture: &Mixture, std: f64) -> Self {
        let mut generator = ChaCha8Rng::seed_from_u64(0);
        let mut normal =
            || -> Vec<f64> { (0..mixture.n_experts).map(|_| StandardNormal.sample(&mut generator)).collect() };
        let pairs: Vec<[Vec<f64>; 2]> = (0..DRAWS).map(|_| [normal(), normal()]).collect();
        let scores = |[first, second]: &[Vec<f64>; 2], angle: f64| -> Vec<f64> {
            let (own, rho) = angle.sin_cos();
            first.iter().zip(second).map(|(a, b)| std * (rho * a + own * b)).collect()
        };
        let firsts: Vec<Weights> = pairs.iter().map(|pair| Weights::new(mixture, &scores(pair, 0.0))).collect();
        let factors = match mixture.weights_multiply {
            Multiplied::Outputs => vec![1.0],
            Multiplied::Inputs => factors(&firsts),
        };
        let route =
            |&factor: &f64| Route { factor, overlaps: vec![0.0; INTERVALS + 1], passed: vec![0.0; INTERVALS + 1] };
        let mut routes: Vec<Route> = factors.iter().map(route).collect();
        for (pair, one) in pairs.iter().zip(&firsts) {
            for index in 0..=INTERVALS {
                let other = Weights::new(mixture, &scores(pair, PI * index as f64 / INTERVALS as f64));
                for (overlap, passed) in
                    one.overlaps(&other).zip(one.passed(&other)).filter(|(overlap, _)| *overlap > 0.0)
                {
                    for (place, route) in routes.iter_mut().enumerate() {
                        let share = match mixture.weights_multiply {
                            Multiplied::Outputs => 1.0,
                            Multiplied::Inputs => parabola(&factors, place, overlap.sqrt()) / overlap,
                        };
                        route.overlaps[index] += overlap * share / DRAWS as f64;
                        route.passed[index] += passed * share / DRAWS as f64;
                    }
                }
            }
        }
        Self(routes)
    }

    /// Returns the routing of one expert at the first input, which stands for all: E f_a f_c at the other inputs is
    /// proportional to that at the first.
    pub(crate) fn of_one(&self, experts: &[Arc<Signal>]) -> Self {
        let exponents = exponents(&self.0, experts);
        let ratios: Vec<f64> = ln_ratios(experts).into_iter().map(f64::exp).collect();
        let sum = |of: &dyn Fn(usize) -> Vec<f64>| -> Vec<f64> {
            let terms: Vec<Vec<f64>> = (0..self.0.len()).map(of).collect();
            (0..=INTERVALS).map(|index| terms.iter().map(|term| term[index]).sum()).collect()
        };
        let scaled = |values: &[f64], by: f64| values.iter().map(|value| value * by).collect::<Vec<f64>>();
        let overlaps = sum(&|place| scaled(&self.0[place].overlaps, ratios[place]));
        let passed = sum(&|place| scaled(&self.0[place].passed, ratios[place] * exponents[place]));
        Self(vec![Route { factor: self.0[0].factor, overlaps, passed }])
    }

    /// Returns the standard deviation of E f² by the weight, relative to its mean; 0 if weights multiply outputs.
    pub(crate) fn deviation(&self, experts: &[Arc<Signal>]) -> f64 {
        let total: f64 = self.0.iter().map(|route| route.overlaps[0]).sum();
        let mean = |power: f64| -> f64 {
            let of = |(route, ln): (&Route, f64)| route.overlaps[0] / total * (power * ln).exp();
            self.0.iter().zip(ln_ratios(experts)).map(of).sum()
        };
        (mean(2.0) / mean(1.0).powi(2) - 1.0).max(0.0).sqrt()
    }

    /// Returns the input of the expert at place `place`.
    pub(crate) fn input(&self, place: usize, x: &Arc<Signal>) -> Arc<Signal> {
        let factor = self.0[place].factor;
        if self.0.len() == 1 { Arc::clone(x) } else { Arc::new(Scale { factor }.forward(x)) }
    }

    /// Returns the gradients at x from the `gradients` at the inputs of the experts.
    pub(crate) fn backward(&self, gradients: &[Gradient]) -> Vec<Gradient> {
        let scaled = |(route, gradient): (&Route, &Gradient)| {
            let factor = route.factor * route.factor;
            Gradient { kernel: gradient.kernel.scaled(factor), ..gradient.clone() }
        };
        if self.0.len() == 1 { gradients.to_vec() } else { self.0.iter().zip(gradients).map(scaled).collect() }
    }

    /// Returns the standard deviation of the scores of `x`.
    pub(crate) fn std(mixture: &Mixture, x: &Signal) -> f64 {
        let positions = &x.kernel.positions;
        let second = positions.sum(|node| x.kernel.own[node]) / positions.length;
        (x.width * mixture.router.init.variance() * second * x.kernel.ln_unit.exp()).sqrt()
    }
}

/// Returns three numbers that represent the weights of chosen experts, the one of most experts first.
fn factors(weights: &[Weights]) -> Vec<f64> {
    let chosen = weights.iter().flat_map(|weights| &weights.chosen).filter(|weight| **weight > 0.0);
    // Weights that are all equal are spread a little, so that there are three.
    let spread = |(index, weight): (usize, &f64)| {
        let side = [1.0, 0.0, 0.0, -1.0, 0.0, 0.0][index % 6];
        weight * (SPREAD * 3f64.sqrt() * side).exp()
    };
    let mut factors = representatives(chosen.enumerate().map(spread).collect(), INPUTS);
    factors.sort_by(|(one, _), (other, _)| other.total_cmp(one));
    factors.into_iter().map(|(_, factor)| factor).collect()
}

/// Returns the parabola that is 1 at the factor at `place` and 0 at the others, at the weight `weight`.
fn parabola(factors: &[f64], place: usize, weight: f64) -> f64 {
    let others = factors.iter().enumerate().filter(|(other, _)| *other != place);
    others.map(|(_, factor)| (weight - factor) / (factors[place] - factor)).product()
}

/// Returns ln E f² of the outputs of an expert, averaged over positions, relative to the first; 0 if they are zero.
fn ln_ratios(experts: &[Arc<Signal>]) -> Vec<f64> {
    let ln = |expert: &Arc<Signal>| {
        let Kernel { positions, own, ln_unit, .. } = &expert.kernel;
        positions.sum(|node| own[node]).ln() + ln_unit
    };
    let first = ln(&experts[0]);
    experts.iter().map(|expert| if expert.kernel.is_zero() { 0.0 } else { ln(expert) - first }).collect()
}

/// Returns (p/2)² of the expert at each input, from the differences of ln E f² to the other inputs; 1 if weights
/// multiply outputs.
fn exponents(routes: &[Route], experts: &[Arc<Signal>]) -> Vec<f64> {
    if routes.len() == 1 {
        return vec![1.0];
    }
    let ln = ln_ratios(experts);
    let slope = |i: usize, j: usize| (ln[i] - ln[j]) / (routes[i].factor / routes[j].factor).ln();
    // The slope of the parabola through all three: p_i = s_ij + s_ik − s_jk.
    let at = |i: usize| slope(i, (i + 1) % 3) + slope(i, (i + 2) % 3) - slope((i + 1) % 3, (i + 2) % 3);
    (0..INPUTS).map(|place| (0.5 * at(place)).powi(2)).collect()
}

/// Interpolates a function of ρ at ρ = `correlation`. `values` has the function at equidistant angles arccos ρ.
fn at(values: &[f64], correlation: f64) -> f64 {
    let place = (-correlation.clamp(-1.0, 1.0).asin() + FRAC_PI_2) * (INTERVALS as f64 / PI);
    let below = (place as usize).min(INTERVALS - 1);
    (place - below as f64) * (values[below + 1] - values[below]) + values[below]
}

/// Returns `kernel` times a function of the correlation ρ of two tokens of `x`. `values` has the function at
/// equidistant angles arccos ρ.
fn times(kernel: &Kernel, x: &Kernel, values: &[f64]) -> Kernel {
    let own = kernel.own.iter().map(|&own| own * values[0]).collect();
    let pairs = kernel.pairs.iter().zip(x.map_pairs(&x.own, |_, ends, product| at(values, correlation(ends, product))));
    kernel.with(kernel.ln_unit, own, pairs.map(|(&pair, factor)| pair * factor).collect())
}

/// Returns the sum of kernels, which may have negative entries.
fn sum(kernels: impl Iterator<Item = Kernel>) -> Kernel {
    kernels.reduce(|sum, kernel| sum.plus(&kernel)).expect("a mixture has a route")
}

/// Returns the output, from the router's input `x` and the outputs of one expert that represents all `experts`, at each
/// of its inputs.
pub(crate) fn merge(mixture: &Mixture, routing: &Routing, x: &Signal, experts: &[Arc<Signal>]) -> Signal {
    let of = |(route, expert): (&Route, &Arc<Signal>)| times(&expert.kernel, &x.kernel, &route.overlaps);
    let kernel = sum(routing.0.iter().zip(experts).map(of));
    Signal::centred(experts[0].width, kernel.scaled(mixture.scale * mixture.scale))
}

/// Returns the gradients at the scores and at the representative expert for each of its inputs, from the gradient at
/// the output.
pub(crate) fn split(
    mixture: &Mixture,
    routing: &Routing,
    (x, experts): (&Signal, &[Arc<Signal>]),
    gradient: &Gradient,
) -> (Gradient, Vec<Gradient>) {
    let square = mixture.scale * mixture.scale;
    let exponents = exponents(&routing.0, experts);
    let of_scores = routing.0.iter().zip(experts).zip(exponents).map(|((route, expert), exponent)| {
        times(&gradient.kernel.times(&expert.kernel), &x.kernel, &route.passed).scaled(exponent)
    });
    let scores = sum(of_scores).scaled(square * experts[0].width / mixture.n_experts as f64);
    // All inputs have the same share of pairs. Only their sum is known, for experts that are powers of the weight.
    let overlaps = &routing.of_one(experts).0[0].overlaps;
    let of =
        |route: &Route| times(&gradient.kernel, &x.kernel, overlaps).scaled(square * route.overlaps[0] / overlaps[0]);
    (Gradient::independent(scores), routing.0.iter().map(of).map(Gradient::independent).collect())
}

/// A mixture as a component with several inputs: the input of the router, and the outputs of one expert that represents
/// all experts.
pub(crate) struct Routed<'m>(pub(crate) &'m Mixture, pub(crate) &'m Routing);

impl MeanFieldFan for Routed<'_> {
    fn merge(&self, _: &Signal, parts: &[Arc<Signal>]) -> Signal {
        merge(self.0, self.1, &parts[0], &parts[1..])
    }

    fn split(&self, _: &Signal, parts: &[Arc<Signal>], gradient: &Gradient) -> Vec<Gradient> {
        let (scores, experts) = split(self.0, self.1, (&parts[0], &parts[1..]), gradient);
        [scores].into_iter().chain(experts).collect()
    }
}

/// Returns the router's part of the gradient at its input, from the gradient at the scores.
pub(crate) fn router_backward(mixture: &Mixture, scores: &Gradient) -> Gradient {
    Gradient::independent(scores.kernel.scaled(mixture.n_experts as f64 * mixture.router.init.variance()))
}

#[cfg(test)]
mod tests {
    use sigprop_stack::{Init, Multiplied, Tensor, Weighting};

    use super::*;

    fn two_of_eight() -> Mixture {
        let router = Tensor { name: "router".to_owned(), init: Init::Zero };
        let weighting = Weighting::Softmax;
        Mixture {
            n_experts: 8,
            top_k: 2,
            weighting,
            weights_multiply: Multiplied::Outputs,
            normalised: true,
            scale: 1.0,
            router,
            expert: Vec::new(),
        }
    }

    #[test]
    fn example_of_the_header() {
        let mixture = two_of_eight();
        let routing = Routing::new(&mixture, 1e-6);
        let [x, expert] =
            [[1.0, 0.0], [1.0, 0.8]].map(|of| Arc::new(Signal::centred(64.0, Kernel::of_tokens(2.0, of))));
        let routed = Routed(&mixture, &routing);
        let parts = [x, expert];
        let y = routed.merge(&parts[0], &parts).kernel;
        let [own, pair] = [y.own[0], y.pairs[0]].map(|moment| moment * y.ln_unit.exp());
        approx::assert_relative_eq!(own, 0.5, epsilon = 1e-6);
        // Ω(0) is an average over samples.
        approx::assert_relative_eq!(pair / own, 0.2, epsilon = 0.005);
        let gradient = Gradient::independent(Kernel::of_tokens(2.0, [1.0, 0.0]));
        let of_one = |gradient: &Gradient| gradient.kernel.own[0] * gradient.kernel.ln_unit.exp();
        let [scores, experts] = &routed.split(&parts[0], &parts, &gradient)[..] else { panic!("it has two parts") };
        approx::assert_relative_eq!(of_one(scores), 2.0, epsilon = 1e-5);
        approx::assert_relative_eq!(of_one(experts), 0.5, epsilon = 1e-6);
    }

    /// If scores are zero, all weights are 1/k, and an expert of one token serves another token with probability k/n.
    #[test]
    fn equal_scores_by_hand() {
        let router = Tensor { name: "router".to_owned(), init: Init::Zero };
        let weighting = Weighting::Softmax;
        let mixture = Mixture {
            n_experts: 8,
            top_k: 2,
            weighting,
            weights_multiply: Multiplied::Outputs,
            normalised: true,
            scale: 1.0,
            router,
            expert: Vec::new(),
        };
        let routing = Routing::new(&mixture, 1e-6);
        approx::assert_relative_eq!(at(&routing.0[0].overlaps, 1.0), 0.5, epsilon = 1e-6);
        approx::assert_relative_eq!(at(&routing.0[0].overlaps, 0.0), 1.0 / 8.0, epsilon = 0.003);
        // (δ_ij − ½)/2 over two experts: 4 · 1/16.
        approx::assert_relative_eq!(at(&routing.0[0].passed, 1.0), 0.25, epsilon = 1e-6);
        // Two choices are the same by chance in 1 case of 28: ¼. They share one expert in 12 cases of 28: 1/16.
        approx::assert_relative_eq!(at(&routing.0[0].passed, 0.0), (0.25 + 12.0 / 16.0) / 28.0, epsilon = 0.002);
    }
}
