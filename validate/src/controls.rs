//! Control variates: corrections by the deviations of a replicate's own input from its known moments.
//!
//! The moments of Gaussian sources and of the gradient at the end are known. Much of the deviation of a site in one
//! replicate follows from the deviation of its input. The linear part of it is subtracted,
//!
//! ```text
//! y_i' = y_i − β (c_i − E c)      β = argmin Σ_i |y_i − ȳ − β (c_i − c̄)|²
//! ```
//!
//! with y_i the raw sums of a site in replicate i and c_i the averages of x, x² and x_a x_b over its inputs. The
//! expectation of y' is that of y up to a bias of the order of the variance over n replicates, because β is fitted to
//! the same replicates. The reported error of y' is too small by √(1 − k/n) with k controls, hence [`FEWEST`].
//!
//! Source: Lavenberg and Welch, "A perspective on the use of control variables", Management Science 27 (1981).

use std::iter;

use nalgebra::DMatrix;
use sigprop_stack::{Gaussian, Source, Stack};

use crate::{sample::seed_gradient, statistics::Moments};

/// The smallest number of replicates for which control variates are used.
pub(crate) const FEWEST: usize = 32;
/// Relative singular value below which a combination of controls counts as zero, because they depend on each other.
const DEPENDENT: f64 = 1e-9;

/// The control variates of all replicates: averages over their inputs whose expectations are known. One row per
/// replicate.
pub(crate) struct Controls {
    /// The deviations c_i − E c of every control, in units of the standard deviation of that control over the
    /// replicates.
    deviations: DMatrix<f64>,
    /// (CᵀC)⁻¹Cᵀ with C the deviations from their average.
    solver: DMatrix<f64>,
}

impl Controls {
    /// Computes the controls from the sums over the inputs of every replicate, in the order of the forward and backward
    /// pass. `None` if there are fewer than [`FEWEST`] replicates.
    pub(crate) fn new(stack: &Stack, inputs: &[&[Moments]]) -> Option<Self> {
        if inputs.len() < FEWEST {
            return None;
        }
        let expected: Vec<f64> = expected(stack, inputs[0]);
        let rows = inputs.iter().flat_map(|inputs| {
            // A replicate that left the range of f32 before the gradient has fewer inputs.
            let averages = inputs.iter().flat_map(Moments::averages).map(Some).chain(iter::repeat(None));
            expected.iter().zip(averages).map(|(expected, average)| average.map_or(0.0, |average| average - expected))
        });
        let mut deviations = DMatrix::from_row_iterator(inputs.len(), expected.len(), rows);
        for mut column in deviations.column_iter_mut() {
            let spread = column.variance().sqrt();
            if spread > 0.0 {
                column /= spread;
            }
        }
        let centred = centred(&deviations);
        let solver = centred.pseudo_inverse(DEPENDENT * (inputs.len() as f64).sqrt()).ok()?;
        Some(Self { deviations, solver })
    }

    /// Returns the sums of a site in every replicate, minus the part of their deviations that follows from the inputs
    /// of the replicate.
    pub(crate) fn adjust(&self, replicates: &[Moments]) -> Vec<Moments> {
        let sums = DMatrix::from_fn(replicates.len(), Moments::SUMS, |i, j| replicates[i].sums()[j]);
        let slopes = &self.solver * centred(&sums);
        let adjusted = &sums - &self.deviations * slopes;
        let row = |(i, moments): (usize, &Moments)| moments.with_sums(std::array::from_fn(|j| adjusted[(i, j)]));
        replicates.iter().enumerate().map(row).collect()
    }
}

/// Returns the expectations of the controls, which are the averages over the inputs.
fn expected(stack: &Stack, inputs: &[Moments]) -> Vec<f64> {
    let sources = stack.streams.iter().filter_map(|stream| match &stream.source {
        Source::Gaussian(gaussian) => Some(*gaussian),
        Source::Embedding(_) => None,
    });
    let known = sources.chain([seed_gradient(&stack.gradient, 1)]);
    let averages = |(Gaussian { mean, variance, correlation, .. }, input): (Gaussian, &Moments)| {
        let square = mean * mean;
        let all = [mean, square + variance, square + correlation * variance];
        all[..input.averages().len()].to_vec()
    };
    known.zip(inputs).flat_map(averages).collect()
}

/// Returns every column minus its average.
fn centred(columns: &DMatrix<f64>) -> DMatrix<f64> {
    let mut centred = columns.clone();
    for mut column in centred.column_iter_mut() {
        let average = column.mean();
        column.add_scalar_mut(-average);
    }
    centred
}
