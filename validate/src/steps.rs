//! The first step of an optimiser, taken by sampled networks.
//!
//! ```text
//! ΔW = −η dL/dW   or   −η sign dL/dW     L = Σ g·f over the tokens of one sequence, f the output, g its gradient
//! Δy_s = ΔW x_s                          what the step of a linear map alone does to its own output (of a standardised
//!                                        weight ΔŴ x_s, to first order)
//! Δf = (f(W + ΔW) − f(W − ΔW))/2         what the steps of all parameters do together: two more forward passes
//! drop = −Σ g·Δf
//! ```
//!
//! Central differences cancel everything that is even in the learning rate η: terms of the second order.

use std::sync::{Arc, atomic::AtomicBool};

use rayon::prelude::*;
use sigprop_stack::{Cell, Linear, Number, Optimizer, Stack, check, run};

use crate::{
    MeasureError, Settings,
    array::Array,
    components::linear::{through_standardisation, weight_gradient},
    matmul::{Threads, View, ViewMut, multiply},
    plan::Plan,
    random::{Changes, Random},
    sample::{Overflow, Sampler, Stop},
    scalar::Scalar,
    weights::{ByTensor, TensorGradient},
};

/// The effect of a first step, averaged over networks.
#[derive(Clone, Debug, PartialEq)]
pub struct StepMeasurement {
    /// Every use of a linear map, in backward order.
    pub maps: Vec<MapRow>,
    /// E Δf² of an entry of the output, when all parameters take the step.
    pub output_change: Cell,
    /// The decrease of the loss of one sequence.
    pub loss_drop: Cell,
}

/// The step of a linear map, averaged over networks; every expert has a row of its own.
#[derive(Clone, Debug, PartialEq)]
pub struct MapRow {
    /// Name of the weight.
    pub tensor: String,
    /// E Δy² of an entry of the output of this map, when its weight alone takes the step.
    pub change: Cell,
    /// E |dL/dW| of an entry of the weight.
    pub size: Cell,
}

/// The settings of the first step.
#[derive(Clone, Copy, Debug)]
pub(crate) struct FirstStep<'s> {
    stack: &'s Stack,
    optimizer: Optimizer,
    learning_rate: f64,
}

impl FirstStep<'_> {
    /// Returns the function that turns an entry of a parameter's gradient into its ΔW.
    fn change<T: Scalar>(&self, tensor: &str) -> impl Fn(T) -> f32 + use<T> {
        let factors = self.stack.learning_rates.get(tensor).copied().unwrap_or_default();
        let rate = self.learning_rate * factors.of(self.optimizer);
        let optimizer = self.optimizer;
        move |gradient: T| {
            let gradient = gradient.to_f64();
            let direction = match optimizer {
                Optimizer::Sgd => gradient,
                // The sign of zero is zero.
                Optimizer::Adam if gradient.abs() > 0.0 => gradient.signum(),
                Optimizer::Adam => 0.0,
            };
            (-rate * direction) as f32
        }
    }
}

/// The record of a first step of one network.
pub(crate) struct Taken<'s, T: Scalar> {
    step: FirstStep<'s>,
    maps: Vec<Map>,
    /// Output and gradient at the end of the stream where the backward pass starts.
    pub(crate) end: Option<[Array<T>; 2]>,
}

/// A linear map in one network.
struct Map {
    tensor: String,
    means: [f64; 2],
}

impl<'s, T: Scalar> Taken<'s, T> {
    pub(crate) fn new(step: FirstStep<'s>) -> Self {
        Self { step, maps: Vec::new(), end: None }
    }

    /// Records a linear map from its input and the gradient of its output, for the first sequence.
    pub(crate) fn map(&mut self, linear: &Linear, random: &Random, input: &Array<T>, gradient: &Array<T>) {
        let (input, gradient) = (&input.entries()[input.sequence(0)], &gradient.entries()[gradient.sequence(0)]);
        let gradient = weight_gradient(linear, random, input, gradient);
        let size = gradient.iter().map(|g| g.to_f64().abs()).sum::<f64>() / gradient.len() as f64;
        let tensor = linear.weight.name.clone();
        let change = self.step.change::<T>(&tensor);
        let mut change: Vec<T> = gradient.into_iter().map(|g| T::from_f32(change(g))).collect();
        through_standardisation(linear, random, &mut change);
        self.maps.push(Map { tensor, means: [moved(linear, &change, input), size] });
    }
}

/// Returns the mean square of the entries of ΔW x_s over all tokens s; `change` is ΔW.
fn moved<T: Scalar>(linear: &Linear, change: &[T], input: &[T]) -> f64 {
    let tokens = input.len() / linear.fan_in;
    let mut output = vec![T::default(); tokens * linear.fan_out];
    multiply(
        Threads::Shared,
        &mut ViewMut::new(&mut output, tokens, linear.fan_out, linear.fan_out),
        1.0,
        View::new(input, tokens, linear.fan_in, linear.fan_in),
        View::new(change, linear.fan_out, linear.fan_in, linear.fan_in).transposed(),
    );
    output.iter().map(|y| y.to_f64().powi(2)).sum::<f64>() / output.len() as f64
}

/// The results of one network.
struct Stepped {
    maps: Vec<Map>,
    output_change: f64,
    loss_drop: f64,
}

/// Samples `replicates` networks with one sequence each, lets all parameters take the first step of an optimiser and
/// runs them again on the same sequence. Zero replicates give a [`MeasureError::Setting`], a signal beyond the range of
/// f32 gives a [`MeasureError::Overflow`].
pub fn measure_steps(
    stack: &Stack,
    optimizer: Optimizer,
    learning_rate: f64,
    replicates: usize,
    seed: u64,
) -> Result<StepMeasurement, MeasureError> {
    check(stack)?;
    if replicates == 0 {
        return Err(MeasureError::Setting { field: "replicates", got: 0 });
    }
    let settings = Settings { seed, weights: true, ..Settings::default() };
    let plan = Plan::new(stack, &settings, f64::INFINITY);
    let step = FirstStep { stack, optimizer, learning_rate };
    let sampled: Result<Vec<Stepped>, MeasureError> =
        (0..replicates).into_par_iter().map(|index| stepped(step, &plan, &settings, index)).collect();
    let sampled = sampled?;
    let row = |(place, Map { tensor, .. }): (usize, &Map)| {
        let [change, size] = [0, 1].map(|of| cell(sampled.iter().map(|stepped| stepped.maps[place].means[of])));
        MapRow { tensor: tensor.clone(), change, size }
    };
    Ok(StepMeasurement {
        maps: sampled[0].maps.iter().enumerate().map(row).collect(),
        output_change: cell(sampled.iter().map(|stepped| stepped.output_change)),
        loss_drop: cell(sampled.iter().map(|stepped| stepped.loss_drop)),
    })
}

fn stepped(step: FirstStep, plan: &Plan, settings: &Settings, index: usize) -> Result<Stepped, MeasureError> {
    let (taken, gradients) = walk(step, plan, settings, index, None)?;
    let changed = |((tensor, expert), gradient): ((String, Option<usize>), _)| {
        let change = TensorGradient::map(gradient, step.change::<f32>(&tensor));
        ((tensor, expert), change)
    };
    let steps: Arc<ByTensor<f32>> = Arc::new(gradients.into_iter().map(changed).collect());
    let output = |factor: f64| {
        let (taken, _) = walk(step, plan, settings, index, Some(Changes { steps: Arc::clone(&steps), factor }))?;
        let [output, _] = taken.end.expect("a gradient starts at the end of a stream");
        Ok::<_, MeasureError>(output)
    };
    let (ahead, behind) = (output(1.0)?, output(-1.0)?);
    let [_, gradient] = taken.end.expect("a gradient starts at the end of a stream");
    let change = ahead.zip(&behind, |ahead, behind| 0.5 * (ahead - behind));
    let pairs = change.entries().iter().zip(gradient.entries());
    Ok(Stepped {
        maps: taken.maps,
        output_change: change.entries().iter().map(|f| f.to_f64().powi(2)).sum::<f64>() / change.entries().len() as f64,
        loss_drop: -pairs.map(|(f, g)| f.to_f64() * g.to_f64()).sum::<f64>(),
    })
}

/// Runs one network forward and backward, with changed parameters if there are changes.
fn walk<'a>(
    step: FirstStep<'a>,
    plan: &'a Plan,
    settings: &'a Settings,
    index: usize,
    changes: Option<Changes>,
) -> Result<(Taken<'a, f32>, ByTensor<f32>), MeasureError> {
    static RUNNING: AtomicBool = AtomicBool::new(false);
    let mut sampler = Sampler::<f32>::new(plan, settings, index, &RUNNING).stepping(step, changes);
    match run(step.stack, &mut sampler) {
        Ok(()) | Err(Stop::Overflow) => {
            sampler.into_step().map_err(|Overflow { site, .. }| MeasureError::Overflow { site })
        }
        Err(Stop::Cancelled) => Err(MeasureError::Cancelled),
    }
}

/// Returns the mean of the values and its standard error.
fn cell(values: impl ExactSizeIterator<Item = f64> + Clone) -> Cell {
    let count = values.len() as f64;
    let mean = values.clone().sum::<f64>() / count;
    let variance = values.map(|value| (value - mean).powi(2)).sum::<f64>() / (count - 1.0).max(1.0);
    Cell { value: Number::from(mean), std_error: Number::from((variance / count).sqrt()) }
}

#[cfg(test)]
mod tests {
    use sigprop_stack::{GradientSeed, Init, Tensor};

    use super::*;
    use crate::array::Shape;

    /// Two tokens, two features in, one out, by hand: G = (23, 34).
    #[test]
    fn steps_agree_with_hand_computed_ones() {
        let weight = Tensor { name: "w".to_owned(), init: Init::Zero };
        let linear = Linear { fan_in: 2, fan_out: 1, weight, bias: None, standardised: None };
        let shape = Shape { batch: 1, seq_len: 2 };
        let array = |width: usize, entries: &[f64]| {
            let mut array = Array::zeros(shape, width);
            array.entries_mut().copy_from_slice(entries);
            array
        };
        let (input, gradient) = (array(2, &[1.0, 2.0, 3.0, 4.0]), array(1, &[5.0, 6.0]));
        let stack = Stack::new("w", Vec::new(), GradientSeed { stream: 0, correlation: 0.0 });
        // Δy = 91 and 205 along the gradient, 3 and 7 along its sign, half of it.
        for (optimizer, change) in [(Optimizer::Sgd, 25_153.0), (Optimizer::Adam, 29.0)] {
            let mut taken = Taken::new(FirstStep { stack: &stack, optimizer, learning_rate: 0.5 });
            taken.map(&linear, &Random::new(0, 0), &input, &gradient);
            for (got, expected) in taken.maps[0].means.into_iter().zip([0.25 * change, 28.5]) {
                assert!((got - expected).abs() < 1e-12, "{got} {expected}");
            }
        }
    }
}
