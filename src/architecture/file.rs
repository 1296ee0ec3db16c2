//! MODEL files: architectures as TOML or JSON.

use std::collections::{BTreeSet, HashMap};

use serde::Deserialize;
use serde::de::{self, DeserializeOwned, Deserializer, IgnoredAny, MapAccess, Visitor};

use super::{Architecture, ArchitectureError};
use crate::nearest::nearest;

/// The format of a MODEL file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    /// `key = value` lines.
    Toml,
    /// One JSON object.
    Json,
}

impl Architecture {
    /// Reads the text of a MODEL file; keys that it leaves out keep their defaults.
    pub fn from_file_text(text: &str, format: Format) -> Result<Self, ArchitectureError> {
        let read = Reader { text, format };
        if read.parse::<HashMap<String, serde_json::Value>>()?.contains_key("model_type") {
            return Err(ArchitectureError::HuggingFace);
        }
        read.parse::<KnownKeys>()?;
        read.parse()
    }
}

/// The keys that a file sets; keys of a decoder are written `decoder.KEY`.
pub(super) fn keys(text: &str, format: Format) -> Result<BTreeSet<String>, ArchitectureError> {
    let written = Reader { text, format }.parse::<HashMap<String, serde_json::Value>>()?;
    let decoder = written.get("decoder").and_then(serde_json::Value::as_object).into_iter().flatten();
    let below: Vec<String> = decoder.map(|(key, _)| format!("decoder.{key}")).collect();
    Ok(written.into_keys().chain(below).collect())
}

struct Reader<'a> {
    text: &'a str,
    format: Format,
}

impl Reader<'_> {
    fn parse<T: DeserializeOwned>(&self) -> Result<T, ArchitectureError> {
        match self.format {
            Format::Toml => toml::from_str(self.text).map_err(|error| {
                let before = error.span().and_then(|span| self.text.get(..span.start)).unwrap_or_default();
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

/// Fails at the first key that is not a field of [`Architecture`], and names the nearest field.
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
            Some(field) => format!("did you mean `{field}`? docs/model-files.md lists all keys"),
            None => format!("expected one of {} (docs/model-files.md)", fields.join(", ")),
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::architecture::{Activation, Kind};

    fn toml(text: &str) -> Result<Architecture, ArchitectureError> {
        Architecture::from_file_text(text, Format::Toml)
    }

    fn json(text: &str) -> Result<Architecture, ArchitectureError> {
        Architecture::from_file_text(text, Format::Json)
    }

    fn message(read: Result<Architecture, ArchitectureError>) -> String {
        read.unwrap_err().to_string()
    }

    #[test]
    fn a_file_says_what_differs_from_the_default() {
        let expected = Architecture { d_model: 64, activation: Activation::Swiglu, ..Architecture::default() };
        assert_eq!(toml("d_model = 64\nactivation = \"swiglu\"").unwrap(), expected);
        assert_eq!(json(r#"{"d_model": 64, "activation": "swiglu"}"#).unwrap(), expected);
        assert_eq!(toml("").unwrap(), Architecture::default());
        assert_eq!(toml("kind = \"mlp\"").unwrap().kind, Kind::Mlp);
    }

    #[test]
    fn what_is_written_is_read() {
        let architecture = Architecture { n_heads: Some(2), skip_scale: Some(0.5), ..Architecture::mlp() };
        assert_eq!(json(&serde_json::to_string(&architecture).unwrap()).unwrap(), architecture);
        assert_eq!(toml(&toml::to_string(&architecture).unwrap()).unwrap(), architecture);
    }

    #[test]
    fn an_unknown_key_has_its_place_and_the_nearest_name() {
        let got = message(toml("d_model = 64\nn_layer = 3\n"));
        assert_eq!(
            got,
            "line 2, column 1: unknown key `n_layer`; did you mean `n_layers`? docs/model-files.md lists all keys"
        );
        let got = message(json("{\n  \"d_model\": 64,\n  \"dropuot\": 0.1\n}"));
        assert!(got.starts_with("line 3, column 11: unknown key `dropuot`; did you mean `dropout`?"), "{got}");
        let got = message(toml("zzz = 1"));
        assert!(got.starts_with("line 1, column 1: unknown key `zzz`; expected one of "), "{got}");
        assert!(got.contains("d_ff, d_head, d_model, "), "{got}");
    }

    #[test]
    fn malformed_files_say_where() {
        assert_eq!(message(json("")), "line 1, column 0: EOF while parsing a value");
        assert!(message(json("{\"d_model\": }")).starts_with("line 1, column 13: expected value"));
        let got = message(json("[]"));
        assert!(got.starts_with("line 1, column 0: invalid type: sequence, expected a map"), "{got}");
        assert!(message(toml("d_model = \n")).starts_with("line 1, column 11: "));
        let got = message(toml("\nd_model = -3"));
        assert!(got.starts_with("line 2, column 11: ") && got.contains("-3"), "{got}");
        let got = message(json(r#"{"activation": "gleu"}"#));
        assert!(got.contains("got gleu") && got.contains("gelu_tanh"), "{got}");
    }

    #[test]
    fn configs_of_hugging_face_are_refused() {
        let config = r#"{"architectures": ["GPT2LMHeadModel"], "model_type": "gpt2"}"#;
        assert_eq!(json(config), Err(ArchitectureError::HuggingFace));
    }

    proptest::proptest! {
        #[test]
        fn no_text_panics(text in ".*") {
            let _ = (toml(&text), json(&text));
        }

        #[test]
        fn no_value_panics(key in "[a-z_]{1,8}|n_heads|d_model|dropout|norm", value in "[-0-9.e]{1,6}|nan|\"[a-z]*\"|\\[\\]") {
            for read in [toml(&format!("{key} = {value}")), json(&format!("{{\"{key}\": {value}}}"))].into_iter().flatten() {
                let _ = read.resolved();
            }
        }
    }
}
