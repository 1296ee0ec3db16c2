//! Sources of MODEL: a preset, a file, standard input, or the command line itself. It may be a Hugging Face config.

use std::{
    fs,
    io::{self, Read, Write},
    path::Path,
};

use crate::{
    Caveat, Condition,
    architecture::{Architecture, Format, ModelFile},
    huggingface::{self, Imported, Names, Options, Tower, Version, import},
    presets::Preset,
};
use anyhow::{Context, bail};
use clap::{Args, ValueEnum};

use super::console::Console;

/// How a Hugging Face config is read.
#[derive(Args, Debug)]
#[command(next_help_heading = "Hugging Face configs")]
pub(crate) struct ConfigArguments {
    /// Half of a text-and-image model to read.
    #[arg(long, value_enum, value_name = "HALF", default_value_t = TowerChoice::Text)]
    tower: TowerChoice,

    /// Read the config as one of this family, whatever its `model_type`: names, initialisation and the layout of blocks
    /// are the family's.
    #[arg(long = "as", value_name = "FAMILY", value_parser = huggingface::family)]
    family: Option<&'static str>,

    /// Report every field that was read from the config, with the key or default it came from, and stop.
    #[arg(long)]
    explain_import: bool,
}

/// Half of a model of texts and images.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum TowerChoice {
    /// The text half.
    Text,
    /// The image half.
    Vision,
}

/// A network as MODEL describes it.
pub(crate) struct Described {
    pub(crate) architecture: Architecture,
    /// How it was read, if it is a Hugging Face config.
    imported: Option<Imported>,
    /// The name and the content of the MODEL file, if it was read from one.
    file: Option<(String, ModelFile)>,
}

impl From<Architecture> for Described {
    fn from(architecture: Architecture) -> Self {
        Self { architecture, imported: None, file: None }
    }
}

impl Described {
    /// Returns the names of its parameters in a checkpoint.
    pub(crate) fn names(&self) -> Names {
        self.imported.as_ref().map_or_else(|| Names::own(&self.architecture), |imported| imported.names.clone())
    }

    /// Refuses keys of the MODEL file that change nothing in `used`, the network after flags have replaced fields.
    /// `scheme` is the scheme of a flag, if there is one.
    pub(crate) fn check_effects(&self, used: &Architecture, scheme: Option<&str>) -> anyhow::Result<()> {
        let Some((name, file)) = &self.file else { return Ok(()) };
        let scheme = scheme.map(str::to_owned).or_else(|| used.scheme.clone());
        file.check_effects(&Architecture { scheme, ..used.clone() }).with_context(|| name.clone())
    }

    /// Returns a caveat for every key of a config that was not understood.
    pub(crate) fn caveats(&self) -> Vec<Caveat> {
        let warnings = self.imported.iter().flat_map(|imported| &imported.warnings);
        warnings.map(|text| Caveat::at("config", Condition::Config(text.clone()))).collect()
    }
}

impl ConfigArguments {
    /// Returns the network that `model` names, or the plain encoder without a name. `scheme` may name the release of
    /// the library that draws the weights; `seq_len` is the length of sequences.
    pub(crate) fn described(
        &self,
        model: Option<&str>,
        scheme: Option<&str>,
        seq_len: Option<usize>,
    ) -> anyhow::Result<Described> {
        let options = Options { family: self.family, version: version(scheme)?, tower: self.tower.into(), seq_len };
        let described = model.map_or_else(|| Ok(Architecture::default().into()), |model| find(model, options))?;
        match (self.family, &described.imported) {
            (Some(family), None) => {
                bail!("--as {family}: expected a Hugging Face config as MODEL, got another description")
            }
            _ => Ok(described),
        }
    }

    /// Reports how a config is read, if that is asked for. Returns true if it was.
    pub(crate) fn explain(
        &self,
        model: Option<&str>,
        scheme: Option<&str>,
        seq_len: Option<usize>,
        console: Console,
    ) -> anyhow::Result<bool> {
        if !self.explain_import {
            return Ok(false);
        }
        let Some(imported) = self.described(model, scheme, seq_len)?.imported else {
            bail!("--explain-import: expected a Hugging Face config as MODEL, got another description");
        };
        console.emit(None, |out| write_fields(&imported, out))?;
        Ok(true)
    }
}

impl From<TowerChoice> for Tower {
    fn from(choice: TowerChoice) -> Self {
        match choice {
            TowerChoice::Text => Self::Text,
            TowerChoice::Vision => Self::Vision,
        }
    }
}

/// Returns the release in `hf@RELEASE`, else the default.
fn version(scheme: Option<&str>) -> anyhow::Result<Version> {
    let Some(release) = scheme.and_then(|scheme| scheme.strip_prefix("hf@")) else { return Ok(Version::default()) };
    Version::parse(release).with_context(|| {
        format!("--scheme hf@{release}: expected a release of transformers such as {}", Version::WORDS.join(", "))
    })
}

/// Finds a model: a file, standard input, JSON itself, `mlp` or a preset.
fn find(model: &str, options: Options) -> anyhow::Result<Described> {
    if model == "-" {
        let mut bytes = Vec::new();
        io::stdin().lock().read_to_end(&mut bytes).context("cannot read standard input")?;
        return described(Path::new("standard input"), bytes, Format::Json, options);
    }
    if model.trim_start().starts_with('{') {
        return described(Path::new("MODEL"), model.as_bytes().to_vec(), Format::Json, options);
    }
    let path = Path::new(model);
    let extension = path.extension().and_then(|extension| extension.to_str());
    let format = match extension {
        Some("toml") => Some(Format::Toml),
        Some("json") => Some(Format::Json),
        Some(_) | None => None,
    };
    if let Some(format) = format {
        let bytes = fs::read(path).with_context(|| format!("cannot read {}", path.display()))?;
        return described(path, bytes, format, options);
    }
    if model == "mlp" {
        return Ok(Architecture::mlp().into());
    }
    if path.components().count() > 1 || path.exists() {
        bail!(
            "{model}: expected an architecture file named *.toml or *.json, - for standard input, or JSON itself, {{…}}"
        );
    }
    let preset = Preset::find(model)?;
    if huggingface::is_config(preset.text)? {
        let mut described = described(Path::new(model), preset.text.as_bytes().to_vec(), Format::Json, options)?;
        described.architecture.name = Some(preset.name.to_owned());
        return Ok(described);
    }
    Ok(preset.architecture().into())
}

fn described(path: &Path, bytes: Vec<u8>, format: Format, options: Options) -> anyhow::Result<Described> {
    let text = String::from_utf8(bytes).with_context(|| format!("{}: expected UTF-8 text", path.display()))?;
    if text.trim().is_empty() {
        bail!("{}: expected an architecture, got an empty file", path.display());
    }
    let named = || path.display().to_string();
    if format == Format::Json && (options.family.is_some() || huggingface::is_config(&text).with_context(named)?) {
        let imported = import(&text, &options).with_context(named)?;
        return Ok(Described { architecture: imported.architecture.clone(), imported: Some(imported), file: None });
    }
    let file = ModelFile::read(&text, format).with_context(named)?;
    Ok(Described { architecture: file.architecture.clone(), imported: None, file: Some((named(), file)) })
}

fn write_fields(imported: &Imported, out: &mut dyn Write) -> io::Result<()> {
    let width = |of: fn(&huggingface::Field) -> &str| {
        imported.fields.iter().map(|field| of(field).chars().count()).max().unwrap_or(0)
    };
    let (names, values) = (width(|field| &field.name), width(|field| &field.value));
    for huggingface::Field { name, value, origin } in &imported.fields {
        writeln!(out, "{name:names$}  {value:values$}  {origin}")?;
    }
    for warning in &imported.warnings {
        writeln!(out, "warning: {warning}")?;
    }
    Ok(())
}
