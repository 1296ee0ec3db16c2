//! The start of a stream, and terms that are added to it later: embedding tables, positions, Gaussian vectors.
//! The output is x, and G is the kernel E g_a g_b of the gradient at x.
//!
//! ```text
//! token      E x_a x_b = s² if both carry the same id, else 0        P(same id) = Σ p², exactly
//! position   0                         segment   s² in the same segment        constant   s²
//! sinusoid   ½ c² E_f cos (a − b) f over the frequencies f, of waves of scale c, for every pair of positions
//! weights    E dW² = Σ_ab G_ab r_ab/rows, r_ab = E x_a x_b/s²: a row of a table collects the gradients of all positions that use it
//! ```
//!
//! Sinusoidal waves of scale c have E e_a e_b = ½ c² E_f cos((a − b) f), and means. Every row of a table of positions
//! is read once per sequence; in other tables, `rows` rows share the sum over all tokens. A Gaussian source has one
//! mean for all entries.
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

/// Returns r_ab = E x_a x_b/s² of a term for the two tokens a, b at a point.
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

/// Returns the kernel r that a term has if the entries of its table have variance 1.
fn term(term: &EmbeddingTerm, positions: &Arc<Positions>) -> Kernel {
    Kernel::new(positions, |_| 1.0, |point| alike(term, positions, point))
}

/// Returns the moments of the waves sin(a f) and cos(a f) of amplitude 1: E e_a e_b = ½ E_f cos((a − b) f) and the
/// means E e_a.
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
