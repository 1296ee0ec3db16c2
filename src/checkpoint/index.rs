//! The index of a checkpoint in several files: `{"weight_map": {"tensor": "file", …}}`.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Component, Path};

use super::{CheckpointError, Entry, header};

#[derive(serde::Deserialize)]
struct Index {
    weight_map: BTreeMap<String, String>,
}

/// Returns the tensors that an index names, from the files next to it.
pub(super) fn entries(path: &Path) -> Result<Vec<Entry>, CheckpointError> {
    let bytes = fs::read(path).map_err(CheckpointError::io(path))?;
    let Index { weight_map } = serde_json::from_slice(&bytes)
        .map_err(|error| CheckpointError::format(path, "an index with a weight_map", &error))?;
    let folder = path.parent().unwrap_or(Path::new(""));
    let mut entries = Vec::new();
    let files: BTreeSet<&str> = weight_map.values().map(String::as_str).collect();
    for &file in &files {
        let mut parts = Path::new(file).components();
        if !matches!((parts.next(), parts.next()), (Some(Component::Normal(_)), None)) {
            return Err(CheckpointError::format(path, "names of files next to the index", &format!("{file:?}")));
        }
    }
    let (there, absent): (Vec<&str>, Vec<&str>) = files.iter().partition(|file| folder.join(file).is_file());
    if let [first, ..] = absent.as_slice() {
        return Err(absent_files(path, &weight_map, &absent, files.len(), first));
    }
    for file in there {
        let here = |entry: &Entry| weight_map.get(&entry.name).is_some_and(|place| place == file);
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

/// Returns the error for files that an index names but that do not exist.
fn absent_files(
    path: &Path,
    weight_map: &BTreeMap<String, String>,
    absent: &[&str],
    files: usize,
    first: &str,
) -> CheckpointError {
    let tensors = weight_map.values().filter(|file| absent.contains(&file.as_str())).count();
    let expected = format!("{first} next to the index, which lists {files} files with {} tensors", weight_map.len());
    let names = absent.join(", ");
    let hint = "download or copy the rest, or write the checkpoint again";
    let got = if absent.len() == files {
        format!("none of the files; {hint}")
    } else {
        format!(
            "no {names}: {} of {files} files with {tensors} of {} tensors are missing; {hint}",
            absent.len(),
            weight_map.len()
        )
    };
    CheckpointError::format(path, &expected, &got)
}
