//! The subject of an inspection: a checkpoint, an adapter alone, or an adapter added to its base model.

use std::path::{Path, PathBuf};

use crate::{checkpoint::Checkpoint, inspect::Adapter};
use anyhow::bail;

/// The tensors to be measured, and notes on their files.
pub(super) struct Subject {
    pub(super) checkpoint: Checkpoint,
    /// The adapter, if it is inspected without its base model; else `None`.
    pub(super) adapter: Option<Adapter>,
    /// Facts about the files, a sentence each.
    pub(super) notes: Vec<String>,
}

impl Subject {
    /// Opens a checkpoint. An adapter is added to the base model next to `config`, if that is named.
    pub(super) fn open(path: &Path, config: Option<&str>) -> anyhow::Result<Self> {
        let checkpoint = Checkpoint::open(path)?;
        let Some(adapter) = Adapter::of(&checkpoint)? else {
            let notes = notes(&checkpoint);
            return Ok(Self { checkpoint, adapter: None, notes });
        };
        let mut notes = vec![adapter.description()];
        let Some(config) = config else { return Ok(Self { checkpoint, adapter: Some(adapter), notes }) };
        let mut base = base(config, path)?;
        adapter.merge_into(&mut base)?;
        notes.push(format!("Inspected is the sum W + scaling · B A, with W of {}.", base.path.display()));
        notes.extend(self::notes(&base));
        Ok(Self { checkpoint: base, adapter: None, notes })
    }
}

/// Opens the checkpoint next to the config of a base model.
fn base(config: &str, adapter: &Path) -> anyhow::Result<Checkpoint> {
    let path = Path::new(config);
    let folder = if path.is_file() { path.parent().map(Path::to_owned) } else { None };
    let folder = folder.map(|folder| if folder.as_os_str().is_empty() { PathBuf::from(".") } else { folder });
    let Some(folder) = folder else {
        bail!(
            "--config {config}: {} is an adapter: expected the config.json in the folder of its base model, whose weights \
             it is added to, got no file; without --config the adapter is inspected alone",
            adapter.display()
        );
    };
    Checkpoint::open(&folder).map_err(|error| {
        anyhow::Error::new(error).context(format!(
            "--config {config}: expected the checkpoint of the base model, which the adapter is added to, next to the \
             config; without --config the adapter is inspected alone"
        ))
    })
}

/// Returns facts about the files of a checkpoint, a sentence each.
fn notes(checkpoint: &Checkpoint) -> Vec<String> {
    let mut notes = Vec::new();
    if let Some(other) = &checkpoint.other {
        let name = |path: &Path| path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        notes.push(format!(
            "Read is {}, as transformers does; {} next to it is not. One of them may be left from another run: name \
             the index to inspect its files.",
            name(&checkpoint.path),
            name(other)
        ));
    }
    let scaled = checkpoint.scaled();
    if scaled > 0 {
        notes.push(format!("{scaled} tensors of eight bits are multiplied by their scales."));
    }
    notes
}
