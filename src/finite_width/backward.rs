//! Expectations of gradients given the variables here, to second order in their fluctuations.
//!
//! ```text
//! H(y) = ln E[|g_a|²/n | y] = h + p·δ + ½ δ·Pδ            E[g_a·g_b/n | y] = κ(y) e^(H(y)),  κ quadratic too,  δ = y − E y
//! through y' = f(y), gain e^w:    h += w − p·½∇∇f:S       p ← Jᵀp + ∇w       P ← JᵀPJ + p·∇∇f + ∇∇w       κ ← κ(f(y)) e^(w_ab − w)
//! through noise of covariance Q:  h += ½ p·Qp + ½ tr PQ                      κ += ∇κ·Qp + ½ tr ∇∇κ Q
//! at a site:                      ln E |g_a|²/n = h + ½ p·Sp + ½ tr PS        E g_a·g_b/E |g_a|² = κ + ∇κ·Sp + ½ tr ∇∇κ S
//! ```
//!
//! S is the covariance of the variables, Q that of added noise, J and ∇∇f are derivatives of the map. In the code H is `ln_own`, κ is
//! `cosine`, w is `Gain::ln_own`, e^(w_ab − w) is `Gain::cosine`, all beyond what they are at infinite width.
//!
//!
//! Gradients are linear in what reaches them, so that these equations are closed (Kolmogorov's backward equation with a potential:
//! Feynman–Kac); κ is not in logarithms because products of two tokens may be zero. Source: Øksendal 2003, theorem 8.2.1.

use nalgebra::DMatrix;
use smallvec::SmallVec;

use super::forward::{Fluctuations, Step, average, of_stream};
use super::variables::{Matrix, Quadratic, R, R_A, R_AB, R_B, VARIABLES, Vector};

/// The gradient of one stream, given the variables of all.
#[derive(Clone, Debug)]
pub(crate) struct Conditional {
    /// H, less what it is at infinite width.
    pub(crate) ln_own: Quadratic,
    /// κ.
    pub(crate) cosine: Quadratic,
}

impl Conditional {
    /// That knows nothing of the variables of one stream.
    pub(crate) fn independent(cosine: f64) -> Self {
        Self { ln_own: Quadratic::constant(0.0, VARIABLES), cosine: Quadratic::constant(cosine, VARIABLES) }
    }

    /// The same with another cosine, which depends on nothing.
    pub(crate) fn with_cosine(&self, cosine: f64) -> Self {
        let count = self.ln_own.gradient.len();
        Self { ln_own: self.ln_own.clone(), cosine: Quadratic::constant(cosine, count) }
    }

    /// Back through a copy of a stream that stands last.
    pub(crate) fn join_copy(&mut self, stream: usize) {
        self.ln_own.join_copy(stream);
        self.cosine.join_copy(stream);
    }

    /// Back through a map of streams.
    pub(crate) fn map(&mut self, step: &Step) {
        self.ln_own.map(step);
        self.cosine.map(step);
    }

    /// Back through what was added to a stream.
    pub(crate) fn noise(&mut self, stream: usize, covariance: &Matrix) {
        let response = self.ln_own.of_stream(stream);
        self.cosine.value += self.cosine.of_stream(stream).dot(&(covariance * response));
        self.cosine.value += self.cosine.bent(stream, covariance);
        self.ln_own.value += 0.5 * response.dot(&(covariance * response));
        self.ln_own.value += self.ln_own.bent(stream, covariance);
    }

    /// The average over all tokens as a function of averages over the sequence, from `fluctuations` at the output.
    pub(crate) fn gather(&mut self, stream: usize, fluctuations: &Fluctuations) {
        let covariance = fluctuations.of(stream);
        let average = average();
        self.noise(stream, &(covariance - average * covariance * average.transpose()));
        self.ln_own.pull(&[stream], &[average]);
        self.cosine.pull(&[stream], &[average]);
    }

    /// Adds to what the cosine answers to the overlap of two tokens beyond what they share with all, so that its expectation with r_ab is
    /// larger by `more`; by `most` at most.
    pub(crate) fn add_pair_slope(&mut self, stream: usize, [more, most]: [f64; 2], fluctuations: &Fluctuations) {
        /// Of the variance of cosines, what is rounding.
        const NOTHING: f64 = 1e-6;
        let covariance = fluctuations.of(stream);
        let directions = [(R_AB, 1.0), (R_A, -1.0), (R_B, -1.0), (R, 1.0)];
        let variance: f64 = directions.iter().map(|&(of, sign)| sign * covariance[(of, R_AB)]).sum();
        if variance <= NOTHING * covariance[(R_AB, R_AB)] {
            return;
        }
        let slope = more / variance;
        let slope = slope / (1.0 + slope.abs() / most);
        let start = of_stream(stream).start;
        for (of, sign) in directions {
            self.cosine.gradient[start + of] += sign * slope;
        }
    }

    /// Adds `own` to H and `pair` to ln of E g_a·g_b.
    pub(crate) fn add(&mut self, [own, pair]: [f64; 2]) {
        self.ln_own.value += own;
        self.cosine.value += self.cosine.value * (pair - own);
    }

    /// Adds the covariances of noise in the output of a component with its gains, for gradients that respond to it by `responses`.
    pub(crate) fn meet(&mut self, [own, pair]: &[Vector; 2], responses: &[Vector; 2]) {
        let [of_own, of_cosine] = responses;
        self.cosine.value += self.cosine.value * of_own.dot(&(pair - own)) + of_cosine.dot(pair);
        self.ln_own.value += of_own.dot(own);
    }

    /// ln E |g_a|² and E g_a·g_b over it, given the fluctuations of variables.
    pub(crate) fn at(&self, fluctuations: &Fluctuations) -> (f64, f64) {
        let Quadratic { value, gradient, hessian } = &self.ln_own;
        let turned = &fluctuations.covariance * gradient;
        let bent = |hessian: &DMatrix<f64>| 0.5 * hessian.component_mul(&fluctuations.covariance).sum();
        let ln_own = value + 0.5 * gradient.dot(&turned) + bent(hessian);
        let Quadratic { value, gradient, hessian } = &self.cosine;
        (ln_own, value + gradient.dot(&turned) + bent(hessian))
    }

    /// ∇H and ∇κ by the variables of one stream.
    pub(crate) fn responses(&self, stream: usize) -> [Vector; 2] {
        [self.ln_own.of_stream(stream), self.cosine.of_stream(stream)]
    }

    /// The sum of uncorrelated gradients, of which ln E |g|² is this at infinite width, and the share of each.
    pub(crate) fn sum(parts: &[&Self], levels: &[f64]) -> (Self, Vec<f64>) {
        /// Of the largest part, what does not count: rounding is all that is known of it.
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
        let count = parts[0].ln_own.gradient.len();
        let mut ln_own = Quadratic::constant((total / leading.iter().sum::<f64>()).ln(), count);
        let counted = || parts.iter().zip(&shares).filter(|&(_, &share)| share > 0.0);
        for (part, &share) in counted() {
            let Quadratic { gradient, hessian, .. } = &part.ln_own;
            ln_own.gradient += gradient * share;
            ln_own.hessian += (hessian + gradient * gradient.transpose()) * share;
        }
        ln_own.hessian -= &ln_own.gradient * ln_own.gradient.transpose();
        let mut cosine = Quadratic::constant(0.0, count);
        for (part, &share) in counted() {
            cosine.add(&part.ln_own.less(&ln_own).exp(share).times(&part.cosine));
        }
        (Self { ln_own, cosine }, shares)
    }
}

impl Quadratic {
    /// Back through maps of these streams to the first of them, the others stand last.
    fn pull(&mut self, parts: &[usize], blocks: &[Matrix]) {
        let (streams, first) = (self.gradient.len() / VARIABLES, parts[0]);
        let start = of_stream(first).start;
        let response = self.of_stream(first);
        let view = |hessian: &DMatrix<f64>, other: usize| -> Matrix {
            hessian.fixed_view::<VARIABLES, VARIABLES>(start, of_stream(other).start).into()
        };
        let own = view(&self.hessian, first);
        let others: SmallVec<[(usize, Matrix); 4]> =
            (0..streams).filter(|&other| other != first).map(|other| (other, view(&self.hessian, other))).collect();
        if parts.len() > 1 {
            let count = (streams + parts.len() - 1) * VARIABLES;
            self.gradient.resize_vertically_mut(count, 0.0);
            self.hessian.resize_mut(count, count, 0.0);
        }
        for (&part, block) in parts.iter().zip(blocks) {
            let row = of_stream(part).start;
            self.gradient.fixed_rows_mut::<VARIABLES>(row).copy_from(&block.tr_mul(&response));
            let with_output = block.tr_mul(&own);
            for (&other, of_other) in parts.iter().zip(blocks) {
                let both = with_output * of_other;
                self.hessian.fixed_view_mut::<VARIABLES, VARIABLES>(row, of_stream(other).start).copy_from(&both);
            }
            for (other, with) in &others {
                let (column, with) = (of_stream(*other).start, block.tr_mul(with));
                self.hessian.fixed_view_mut::<VARIABLES, VARIABLES>(row, column).copy_from(&with);
                self.hessian.fixed_view_mut::<VARIABLES, VARIABLES>(column, row).copy_from(&with.transpose());
            }
        }
    }

    fn join_copy(&mut self, stream: usize) {
        let count = self.gradient.len() - VARIABLES;
        let source = of_stream(stream).start;
        let copy: Vector = self.gradient.fixed_rows::<VARIABLES>(count).into();
        let mut row = self.gradient.fixed_rows_mut::<VARIABLES>(source);
        row += copy;
        for column in 0..count + VARIABLES {
            for of in 0..VARIABLES {
                self.hessian[(source + of, column)] += self.hessian[(count + of, column)];
            }
        }
        for row in 0..count {
            for of in 0..VARIABLES {
                self.hessian[(row, source + of)] += self.hessian[(row, count + of)];
            }
        }
        self.gradient.resize_vertically_mut(count, 0.0);
        self.hessian.resize_mut(count, count, 0.0);
    }

    fn map(&mut self, step: &Step) {
        let of_output = self.of_stream(step.parts[0]);
        self.value -= of_output.dot(&step.bent);
        self.pull(&step.parts, &step.blocks);
        let count = step.columns.len();
        let mut bend = vec![0.0; count * count];
        for (&slope, hessian) in of_output.iter().zip(step.hessians.each()) {
            if slope != 0.0 {
                bend.iter_mut().zip(hessian).for_each(|(bend, of)| *bend += slope * of);
            }
        }
        for (&column, bend) in step.columns.iter().zip(bend.chunks_exact(count)) {
            for (&row, bend) in step.columns.iter().zip(bend) {
                self.hessian[(row, column)] += bend;
            }
        }
    }

    /// The gradient by the variables of one stream.
    pub(crate) fn of_stream(&self, stream: usize) -> Vector {
        self.gradient.fixed_rows::<VARIABLES>(of_stream(stream).start).into()
    }

    /// ½ tr ∇∇ Q.
    fn bent(&self, stream: usize, covariance: &Matrix) -> f64 {
        let start = of_stream(stream).start;
        let hessian = self.hessian.fixed_view::<VARIABLES, VARIABLES>(start, start);
        0.5 * hessian.component_mul(covariance).sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A path of which nothing but rounding is left changes nothing, and shares are those of both layers.
    #[test]
    fn sums_weight_paths_by_what_they_carry() {
        let mut first = Conditional::independent(0.2);
        first.ln_own.value = 0.1;
        let second = Conditional::independent(0.6);
        let mut nothing = Conditional::independent(0.0);
        nothing.ln_own.gradient.fill(1e30);
        let (sum, shares) = Conditional::sum(&[&first, &second, &nothing], &[1.0, 0.0, -40.0]);
        let [a, b] = [1.1_f64, 0.0].map(f64::exp);
        assert!((shares[0] - a / (a + b)).abs() < 1e-12);
        assert!(shares[2].abs() < 1e-300);
        assert!((sum.ln_own.value - ((a + b) / (1.0_f64.exp() + 1.0)).ln()).abs() < 1e-12);
        assert!((sum.cosine.value - (0.2 * shares[0] + 0.6 * shares[1])).abs() < 1e-12);
        assert!(sum.ln_own.gradient.abs().max() < 1e-300);
    }

    /// What is added to the slope of a cosine adds to its expectation with r_ab what was asked for, and not beyond the largest slope.
    #[test]
    fn slopes_are_solved_for() {
        let mut fluctuations = Fluctuations::none();
        (fluctuations.covariance[(R_AB, R_AB)], fluctuations.covariance[(R, R)]) = (0.02, 0.001);
        for (most, expected) in [(1e9, 0.003), (0.15, 0.0015)] {
            let mut given = Conditional::independent(0.5);
            given.add_pair_slope(0, [0.003, most], &fluctuations);
            let with = given.cosine.gradient.dot(&fluctuations.covariance.column(R_AB));
            assert!((with - expected).abs() < 1e-9, "{with} {expected}");
        }
    }
}
