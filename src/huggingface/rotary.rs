//! Rotary positions: base, share of the features, scaled frequencies and the factor on cosines and sines.
//!
//! They are read as in `modeling_rope_utils.py` of transformers 5.24: from `rope_scaling`, else from `rope_parameters`,
//! which may hold one object per kind of layer. Base and share are in these objects or next to them.

use std::f64::consts::PI;

use serde_json::{Map, Value};

use super::ImportError;
use super::keys::Keys;
use crate::architecture::{Architecture, Positions};

/// The rotation of a family, if the config does not describe one.
#[derive(Clone, Copy)]
pub(super) struct Rotation {
    /// The share of the features of a head that are rotated.
    pub(super) share: f64,
    pub(super) base: f64,
    /// The rotation in blocks with a window; `None` if it is the same as in the other blocks.
    pub(super) window: Option<WindowRotation>,
}

/// The rotation in blocks with a window.
#[derive(Clone, Copy)]
pub(super) struct WindowRotation {
    /// The key of the config that gives the base in these blocks.
    pub(super) key: &'static str,
    pub(super) base: f64,
    /// True if `rope_scaling` applies to the frequencies in these blocks, too.
    pub(super) scaled: bool,
    /// The width of a head in these blocks; `None` if it is that of the other blocks.
    pub(super) d_head: Option<usize>,
}

impl Rotation {
    /// Returns the rotation with one share and one base for all blocks.
    pub(super) fn new(share: f64, base: f64) -> Self {
        Self { share, base, window: None }
    }
}

/// The rotary positions of a head before scaling changes their frequencies.
struct Plain {
    d_head: usize,
    /// The number of features that are rotated.
    features: usize,
    base: f64,
    /// `max_position_embeddings`.
    positions: f64,
    /// The number of positions before the context was extended, if the config gives it.
    original: Option<f64>,
    seq_len: f64,
}

/// Angles per position (`None` if they are the powers of the base), and the factor on their cosines and sines.
struct Turns {
    frequencies: Option<Vec<f64>>,
    scale: f64,
}

/// Fills in the rotary positions of heads of width `d_head`.
pub(super) fn rotary(
    keys: &Keys,
    architecture: &mut Architecture,
    d_head: usize,
    usual: Rotation,
) -> Result<(), ImportError> {
    architecture.positions = Positions::Rotary;
    let share = keys.number("rotary share", &["partial_rotary_factor", "rotary_pct", "rope_pct"], usual.share)?;
    let base = keys.number("rotary_base", &["rope_theta", "rotary_emb_base", "global_rope_theta"], usual.base)?;
    let original = keys.maybe_number("original positions", &["original_max_position_embeddings"])?;
    let (full, local) = (parameters(keys, "full_attention", true)?, keys.nested("rope_parameters")?);
    let plain = |base, d_head, inner: &Keys| plain(keys, architecture, d_head, (share, base, original), inner);
    let inner = keys.inside(&full.values);
    let outer = plain(base, d_head, &inner)?;
    let turns = outer.scaled(keys, &inner)?;
    keys.absorb(full.origin, inner);
    let local = match (usual.window, local.and_then(|kinds| kinds.get("sliding_attention"))) {
        (Some(window), _) => {
            let base = keys.number("rotary_window_base", &[window.key], window.base)?;
            Some((base, parameters(keys, "sliding_attention", window.scaled)?))
        }
        (None, Some(Value::Object(_))) => Some((base, parameters(keys, "sliding_attention", true)?)),
        (None, _) => None,
    };
    let local = match local {
        Some((base, local)) => {
            let inner = keys.inside(&local.values);
            let d_head = usual.window.and_then(|window| window.d_head).unwrap_or(d_head);
            let within = plain(base, d_head, &inner)?;
            let turns = within.scaled(keys, &inner)?;
            keys.absorb(local.origin, inner);
            Some((within, turns))
        }
        None => None,
    };
    architecture.rotary_dim = Some(outer.features.max(2));
    architecture.rotary_base = outer.base;
    architecture.rotary_frequencies = turns.frequencies;
    architecture.rotary_scale = turns.scale;
    if let Some((within, turns)) = local {
        architecture.rotary_window_base = Some(within.base);
        let other_width = (within.features != outer.features).then(|| within.unscaled().collect());
        architecture.rotary_window_frequencies = turns.frequencies.or(other_width);
        architecture.rotary_window_scale = Some(turns.scale);
    }
    Ok(())
}

/// The parameters of the rotation in one kind of layer.
struct Parameters {
    values: Map<String, Value>,
    /// The key that holds them.
    origin: &'static str,
}

/// Returns the parameters of layers of this kind. Values in `rope_parameters` are replaced by those in `rope_scaling`
/// if `scaled` is true.
fn parameters(keys: &Keys, kind: &'static str, scaled: bool) -> Result<Parameters, ImportError> {
    let scaling = keys.nested("rope_scaling")?.filter(|scaling| scaled && !scaling.is_empty());
    let given = keys.nested("rope_parameters")?;
    let nested = given.is_some_and(|given| given.keys().any(|key| key.ends_with("_attention")));
    let given = if nested { given.and_then(|given| given.get(kind)).and_then(Value::as_object) } else { given };
    let mut values = given.cloned().unwrap_or_default();
    if let Some(scaling) = scaling {
        values.extend(scaling.clone());
    }
    if values.is_empty() {
        match keys.family() {
            "ministral3" => values.extend(ministral()),
            "gpt_oss" | "openai_privacy_filter" => values.extend(gpt_oss()),
            _ => {}
        }
    }
    if values.is_empty() && keys.family() == "gemma4_text" && kind == "full_attention" {
        values.insert("rope_type".to_owned(), Value::from("proportional"));
        values
            .extend([("partial_rotary_factor", 0.25), ("rope_theta", 1e6)].map(|(key, x)| (key.to_owned(), x.into())));
    }
    let origin = if scaling.is_some() { "rope_scaling" } else { "rope_parameters" };
    Ok(Parameters { values, origin })
}

/// Returns the default parameters of Ministral 3, for a config without any.
fn ministral() -> Map<String, Value> {
    let numbers =
        [("factor", 16.0), ("original_max_position_embeddings", 16_384.0), ("mscale", 1.0), ("mscale_all_dim", 1.0)];
    let numbers = numbers.map(|(key, number)| (key.to_owned(), Value::from(number)));
    [("rope_type".to_owned(), Value::from("yarn"))].into_iter().chain(numbers).collect()
}

/// Returns the default parameters of GPT-OSS, for a config without any.
fn gpt_oss() -> Map<String, Value> {
    let numbers = [("factor", 32.0), ("original_max_position_embeddings", 4096.0)]
        .map(|(key, number)| (key, Value::from(number)));
    let others = [("rope_type", Value::from("yarn")), ("truncate", Value::from(false))];
    numbers.into_iter().chain(others).map(|(key, value)| (key.to_owned(), value)).collect()
}

/// Returns the unscaled rotary positions of a head, with the given share and base unless the parameters in `inner` set
/// others.
fn plain(
    keys: &Keys,
    architecture: &Architecture,
    d_head: usize,
    (share, base, original): (f64, f64, Option<f64>),
    inner: &Keys,
) -> Result<Plain, ImportError> {
    let share = inner.maybe_number("rotary share", &["partial_rotary_factor"])?.unwrap_or(share);
    let base = inner.maybe_number("rotary_base", &["rope_theta"])?.unwrap_or(base);
    if !(base > 1.0 && base.is_finite()) {
        return Err(ImportError::value("rope_theta", "a number above 1", &Value::from(base), ""));
    }
    let seq_len = keys.options.seq_len.unwrap_or(architecture.seq_len) as f64;
    let positions = keys.axes.get().positions.map_or(seq_len, |positions| positions as f64);
    let features = ((d_head as f64 * share.clamp(0.0, 1.0)) as usize / 2) * 2;
    Ok(Plain { d_head, features, base, positions, original, seq_len })
}

impl Plain {
    /// Returns the frequencies of the rotated pairs of features, `base`^(−2i/`features`).
    fn powers(&self, base: f64, features: usize) -> impl Iterator<Item = f64> {
        (0..self.features / 2).map(move |i| base.powf(-2.0 * i as f64 / features as f64))
    }

    fn unscaled(&self) -> impl Iterator<Item = f64> {
        self.powers(self.base, self.features)
    }

    /// Returns the frequencies as the `rope_type` in `scaling` changes them.
    fn scaled(&self, keys: &Keys, scaling: &Keys) -> Result<Turns, ImportError> {
        let kind = scaling.word("rotary scaling", &["rope_type", "type"], "default")?;
        let factor = scaling.maybe_number("rotary factor", &["factor"])?;
        let of = |frequencies: Vec<f64>| Ok(Turns { frequencies: Some(frequencies), scale: 1.0 });
        let divided = factor.unwrap_or(1.0).max(1e-9);
        match (kind.as_str(), keys.family()) {
            ("default" | "mrope", _) => Ok(Turns { frequencies: None, scale: 1.0 }),
            ("linear", _) => of(self.unscaled().map(|frequency| frequency / divided).collect()),
            ("proportional", _) => of(self.powers(self.base, self.d_head).map(|power| power / divided).collect()),
            ("dynamic", "hunyuan_v1_dense" | "hunyuan_v1_moe") if scaling.raw("alpha").is_some() => {
                let stretch = scaling.number("rotary alpha", &["alpha"], 1.0)?;
                Ok(Turns { frequencies: Some(self.based(stretch)), scale: 1.0 })
            }
            ("dynamic", _) => Ok(Turns { frequencies: self.stretched(divided), scale: 1.0 }),
            ("llama3", _) => of(self.by_turns(scaling, divided)?),
            // The first releases of Phi-3 used these names for its frequencies.
            ("longrope" | "su", _) | ("yarn", "phi3") => self.by_feature(scaling, factor),
            ("yarn", _) => self.interpolated(scaling, factor),
            (other, _) => {
                keys.warn(format!("rope_type {other} is not known; the frequencies are those without scaling"));
                Ok(Turns { frequencies: None, scale: 1.0 })
            }
        }
    }

    /// Returns the number of positions before the context was extended.
    fn original(&self, scaling: &Keys) -> Result<f64, ImportError> {
        let given = scaling.maybe_number("original positions", &["original_max_position_embeddings"])?;
        Ok(self.original.or(given).unwrap_or(self.positions).max(1.0))
    }

    /// Returns the frequencies of a larger base if the sequence is longer than the number of positions (NTK); `None` if
    /// it is not.
    fn stretched(&self, factor: f64) -> Option<Vec<f64>> {
        let stretch = factor * self.seq_len / self.positions - (factor - 1.0);
        (self.seq_len > self.positions).then(|| self.based(stretch))
    }

    /// Returns the frequencies of a larger base, chosen such that the slowest frequency is divided by `stretch` (NTK).
    fn based(&self, stretch: f64) -> Vec<f64> {
        let features = self.features as f64;
        let base = self.base * stretch.powf(features / (features - 2.0).max(1.0));
        self.powers(base, self.features).collect()
    }

    /// Returns Llama 3's frequencies: slow ones are divided by `factor`, fast ones are unchanged.
    fn by_turns(&self, scaling: &Keys, factor: f64) -> Result<Vec<f64>, ImportError> {
        let low = scaling.number("low frequency factor", &["low_freq_factor"], 1.0)?;
        let high = scaling.number("high frequency factor", &["high_freq_factor"], 4.0)?.max(low + 1e-9);
        let original = self.original(scaling)?;
        let scale = |frequency: f64| {
            let turns = original * frequency / (2.0 * PI);
            let smooth = ((turns - low) / (high - low)).clamp(0.0, 1.0);
            frequency * (smooth + (1.0 - smooth) / factor)
        };
        Ok(self.unscaled().map(scale).collect())
    }

    /// Returns LongRoPE's frequencies, each divided by its own number. Sequences beyond the original positions have
    /// other divisors than shorter ones.
    fn by_feature(&self, scaling: &Keys, factor: Option<f64>) -> Result<Turns, ImportError> {
        let original = self.original(scaling)?;
        let (key, own_scale) =
            if self.seq_len > original { ("long_factor", "long_mscale") } else { ("short_factor", "short_mscale") };
        let expected = format!("{} positive numbers, one per frequency", self.features / 2);
        let divisors = scaling.raw(key).unwrap_or(&Value::Null);
        let read = |value: &Value| value.as_f64().filter(|divisor| *divisor > 0.0);
        let numbers: Option<Vec<f64>> = divisors.as_array().and_then(|numbers| numbers.iter().map(read).collect());
        let Some(numbers) = numbers.filter(|numbers| numbers.len() == self.features / 2) else {
            return Err(ImportError::value(key, &expected, divisors, ""));
        };
        scaling.same(&["short_factor", "long_factor"]);
        scaling.same(&["short_mscale", "long_mscale"]);
        scaling.note("rotary frequencies", format!("{key} ({} tokens)", self.seq_len), "sequence length");
        let factor = factor.unwrap_or(self.positions / original);
        let usual = if factor > 1.0 { (1.0 + factor.ln() / original.ln()).sqrt() } else { 1.0 };
        // Phi-3.5-MoE has factors of its own.
        let scale = scaling.number("rotary_scale", &[own_scale, "attention_factor"], usual)?;
        let frequencies = self.unscaled().zip(numbers).map(|(frequency, divisor)| frequency / divisor).collect();
        Ok(Turns { frequencies: Some(frequencies), scale })
    }

    /// Returns YaRN's frequencies: a ramp between unchanged and divided frequencies.
    fn interpolated(&self, scaling: &Keys, factor: Option<f64>) -> Result<Turns, ImportError> {
        let fast = scaling.number("beta_fast", &["beta_fast"], 32.0)?;
        let slow = scaling.number("beta_slow", &["beta_slow"], 1.0)?;
        let truncated = scaling.flag("whole ramp", &["truncate"], true)?;
        let original = self.original(scaling)?;
        let factor = factor.unwrap_or(self.positions / original).max(1e-9);
        let features = self.features as f64;
        // The index of the feature whose angle makes `rotations` turns over the original positions.
        let place =
            |rotations: f64| features * (original / (rotations.max(1e-9) * 2.0 * PI)).ln() / (2.0 * self.base.ln());
        let (low, high) = (place(fast), place(slow));
        let (low, high) = if truncated { (low.floor(), high.ceil()) } else { (low, high) };
        let (low, high) = (low.max(0.0), high.min(features - 1.0));
        let width = if (high - low).abs() > 0.0 { high - low } else { 1e-3 };
        let scale = |(i, frequency): (usize, f64)| {
            let ramp = ((i as f64 - low) / width).clamp(0.0, 1.0);
            frequency * (1.0 - ramp) + frequency / factor * ramp
        };
        let frequencies = self.unscaled().enumerate().map(scale).collect();
        Ok(Turns { frequencies: Some(frequencies), scale: yarn_scale(scaling, factor)? })
    }
}

/// Returns YaRN's factor on cosines and sines (Peng et al. 2023, eq. 15; with two strengths, DeepSeek's quotient).
fn yarn_scale(scaling: &Keys, factor: f64) -> Result<f64, ImportError> {
    let own = scaling.maybe_number("mscale", &["mscale"])?.filter(|mscale| *mscale != 0.0);
    let all = scaling.maybe_number("mscale_all_dim", &["mscale_all_dim"])?.filter(|mscale| *mscale != 0.0);
    let usual = match (own, all) {
        (Some(own), Some(all)) => yarn_mscale(factor, own) / yarn_mscale(factor, all),
        _ => yarn_mscale(factor, 1.0),
    };
    scaling.number("rotary_scale", &["attention_factor"], usual)
}

/// Returns YaRN's factor on queries and keys when the context grows by `factor`.
fn yarn_mscale(factor: f64, strength: f64) -> f64 {
    if factor > 1.0 { 0.1 * strength * factor.ln() + 1.0 } else { 1.0 }
}

/// Returns DeepSeek's factor on all scores, which follows from its mscale_all_dim for every rope_type but `default`.
pub(super) fn deepseek_score_factor(keys: &Keys) -> Result<f64, ImportError> {
    let Parameters { values, origin } = parameters(keys, "full_attention", true)?;
    let inner = keys.inside(&values);
    let kind = inner.word("rotary scaling", &["rope_type", "type"], "default")?;
    let strength = inner.number("mscale_all_dim", &["mscale_all_dim"], 0.0)?;
    let factor = inner.number("rotary factor", &["factor"], 1.0)?;
    if kind == "default" || strength == 0.0 {
        return Ok(1.0);
    }
    let mscale = yarn_mscale(factor, strength);
    keys.note("factor on scores", mscale * mscale, format!("{origin}.mscale_all_dim, times 1/√d_head"));
    Ok(mscale * mscale)
}
