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
    "unknown preset {got:?}{}; the presets are {known}",
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::assemble::{Input, Run, assemble};
    use crate::cost::Cost;
    use crate::schemes::Scheme;

    fn parameters(name: &str) -> u64 {
        let architecture = Preset::find(name).unwrap().architecture().unwrap();
        let scheme = Scheme::parse("xavier").unwrap();
        let stack = assemble(&architecture, &scheme, &Input::Uniform, &Run::default()).unwrap().stack;
        Cost::of(&stack, Some(&architecture)).unwrap().parameters
    }

    /// Counts published with the models: GPT-2 with tied head, LLaMA with its own, BERT with pooler.
    #[test]
    fn parameter_counts_are_the_published_ones() {
        for (name, expected) in [
            ("gpt2", 124_439_808),
            ("gpt2-medium", 354_823_168),
            ("gpt2-large", 774_030_080),
            ("gpt2-xl", 1_557_611_200),
            ("llama-7b", 6_738_415_616),
            ("llama-70b", 68_976_648_192),
            ("bert-base", 109_482_240),
            ("bert-large", 335_141_888),
        ] {
            assert_eq!(parameters(name), expected, "{name}");
        }
    }

    #[test]
    fn every_preset_brings_its_name_and_a_scheme() {
        for preset in PRESETS {
            let architecture = preset.architecture().unwrap();
            assert_eq!(architecture.name.as_deref(), Some(preset.name));
            Scheme::parse(architecture.scheme.as_deref().unwrap()).unwrap();
            architecture.resolved().unwrap();
            assert!(preset.text.starts_with("# "), "{} states its source", preset.name);
        }
    }
}
