//! The parameters of a recurrence: rates, biases of steps, and skips.

use sigprop_stack::{Decay, Init, Rates, Recurrence, StepBias, Tensor};

use crate::random::{Purpose, Random};

/// Sampled parameters.
pub(super) struct Parameters {
    /// A, or the rates of a fixed decay: per head, or per head and channel of the keys.
    pub rates: Vec<f64>,
    /// b, per head, or per head and channel of the keys; empty if the decay is fixed.
    pub biases: Vec<f64>,
    /// D per head, zeros without a skip.
    pub skips: Vec<f64>,
}

impl Parameters {
    pub(super) fn new(recurrence: &Recurrence, random: &Random, site: &str) -> Self {
        let n_heads = recurrence.n_heads;
        // Rows of the shape that the parameter has in the stack.
        let uniform = |name: &str, [rows, columns]: [usize; 2], low: f64, high: f64| {
            let init = Init::Uniform { bound: 0.5 * (high - low) };
            let mut samples = vec![0.0; rows * columns];
            random.rows(Purpose::Weight, &Tensor { name: format!("{site}.{name}"), init }, columns, &mut samples);
            for sample in &mut samples {
                *sample += 0.5 * (low + high);
            }
            samples
        };
        let mut skips = vec![recurrence.skip.unwrap_or(0.0); n_heads];
        random.change(&format!("{site}.skip"), 0, &mut skips);
        let stepped = match &recurrence.decay {
            Decay::Fixed { rates } => return Self { rates: rates.clone(), biases: Vec::new(), skips },
            Decay::Stepped(stepped) => stepped,
        };
        let channels = |per_channel: bool| if per_channel { recurrence.d_key } else { 1 };
        let rates = match (stepped.rates, stepped.rate_per_channel) {
            (Rates::Counted, false) => counted(n_heads),
            (Rates::Counted, true) => counted(recurrence.d_key).repeat(n_heads),
            (Rates::Uniform { low, high }, per_channel) => {
                uniform("log_rate", [n_heads, channels(per_channel)], low, high)
            }
        };
        let steps = n_heads * channels(stepped.step_per_channel);
        let biases = match stepped.bias {
            StepBias::Value(bias) => vec![bias; steps],
            StepBias::LogUniform { low, high } => {
                let logarithms = uniform("step_bias", [steps, 1], libm::log(low), libm::log(high));
                logarithms.into_iter().map(|ln_step| inverse_softplus(libm::exp(ln_step))).collect()
            }
        };
        Self { rates, biases, skips }
    }
}

/// 1, 2, …, `count`.
fn counted(count: usize) -> Vec<f64> {
    (1..=count).map(|number| number as f64).collect()
}

/// The x with softplus(x) = `y`.
fn inverse_softplus(y: f64) -> f64 {
    y + libm::log(-libm::expm1(-y))
}

#[cfg(test)]
mod tests {
    use sigprop_stack::{Stepped, Write};

    use super::*;
    use crate::components::activation::softplus;

    /// Heads with one step each and keys of width 3.
    fn parameters(n_heads: usize, rates: Rates, rate_per_channel: bool, bias: StepBias) -> Parameters {
        let stepped = Stepped { step: Vec::new(), step_per_channel: false, bias, rates, rate_per_channel };
        let recurrence = Recurrence {
            n_heads,
            n_key_heads: 1,
            d_key: 3,
            d_value: 1,
            scale: 1.0,
            decay: Decay::Stepped(stepped),
            write: Write::Step,
            delta: false,
            skip: None,
            query: Vec::new(),
            key: Vec::new(),
            value: Vec::new(),
        };
        Parameters::new(&recurrence, &Random::new(3, 0), "mixer")
    }

    #[test]
    fn counted_rates_are_over_heads_or_channels() {
        let rates = |per_channel| parameters(2, Rates::Counted, per_channel, StepBias::Value(0.0)).rates;
        assert_eq!(rates(false).iter().map(|&rate| rate as i64).collect::<Vec<_>>(), [1, 2]);
        assert_eq!(rates(true).iter().map(|&rate| rate as i64).collect::<Vec<_>>(), [1, 2, 3, 1, 2, 3]);
    }

    /// Means and variances of ln of the step without input, and of the rates, by z-score; α = 1e-5 per check.
    #[test]
    fn rates_and_steps_have_their_distributions() {
        const HEADS: usize = 50_000;
        let bias = StepBias::LogUniform { low: 1e-3, high: 0.1 };
        let uniform = Rates::Uniform { low: 1.0, high: 16.0 };
        let Parameters { rates, biases, .. } = parameters(HEADS, uniform, false, bias);
        let steps = biases.into_iter().map(|bias| softplus(bias).ln()).collect();
        for (samples, low, high) in [(rates, 1.0, 16.0), (steps, 1e-3f64.ln(), 0.1f64.ln())] {
            assert!(samples.iter().all(|sample: &f64| (low - 1e-9..=high + 1e-9).contains(sample)));
            let unit: Vec<f64> = samples.iter().map(|sample| (sample - low) / (high - low)).collect();
            let mean = unit.iter().sum::<f64>() / HEADS as f64;
            let square = unit.iter().map(|x| x * x).sum::<f64>() / HEADS as f64;
            let z = |got: f64, expected: f64, variance: f64| (got - expected) / (variance / HEADS as f64).sqrt();
            assert!(z(mean, 0.5, 1.0 / 12.0).abs() < 4.4, "{mean}");
            assert!(z(square, 1.0 / 3.0, 4.0 / 45.0).abs() < 4.4, "{square}");
        }
    }
}
