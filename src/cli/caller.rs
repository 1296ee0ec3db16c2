//! A program that runs commands: it takes what they would print, sees how far they are, and may end them early.

use std::{
    ffi::OsString,
    iter,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
};

use indicatif::ProgressBar;
use rayon::ThreadPoolBuilder;

use super::{Invocation, Outcome, Refusal};

/// A program that runs commands.
#[derive(Debug, Default)]
pub struct Caller {
    taken: Mutex<Taken>,
    bar: Mutex<Option<ProgressBar>>,
    cancelled: Arc<AtomicBool>,
}

/// What a command wrote.
#[derive(Debug, Default)]
struct Taken {
    output: Vec<u8>,
    picture: Option<Vec<u8>>,
}

/// What came of a command.
#[derive(Debug)]
pub struct Reply {
    /// How it ended.
    pub outcome: Outcome,
    /// What it would have printed on standard output.
    pub output: Vec<u8>,
    /// What `--plot` draws, as SVG, of commands that have it; nothing needs to ask for it.
    pub picture: Option<Vec<u8>>,
}

impl Caller {
    /// Runs a command, without the name of the program in front. Neither the environment nor `sigprop.toml` is read, and
    /// nothing is said beside the data.
    ///
    /// # Errors
    ///
    /// What the command would say on standard error.
    pub fn run(&self, words: impl IntoIterator<Item = OsString>) -> Result<Reply, String> {
        let program = iter::once("sigprop".into());
        let words = program.chain(words).chain(["--isolated".into(), "--quiet".into()]).collect();
        let (cli, invocation) = Invocation::read(words).map_err(Refusal::text)?;
        let console = cli.console(&invocation).called_by(self);
        // Threads of its own: those that all share would be missing in a process forked from this one.
        let threads = ThreadPoolBuilder::new().build().map_err(|error| error.to_string())?;
        let outcome = threads.install(|| cli.run(console)).map_err(|error| format!("{error:#}"))?;
        let Taken { output, picture } = std::mem::take(&mut *self.taken());
        Ok(Reply { outcome, output, picture })
    }

    /// How much is done, of how much, once it is known.
    pub fn progress(&self) -> Option<(u64, u64)> {
        let bar = self.bar.lock().unwrap_or_else(PoisonError::into_inner);
        bar.as_ref().and_then(|bar| Some((bar.position(), bar.length()?)))
    }

    /// Ends what can be ended early, as Ctrl-C does.
    pub fn cancel(&self) {
        self.cancelled.store(true, Ordering::Relaxed);
    }

    pub(super) fn cancelled(&self) -> Arc<AtomicBool> {
        Arc::clone(&self.cancelled)
    }

    pub(super) fn watch(&self, bar: &ProgressBar) {
        *self.bar.lock().unwrap_or_else(PoisonError::into_inner) = Some(bar.clone());
    }

    pub(super) fn take(&self, output: &[u8]) {
        self.taken().output.extend_from_slice(output);
    }

    pub(super) fn take_picture(&self, picture: Vec<u8>) {
        self.taken().picture = Some(picture);
    }

    fn taken(&self) -> std::sync::MutexGuard<'_, Taken> {
        self.taken.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
