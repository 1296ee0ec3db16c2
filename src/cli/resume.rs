//! `--resume` and `--shard` of commands that predict many networks one by one: the cells of a map, the schemes of a
//! comparison.
//!
//! A journal keeps the outcome of each network, by its index. For a network that does not exist it keeps only this
//! fact. The run that gathers finds the reason again, mostly at once, as nothing is predicted for it.

use std::{
    path::PathBuf,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
};

use crate::{assemble::AssembleError, schemes::SchemeError};
use clap::Args;
use rayon::prelude::*;
use serde::{Serialize, de::DeserializeOwned};
use sigprop_validate::{Identity, Journal, Progress, Shard};

use super::{
    Outcome,
    console::Console,
    folder::{ReportFolder, claim},
    parse,
    sampling::cancellation,
};

/// Runs that are continued after an interruption, and parts of runs.
#[derive(Args, Debug)]
#[command(next_help_heading = "Output")]
pub(crate) struct ResumeArguments {
    /// Keep every prediction in a journal in this folder until all are done. After Ctrl-C, a kill or a power failure
    /// the same command continues from there, and its output is the same as without the interruption.
    #[arg(long, value_name = "DIR")]
    resume: Option<PathBuf>,

    /// Predict one part alone (`2/4` is the second of four) into a journal of its own in the folder of --resume, on any
    /// machine that sees it. The same command without --shard takes over the results of all parts, predicts the missing
    /// ones, and writes the same output as one machine would have written.
    #[arg(long, value_name = "I/N", requires = "resume", value_parser = parse::shard, allow_negative_numbers = true)]
    shard: Option<Shard>,
}

/// The networks to predict.
pub(super) struct Items {
    /// The word for the items in messages, in the plural: `schemes` or `cells`.
    pub(super) what: &'static str,
    pub(super) count: usize,
    /// The settings that determine the result of the run.
    pub(super) run: Identity,
}

/// The prediction of an item, or the reason why this item has no network. The outer error means that no item has a
/// network.
type Predicted<Record> = Result<Result<Record, SchemeError>, AssembleError>;

impl ResumeArguments {
    /// Predicts all items and calls `finish` with them in their order. For a shard it predicts only the items of the
    /// shard.
    pub(super) fn run<Record: Clone + Send + Serialize + DeserializeOwned>(
        &self,
        items: &Items,
        predict: &(dyn Fn(usize) -> Predicted<Record> + Sync),
        console: Console,
        finish: impl FnOnce(Vec<Result<Record, SchemeError>>, &AtomicBool) -> anyhow::Result<Outcome>,
    ) -> anyhow::Result<Outcome> {
        let folder = self.resume.as_deref().map(|path| ReportFolder { path, resumes: true });
        let name = format!("{}.journal", items.what);
        if let (Some(shard), Some(folder)) = (self.shard, folder) {
            return folder.run_shard((&name, items.what), shard, &items.run, console, |journal| {
                let (lacking, held) = journal.lacking(shard, items.count);
                let goal = held + lacking.len();
                let found = items.predicted(lacking, Some(journal), predict, &cancellation(console), console)?;
                Ok(Progress { done: held + found.len(), goal })
            });
        }
        folder.map_or(Ok(()), |folder| claim(folder.path))?;
        let journal = folder.map(|folder| folder.journal::<Option<Record>>(&name, &items.run, console));
        let mut journal = journal.transpose()?;
        // Without a journal Ctrl-C ends the process, which has nothing to keep.
        let cancelled = if journal.is_some() { cancellation(console) } else { Arc::default() };
        let held = |index| journal.as_mut().and_then(|journal| journal.take(index)).flatten().map(Ok);
        let mut outcomes: Vec<Option<Result<Record, SchemeError>>> = (0..items.count).map(held).collect();
        let lacking = (0..items.count).filter(|&index| outcomes[index].is_none()).collect();
        for (index, outcome) in items.predicted(lacking, journal.as_mut(), predict, &cancelled, console)? {
            outcomes[index] = Some(outcome);
        }
        let done = outcomes.iter().flatten().count();
        let outcome = match outcomes.into_iter().collect() {
            Some(outcomes) => finish(outcomes, &cancelled)?,
            None => Outcome::Interrupted,
        };
        if let (Outcome::Interrupted, Some(folder)) = (outcome, folder) {
            console.note(&format!("interrupted after {done} of {} {}{}", items.count, items.what, folder.go_on()));
        } else if let Some(journal) = journal {
            journal.remove()?;
        }
        Ok(outcome)
    }
}

impl Items {
    /// Predicts the items with these indices and keeps each in the journal. After an interruption only the items under
    /// way are completed.
    fn predicted<Record: Clone + Send + Serialize + DeserializeOwned>(
        &self,
        indices: Vec<usize>,
        journal: Option<&mut Journal<Option<Record>>>,
        predict: &(dyn Fn(usize) -> Predicted<Record> + Sync),
        cancelled: &AtomicBool,
        console: Console,
    ) -> anyhow::Result<Vec<(usize, Result<Record, SchemeError>)>> {
        let held = journal.as_ref().map_or(0, |journal| journal.len());
        let bar = format!("[{{bar:40}}] {{pos}}/{{len}} {}, {{eta}} left", self.what);
        let bar = console.progress(&bar, held + indices.len(), held);
        let journal = journal.map(Mutex::new);
        let one = |index| {
            if cancelled.load(Ordering::Relaxed) {
                return Ok(None);
            }
            let outcome = predict(index)?;
            if let Some(journal) = &journal {
                let mut journal = journal.lock().unwrap_or_else(PoisonError::into_inner);
                // There is no use in predicting items that cannot be kept.
                let kept = journal.append(index, &outcome.as_ref().ok().cloned());
                kept.inspect_err(|_| cancelled.store(true, Ordering::Relaxed))?;
            }
            bar.inc(1);
            Ok(Some((index, outcome)))
        };
        let found: Vec<anyhow::Result<Option<_>>> = indices.into_par_iter().map(one).collect();
        bar.finish_and_clear();
        // The first error in the order of the items, whichever thread met another one before.
        found.into_iter().filter_map(Result::transpose).collect()
    }
}
