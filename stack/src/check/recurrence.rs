//! The check of a recurrence: widths of its chains and numbers of its decay.

use std::borrow::Cow;

use super::{Met, Shape, Widths, divisor, finite, not_negative, range, same_length, same_width, size, value};
use crate::{Decay, Rates, Recurrence, Site, StackError, StepBias, Values, Write};

impl Widths<'_> {
    pub(super) fn recurrence(
        &mut self,
        at: &Site,
        recurrence: &Recurrence,
        parts: &[Shape],
    ) -> Result<Shape, StackError> {
        let site = at.path();
        let heads = recurrence.n_heads;
        for (field, got) in [
            ("n_heads", heads),
            ("n_key_heads", recurrence.n_key_heads),
            ("d_key", recurrence.d_key),
            ("d_value", recurrence.d_value),
        ] {
            size(site, field, got)?;
        }
        divisor(site, "n_key_heads", recurrence.n_key_heads, heads, "a divisor of n_heads")?;
        finite(site, "scale", recurrence.scale)?;
        for (expected, got) in recurrence.widths().zip(parts) {
            same_width(at, expected, got.width)?;
            same_length(at, parts[0].seq_len, got.seq_len)?;
        }
        match &recurrence.decay {
            Decay::Fixed { rates } => {
                range(site, "rates", rates.len() as f64, heads as f64..=heads as f64, "as many numbers as heads")?;
                for rate in rates {
                    not_negative(site, "rates", *rate)?;
                }
            }
            Decay::Stepped(stepped) => {
                if let Rates::Uniform { low, high } = stepped.rates {
                    bounds(site, "rates", low, high, 0.0)?;
                }
                match stepped.bias {
                    StepBias::Value(bias) => finite(site, "bias", bias)?,
                    StepBias::LogUniform { low, high } => bounds(site, "bias", low, high, f64::MIN_POSITIVE)?,
                }
            }
        }
        match (&recurrence.write, &recurrence.decay) {
            (Write::Step, Decay::Fixed { .. }) => {
                let got = "a fixed decay, which has none".to_owned();
                return Err(value(site, "write", "with a decay that has steps if a step is its strength", got));
            }
            (Write::Step, Decay::Stepped(stepped)) if stepped.step_per_channel => {
                let got = "a step per channel".to_owned();
                return Err(value(site, "write", "with one step per head if a step is its strength", got));
            }
            (Write::Sigmoid { factor, .. }, _) => not_negative(site, "factor", *factor)?,
            (Write::One, _) | (Write::Step, Decay::Stepped(_)) => {}
        }
        if let Some(skip) = recurrence.skip {
            finite(site, "skip", skip)?;
        }
        for (name, shape) in recurrence.parameters() {
            self.own_parameter(at, name, shape, values(recurrence, name));
        }
        Ok(Shape { seq_len: parts[0].seq_len, width: heads * recurrence.d_value, image: None })
    }

    /// Adds a parameter that is named after its site.
    fn own_parameter(&mut self, at: &Site, name: &str, shape: [usize; 2], values: Values) {
        let name: Cow<'_, str> = Cow::Owned(at.parameter(name));
        self.places.insert(name.clone(), self.parameters.len());
        self.parameters.push(Met { name, shape, copies: 1, values });
    }
}

/// Checks two bounds of a distribution.
fn bounds(site: &str, field: &'static str, low: f64, high: f64, least: f64) -> Result<(), StackError> {
    range(site, field, low, least..=1e100, "two bounds, of which the lower is not negative")?;
    range(site, field, high, low..=1e100, "two bounds, of which the upper is not below the lower")
}

/// Returns the initial values of a parameter that is not in a chain.
fn values(recurrence: &Recurrence, name: &str) -> Values {
    match (name, recurrence.stepped(), recurrence.skip) {
        (".log_rate", Some(stepped), _) => Values::LogRates(stepped.rates),
        (".step_bias", Some(stepped), _) => Values::StepBiases(stepped.bias),
        (_, _, skip) => Values::Skip(skip.unwrap_or_default()),
    }
}
