//! Published architectures by name.
//!
//! Each is a Hugging Face config or an architecture file under `data/models/`, whose README gives the sources.

use crate::architecture::{Architecture, Format};
use crate::huggingface::{self, Imported, Names};
use crate::nearest::nearest;

/// A published architecture.
#[derive(Debug)]
pub struct Preset {
    /// Name of the preset.
    pub name: &'static str,
    /// Text of its file: a config in JSON, or an architecture in TOML.
    pub text: &'static str,
}

macro_rules! presets {
    ($($name:literal $extension:literal,)+) => {
        &[$(Preset { name: $name, text: include_str!(concat!("../data/models/", $name, ".", $extension)) },)+]
    };
}

/// Every preset, in the order of the documentation.
pub const PRESETS: &[Preset] = presets![
    "gpt2" "json",
    "gpt2-medium" "json",
    "gpt2-large" "json",
    "gpt2-xl" "json",
    "llama-7b" "json",
    "llama-70b" "json",
    "mistral-7b" "json",
    "qwen2.5-7b" "json",
    "gemma-2-9b" "json",
    "bert-base" "json",
    "bert-large" "json",
    "t5-small" "json",
    "vit-base" "json",
    "whisper-tiny" "json",
    "dslm-192" "toml",
    "dslm-768" "toml",
];

/// The error for a name that is not that of a preset.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "unknown preset {got:?}{}; the presets are {known}",
    nearest.as_ref().map(|name| format!("; did you mean {name}?")).unwrap_or_default()
)]
pub struct UnknownPreset {
    /// The name that was asked for.
    pub got: String,
    /// The preset with the most similar name, if any is similar.
    pub nearest: Option<&'static str>,
    /// The names of all presets.
    pub known: String,
}

impl Preset {
    /// The preset called `name`.
    ///
    /// ```
    /// use sigprop::presets::Preset;
    ///
    /// assert_eq!(Preset::find("gpt2")?.architecture().n_layers, 12);
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

    /// The architecture in its file.
    ///
    /// # Panics
    ///
    /// If a file of this project is invalid, which tests rule out.
    pub fn architecture(&self) -> Architecture {
        self.architecture_and_names().0
    }

    /// The architecture in its file, and the names of the parameters in a checkpoint.
    ///
    /// # Panics
    ///
    /// If a file of this project is invalid, which tests rule out.
    pub fn architecture_and_names(&self) -> (Architecture, Names) {
        let (architecture, names) = if huggingface::is_config(self.text).unwrap_or(false) {
            let imported = huggingface::import(self.text, &huggingface::Options::default());
            let Imported { architecture, names, .. } = imported.expect("configs of presets are tested");
            (architecture, names)
        } else {
            let read = Architecture::from_file_text(self.text, Format::Toml);
            let architecture = read.expect("files of presets are tested");
            let names = Names::own(&architecture);
            (architecture, names)
        };
        (Architecture { name: Some(self.name.to_owned()), ..architecture }, names)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::assemble::{Input, Run, assemble};
    use crate::cost::Cost;
    use crate::schemes::Scheme;

    fn parameters(name: &str) -> u64 {
        let (architecture, names) = Preset::find(name).unwrap().architecture_and_names();
        let scheme = Scheme::parse("xavier").unwrap();
        let input = if architecture.stem.is_some() { Input::Zipf } else { Input::Uniform };
        let stack = assemble(&architecture, &scheme, &input, &Run::default()).unwrap().stack;
        Cost::of(&stack, Some(&architecture)).unwrap().with_names(&stack, &names).unwrap().parameters
    }

    /// Counts published with the models, which agree with their classes in transformers 5.24.0.
    #[test]
    fn parameter_counts_are_the_published_ones() {
        for (name, expected) in [
            ("gpt2", 124_439_808),
            ("gpt2-medium", 354_823_168),
            ("gpt2-large", 774_030_080),
            ("gpt2-xl", 1_557_611_200),
            ("llama-7b", 6_738_415_616),
            ("llama-70b", 68_976_648_192),
            ("mistral-7b", 7_241_732_096),
            ("qwen2.5-7b", 7_615_616_512),
            ("gemma-2-9b", 9_241_705_984),
            ("bert-base", 109_514_298),
            ("bert-large", 335_174_458),
            ("t5-small", 60_506_624),
            ("vit-base", 86_389_248),
            ("whisper-tiny", 37_760_640),
        ] {
            assert_eq!(parameters(name), expected, "{name}");
        }
    }

    #[test]
    fn every_preset_brings_its_name_and_a_scheme() {
        for preset in PRESETS {
            let architecture = preset.architecture();
            assert_eq!(architecture.name.as_deref(), Some(preset.name));
            Scheme::parse(architecture.scheme.as_deref().unwrap()).unwrap();
            architecture.resolved().unwrap();
        }
    }
}
