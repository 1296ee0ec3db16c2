//! Hugging Face configs: from a `config.json` to an [`Architecture`] with the distribution of every tensor.
//!
//! `model_type` decides which family reads the rest: its keys, what it takes for those that are missing, how its
//! blocks are laid out and how its weights are drawn. Read from transformers 5.23.0; [`Version`] says where
//! others differ.

mod error;
mod families;
mod init;
mod keys;
mod names;
mod rotary;

pub use error::ImportError;
pub use names::{Held, Names, Part, Start};

use serde_json::{Map, Value};

use crate::architecture::Architecture;
use crate::nearest::nearest;
use keys::Keys;

/// What a config does not say.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Options {
    /// Which release of the library draws the weights.
    pub version: Version,
    /// Which half of a model of texts and images.
    pub tower: Tower,
}

/// Releases of the library that draw weights differently.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Version {
    /// 4.57: a standard deviation of 0 is 0.
    V4,
    /// 5.0 to 5.14: GPT-2's residual projections are not scaled.
    V5Early,
    /// 5.15 and later, as read from 5.23.0.
    #[default]
    V5,
}

impl Version {
    /// What `--hf-version` may say.
    pub const WORDS: [&'static str; 3] = ["4.57", "5.0", "5.23"];

    /// The behaviour of a release called `4.57`, `5.3`, `5.23.0` …
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

/// Half of a model of texts and images.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Tower {
    /// The text half.
    #[default]
    Text,
    /// The image half.
    Vision,
}

/// What a config became.
#[derive(Clone, Debug, PartialEq)]
pub struct Imported {
    /// The network, with its distributions and the scheme `hf`.
    pub architecture: Architecture,
    /// What was read, in order.
    pub fields: Vec<Field>,
    /// Keys that may mean something and were not understood.
    pub warnings: Vec<String>,
    /// What the library calls the parameters.
    pub names: Names,
}

/// One value and where it comes from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Field {
    /// What it is, in the words of [`Architecture`] where it has one.
    pub name: String,
    /// The value.
    pub value: String,
    /// The key it was read from, or whose default it is.
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
    let config: Value = serde_json::from_str(text).map_err(|error| ImportError::Json(error.to_string()))?;
    let Value::Object(config) = config else {
        return Err(ImportError::Json("expected an object".to_owned()));
    };
    read(&config, *options, None)
}

/// Whether a JSON text is a config of this kind.
pub fn is_config(text: &str) -> bool {
    serde_json::from_str::<Map<String, Value>>(text).is_ok_and(|config| config.contains_key("model_type"))
}

fn read(config: &Map<String, Value>, options: Options, outer: Option<&str>) -> Result<Imported, ImportError> {
    let model_type = match (config.get("model_type"), outer) {
        (Some(Value::String(model_type)), _) => model_type.as_str(),
        (Some(got), _) => {
            return Err(ImportError::value("model_type", "a word", got, ""));
        }
        (None, Some(outer)) => outer,
        (None, None) => return Err(ImportError::NoModelType),
    };
    if let Some(reason) = families::refused(model_type, config) {
        return Err(ImportError::Unsupported { model_type: model_type.to_owned(), reason });
    }
    let Some(family) = families::find(model_type) else {
        return inner(config, model_type, options);
    };
    let keys = Keys::new(config, model_type, options);
    let mut architecture = (family.read)(&keys)?;
    architecture.name = Some(model_type.to_owned());
    architecture.scheme = Some("hf".to_owned());
    let axes = keys.axes.get();
    let (fields, warnings) = keys.finish();
    let head = names::HeadNames::new(model_type, &architecture);
    let names = Names::new((family.names)(&architecture), &architecture, axes).with_head(head);
    Ok(Imported { architecture, fields, warnings, names })
}

/// Goes through `text_config` or `vision_config` of a model made of several.
fn inner(config: &Map<String, Value>, model_type: &str, options: Options) -> Result<Imported, ImportError> {
    let (key, default) = match options.tower {
        Tower::Text => ("text_config", format!("{model_type}_text")),
        Tower::Vision => ("vision_config", format!("{model_type}_vision_model")),
    };
    match config.get(key) {
        Some(Value::Object(inner)) => {
            let own = match inner.get("model_type") {
                None if families::find(&default).is_none() => return Err(unknown(model_type)),
                _ => default,
            };
            let mut imported = read(inner, options, Some(&own))?;
            let field = Field {
                name: key.to_owned(),
                value: "followed".to_owned(),
                origin: format!("model_type {model_type}"),
            };
            imported.fields.insert(0, field);
            Ok(imported)
        }
        _ => Err(unknown(model_type)),
    }
}

fn unknown(model_type: &str) -> ImportError {
    let names = || families::FAMILIES.iter().flat_map(|family| family.model_types.iter().copied());
    ImportError::UnknownModelType {
        got: model_type.to_owned(),
        nearest: nearest(model_type, names()),
        known: names().collect::<Vec<_>>().join(", "),
    }
}

#[cfg(test)]
mod tests;
