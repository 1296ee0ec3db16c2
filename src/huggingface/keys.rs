//! Keys of a config, which are read under any of their names and noted with their origin.

use std::cell::{Cell, RefCell};
use std::collections::BTreeSet;
use std::fmt::Display;

use serde_json::{Map, Value};

use super::names::Axes;
use super::{Field, ImportError, Options};

/// The largest size that is read.
const LARGEST: u64 = 1 << 20;
/// The largest number of positions that is read.
const MOST_POSITIONS: usize = 1 << 24;
/// The largest number of blocks that is read.
const DEEPEST: usize = 100_000;

/// A config while it is read.
pub(super) struct Keys<'a> {
    config: &'a Map<String, Value>,
    family: &'a str,
    pub(super) options: Options,
    /// Keys that a family has asked for, whether the config has them or not.
    used: RefCell<BTreeSet<String>>,
    fields: RefCell<Vec<Field>>,
    warnings: RefCell<Vec<String>>,
    /// Sizes of parameters that the architecture does not determine.
    pub(super) axes: Cell<Axes>,
}

impl<'a> Keys<'a> {
    pub(super) fn new(config: &'a Map<String, Value>, family: &'a str, options: Options) -> Self {
        let (used, fields, warnings, axes) = Default::default();
        Self { config, family, options, used, fields, warnings, axes }
    }

    /// Returns the `model_type`.
    pub(super) fn family(&self) -> &str {
        self.family
    }

    /// Returns the values that were read, and warnings: those that were noted, and one for each unread key that may
    /// change signals.
    pub(super) fn finish(self) -> (Vec<Field>, Vec<String>) {
        let used = self.used.into_inner();
        let mut warnings = self.warnings.into_inner();
        let missed = self.config.iter().filter(|(key, value)| smells(key, value) && !used.contains(*key));
        warnings.extend(missed.map(|(key, value)| {
            format!("{key} = {value} is not understood for {}; the prediction leaves it out", self.family)
        }));
        (self.fields.into_inner(), warnings)
    }

    /// Returns the number of keys of the config that were read and are not null.
    pub(super) fn count_read(&self) -> usize {
        let used = self.used.borrow();
        self.config.iter().filter(|(key, value)| !value.is_null() && used.contains(*key)).count()
    }

    /// Returns the keys of the config that were not asked for, with their values.
    pub(super) fn unread(&self) -> impl Iterator<Item = (&'a String, &'a Value)> {
        self.config.iter().filter(|(key, _)| !self.used.borrow().contains(*key))
    }

    pub(super) fn warn(&self, warning: String) {
        self.warnings.borrow_mut().push(warning);
    }

    /// Notes a value that follows from other values, with its origin.
    pub(super) fn note(&self, name: &str, value: impl Display, origin: impl Display) {
        let field = Field { name: name.to_owned(), value: value.to_string(), origin: origin.to_string() };
        self.fields.borrow_mut().push(field);
    }

    /// Returns the first of `keys` that is present and not null, with its value.
    fn find(&self, keys: &[&'static str]) -> Option<(&'static str, &'a Value)> {
        self.used.borrow_mut().extend(keys.iter().map(|key| (*key).to_owned()));
        keys.iter().find_map(|key| self.config.get(*key).filter(|value| !value.is_null()).map(|value| (*key, value)))
    }

    /// Returns the value of a key without converting or noting it.
    pub(super) fn raw(&self, key: &'static str) -> Option<&'a Value> {
        self.find(&[key]).map(|(_, value)| value)
    }

    /// Marks `keys` as read, because their values make no difference in this family.
    pub(super) fn same(&self, keys: &[&'static str]) {
        self.find(keys);
    }

    /// Returns true if a key is present and null.
    pub(super) fn is_null(&self, key: &str) -> bool {
        self.config.get(key).is_some_and(Value::is_null)
    }

    /// Reads and notes a value, or its default.
    fn read<T: Display>(
        &self,
        name: &str,
        keys: &[&'static str],
        default: Option<T>,
        expected: &str,
        convert: impl Fn(&Value) -> Option<T>,
    ) -> Result<Option<T>, ImportError> {
        let Some((key, value)) = self.find(keys) else {
            if let Some(default) = &default {
                self.note(name, default, format!("default of {}", self.family));
            }
            return Ok(default);
        };
        let Some(got) = convert(value) else {
            return Err(ImportError::value(key, expected, value, ""));
        };
        self.note(name, &got, key);
        Ok(Some(got))
    }

    /// Reads a size; `None` if its keys are missing.
    pub(super) fn maybe_size(&self, name: &str, keys: &[&'static str]) -> Result<Option<usize>, ImportError> {
        self.read(name, keys, None, "a number between 1 and 1048576", size)
    }

    pub(super) fn size(&self, name: &str, keys: &[&'static str], default: usize) -> Result<usize, ImportError> {
        let got = self.read(name, keys, Some(default), "a number between 1 and 1048576", size)?;
        Ok(got.unwrap_or(default))
    }

    /// Reads a size on which the defaults of other keys depend, without noting it.
    pub(super) fn unnoted_size(&self, keys: &[&'static str], default: usize) -> Result<usize, ImportError> {
        let Some((key, value)) = self.find(keys) else { return Ok(default) };
        size(value).ok_or_else(|| ImportError::value(key, "a number between 1 and 1048576", value, ""))
    }

    /// Reads the number of positions.
    pub(super) fn positions(&self, keys: &[&'static str], default: usize) -> Result<usize, ImportError> {
        let positions = |value: &Value| {
            let positions = value.as_u64().and_then(|positions| usize::try_from(positions).ok());
            positions.filter(|positions| (1..=MOST_POSITIONS).contains(positions))
        };
        let expected = "a number between 1 and 16777216";
        let positions = self.read("positions", keys, Some(default), expected, positions)?.unwrap_or(default);
        self.axes.set(Axes { positions: Some(positions), ..self.axes.get() });
        Ok(positions)
    }

    /// Reads the number of blocks.
    pub(super) fn depth(&self, keys: &[&'static str], default: usize) -> Result<usize, ImportError> {
        let depth = |value: &Value| size(value).filter(|depth| *depth <= DEEPEST);
        let got = self.read("n_layers", keys, Some(default), "a number between 1 and 100000", depth)?;
        Ok(got.unwrap_or(default))
    }

    /// Reads a count that may be zero.
    pub(super) fn count(&self, name: &str, keys: &[&'static str], default: usize) -> Result<usize, ImportError> {
        let count = |value: &Value| value.as_u64().filter(|count| *count <= LARGEST).map(|count| count as usize);
        Ok(self.read(name, keys, Some(default), "a number between 0 and 1048576", count)?.unwrap_or(default))
    }

    pub(super) fn number(&self, name: &str, keys: &[&'static str], default: f64) -> Result<f64, ImportError> {
        Ok(self.read(name, keys, Some(default), "a number", Value::as_f64)?.unwrap_or(default))
    }

    pub(super) fn maybe_number(&self, name: &str, keys: &[&'static str]) -> Result<Option<f64>, ImportError> {
        self.read(name, keys, None, "a number", Value::as_f64)
    }

    /// Reads a probability.
    pub(super) fn rate(&self, name: &str, keys: &[&'static str], default: f64) -> Result<f64, ImportError> {
        let rate = |value: &Value| value.as_f64().filter(|rate| (0.0..1.0).contains(rate));
        Ok(self.read(name, keys, Some(default), "a number in [0, 1)", rate)?.unwrap_or(default))
    }

    pub(super) fn flag(&self, name: &str, keys: &[&'static str], default: bool) -> Result<bool, ImportError> {
        Ok(self.read(name, keys, Some(default), "true or false", Value::as_bool)?.unwrap_or(default))
    }

    pub(super) fn word(&self, name: &str, keys: &[&'static str], default: &str) -> Result<String, ImportError> {
        let word = |value: &Value| value.as_str().map(str::to_owned);
        let got = self.read(name, keys, Some(default.to_owned()), "a word", word)?;
        Ok(got.unwrap_or_else(|| default.to_owned()))
    }

    /// Returns the object under a key; `None` if the key is missing.
    pub(super) fn nested(&self, key: &'static str) -> Result<Option<&'a Map<String, Value>>, ImportError> {
        match self.find(&[key]) {
            None => Ok(None),
            Some((_, Value::Object(inner))) => Ok(Some(inner)),
            Some((_, got)) => Err(ImportError::value(key, "an object", got, "")),
        }
    }

    /// Returns the keys of the object `inner` in this config; [`Keys::absorb`] then adds its notes to these.
    pub(super) fn inside<'b>(&'b self, inner: &'b Map<String, Value>) -> Keys<'b> {
        Keys::new(inner, self.family, self.options)
    }

    pub(super) fn absorb(&self, key: &str, inner: Keys) {
        let (fields, warnings) = inner.finish();
        let fields = fields.into_iter().map(|field| {
            let origin =
                if field.origin.starts_with("default of") { field.origin } else { format!("{key}.{}", field.origin) };
            Field { origin, ..field }
        });
        self.fields.borrow_mut().extend(fields);
        self.warnings.borrow_mut().extend(warnings.into_iter().map(|warning| format!("{key}: {warning}")));
    }
}

/// Returns the value as a size; for a list of equal sizes, one per block, the size of a block. `None` for other values.
fn size(value: &Value) -> Option<usize> {
    let value = match value.as_array().map(Vec::as_slice) {
        Some([first, rest @ ..]) if rest.iter().all(|other| other == first) => first,
        _ => value,
    };
    value.as_u64().filter(|size| (1..=LARGEST).contains(size)).map(|size| size as usize)
}

/// Returns true if an unread key may change signals.
fn smells(key: &str, value: &Value) -> bool {
    const SMELLS: [&str; 9] =
        ["multiplier", "scale", "scaling", "cap", "norm", "alpha", "residual", "expert", "window"];
    /// Parts of names of keys that change no signal at initialisation, unless a family reads the key.
    const HARMLESS: [&str; 31] = [
        // Training, and the training of mixtures.
        "router_",
        "aux_loss",
        "z_loss",
        "capacity",
        "expert_parallel",
        "seq_aux",
        "neftune",
        "loss_scale",
        "grad_norm",
        // Heads and generation.
        "logit",
        "encoder_no_repeat",
        "weighted_layer",
        "scoring_func",
        // Epsilons and kinds of norms under the names of other families. A family reads its own key, or has only one
        // kind.
        "layer_norm_eps",
        "rms_norm_eps",
        "norm_epsilon",
        "norm_type",
        "norm_bias",
        "layer_norm_elementwise_affine",
        "_remove_final_layer_norm",
        "add_final_layer_norm",
        "normalize_",
        "use_rms",
        "fuse",
        // Number formats, and the order in which scores are divided.
        "in_fp32",
        "softmax_fusion",
        "scale_attn_weights",
        // Windows that only other families have.
        "max_window_layers",
        "sliding_window_size",
        "sliding_window_pattern",
        // The cost of attention, not its scores.
        "kv_scale",
    ];
    let silent = match value {
        Value::Null | Value::Bool(false) => true,
        Value::Number(number) => number.as_f64().is_some_and(|x| (x - 1.0).abs() <= 0.0 || x.abs() <= 0.0),
        Value::Bool(true) | Value::String(_) | Value::Array(_) | Value::Object(_) => false,
    };
    let name = key.to_ascii_lowercase();
    !silent && SMELLS.iter().any(|smell| name.contains(smell)) && !HARMLESS.iter().any(|part| name.contains(part))
}
