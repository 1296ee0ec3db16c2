//! `--names`: the user's own names of the parameters of a network.

use std::{fs, path::Path};

use crate::{
    architecture::Architecture,
    checkpoint::Checkpoint,
    huggingface::Names,
    inspect::{names_of, unused_rule},
};
use anyhow::{Context, bail};
use sigprop_stack::Parameter;

use super::hint::did_you_mean;

/// Returns `names`, with the names that the lines of `file` define, if there is a file.
pub(crate) fn with_file(
    names: &Names,
    file: Option<&Path>,
    architecture: &Architecture,
    parameters: &[Parameter],
) -> anyhow::Result<Names> {
    let Some(path) = file else { return Ok(names.clone()) };
    let text = fs::read_to_string(path).with_context(|| format!("cannot read {}", path.display()))?;
    names.with_rules(&text, architecture, parameters).with_context(|| format!("--names {}", path.display()))
}

/// Returns the convention of names that fits most tensors of the checkpoint, with the names that the lines of `file`
/// define. Every line must name a tensor of the checkpoint.
pub(crate) fn of_checkpoint(
    names: &Names,
    file: Option<&Path>,
    checkpoint: &Checkpoint,
    architecture: &Architecture,
    parameters: &[Parameter],
) -> anyhow::Result<Names> {
    let names = with_file(names, file, architecture, parameters)?;
    let names = names_of(checkpoint, names.candidates(architecture), parameters).unwrap_or(names);
    if let (Some(path), Some((line, name))) = (file, unused_rule(checkpoint, &names, parameters)) {
        let hint = did_you_mean(name, checkpoint.entries.iter().map(|entry| entry.name.as_str()));
        bail!(
            "--names {}: line {line}: expected the name of tensors in the checkpoint, got {name:?}{hint}",
            path.display()
        );
    }
    Ok(names)
}
