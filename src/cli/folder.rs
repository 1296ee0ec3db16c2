//! Files and folders that are written beside the data.

use std::{
    fs,
    io::{self, Write},
    path::{Path, PathBuf},
};

use crate::report::{remove_leftovers, write_file};
use anyhow::Context;
use serde::{Serialize, de::DeserializeOwned};
use sigprop_validate::{Identity, Journal, Shard};

use super::console::Console;

/// Where a report goes.
#[derive(Clone, Copy)]
pub(super) struct ReportFolder<'a> {
    pub(super) path: &'a Path,
    /// Whether a run that was ended early goes on.
    pub(super) resumes: bool,
}

impl ReportFolder<'_> {
    /// The journal called `name` that the run keeps in the folder until it has ended, with what shards of a run that goes on
    /// have done.
    pub(super) fn journal<Record: Serialize + DeserializeOwned>(
        self,
        name: &str,
        run: &Identity,
    ) -> anyhow::Result<Journal<Record>> {
        if self.resumes && !self.path.join(name).exists() {
            // Nothing is begun beside the shards of another run.
            self.shards(name)?.iter().try_for_each(|path| Journal::<Record>::resume(path, run).map(drop))?;
        }
        let open = if self.resumes { Journal::resume } else { Journal::create };
        let mut journal = open(&self.path.join(name), run)?;
        // The journal is locked, so that whoever was writing here has ended.
        if self.resumes {
            remove_leftovers(self.path).with_context(|| cannot_write(self.path))?;
            self.shards(name)?.iter().try_for_each(|path| journal.gather(path, run))?;
        }
        Ok(journal)
    }

    /// The journal of a shard of that run.
    pub(super) fn journal_of_shard<Record: Serialize + DeserializeOwned>(
        self,
        (name, shard): (&str, Shard),
        run: &Identity,
    ) -> anyhow::Result<Journal<Record>> {
        Ok(Journal::resume(&self.path.join(format!("{name}.{shard}")), run)?)
    }

    /// The journals of the shards of a run.
    fn shards(self, name: &str) -> anyhow::Result<Vec<PathBuf>> {
        let entries = fs::read_dir(self.path).and_then(Iterator::collect::<io::Result<Vec<_>>>);
        let entries = entries.with_context(|| format!("cannot read {}", self.path.display()))?;
        let is_shard = |path: &PathBuf| {
            let of = path.file_name().and_then(|file| file.to_str()?.strip_prefix(name)?.strip_prefix('.'));
            of.is_some_and(|of| of.contains("-of-"))
        };
        let mut shards: Vec<PathBuf> = entries.iter().map(fs::DirEntry::path).filter(is_shard).collect();
        shards.sort();
        Ok(shards)
    }

    /// What to say of a run that was interrupted.
    pub(super) fn go_on(self) -> String {
        format!("; --resume {} goes on", self.path.display())
    }
}

/// Tells what of a journal is not as it should be.
pub(super) fn tell_journal<Record: Serialize + DeserializeOwned>(journal: &Journal<Record>, console: Console) {
    if !journal.is_locked() {
        console.note("the file system of the journal has no locks: let one run at a time write into it");
    }
    let instructions: Vec<&str> = journal.instructions().iter().map(String::as_str).collect();
    if instructions.len() > 1 {
        console.note(&format!(
            "networks were sampled with instructions of several kinds ({}): the last digits may differ from those of one machine",
            instructions.join(", ")
        ));
    }
}

/// What to say of a shard.
pub(super) fn shard_done((done, goal): (usize, usize), (what, shard): (&str, Shard), folder: &Path) -> String {
    let shard = shard.to_string().replace("-of-", "/");
    let next = if done < goal { "the same command goes on" } else { "without --shard all are gathered" };
    format!("shard {shard}: {done} of {goal} {what} are in {}; {next}", folder.display())
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
