//! Files and folders that are written beside the data.

use std::{
    fs,
    io::{self, Write},
    path::{Path, PathBuf},
};

use crate::report::{remove_leftovers, write_file};
use anyhow::Context;
use serde::{Serialize, de::DeserializeOwned};
use sigprop_validate::{Identity, Journal};

/// Where a report goes.
#[derive(Clone, Copy)]
pub(super) struct ReportFolder<'a> {
    pub(super) path: &'a Path,
    /// Whether a run that was ended early goes on.
    pub(super) resumes: bool,
}

impl ReportFolder<'_> {
    /// The journal called `name` that the run keeps in the folder until it has ended.
    pub(super) fn journal<Record: Serialize + DeserializeOwned>(
        self,
        name: &str,
        run: &Identity,
    ) -> anyhow::Result<Journal<Record>> {
        let open = if self.resumes { Journal::resume } else { Journal::create };
        let journal = open(&self.path.join(name), run)?;
        // The journal is locked, so that whoever was writing here has ended.
        if self.resumes {
            remove_leftovers(self.path).with_context(|| cannot_write(self.path))?;
        }
        Ok(journal)
    }

    /// What to say of a run that was interrupted.
    pub(super) fn go_on(self) -> String {
        format!("; --resume {} goes on", self.path.display())
    }
}

/// Writes a file of the folder.
pub(super) fn write_into(
    folder: &Path,
    name: &str,
    write: impl FnOnce(&mut dyn Write) -> io::Result<()>,
) -> anyhow::Result<()> {
    let path = folder.join(name);
    write_file(&path, write).with_context(|| cannot_write(&path))
}

/// What is called `name` in the folders of a folder, by their names; else in the folder itself. A file is itself.
pub(super) fn files_in(path: &Path, name: &str) -> anyhow::Result<Vec<PathBuf>> {
    let cannot_read = || format!("cannot read {}", path.display());
    if !fs::metadata(path).with_context(cannot_read)?.is_dir() {
        return Ok(vec![path.to_owned()]);
    }
    let entries = fs::read_dir(path).and_then(Iterator::collect::<io::Result<Vec<_>>>).with_context(cannot_read)?;
    let mut files: Vec<PathBuf> =
        entries.iter().map(|entry| entry.path().join(name)).filter(|file| file.is_file()).collect();
    files.sort();
    if files.is_empty() {
        files.push(path.join(name));
    }
    Ok(files)
}

/// Makes the folder and sees whether files can be written there, before anything is sampled.
pub(super) fn claim(folder: &Path) -> anyhow::Result<()> {
    fs::create_dir_all(folder).and_then(|()| tempfile::tempfile_in(folder)).with_context(|| cannot_write(folder))?;
    Ok(())
}

/// Sees whether a file can be written, before anything takes long.
pub(super) fn claim_file(path: &Path) -> anyhow::Result<()> {
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    tempfile::tempfile_in(folder).with_context(|| cannot_write(path))?;
    Ok(())
}

pub(super) fn cannot_write(path: &Path) -> String {
    format!("cannot write {}", path.display())
}
