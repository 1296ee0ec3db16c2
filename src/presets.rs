//! Published architectures by name.
//!
//! Each is a MODEL file under `data/models/`, with the source and licence of its numbers.

use crate::architecture::{Architecture, ArchitectureError, Format};
use crate::nearest::nearest;

/// A published architecture.
#[derive(Debug)]
pub struct Preset {
    /// Its name.
    pub name: &'static str,
    /// Its MODEL file, in TOML; the comment at its head gives the source.
    pub text: &'static str,
}

macro_rules! presets {
    ($($name:literal,)+) => {
        &[$(Preset { name: $name, text: include_str!(concat!("../data/models/", $name, ".toml")) },)+]
    };
}

/// Every preset, in the order of the documentation.
pub const PRESETS: &[Preset] = presets![
    "gpt2",
    "gpt2-medium",
    "gpt2-large",
    "gpt2-xl",
    "llama-7b",
    "llama-70b",
    "bert-base",
    "bert-large",
    "dslm-192",
    "dslm-768",
];

/// There is no preset of that name.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "unknown preset {got}{}; the presets are {known}",
    nearest.as_ref().map(|name| format!("; did you mean {name}?")).unwrap_or_default()
)]
pub struct UnknownPreset {
    /// What was asked for.
    pub got: String,
    /// The preset it most resembles.
    pub nearest: Option<&'static str>,
    /// All presets.
    pub known: String,
}

impl Preset {
    /// The preset called `name`.
    ///
    /// ```
    /// use sigprop::presets::Preset;
    ///
    /// assert_eq!(Preset::find("gpt2")?.architecture()?.n_layers, 12);
    /// assert!(Preset::find("gtp2").unwrap_err().to_string().contains("did you mean gpt2?"));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn find(name: &str) -> Result<&'static Self, UnknownPreset> {
        let names = || PRESETS.iter().map(|preset| preset.name);
        PRESETS.iter().find(|preset| preset.name == name).ok_or_else(|| UnknownPreset {
            got: name.to_owned(),
            nearest: nearest(name, names()),
            known: names().collect::<Vec<_>>().join(", "),
        })
    }

    /// What its file says.
    pub fn architecture(&self) -> Result<Architecture, ArchitectureError> {
        Architecture::from_file_text(self.text, Format::Toml)
    }
}
