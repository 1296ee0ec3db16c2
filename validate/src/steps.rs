//! What a step along the gradients of one sequence does to the linear maps of sampled networks.
//!
//! ```text
//! ΔW = −dL/dW = −Σ_t g_t x_tᵀ      over the tokens of the sequence, L = Σ g·output
//! Δy_s = ΔW x_s                    on the same sequence, for a learning rate of 1
//! ```

use std::sync::atomic::AtomicBool;

use rayon::prelude::*;
use sigprop_stack::{Cell, Linear, Number, Stack, check, run};

use crate::{
    MeasureError, Settings,
    components::linear::weight_gradient,
    matmul::{SHARED, View, ViewMut, multiply},
    plan::Plan,
    sample::{Overflow, Sampler, Stop},
    scalar::Scalar,
};

/// A linear map, averaged over networks; of experts each has its own.
#[derive(Clone, Debug, PartialEq)]
pub struct StepRow {
    /// Name of the weight.
    pub tensor: String,
    /// E Δy² per entry of the output.
    pub change: Cell,
    /// E |dL/dW| per entry.
    pub size: Cell,
}

/// The same of one network.
pub(crate) struct Step {
    tensor: String,
    means: [f64; 2],
}

impl Step {
    pub(crate) fn of<T: Scalar>(linear: &Linear, input: &[T], output_gradient: &[T]) -> Self {
        let gradient = weight_gradient(linear, input, output_gradient);
        let size = gradient.iter().map(|g| g.to_f64().abs()).sum::<f64>() / gradient.len() as f64;
        Self { tensor: linear.weight.name.clone(), means: [moved(linear, &gradient, input), size] }
    }
}

/// Mean square of ΔW x_s.
fn moved<T: Scalar>(linear: &Linear, change: &[T], input: &[T]) -> f64 {
    let tokens = input.len() / linear.fan_in;
    let mut output = vec![T::default(); tokens * linear.fan_out];
    multiply(
        SHARED,
        &mut ViewMut::new(&mut output, tokens, linear.fan_out, linear.fan_out),
        1.0,
        View::new(input, tokens, linear.fan_in, linear.fan_in),
        View::new(change, linear.fan_out, linear.fan_in, linear.fan_in).transposed(),
    );
    output.iter().map(|y| y.to_f64().powi(2)).sum::<f64>() / output.len() as f64
}

/// Samples `replicates` networks with one sequence each, forward and backward, and the first step of every linear map
/// in its backward order; no replicate at all is a [`MeasureError::Setting`], a signal beyond the range of f32 a
/// [`MeasureError::Overflow`].
pub fn measure_steps(stack: &Stack, replicates: usize, seed: u64) -> Result<Vec<StepRow>, MeasureError> {
    check(stack)?;
    if replicates == 0 {
        return Err(MeasureError::Setting { field: "replicates", got: 0 });
    }
    let settings = Settings { seed, weights: true, ..Settings::default() };
    let plan = Plan::new(stack, &settings, f64::INFINITY);
    let sampled: Result<Vec<Vec<Step>>, MeasureError> = (0..replicates)
        .into_par_iter()
        .map(|index| {
            let running = AtomicBool::new(false);
            let mut sampler = Sampler::<f32>::new(&plan, &settings, index, &running).with_steps();
            match run(stack, &mut sampler) {
                Ok(()) | Err(Stop::Overflow) => {
                    sampler.into_steps().map_err(|Overflow { site, .. }| MeasureError::Overflow { site })
                }
                Err(Stop::Cancelled) => Err(MeasureError::Cancelled),
            }
        })
        .collect();
    let sampled = sampled?;
    let row = |(place, Step { tensor, .. }): (usize, &Step)| {
        let [change, size] = [0, 1].map(|of| cell(sampled.iter().map(|steps| steps[place].means[of])));
        StepRow { tensor: tensor.clone(), change, size }
    };
    Ok(sampled[0].iter().enumerate().map(row).collect())
}

/// The mean and its standard error.
fn cell(values: impl ExactSizeIterator<Item = f64> + Clone) -> Cell {
    let count = values.len() as f64;
    let mean = values.clone().sum::<f64>() / count;
    let variance = values.map(|value| (value - mean).powi(2)).sum::<f64>() / (count - 1.0).max(1.0);
    Cell { value: Number::from(mean), std_error: Number::from((variance / count).sqrt()) }
}

#[cfg(test)]
mod tests {
    use sigprop_stack::{Init, Tensor};

    use super::*;

    /// Two tokens, two features in, one out, by hand: G = (23, 34).
    #[test]
    fn steps_agree_with_hand_computed_ones() {
        let weight = Tensor { name: "w".to_owned(), init: Init::Zero };
        let linear = Linear { fan_in: 2, fan_out: 1, weight, bias: None };
        let step = Step::of(&linear, &[1.0f64, 2.0, 3.0, 4.0], &[5.0, 6.0]);
        // Δy = 91 and 205.
        let expected = [25_153.0, 28.5];
        for (got, expected) in step.means.into_iter().zip(expected) {
            assert!((got - expected).abs() < 1e-12, "{got} {expected}");
        }
    }
}
