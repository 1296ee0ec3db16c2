//! MODEL files: architectures as TOML or JSON.

use serde::Deserialize;
use serde::de::{self, DeserializeOwned, Deserializer, IgnoredAny, MapAccess, Visitor};

use super::{Architecture, ArchitectureError};
use crate::nearest::nearest;

/// How a MODEL file is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    /// `key = value` lines.
    Toml,
    /// One JSON object.
    Json,
}

impl Architecture {
    /// Reads the text of a MODEL file; keys it leaves out keep their defaults.
    pub fn from_file_text(text: &str, format: Format) -> Result<Self, ArchitectureError> {
        let read = Reader { text, format };
        if read.parse::<OnlyModelType>()?.model_type.is_some() {
            return Err(ArchitectureError::HuggingFace);
        }
        read.parse::<KnownKeys>()?;
        read.parse()
    }
}

struct Reader<'a> {
    text: &'a str,
    format: Format,
}

impl Reader<'_> {
    fn parse<T: DeserializeOwned>(&self) -> Result<T, ArchitectureError> {
        match self.format {
            Format::Toml => toml::from_str(self.text).map_err(|error| {
                let before = &self.text[..error.span().map_or(0, |span| span.start).min(self.text.len())];
                ArchitectureError::File {
                    line: before.matches('\n').count() + 1,
                    column: before.rsplit('\n').next().map_or(0, |line| line.chars().count()) + 1,
                    message: error.message().to_owned(),
                }
            }),
            Format::Json => serde_json::from_str(self.text).map_err(|error| {
                let (line, column) = (error.line(), error.column());
                let message = error.to_string();
                let place = format!(" at line {line} column {column}");
                let message = message.strip_suffix(&place).unwrap_or(&message).to_owned();
                ArchitectureError::File { line, column, message }
            }),
        }
    }
}

/// Whether there is a `model_type`, whatever else there is.
#[derive(Deserialize)]
struct OnlyModelType {
    model_type: Option<IgnoredAny>,
}

/// Fails at the first key that is not a field of [`Architecture`], naming the nearest.
struct KnownKeys;

impl<'de> Deserialize<'de> for KnownKeys {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_map(Self)
    }
}

impl<'de> Visitor<'de> for KnownKeys {
    type Value = Self;

    fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("an architecture")
    }

    fn visit_map<M: MapAccess<'de>>(self, mut map: M) -> Result<Self, M::Error> {
        while map.next_key::<Key>()?.is_some() {
            map.next_value::<IgnoredAny>()?;
        }
        Ok(self)
    }
}

/// The name of a field of [`Architecture`].
struct Key;

impl<'de> Deserialize<'de> for Key {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let key = String::deserialize(deserializer)?;
        let fields = fields();
        if fields.contains(&key) {
            return Ok(Self);
        }
        let hint = match nearest(&key, fields.iter().map(String::as_str)) {
            Some(field) => format!("did you mean `{field}`?"),
            None => format!("expected one of {}", fields.join(", ")),
        };
        Err(de::Error::custom(format!("unknown key `{key}`; {hint}")))
    }
}

/// The names of the fields of [`Architecture`].
fn fields() -> Vec<String> {
    let serde_json::Value::Object(fields) =
        serde_json::to_value(Architecture::default()).expect("an architecture is plain data")
    else {
        unreachable!("a struct is an object")
    };
    fields.into_iter().map(|(name, _)| name).collect()
}
