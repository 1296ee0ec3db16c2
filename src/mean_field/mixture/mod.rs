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
//! Assumption: experts are independent, and scores have one scale. Source: Shazeer et al. 2017 for the network; the
//! rule is ours.

mod weights;

use std::f64::consts::{FRAC_PI_2, PI};
use std::sync::Arc;

use rand::SeedableRng;
use rand::rngs::ChaCha8Rng;
use rand_distr::{Distribution, StandardNormal};
use sigprop_stack::Mixture;

pub(crate) use self::weights::Weights;
use super::component::MeanFieldFan;
use super::gradient::Gradient;
use super::kernel::{Kernel, correlation};
use super::signal::Signal;

/// The number of samples of the scores.
const DRAWS: usize = 1 << 13;
/// The number of intervals of arccos ρ between 0 and π. Angles are used because Ω falls like √(1 − ρ) near ρ = 1.
const INTERVALS: usize = 16;

/// Ω (`overlaps`) and J (`passed`) of a mixture at equidistant angles arccos ρ, for one standard deviation of the
/// scores.
#[derive(Clone, Debug)]
pub(crate) struct Routing {
    overlaps: Vec<f64>,
    passed: Vec<f64>,
}

impl Routing {
    /// Samples Ω and J for scores of the standard deviation `std`.
    pub(crate) fn new(mixture: &Mixture, std: f64) -> Self {
        let mut generator = ChaCha8Rng::seed_from_u64(0);
        let mut normal =
            || -> Vec<f64> { (0..mixture.n_experts).map(|_| StandardNormal.sample(&mut generator)).collect() };
        let (mut overlaps, mut passed) = (vec![0.0; INTERVALS + 1], vec![0.0; INTERVALS + 1]);
        for _ in 0..DRAWS {
            let (first, second) = (normal(), normal());
            let scores: Vec<f64> = first.iter().map(|z| std * z).collect();
            let one = Weights::new(mixture, &scores);
            for (index, (overlap, passed)) in overlaps.iter_mut().zip(&mut passed).enumerate() {
                let (own, rho) = (PI * index as f64 / INTERVALS as f64).sin_cos();
                let scores: Vec<f64> = first.iter().zip(&second).map(|(a, b)| std * (rho * a + own * b)).collect();
                let other = Weights::new(mixture, &scores);
                *overlap += one.overlap(&other) / DRAWS as f64;
                *passed += one.passed(&other) / DRAWS as f64;
            }
        }
        Self { overlaps, passed }
    }

    /// Returns the standard deviation of the scores of `x`.
    pub(crate) fn std(mixture: &Mixture, x: &Signal) -> f64 {
        let positions = &x.kernel.positions;
        let second = positions.sum(|node| x.kernel.own[node]) / positions.length;
        (x.width * mixture.router.init.variance() * second * x.kernel.ln_unit.exp()).sqrt()
    }
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

/// Returns the output, from the router's input `x` and the output `expert` of one expert that represents all experts.
pub(crate) fn merge(mixture: &Mixture, routing: &Routing, x: &Signal, expert: &Signal) -> Signal {
    let kernel = times(&expert.kernel, &x.kernel, &routing.overlaps).scaled(mixture.scale * mixture.scale);
    Signal::centred(expert.width, kernel)
}

/// Returns the gradients at the scores and at the representative expert, from the gradient at the output.
pub(crate) fn split(
    mixture: &Mixture,
    routing: &Routing,
    [x, expert]: [&Arc<Signal>; 2],
    gradient: &Gradient,
) -> [Gradient; 2] {
    let square = mixture.scale * mixture.scale;
    let met = gradient.kernel.times(&expert.kernel);
    let scores = times(&met, &x.kernel, &routing.passed).scaled(square * expert.width / mixture.n_experts as f64);
    let experts = times(&gradient.kernel, &x.kernel, &routing.overlaps).scaled(square);
    [scores, experts].map(Gradient::independent)
}

/// A mixture as a component with two inputs: the input of the router, and the output of one expert that represents all
/// experts.
pub(crate) struct Routed<'m>(pub(crate) &'m Mixture, pub(crate) &'m Routing);

impl MeanFieldFan for Routed<'_> {
    fn merge(&self, _: &Signal, parts: &[Arc<Signal>]) -> Signal {
        merge(self.0, self.1, &parts[0], &parts[1])
    }

    fn split(&self, _: &Signal, parts: &[Arc<Signal>], gradient: &Gradient) -> Vec<Gradient> {
        split(self.0, self.1, [&parts[0], &parts[1]], gradient).into()
    }
}

/// Returns the router's part of the gradient at its input, from the gradient at the scores.
pub(crate) fn router_backward(mixture: &Mixture, scores: &Gradient) -> Gradient {
    Gradient::independent(scores.kernel.scaled(mixture.n_experts as f64 * mixture.router.init.variance()))
}

#[cfg(test)]
mod tests {
    use sigprop_stack::{Init, Tensor, Weighting};

    use super::*;

    fn two_of_eight() -> Mixture {
        let router = Tensor { name: "router".to_owned(), init: Init::Zero };
        let weighting = Weighting::Softmax;
        Mixture { n_experts: 8, top_k: 2, weighting, normalised: true, scale: 1.0, router, expert: Vec::new() }
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
        let mixture =
            Mixture { n_experts: 8, top_k: 2, weighting, normalised: true, scale: 1.0, router, expert: Vec::new() };
        let routing = Routing::new(&mixture, 1e-6);
        approx::assert_relative_eq!(at(&routing.overlaps, 1.0), 0.5, epsilon = 1e-6);
        approx::assert_relative_eq!(at(&routing.overlaps, 0.0), 1.0 / 8.0, epsilon = 0.003);
        // (δ_ij − ½)/2 over two experts: 4 · 1/16.
        approx::assert_relative_eq!(at(&routing.passed, 1.0), 0.25, epsilon = 1e-6);
        // Two choices are the same by chance in 1 case of 28: ¼. They share one expert in 12 cases of 28: 1/16.
        approx::assert_relative_eq!(at(&routing.passed, 0.0), (0.25 + 12.0 / 16.0) / 28.0, epsilon = 0.002);
    }
}
