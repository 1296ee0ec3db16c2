//! The index of a checkpoint in several files: `{"weight_map": {"tensor": "file", …}}`.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Component, Path};

use super::{CheckpointError, Entry, header};

#[derive(serde::Deserialize)]
struct Index {
    weight_map: BTreeMap<String, String>,
}

/// The tensors that an index names, from the files beside it.
pub(super) fn entries(path: &Path) -> Result<Vec<Entry>, CheckpointError> {
    let bytes = fs::read(path).map_err(CheckpointError::io(path))?;
    let Index { weight_map } = serde_json::from_slice(&bytes)
        .map_err(|error| CheckpointError::format(path, "an index with a weight_map", &error))?;
    let folder = path.parent().unwrap_or(Path::new(""));
    let mut entries = Vec::new();
    for file in weight_map.values().collect::<BTreeSet<_>>() {
        let mut parts = Path::new(file).components();
        if !matches!((parts.next(), parts.next()), (Some(Component::Normal(_)), None)) {
            return Err(CheckpointError::format(path, "names of files beside the index", &format!("{file:?}")));
        }
        let here = |entry: &Entry| weight_map.get(&entry.name) == Some(file);
        entries.extend(header::entries(&folder.join(file))?.into_iter().filter(here));
    }
    let found: BTreeSet<&str> = entries.iter().map(|entry| entry.name.as_str()).collect();
    if let Some((name, file)) = weight_map.iter().find(|(name, _)| !found.contains(name.as_str())) {
        return Err(CheckpointError::tensor(
            path,
            name,
            format!("a tensor of {file}"),
            "none of this name there".to_owned(),
        ));
    }
    Ok(entries)
}
