//! Hugging Face configs: from a `config.json` to an [`Architecture`] with the distribution of every tensor.
//!
//! `model_type` decides which family reads the rest. A family has its keys, the defaults of missing keys, the layout of
//! its blocks and the initialisation of its weights. They were read from transformers 5.23.0; [`Version`] lists the
//! differences of other releases.

mod classes;
mod error;
mod families;
mod init;
mod json;
mod keys;
mod kinds;
mod names;
mod refusal;
mod rotary;
mod similar;

pub use error::{ImportError, UnknownFamily};
pub use names::{Held, Names, Part, RenamingError, Start};

use serde_json::{Map, Value};

use crate::architecture::Architecture;
use crate::nearest::nearest;
use keys::Keys;

/// Options that a config does not determine.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Options {
    /// The family that reads the config, whatever its `model_type`; a name that [`family`] knows.
    pub family: Option<&'static str>,
    /// The release of the library that initialises the weights.
    pub version: Version,
    /// The half that is read if the model has a text half and an image half.
    pub tower: Tower,
    /// The number of tokens of a sequence, on which some frequencies of rotary positions depend. By default it is the
    /// model's number of positions, up to 256.
    pub seq_len: Option<usize>,
}

/// Releases of the library that initialise weights differently.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Version {
    /// 4.57: a standard deviation of 0 is used as it is.
    V4,
    /// 5.0 to 5.14: GPT-2's residual projections are not scaled.
    V5Early,
    /// 5.15 and later, as read from 5.23.0.
    #[default]
    V5,
}

impl Version {
    /// The values of `--hf-version`.
    pub const WORDS: [&'static str; 3] = ["4.57", "5.0", "5.23"];

    /// Returns the behaviour of a release called `4.57`, `5.3`, `5.23.0` …; `None` if it is not known.
    pub fn parse(text: &str) -> Option<Self> {
        let mut numbers = text.split('.').map(str::parse::<u32>);
        match (numbers.next()?.ok()?, numbers.next().unwrap_or(Ok(0)).ok()?) {
            (4, _) => Some(Self::V4),
            (5, 0..=14) => Some(Self::V5Early),
            (5, _) => Some(Self::V5),
            _ => None,
        }
    }
}

/// One half of a model of texts and images.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Tower {
    /// The text half.
    #[default]
    Text,
    /// The image half.
    Vision,
}

impl Tower {
    /// Returns the key of this half in a config.
    fn key(self) -> &'static str {
        match self {
            Self::Text => "text_config",
            Self::Vision => "vision_config",
        }
    }
}

/// The network that a config describes.
#[derive(Clone, Debug, PartialEq)]
pub struct Imported {
    /// The network, with its distributions and the scheme `hf`.
    pub architecture: Architecture,
    /// The values that were read, in order.
    pub fields: Vec<Field>,
    /// Warnings about keys that may matter and were not understood.
    pub warnings: Vec<String>,
    /// The names of the parameters in the library.
    pub names: Names,
}

/// A value and its origin.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Field {
    /// The name of the value, in the words of [`Architecture`] if it has one.
    pub name: String,
    /// The value.
    pub value: String,
    /// The key it was read from, the family whose default it is, or its formula.
    pub origin: String,
}

/// Reads a config.
///
/// ```
/// use sigprop::huggingface::{Options, import};
///
/// let imported = import(r#"{"model_type": "gpt2", "n_layer": 4}"#, &Options::default())?;
/// assert_eq!((imported.architecture.n_layers, imported.architecture.d_model), (4, 768));
/// # Ok::<(), sigprop::huggingface::ImportError>(())
/// ```
pub fn import(text: &str, options: &Options) -> Result<Imported, ImportError> {
    let config: Value =
        serde_json::from_str(&json::strict(text)).map_err(|error| ImportError::Json(error.to_string()))?;
    let Value::Object(config) = config else {
        return Err(ImportError::Json("expected an object".to_owned()));
    };
    match options.family {
        Some(family) => read_as(&config, family, *options),
        None => read(&config, *options, None),
    }
}

/// Returns true if a JSON text is a config of this kind, and an error if it is another file of the library.
pub fn is_config(text: &str) -> Result<bool, ImportError> {
    serde_json::from_str::<Map<String, Value>>(&json::strict(text))
        .map_or(Ok(false), |config| kinds::recognise(&config))
}

/// Returns the name of a known family.
pub fn family(name: &str) -> Result<&'static str, UnknownFamily> {
    known().find(|known| *known == name).ok_or_else(|| UnknownFamily {
        got: name.to_owned(),
        nearest: nearest(name, known()),
        known: known().collect::<Vec<_>>().join(", "),
    })
}

/// Returns every `model_type` that is read.
fn known() -> impl Iterator<Item = &'static str> {
    families::FAMILIES.iter().flat_map(|family| family.model_types.iter().copied())
}

/// Reads a config, or the half of it that is asked for, as one of `family`.
fn read_as(config: &Map<String, Value>, family: &'static str, options: Options) -> Result<Imported, ImportError> {
    let half = config.get(options.tower.key()).and_then(Value::as_object);
    let mut config = half.unwrap_or(config).clone();
    let replaced = config.insert("model_type".to_owned(), family.into());
    let mut imported = read(&config, options, None)?;
    let origin = replaced.as_ref().and_then(Value::as_str).map_or("no model_type".to_owned(), |own| {
        imported.architecture.name = Some(own.to_owned());
        format!("given, in place of {own}")
    });
    imported.fields.insert(0, Field { name: "family".to_owned(), value: family.to_owned(), origin });
    Ok(imported)
}

fn read(config: &Map<String, Value>, options: Options, outer: Option<&str>) -> Result<Imported, ImportError> {
    let model_type = match (config.get("model_type"), outer) {
        (Some(Value::String(model_type)), _) => model_type.as_str(),
        (Some(got), _) => {
            return Err(ImportError::value("model_type", "a word", got, ""));
        }
        (None, Some(outer)) => outer,
        (None, None) => return Err(ImportError::NoModelType { similar: similar::similar(config, options) }),
    };
    if let Some(reason) = refusal::refused(model_type, config) {
        return Err(ImportError::Unsupported { model_type: model_type.to_owned(), reason });
    }
    let Some(family) = families::find(model_type) else {
        return inner(config, model_type, options);
    };
    let keys = Keys::new(config, model_type, options);
    let mut architecture = (family.read)(&keys)?;
    architecture.name = Some(model_type.to_owned());
    architecture.scheme = Some("hf".to_owned());
    let beside = classes::beside(&keys, &architecture)?;
    let axes = keys.axes.get();
    let (fields, warnings) = keys.finish();
    let head = names::HeadNames::new(model_type, &architecture);
    let names = Names::new((family.names)(&architecture), &architecture, axes, beside).with_head(head);
    Ok(Imported { architecture, fields, warnings, names })
}

/// Reads `text_config` or `vision_config` of a model that consists of several networks.
fn inner(config: &Map<String, Value>, model_type: &str, options: Options) -> Result<Imported, ImportError> {
    let key = options.tower.key();
    let default = match options.tower {
        Tower::Text => [format!("{model_type}_text"), format!("{model_type}_text_model")],
        Tower::Vision => [format!("{model_type}_vision"), format!("{model_type}_vision_model")],
    };
    let unknown = |config| ImportError::UnknownModelType {
        got: model_type.to_owned(),
        similar: similar::similar(config, options),
    };
    let own = default.iter().find(|default| families::find(default).is_some()).map(String::as_str);
    let (mut inner, how) = match config.get(key) {
        Some(Value::Object(inner)) => (inner.clone(), "followed"),
        // Older configs of models of texts and images have the keys of their text part among the others.
        _ if options.tower == Tower::Text && own.is_some() => {
            let keys = config.iter().filter(|(key, _)| *key != "model_type");
            (keys.map(|(key, value)| (key.clone(), value.clone())).collect(), "among the other keys")
        }
        _ => return Err(unknown(config)),
    };
    if own.is_none() && !inner.contains_key("model_type") {
        return Err(unknown(&inner));
    }
    if let Some(tied) = config.get("tie_word_embeddings") {
        inner.entry("tie_word_embeddings").or_insert(tied.clone());
    }
    let mut imported = read(&inner, options, own)?;
    let field = Field { name: key.to_owned(), value: how.to_owned(), origin: format!("model_type {model_type}") };
    imported.fields.insert(0, field);
    Ok(imported)
}

#[cfg(test)]
mod tests;
