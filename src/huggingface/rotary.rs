//! Rotary positions: base, share of the features, scaled frequencies.

use std::f64::consts::PI;

use serde_json::{Map, Value};

use super::ImportError;
use super::keys::Keys;
use crate::architecture::{Architecture, Positions};

/// Fills in the rotary positions of heads of width `d_head` of which a share `partial` is rotated.
pub(super) fn rotary(
    keys: &Keys,
    architecture: &mut Architecture,
    d_head: usize,
    partial: f64,
    base: f64,
) -> Result<(), ImportError> {
    architecture.positions = Positions::Rotary;
    let parameters = keys.nested("rope_parameters")?;
    // One object per kind of layer, or one for all.
    let local = parameters.and_then(|inner| inner.get("sliding_attention")).and_then(Value::as_object);
    let parameters = parameters.map(|inner| inner.get("full_attention").and_then(Value::as_object).unwrap_or(inner));
    let nothing = Map::new();
    let inner = keys.inside(parameters.unwrap_or(&nothing));
    let partial = keys.number("rotary share", &["partial_rotary_factor", "rotary_pct", "rope_pct"], partial)?;
    let partial = match parameters.map(|_| inner.maybe_number("rotary share", &["partial_rotary_factor"])) {
        Some(given) => given?.unwrap_or(partial),
        None => partial,
    };
    let base = keys.number("rotary_base", &["rope_theta", "rotary_emb_base", "global_rope_theta"], base)?;
    let base = match parameters.map(|_| inner.maybe_number("rotary_base", &["rope_theta"])) {
        Some(given) => given?.unwrap_or(base),
        None => base,
    };
    if !(base > 1.0 && base.is_finite()) {
        return Err(ImportError::value("rope_theta", "a number above 1", &Value::from(base), ""));
    }
    let features = ((d_head as f64 * partial.clamp(0.0, 1.0)) as usize / 2) * 2;
    architecture.rotary_dim = Some(features.max(2));
    architecture.rotary_base = base;
    if let Some(local) = local {
        let local = keys.inside(local);
        architecture.rotary_window_base = local.maybe_number("rotary_window_base", &["rope_theta"])?;
        keys.absorb("rope_parameters.sliding_attention", local);
    }
    let scaling = match keys.nested("rope_scaling")? {
        Some(scaling) => Some(scaling),
        None => parameters,
    };
    if let Some(scaling) = scaling {
        let scaling = keys.inside(scaling);
        architecture.rotary_frequencies = scaled(keys, &scaling, features, base)?;
        keys.absorb("rope_scaling", scaling);
    }
    if parameters.is_some() {
        keys.absorb("rope_parameters", inner);
    }
    Ok(())
}

/// Frequencies that are not the powers of the base.
fn scaled(keys: &Keys, scaling: &Keys, features: usize, base: f64) -> Result<Option<Vec<f64>>, ImportError> {
    let kind = scaling.word("rotary scaling", &["rope_type", "type"], "default")?;
    let plain: Vec<f64> = (0..features / 2).map(|i| base.powf(-2.0 * i as f64 / features as f64)).collect();
    let factor = scaling.number("rotary factor", &["factor"], 1.0)?.max(1.0);
    let original = || scaling.number("original positions", &["original_max_position_embeddings"], 8192.0);
    Ok(match kind.as_str() {
        "default" => None,
        "linear" => Some(plain.iter().map(|frequency| frequency / factor).collect()),
        "llama3" => {
            let low = scaling.number("low frequency factor", &["low_freq_factor"], 1.0)?;
            let high = scaling.number("high frequency factor", &["high_freq_factor"], 4.0)?.max(low + 1e-9);
            let original = original()?;
            let scale = |frequency: &f64| {
                let turns = original * frequency / (2.0 * PI);
                let smooth = ((turns - low) / (high - low)).clamp(0.0, 1.0);
                frequency * (smooth + (1.0 - smooth) / factor)
            };
            Some(plain.iter().map(scale).collect())
        }
        "yarn" => {
            let fast = scaling.number("beta_fast", &["beta_fast"], 32.0)?;
            let slow = scaling.number("beta_slow", &["beta_slow"], 1.0)?;
            let original = original()?;
            // The feature whose angle turns `rotations` times over the original positions.
            let place = |rotations: f64| {
                features as f64 * (original / (rotations.max(1e-9) * 2.0 * PI)).ln() / (2.0 * base.ln())
            };
            let (low, high) = (place(fast).floor().max(0.0), place(slow).ceil().min(features as f64 - 1.0));
            let scale = |(i, frequency): (usize, &f64)| {
                let ramp = ((i as f64 - low) / (high - low).max(1e-3)).clamp(0.0, 1.0);
                frequency * (1.0 - ramp) + frequency / factor * ramp
            };
            Some(plain.iter().enumerate().map(scale).collect())
        }
        other => {
            keys.warn(format!("rotary scaling {other} is not understood; plain frequencies are used"));
            None
        }
    })
}
