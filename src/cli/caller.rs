//! Runs commands for another program, which receives their output, follows their progress and may end them early.

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

/// Runs commands for another program, such as the Python package.
#[derive(Debug, Default)]
pub struct Caller {
    taken: Mutex<Taken>,
    bar: Mutex<Option<ProgressBar>>,
    cancelled: Arc<AtomicBool>,
}

/// The output of a command.
#[derive(Debug, Default)]
struct Taken {
    output: Vec<u8>,
    picture: Option<Vec<u8>>,
}

/// The result of a command.
#[derive(Debug)]
pub struct Reply {
    /// How the command ended.
    pub outcome: Outcome,
    /// The bytes that the command would have printed on standard output.
    pub output: Vec<u8>,
    /// The picture that `--plot` draws, as SVG, if the command has this flag. It is drawn without the flag too.
    pub picture: Option<Vec<u8>>,
}

impl Caller {
    /// Runs a command, given without the name of the program. Neither the environment nor `sigprop.toml` is read, and
    /// nothing but the data is output.
    ///
    /// # Errors
    ///
    /// Returns the message that the command would have written to standard error.
    pub fn run(&self, words: impl IntoIterator<Item = OsString>) -> Result<Reply, String> {
        let program = iter::once("sigprop".into());
        let words = program.chain(words).chain(["--isolated".into(), "--quiet".into()]).collect();
        let (cli, invocation) = Invocation::read(words).map_err(Refusal::text)?;
        let console = cli.console(&invocation).called_by(self);
        // A pool of its own: the threads of the global pool would be missing in a process forked from this one.
        let threads = ThreadPoolBuilder::new().build().map_err(|error| error.to_string())?;
        let outcome = threads.install(|| cli.run(console)).map_err(|error| format!("{error:#}"))?;
        let Taken { output, picture } = std::mem::take(&mut *self.taken());
        Ok(Reply { outcome, output, picture })
    }

    /// Returns how much is done and the total, once the total is known.
    pub fn progress(&self) -> Option<(u64, u64)> {
        let bar = self.bar.lock().unwrap_or_else(PoisonError::into_inner);
        bar.as_ref().and_then(|bar| Some((bar.position(), bar.length()?)))
    }

    /// Ends the running command early, as Ctrl-C does, if it can be ended early.
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
