//! Files and folders that commands write in addition to their data.

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

/// The folder that holds a report and the journal of its run, or a journal alone.
#[derive(Clone, Copy)]
pub(super) struct ReportFolder<'a> {
    pub(super) path: &'a Path,
    /// True if a run that was ended early is continued.
    pub(super) resumes: bool,
}

impl ReportFolder<'_> {
    /// Opens the journal called `name`, which the run keeps in the folder until it has ended. If the run is continued,
    /// the journal takes over the records of its shards.
    pub(super) fn journal<Record: Serialize + DeserializeOwned>(
        self,
        name: &str,
        run: &Identity,
        console: Console,
    ) -> anyhow::Result<Journal<Record>> {
        if self.resumes && !self.path.join(name).exists() {
            // No journal is begun next to the shards of another run.
            self.shards(name)?.iter().try_for_each(|path| Journal::<Record>::resume(path, run).map(drop))?;
        }
        let open = if self.resumes { Journal::resume } else { Journal::create };
        let mut journal = open(&self.path.join(name), run)?;
        // The journal is locked, so no other run is writing here any more.
        if self.resumes {
            remove_leftovers(self.path).with_context(|| cannot_write(self.path))?;
            self.shards(name)?.iter().try_for_each(|path| journal.gather(path, run))?;
        }
        tell_journal(&journal, console);
        Ok(journal)
    }

    /// Runs a shard. `complete` adds the records of the shard to its journal, whose name begins with `name`. A note
    /// reports how many records are done; `what` is the word for them.
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

    /// Returns the paths of the journals of the run's shards.
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

    /// Returns the end of the message on an interrupted run: how to continue it.
    pub(super) fn go_on(self) -> String {
        format!("; --resume {} goes on", self.path.display())
    }
}

/// Reports a journal that is not locked, or that was written with several instruction sets.
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

/// Writes a file into the folder.
pub(super) fn write_into(
    folder: &Path,
    name: &str,
    write: impl FnOnce(&mut dyn Write) -> io::Result<()>,
) -> anyhow::Result<()> {
    let path = folder.join(name);
    write_file(&path, write).with_context(|| cannot_write(&path))
}

/// Returns the files called `name` in the subfolders of a folder, sorted by path. If there are none, returns the file
/// in the folder itself. The path of a file is returned as it is.
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

/// Makes the folder and checks that files can be written there, before anything is sampled.
pub(super) fn claim(folder: &Path) -> anyhow::Result<()> {
    fs::create_dir_all(folder).and_then(|()| tempfile::tempfile_in(folder)).with_context(|| cannot_write(folder))?;
    Ok(())
}

/// Checks that a file can be written, before anything takes long.
pub(super) fn claim_file(path: &Path) -> anyhow::Result<()> {
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    tempfile::tempfile_in(folder).with_context(|| cannot_write(path))?;
    Ok(())
}

pub(super) fn cannot_write(path: &Path) -> String {
    format!("cannot write {}", path.display())
}
