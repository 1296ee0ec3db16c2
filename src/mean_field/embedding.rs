//! The start of a stream, and terms that are added to it later: embedding tables, positions, Gaussian vectors. The
//! output of a term is y.
//!
//! ```text
//! token      E y_a y_b = s² if both carry the same id, else 0        P(same id) = Σ_i p_i²
//! position   0                         segment   s² in the same segment        constant   s²
//! sinusoid   ½ scale² E_θ cos((a − b) θ), for every pair of positions
//! weights    E dW² = Σ_ab G^y_ab ρ_ab/rows: a row of a table collects the gradients of all positions that use it
//! ```
//!
//! where a, b are positions of tokens; E is the average over random weights and over features; s² is the variance of an
//! entry of a weight; P(same id) is the probability that two tokens have the same id; p_i is the probability of id i;
//! scale is the amplitude of sinusoidal waves; θ is the frequency of a wave; E_θ is the average over the frequencies;
//! dW is the gradient of an entry of the table; G^y is the kernel E g_a g_b of the gradients at the output y; ρ_ab is
//! the correlation E y_a y_b/s² of tokens a and b; rows is the number of rows of the table.
//!
//! Sinusoidal waves have means, too. Every row of a table of positions is read once per sequence; in other tables,
//! `rows` rows share the sum over all tokens. A Gaussian source has one mean for all entries.
//!
//! Example: three tokens whose ids are one of 4 with equal probability, entries of variance 0.04: y has variance 0.04,
//! and tokens have the mean correlation 1/4. A gradient at y of variance 1 and correlation 0.5 gives E dW² = (3 + 6 ·
//! 1/4 · 0.5)/4 = 0.9375.
//!
//! Assumption: ids are sampled independently with probabilities p_i, so that two are the same with probability Σ p_i²,
//! exactly.
//! Source: Kedia et al. 2024, §3.

use std::sync::Arc;

use sigprop_stack::{Branch, Embedding, EmbeddingTerm, Gaussian, Source, Sum};
use smallvec::smallvec;

use super::component::{MeanField, MeanFieldFan, Parameter};
use super::few::Few;
use super::gradient::Gradient;
use super::kernel::Kernel;
use super::positions::{Averages, Positions};
use super::rotation::waves;
use super::signal::Signal;

/// Returns the signal of a Gaussian source.
pub(crate) fn gaussian(source: &Gaussian, positions: &Arc<Positions>) -> Signal {
    let square = source.mean * source.mean;
    let [second, product] = [1.0, source.correlation].map(|part| source.variance * part + square);
    let kernel = Kernel::new(positions, |_| second, |_| product);
    let means = (square > 0.0).then(|| (0..positions.nodes()).map(|_| source.mean).collect());
    Signal { means, ..Signal::centred(source.width as f64, kernel) }
}

/// Returns the sum of the terms of an embedding.
pub(crate) fn embedded(source: &Embedding, positions: &Arc<Positions>) -> Signal {
    let zero = Gaussian { width: source.width, mean: 0.0, variance: 0.0, correlation: 0.0 };
    source.terms.iter().fold(gaussian(&zero, positions), |x, term| term.forward(&x))
}

/// Returns the share of E x² of a source that is the same in all networks, and the token correlation of this share,
/// averaged over a sequence.
pub(crate) fn fixed(source: &Source, x: &Kernel) -> [f64; 2] {
    let of = |fixed: &Kernel| {
        let positions = &x.positions;
        let own = |of: &Kernel| positions.sum(|node| of.own[node]) * of.ln_unit.exp();
        let pair = positions.sum_pairs(|point| fixed.pairs[point]) * fixed.ln_unit.exp();
        if own(fixed) > 0.0 {
            [own(fixed) / own(x), pair / (own(fixed) * (positions.length - 1.0).max(1.0))]
        } else {
            [0.0; 2]
        }
    };
    match source {
        Source::Gaussian(Gaussian { mean, variance, .. }) => {
            [if *mean == 0.0 { 0.0 } else { mean * mean / (mean * mean + variance) }, 1.0]
        }
        Source::Embedding(source) => {
            let is_fixed = |term: &&EmbeddingTerm| matches!(term, EmbeddingTerm::SinusoidalPosition { .. });
            let terms = source.terms.iter().filter(is_fixed).cloned().collect();
            of(&embedded(&Embedding { terms, ..source.clone() }, &x.positions).kernel)
        }
    }
}

/// Returns ρ_ab = E y_a y_b/s² of a term for the two tokens a, b at a point.
fn alike(term: &EmbeddingTerm, positions: &Positions, point: usize) -> f64 {
    let is = |condition: bool| f64::from(u8::from(condition));
    match term {
        EmbeddingTerm::Token { .. } => is(positions.has_same_ids(point)),
        EmbeddingTerm::LearnedPosition { .. } => 0.0,
        EmbeddingTerm::Constant { .. } => 1.0,
        EmbeddingTerm::Segment { .. } => positions.in_one_segment(point),
        EmbeddingTerm::SinusoidalPosition { .. } => unreachable!("waves know distances"),
    }
}

/// Returns the kernel ρ that a term has if the entries of its table have variance 1.
fn term(term: &EmbeddingTerm, positions: &Arc<Positions>) -> Kernel {
    Kernel::new(positions, |_| 1.0, |point| alike(term, positions, point))
}

/// Returns the moments of the waves sin(a θ) and cos(a θ) of amplitude 1: E y_a y_b = ½ E_θ cos((a − b) θ) and the
/// means E y_a.
fn placed(width: f64, positions: &Arc<Positions>) -> Signal {
    let chart = positions.chart.as_ref().expect("waves take a chart");
    let frequencies: Vec<f64> =
        (0..(0.5 * width).ceil() as usize).map(|i| 10_000f64.powf(-2.0 * i as f64 / width)).collect();
    let count = frequencies.len() as f64;
    let sums: Vec<[f64; 2]> = waves(&frequencies, chart.length).map(|sums| sums.map(|sum| 0.5 * sum / count)).collect();
    let products = chart.averaged(&Averages::new(sums.iter().map(|[cos, _]| *cos)));
    let kernel = Kernel::new(positions, |_| 0.5, |point| products[point % products.len()]);
    let means = chart.averaged_at_nodes(&Averages::new(sums.iter().map(|[cos, sin]| cos + sin)));
    Signal { means: Some(means.into_iter().collect()), ..Signal::centred(width, kernel) }
}

/// Returns the moments of `x` plus `scale` times `term`. The two are uncorrelated except for their means.
fn added(x: &Signal, term: &Signal, scale: f64) -> Signal {
    let sum = Sum { branches: [1.0, scale].map(|scale| Branch::constant(scale, Vec::new())).into() };
    sum.merge(x, &[Arc::new(x.clone()), Arc::new(term.clone())])
}

impl MeanField for EmbeddingTerm {
    fn forward(&self, x: &Signal) -> Signal {
        if let Self::SinusoidalPosition { scale } = self {
            return added(x, &placed(x.width, &x.kernel.positions), *scale);
        }
        let variance = self.table().map_or(0.0, |table| table.init.variance());
        let term = self::term(self, &x.kernel.positions);
        let kernel = Kernel::sum([(1.0, &x.kernel), (variance, &term)].into_iter());
        let unit = (0.5 * (x.kernel.ln_unit - kernel.ln_unit)).exp();
        Signal { means: x.scaled_means(|_| unit), kernel, ..x.clone() }
    }

    fn backward(&self, _: &Signal, _: &Signal, gradient: &Gradient) -> Gradient {
        Gradient::independent(gradient.kernel.clone())
    }

    fn weights<'a>(&'a self, _: &Signal, _: &Signal, gradient: &Gradient) -> Few<(Parameter<'a>, f64)> {
        collected(self, 1, gradient)
    }
}

/// Returns ln E dW² of the tables of a source, from the gradient at its output.
pub(crate) fn weights<'a>(source: &'a Embedding, gradient: &Gradient) -> Vec<(Parameter<'a>, f64)> {
    let vocab_size = source.ids.vocab_size();
    source.terms.iter().rev().flat_map(|term| collected(term, vocab_size, gradient)).collect()
}

/// Returns ln E dW² of the table of a term, or an empty list if the term has no table. A table of tokens has
/// `vocab_size` rows.
fn collected<'a>(term: &'a EmbeddingTerm, vocab_size: usize, gradient: &Gradient) -> Few<(Parameter<'a>, f64)> {
    let Some(table) = term.table() else { return Few::new() };
    let rows = match term {
        EmbeddingTerm::Token { .. } => vocab_size as f64,
        EmbeddingTerm::LearnedPosition { .. } => gradient.kernel.positions.length,
        EmbeddingTerm::Constant { rows, .. } => *rows as f64,
        EmbeddingTerm::Segment { .. } => 2.0,
        EmbeddingTerm::SinusoidalPosition { .. } => 1.0,
    };
    let read = self::term(term, &gradient.kernel.positions);
    smallvec![(Parameter::Tensor(table), gradient.kernel.ln_contracted(&read) - rows.ln())]
}

#[cfg(test)]
mod tests {
    use sigprop_stack::{Ids, Init, PowerLaw, Tensor};

    use super::super::positions::Repetition;
    use super::*;

    #[test]
    fn example_of_the_header() {
        let law = PowerLaw { vocab_size: 4, exponent: 0.0 };
        let table = Tensor { name: String::new(), init: Init::Normal { std: 0.2 } };
        let terms = vec![EmbeddingTerm::Token { table }];
        let source = Embedding::new(64, Ids::PowerLaw(law), terms);
        let positions = Arc::new(Positions::groups(&[3.0], Some(Arc::new(Repetition::new(law)))));
        embedded(&source, &positions).kernel.assert_is([0.04, 0.25]);
        let gradient = Gradient::independent(Kernel::new(&positions, |_| 1.0, |_| 0.5));
        let [(_, ln_square)] = weights(&source, &gradient)[..] else { panic!("there is one table") };
        approx::assert_relative_eq!(ln_square.exp(), 0.9375, max_relative = 1e-9);
    }
}
