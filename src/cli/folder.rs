//! Files and folders that are written beside the data.

use std::{
    fs,
    io::{self, Write},
    path::{Path, PathBuf},
};

use crate::report::{remove_leftovers, write_file};
use anyhow::Context;
use serde::{Serialize, de::DeserializeOwned};
use sigprop_validate::{Identity, Journal, Progress, Shard};

use super::{Outcome, console::Console};

/// Where a report and the journal of its run go, or a journal alone.
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
        console: Console,
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
        tell_journal(&journal, console);
        Ok(journal)
    }

    /// A shard of that run, whose records, called `what`, `complete` adds to a journal of its own; says how far it came.
    pub(super) fn run_shard<Record: Serialize + DeserializeOwned>(
        self,
        (name, what): (&str, &str),
        shard: Shard,
        run: &Identity,
        console: Console,
        complete: impl FnOnce(&mut Journal<Record>) -> anyhow::Result<Progress>,
    ) -> anyhow::Result<Outcome> {
        claim(self.path)?;
        let mut journal = Journal::resume(&self.path.join(format!("{name}.{shard}")), run)?;
        tell_journal(&journal, console);
        let Progress { done, goal } = complete(&mut journal)?;
        let part = shard.to_string().replace("-of-", "/");
        let (outcome, next) = if done < goal {
            (Outcome::Interrupted, "the same command goes on")
        } else {
            (Outcome::Done, "without --shard all are gathered")
        };
        console.note(&format!("shard {part}: {done} of {goal} {what} are in {}; {next}", self.path.display()));
        Ok(outcome)
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
fn tell_journal<Record: Serialize + DeserializeOwned>(journal: &Journal<Record>, console: Console) {
    if !journal.is_locked() {
        console.note("the file system of the journal has no locks: let one run at a time write into it");
    }
    let instructions: Vec<&str> = journal.instructions().iter().map(String::as_str).collect();
    if instructions.len() > 1 {
        console.note(&format!(
            "the journals were written with instructions of several kinds ({}): the last digits may differ from those of one machine",
            instructions.join(", ")
        ));
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
