//! Expectations of gradients given the variables at a site, to second order in the fluctuations of the variables.
//!
//! ```text
//! expansion   H(y) = ln E[|g_a|²/n | y] = h + p·δ + ½ δ·Pδ      E[g_a·g_b/n | y] = κ(y) e^(H(y))      δ = y − E y
//! y' = f(y)   h += w − p·½∇∇f:S      p ← Jᵀp + ∇w      P ← JᵀPJ + p·∇∇f + ∇∇w      κ ← κ(f(y)) e^(w_ab − w)
//! noise       h += ½ p·Ξp + ½ tr PΞ                     κ += ∇κ·Ξp + ½ tr ∇∇κ Ξ
//! at a site   ln E |g_a|²/n = h + ½ p·Sp + ½ tr PS      E g_a·g_b/E |g_a|² = κ + ∇κ·Sp + ½ tr ∇∇κ S
//! ```
//!
//! where y is the vector of the variables of all live streams; y' is y after a component; f is the map of the variables
//! by a component; E is the average over random weights and over features; | y is the condition that the variables have
//! the value y; a, b are positions of tokens; g_a, g_b are the gradients of the loss with respect to the vectors of
//! tokens a and b; n is the number of features; H is ln E[|g_a|²/n | y], given the variables y; κ is the cosine of the
//! gradients of two tokens, given the variables, expanded like H; h, p, P are the value, the gradient and the matrix of
//! second derivatives of H at E y (p is the response); δ is the deviation y − E y; w, w_ab are the logarithms of the
//! gains on g_a² and on g_a g_b; ∇, ∇∇ are the first and second derivatives with respect to the variables; J is the
//! Jacobian of the map f; S is the covariance of the variables y; Ξ is the covariance Cov ξ of the noise; tr is the
//! trace of a matrix.
//!
//! In the code H is `ln_own`, κ is `cosine`, w is `Gain::ln_own`, e^(w_ab − w) is `Gain::cosine`. H and w are relative
//! to infinite width.
//!
//! A gradient is linear in the gradient that arrives, so these equations are closed (Kolmogorov's backward equation
//! with a potential: Feynman–Kac). κ is not in logarithms because products of two tokens may be zero. Source: Øksendal
//! 2003, theorem 8.2.1.

use super::forward::{Fluctuations, Step, average};
use super::quadratic::{Quadratic, Vectors};
use super::variables::{Matrix, R, R_A, R_AB, R_B, Vector};

/// Expectations of the gradient of one stream given the variables of all live streams, as quadratic functions of these
/// variables.
#[derive(Clone, Debug)]
pub(crate) struct Conditional {
    /// H = ln E[|g_a|²/n | y] for the variables y, less its value at infinite width.
    pub(crate) ln_own: Quadratic,
    /// κ, the cosine of the gradients of two tokens.
    pub(crate) cosine: Quadratic,
}

impl Conditional {
    /// A gradient with this cosine that is independent of the variables of its one stream.
    pub(crate) fn independent(cosine: f64) -> Self {
        Self { ln_own: Quadratic::constant(0.0, 1), cosine: Quadratic::constant(cosine, 1) }
    }

    /// Returns a copy with another cosine, which is constant.
    pub(crate) fn with_cosine(&self, cosine: f64) -> Self {
        Self { ln_own: self.ln_own.clone(), cosine: Quadratic::constant(cosine, self.ln_own.streams()) }
    }

    /// Goes back through the fork of a stream, whose copy is the last stream: derivatives with respect to the copy are
    /// added to those with respect to the stream.
    pub(crate) fn join_copy(&mut self, stream: usize) {
        self.ln_own.unfork(stream);
        self.cosine.unfork(stream);
    }

    /// Goes back through a component with this map: functions of the output variables become functions of the input
    /// variables.
    pub(crate) fn map(&mut self, step: &Step) {
        for function in [&mut self.ln_own, &mut self.cosine] {
            let output = function.gradient[step.parts[0]];
            function.value -= output.dot(&step.bent);
            function.pull(&step.parts, &step.blocks);
            for (row, [a, b], second) in step.hessians.each() {
                let [a, b] = [a, b].map(|(part, variable)| (step.parts[part], variable));
                function.hessian.add_entry(a, b, output[row] * second);
            }
        }
    }

    /// Averages over noise of this covariance, which the forward pass added to the variables of a stream.
    pub(crate) fn noise(&mut self, stream: usize, covariance: &Matrix) {
        let response = self.ln_own.gradient[stream];
        let turned = covariance * response;
        self.cosine.value += self.cosine.gradient[stream].dot(&turned) + self.cosine.bent_by(stream, covariance);
        self.ln_own.value += 0.5 * response.dot(&turned) + self.ln_own.bent_by(stream, covariance);
    }

    /// Averages the gradient over all tokens, so that it becomes a function of averages over the sequence.
    /// `fluctuations` are those of the variables at the output.
    pub(crate) fn gather(&mut self, stream: usize, fluctuations: &Fluctuations) {
        let covariance = fluctuations.of(stream);
        let average = average();
        self.noise(stream, &(covariance - average * covariance * average.transpose()));
        self.ln_own.pull(&[stream], &[average]);
        self.cosine.pull(&[stream], &[average]);
    }

    /// Increases the derivative of the cosine with respect to r_ab − r_a − r_b + R, the part of r_ab that two tokens do
    /// not share with all others. The expectation of the cosine times r_ab grows by `more`; the size of the added
    /// derivative is limited by `most`.
    pub(crate) fn add_pair_slope(&mut self, stream: usize, [more, most]: [f64; 2], fluctuations: &Fluctuations) {
        /// The part counts as rounding if it is below this fraction of the variance of r_ab.
        const NOTHING: f64 = 1e-6;
        let covariance = fluctuations.of(stream);
        let directions = [(R_AB, 1.0), (R_A, -1.0), (R_B, -1.0), (R, 1.0)];
        let variance: f64 = directions.iter().map(|&(of, sign)| sign * covariance[(of, R_AB)]).sum();
        if variance <= NOTHING * covariance[(R_AB, R_AB)] {
            return;
        }
        let slope = more / variance;
        let slope = slope / (1.0 + slope.abs() / most);
        for (of, sign) in directions {
            self.cosine.gradient[stream][of] += sign * slope;
        }
    }

    /// Adds `own` to H and `pair` to ln E g_a·g_b.
    pub(crate) fn add(&mut self, [own, pair]: [f64; 2]) {
        self.ln_own.value += own;
        self.cosine.value += self.cosine.value * (pair - own);
    }

    /// Adds the effect of `own` and `pair`, the covariances of the noise in a component's output with ln of the
    /// component's gains on E g_a² and E g_a g_b. `responses` are the derivatives of H and κ with respect to the
    /// variables of the output.
    pub(crate) fn meet(&mut self, [own, pair]: &[Vector; 2], responses: &[Vector; 2]) {
        let [of_own, of_cosine] = responses;
        self.cosine.value += self.cosine.value * of_own.dot(&(pair - own)) + of_cosine.dot(pair);
        self.ln_own.value += of_own.dot(own);
    }

    /// Returns ln E |g_a|² relative to infinite width and E g_a·g_b/E |g_a|², given the fluctuations of variables.
    pub(crate) fn at(&self, fluctuations: &Fluctuations) -> (f64, f64) {
        let Self { ln_own, cosine } = self;
        let dot = |a: &Vectors, b: &Vectors| a.iter().zip(b).map(|(a, b)| a.dot(b)).sum::<f64>();
        let turned = fluctuations.covariance.times(&ln_own.gradient);
        let of_cosine = cosine.value + dot(&cosine.gradient, &turned) + cosine.bent(&fluctuations.covariance);
        let own = ln_own.value + 0.5 * dot(&ln_own.gradient, &turned) + ln_own.bent(&fluctuations.covariance);
        (own, of_cosine)
    }

    /// Returns ∇H and ∇κ, the derivatives of H and of the cosine κ with respect to the variables of one stream.
    pub(crate) fn responses(&self, stream: usize) -> [Vector; 2] {
        [self.ln_own.gradient[stream], self.cosine.gradient[stream]]
    }

    /// Returns the sum of the uncorrelated gradients `parts`, and the share of each of them in E |g|². `levels` are
    /// their ln E |g|² at infinite width.
    pub(crate) fn sum(parts: &[&Self], levels: &[f64]) -> (Self, Vec<f64>) {
        /// A part counts as rounding and is left out if it is below this fraction of the largest part.
        const NOTHING: f64 = 1e-9;
        let largest = levels.iter().copied().fold(f64::NEG_INFINITY, f64::max);
        if largest == f64::NEG_INFINITY {
            return (parts[0].clone(), vec![1.0 / parts.len() as f64; parts.len()]);
        }
        let leading = levels.iter().map(|level| (level - largest).exp());
        let leading: Vec<f64> = leading.map(|part| if part < NOTHING { 0.0 } else { part }).collect();
        let unit = |(part, &level): (&&Self, &f64)| if level > 0.0 { level * part.ln_own.value.exp() } else { 0.0 };
        let units: Vec<f64> = parts.iter().zip(&leading).map(unit).collect();
        let total: f64 = units.iter().sum();
        let shares: Vec<f64> = units.iter().map(|unit| unit / total).collect();
        // e^H of the sum is the average of e^H of the parts, weighted by their shares.
        let streams = parts[0].ln_own.streams();
        let mut ln_own = Quadratic::constant(0.0, streams);
        for (part, &share) in parts.iter().zip(&shares).filter(|&(_, &share)| share > 0.0) {
            ln_own.add(&part.ln_own.clone().exp(1.0), share);
        }
        ln_own.value = 1.0;
        let mut ln_own = ln_own.ln();
        ln_own.value = (total / leading.iter().sum::<f64>()).ln();
        let mut cosine = Quadratic::constant(0.0, streams);
        for (part, &share) in parts.iter().zip(&shares).filter(|&(_, &share)| share > 0.0) {
            let mut relative = part.ln_own.clone();
            relative.add(&ln_own, -1.0);
            cosine.add(&relative.exp(share).times(&part.cosine), 1.0);
        }
        (Self { ln_own, cosine }, shares)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;

    /// A path below rounding changes nothing. Shares combine the levels at infinite width with e^H.
    #[test]
    fn sums_weight_paths_by_what_they_carry() {
        let mut first = Conditional::independent(0.2);
        first.ln_own.value = 0.1;
        let second = Conditional::independent(0.6);
        let mut nothing = Conditional::independent(0.0);
        nothing.ln_own.gradient[0].fill(1e30);
        let (sum, shares) = Conditional::sum(&[&first, &second, &nothing], &[1.0, 0.0, -40.0]);
        let [a, b] = [1.1_f64, 0.0].map(f64::exp);
        assert!((shares[0] - a / (a + b)).abs() < 1e-12);
        assert!(shares[2].abs() < 1e-300);
        assert!((sum.ln_own.value - ((a + b) / (1.0_f64.exp() + 1.0)).ln()).abs() < 1e-12);
        assert!((sum.cosine.value - (0.2 * shares[0] + 0.6 * shares[1])).abs() < 1e-12);
        assert!(sum.ln_own.gradient[0].abs().max() < 1e-300);
    }

    /// The added slope increases the expectation of the cosine times r_ab by the amount asked for, within the largest
    /// slope.
    #[test]
    fn slopes_are_solved_for() {
        let mut fluctuations = Fluctuations::none();
        let covariance = Arc::make_mut(&mut fluctuations.covariance).own_mut(0);
        (covariance[(R_AB, R_AB)], covariance[(R, R)]) = (0.02, 0.001);
        for (most, expected) in [(1e9, 0.003), (0.15, 0.0015)] {
            let mut given = Conditional::independent(0.5);
            given.add_pair_slope(0, [0.003, most], &fluctuations);
            let with = given.cosine.gradient[0].dot(&fluctuations.of(0).column(R_AB));
            assert!((with - expected).abs() < 1e-9, "{with} {expected}");
        }
    }
}
